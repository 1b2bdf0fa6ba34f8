import pytest

from core import session
from core.datasets import reviews
from core.finetuning import classify, epochs_in
from core.history import losses, recorded_finetuning
from core.runs import State
from core.training import StepDone
from tests.pages.conftest import figures, fresh, open_page, press, said, train

PAGE = "5_Finetuning"


def open_form(app, **parameters):
    return open_page(app, PAGE, p5_view="Train now", **parameters)


@pytest.fixture
def few(monkeypatch):
    """Twenty reviews of each label."""
    rows = reviews().groupby("label").head(20).reset_index(drop=True)
    monkeypatch.setattr("core.datasets.reviews", lambda: rows)


def test_the_recorded_run_is_on_show_first(app):
    open_page(app, PAGE)
    last = epochs_in(recorded_finetuning().records)[-1]
    assert figures(app)["Accuracy"] == f"{last.accuracy:.1%}"
    assert figures(app)["Majority baseline"] == "50.0%"


def test_the_built_in_reviews_are_described(app):
    open_form(app)
    rows = reviews()
    assert f"{len(rows)} rows, 2 labels" in said(app)
    assert f"positive: {(rows['label'] == 'positive').sum()}" in said(app)


def test_a_run_with_its_epochs_mistakes_and_baseline(app, few):
    open_form(app, p5_epochs="2")
    run = train(app, "Fine-tune", "p5_run")
    epochs = epochs_in(run.records)
    assert [epoch.number for epoch in epochs] == [0, 1, 2]
    assert figures(app)["Majority baseline"] == "50.0%"
    assert figures(app)["Accuracy"] == f"{epochs[-1].accuracy:.1%}"
    app.slider(key=f"p5_epoch_{run.id}").set_value(0).run()
    assert figures(app)["Accuracy"] == f"{epochs[0].accuracy:.1%}"
    wrong = round((1 - epochs[0].accuracy) * 10)
    assert any(f"{wrong} of 10 held-out rows" in element.value for element in app.markdown)
    app.text_input(key="p5_text").set_value("A dull evening.").run()
    assert not app.exception


def test_the_saved_classifier_gives_what_was_measured(app, few):
    run = train(open_form(app, p5_epochs="1"), "Fine-tune", "p5_run")
    made = session.load_trained_classifier(str(run.result))
    last = epochs_in(run.records)[-1]
    found = classify(made, run.about["test"]["text"])["probability"].to_numpy()
    assert found == pytest.approx(last.confidence, abs=1e-5)


def test_a_table_is_labelled(app, few):
    train(open_form(app, p5_epochs="1"), "Fine-tune", "p5_run")
    uploader = next(u for u in app.file_uploader if u.label == "Or a table to be labelled")
    uploader.upload("new.csv", b"text\n=1+1 was dull\nI loved it\n", "text/csv").run()
    press(app, "Classify 2 rows")
    assert "2 of 2 rows are labelled" in said(app)
    assert app.dataframe[-1].value["text"].tolist() == ["=1+1 was dull", "I loved it"]


def test_an_upload_is_awaited(app):
    open_form(app, p5_source="Your own table")
    assert "Choose a file" in said(app)


def test_an_upload_is_read_checked_learned_and_kept(app):
    open_form(app, p5_source="Your own table")
    rows = "\n".join(f"good thing {n};yes\nbad thing {n};no" for n in range(6))
    app.file_uploader[0].upload("mine.csv", f"text;label\n{rows}\n;no\n".encode(), "text/csv").run()
    assert not app.exception
    assert "separated by a semicolon" in said(app)
    assert "1 rows have no text and were left out: row 13" in said(app)
    run = train(app, "Fine-tune", "p5_run")
    assert run.state is State.DONE
    app.switch_page("pages/0_Home.py").run()
    app.switch_page(f"pages/{PAGE}.py").run()
    assert "separated by a semicolon" in said(app)


def test_one_label_is_refused_before_training(app):
    open_form(app, p5_source="Your own table")
    app.file_uploader[0].upload("mine.csv", b"text,label\na,ok\nb,ok\n", "text/csv").run()
    assert "two labels at least" in said(app)
    assert not app.exception


def test_two_visitors_train_one_after_the_other(app, few):
    first, second = open_form(app, p5_epochs="20"), open_form(fresh(), p5_epochs="1")
    press(first, "Fine-tune")
    press(second, "Fine-tune")
    ids = [visitor.session_state["p5_run"] for visitor in (first, second)]
    assert ids[0] != ids[1]
    assert session.runs().get(ids[1]).state is State.QUEUED
    assert second.button(key="p5_run_stop").label == "Stop"
    first.button(key="p5_run_stop").click().run()
    while not session.runs().get(ids[1]).state.over:
        pass
    assert session.runs().get(ids[0]).state is State.STOPPED
    assert session.runs().get(ids[1]).state is State.DONE


def test_many_labels_get_a_table_in_place_of_the_matrix(app):
    open_form(app, p5_source="Your own table", p5_epochs="1")
    rows = "\n".join(f"text number {n} of kind {n % 30},k{n % 30}" for n in range(90))
    app.file_uploader[0].upload("many.csv", f"text,label\n{rows}".encode(), "text/csv").run()
    assert train(app, "Fine-tune", "p5_run").state is State.DONE
    assert "30 labels are too many for a matrix" in said(app)


def test_a_test_file_of_ones_own(app):
    open_form(app, p5_source="Your own table", p5_epochs="1")
    rows = "\n".join(f"good thing {n},yes\nbad thing {n},no" for n in range(6))
    app.file_uploader[0].upload("mine.csv", f"text,label\n{rows}".encode(), "text/csv").run()
    test = b"text,label\ngood thing 1,yes\nbad thing 99,no\n"
    app.file_uploader[1].upload("test.csv", test, "text/csv").run()
    assert "1 texts are in the test rows too" in said(app)
    run = train(app, "Fine-tune", "p5_run")
    assert run.about["test"]["text"] == ["good thing 1", "bad thing 99"]
    assert run.about["train_rows"] == 11


def test_a_hub_data_set_without_a_network(app, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    open_form(app, p5_source="Hub data set", p5_hub="owner/set")
    assert "owner/set is not on this machine, and the hub can't be reached" in said(app)


def test_the_code_of_a_run_gives_the_same_run(app, few):
    run = train(open_form(app, p5_epochs="1"), "Fine-tune", "p5_run")
    code = next(block.value for block in app.code if "finetune(m" in block.value)
    *lines, last = code.splitlines()
    names = {}
    exec("\n".join(lines), names)
    told = [event.loss for event in eval(last, names) if isinstance(event, StepDone)]
    assert told == losses(run.records)["loss"].tolist()
