from core.datasets import reviews
from tests.pages.conftest import figures, open_page, said

PAGE = "5_Finetuning"


def start(app):
    next(b for b in app.button if b.label == "Fine-tune").click().run(timeout=120)
    assert not app.exception
    return app


def test_the_built_in_reviews_are_described(app):
    open_page(app, PAGE)
    assert "402 rows, 2 labels" in said(app)
    assert "positive: 201" in said(app)


def test_a_run_with_its_epochs_mistakes_and_baseline(app, monkeypatch):
    small = reviews().groupby("label").head(20).reset_index(drop=True)
    monkeypatch.setattr("core.datasets.reviews", lambda: small)
    open_page(app, PAGE, p5_epochs="2")
    start(app)
    run = app.session_state["p5_run"]
    assert [epoch.number for epoch in run.measured] == [0, 1, 2]
    shown = figures(app)
    assert shown["Majority baseline"] == "50.0%"
    assert shown["Accuracy"] == f"{run.measured[-1].accuracy:.1%}"
    app.slider(key="p5_epoch").set_value(0).run()
    assert figures(app)["Accuracy"] == f"{run.measured[0].accuracy:.1%}"
    wrong = round((1 - run.measured[-1].accuracy) * 10)
    assert any(f"{wrong} of 10 held-out rows" in element.value for element in app.markdown)
    app.text_input(key="p5_text").set_value("A dull evening.").run()
    assert not app.exception


def test_an_upload_is_awaited(app):
    open_page(app, PAGE, p5_source="Your own table")
    assert "Choose a file" in said(app)


def test_an_upload_is_read_checked_and_learned(app):
    open_page(app, PAGE, p5_source="Your own table")
    rows = "\n".join(f"good thing {n};yes\nbad thing {n};no" for n in range(6))
    app.file_uploader[0].upload("mine.csv", f"text;label\n{rows}\n;no\n".encode(), "text/csv").run()
    assert not app.exception
    assert "separated by a semicolon" in said(app)
    assert "1 rows have no text and were left out: row 13" in said(app)
    start(app)
    assert app.session_state["p5_run"].result is not None


def test_one_label_is_refused_before_training(app):
    open_page(app, PAGE, p5_source="Your own table")
    app.file_uploader[0].upload("mine.csv", b"text,label\na,ok\nb,ok\n", "text/csv").run()
    assert "two labels at least" in said(app)
    assert not app.exception
