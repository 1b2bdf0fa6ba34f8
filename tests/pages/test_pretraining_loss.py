from core.runs import recorded_run


def open_page(app, **parameters):
    for name, value in parameters.items():
        app.query_params[name] = value
    app.run()
    app.switch_page("pages/4_Pretraining_loss.py").run()
    assert not app.exception
    return app


def figures(app):
    return {metric.label: metric.value for metric in app.metric}


def test_the_last_step_is_on_show_first(app):
    open_page(app)
    last = recorded_run().history.iloc[-1]
    assert figures(app)["Held-out loss"] == f"{last['held_out_loss']:.3f}"
    assert figures(app)["Held-out top-1"] == f"{last['accuracy']:.1%}"


def test_the_slider_goes_back_to_before_training(app):
    open_page(app)
    app.select_slider(key="p4_step").set_value(0).run()
    assert figures(app)["Train loss"] == "not yet"
    table = app.dataframe[0].value
    assert len(table) == 16
    probes = recorded_run().probes
    first = probes[(probes["step"] == 0) & (probes["rank"] == 1)].iloc[0]
    assert first["token"] in table["1"].iloc[0]


def test_the_address_gives_the_step(app):
    step = recorded_run().steps[1]
    open_page(app, p4_step=str(step))
    assert app.select_slider(key="p4_step").value == step


def test_play_starts_at_the_beginning_and_can_be_paused(app):
    open_page(app)
    next(b for b in app.button if b.label == "Play").click().run()
    assert not app.exception
    assert app.session_state["p4_playing"]
    next(b for b in app.button if b.label == "Pause").click().run()
    assert not app.session_state["p4_playing"]
