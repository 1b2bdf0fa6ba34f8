from core import session
from core.history import losses, pretraining_history, recorded_pretraining
from core.models import load_model
from core.runs import State
from core.training import StepDone
from tests.pages.conftest import figures, fresh, open_page, press, said, train

PAGE = "4_Pretraining_loss"


def test_the_last_step_is_on_show_first(app):
    open_page(app, PAGE)
    last = recorded_pretraining().figures.iloc[-1]
    assert figures(app)["Held-out loss"] == f"{last['held_out_loss']:.3f}"
    assert figures(app)["Held-out top-1"] == f"{last['accuracy']:.1%}"


def test_the_slider_goes_back_to_before_training(app):
    open_page(app, PAGE)
    app.select_slider(key="p4_step").set_value(0).run()
    assert figures(app)["Train loss"] == "not yet"
    table = app.dataframe[0].value
    assert len(table) == 16
    probes = recorded_pretraining().probes
    first = probes[(probes["step"] == 0) & (probes["rank"] == 1)].iloc[0]
    assert first["token"] in table["1"].iloc[0]


def test_the_address_gives_the_step(app):
    step = recorded_pretraining().steps[1]
    open_page(app, PAGE, p4_step=str(step))
    assert app.select_slider(key="p4_step").value == step


def test_play_starts_at_the_beginning_and_can_be_paused(app):
    open_page(app, PAGE)
    next(b for b in app.button if b.label == "Play").click().run()
    assert not app.exception
    assert app.session_state["p4_playing"]
    next(b for b in app.button if b.label == "Pause").click().run()
    assert not app.session_state["p4_playing"]


def open_form(app, **parameters):
    return open_page(app, PAGE, p4_view="Train now", p4_budget="5", p4_epochs="1", **parameters)


def test_training_from_scratch_with_before_and_after(app):
    run = train(open_form(app, p4_scratch="true"), "Train", "p4_run")
    assert run.state is State.DONE
    assert losses(run.records)["step"].tolist() == list(range(1, run.steps + 1))
    figures = pretraining_history(run.records).figures
    assert figures["step"].tolist() == [0, run.steps]
    assert figures["held_out_loss"].iloc[1] < figures["held_out_loss"].iloc[0]
    assert app.dataframe[0].value["Held-out loss"].tolist() == [
        round(loss, 4) for loss in figures["held_out_loss"]
    ]
    assert {"**Before**", "**After**"} <= {element.value for element in app.markdown}
    assert load_model(run.result).info.layers == 2


def test_the_loaded_model_is_not_changed_by_training(app, embedded):
    before = embedded.weights_hash
    run = train(open_form(app, p4_learning_rate="0.001"), "Train", "p4_run")
    loaded = session.load("embedded")
    del loaded.__dict__["weights_hash"]  # computed anew
    assert loaded.weights_hash == before
    assert not loaded.model.training
    assert load_model(run.result).weights_hash != before


def test_a_run_is_found_again_by_its_address(app):
    run = train(open_form(app, p4_scratch="true"), "Train", "p4_run")
    other = open_page(fresh(), PAGE, p4_view="Train now", p4_run=run.id)
    assert f"Trained here in {run.seconds:,.0f} s" in said(other)
    gone = open_page(fresh(), PAGE, p4_view="Train now", p4_run="0" * 32)
    assert "not on this server" in said(gone)


def test_a_run_survives_a_page_change_and_can_be_stopped(app):
    open_form(app, p4_scratch="true")
    app.slider(key="p4_epochs").set_value(30).run()
    press(app, "Train")
    run_id = app.session_state["p4_run"]
    app.switch_page("pages/0_Home.py").run()
    app.switch_page(f"pages/{PAGE}.py").run()
    assert app.query_params["p4_run"] == run_id
    session.runs().stop(run_id)
    while not session.runs().get(run_id).state.over:
        pass
    run = session.runs().get(run_id)
    assert run.state is State.STOPPED
    assert run.step < run.steps
    assert run.result is not None


def test_text_of_ones_own(app):
    open_page(
        app, PAGE, p4_view="Train now", p4_source="Your own", p4_scratch="true", p4_epochs="1"
    )
    press(app, "Train")
    assert any("text is empty" in error.value.replace("\\", "") for error in app.error)
    text = "\n\n".join(f"The cat number {n} sat on the mat and slept." for n in range(30))
    app.text_area(key="p4_text").set_value(text).run()
    assert train(app, "Train", "p4_run").state is State.DONE


def test_next_sentence_prediction_and_static_masks(app):
    open_form(app, p4_scratch="true", p4_nsp="true", p4_static="true")
    app.slider(key="p4_budget").set_value(20).run()
    run = train(app, "Train", "p4_run")
    assert run.state is State.DONE
    figures = pretraining_history(run.records).figures
    assert app.dataframe[0].value["Next-sentence loss"].tolist() == [
        round(loss, 4) for loss in figures["pair_loss"]
    ]
    assert "static · next-sentence prediction" in said(app)


def test_the_code_of_a_run_gives_the_same_run(app, embedded):
    run = train(open_form(app, p4_scratch="true"), "Train", "p4_run")
    code = next(block.value for block in app.code if "pretrain(start" in block.value)
    *lines, last = code.splitlines()
    names = {}
    exec("\n".join(lines), names)
    events = eval(last, names)
    told = [event.loss for event in events if isinstance(event, StepDone)]
    assert told == losses(run.records)["loss"].tolist()
