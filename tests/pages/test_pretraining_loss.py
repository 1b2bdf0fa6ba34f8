from core.models import wrap
from core.runs import recorded_run
from tests.pages.conftest import figures, open_page

PAGE = "4_Pretraining_loss"


def test_the_last_step_is_on_show_first(app):
    open_page(app, PAGE)
    last = recorded_run().history.iloc[-1]
    assert figures(app)["Held-out loss"] == f"{last['held_out_loss']:.3f}"
    assert figures(app)["Held-out top-1"] == f"{last['accuracy']:.1%}"


def test_the_slider_goes_back_to_before_training(app):
    open_page(app, PAGE)
    app.select_slider(key="p4_step").set_value(0).run()
    assert figures(app)["Train loss"] == "not yet"
    table = app.dataframe[0].value
    assert len(table) == 16
    probes = recorded_run().probes
    first = probes[(probes["step"] == 0) & (probes["rank"] == 1)].iloc[0]
    assert first["token"] in table["1"].iloc[0]


def test_the_address_gives_the_step(app):
    step = recorded_run().steps[1]
    open_page(app, PAGE, p4_step=str(step))
    assert app.select_slider(key="p4_step").value == step


def test_play_starts_at_the_beginning_and_can_be_paused(app):
    open_page(app, PAGE)
    next(b for b in app.button if b.label == "Play").click().run()
    assert not app.exception
    assert app.session_state["p4_playing"]
    next(b for b in app.button if b.label == "Pause").click().run()
    assert not app.session_state["p4_playing"]


def train(app, **parameters):
    open_page(app, PAGE, p4_view="Train now", p4_budget="5", p4_epochs="1", **parameters)
    next(b for b in app.button if b.label == "Train").click().run(timeout=120)
    assert not app.exception
    return app


def test_training_from_scratch_is_live_and_shows_before_and_after(app):
    train(app, p4_scratch="true")
    run = app.session_state["p4_run"]
    assert run.result is not None
    assert [step for step, _ in run.losses] == list(range(1, run.steps + 1))
    assert [event.step for event in run.measured] == [0, run.steps]
    first, last = (event.result.held_out.loss for event in run.measured)
    assert last < first
    assert {"**Before**", "**After**"} <= {element.value for element in app.markdown}


def test_the_loaded_model_is_not_changed_by_training(app, embedded):
    before = embedded.weights_hash
    train(app, p4_learning_rate="0.001")
    start = app.session_state["p4_start"]
    assert start.weights_hash == before
    assert not start.model.training
    trained = wrap(app.session_state["p4_run"].result.model, start.tokenizer, name="trained")
    assert trained.weights_hash != before


def test_text_of_ones_own(app):
    open_page(
        app, PAGE, p4_view="Train now", p4_source="Your own", p4_scratch="true", p4_epochs="1"
    )
    next(b for b in app.button if b.label == "Train").click().run()
    assert not app.exception
    assert any("text is empty" in error.value.replace("\\", "") for error in app.error)
    text = "\n\n".join(f"The cat number {n} sat on the mat and slept." for n in range(30))
    app.text_area(key="p4_text").set_value(text).run()
    next(b for b in app.button if b.label == "Train").click().run(timeout=120)
    assert not app.exception
    assert app.session_state["p4_run"].result is not None
