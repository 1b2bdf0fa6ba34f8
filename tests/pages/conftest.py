import time
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from core import session

ENTRY = str(Path(__file__).parents[2] / "streamlit_app.py")


@pytest.fixture
def app(tmp_path, monkeypatch):
    """The app as a visitor first sees it, at Home, with background runs of its own."""
    monkeypatch.setenv("CLOZE_RUNS", str(tmp_path / "runs"))
    session.runs.clear()
    st.cache_data.clear()
    return fresh()


def fresh():
    """The app as another visitor opens it."""
    return AppTest.from_file(ENTRY, default_timeout=60)


def open_page(app, page, **parameters):
    """Open a page of the app with parameters in its address."""
    for name, value in parameters.items():
        app.query_params[name] = value
    app.run()
    app.switch_page(f"pages/{page}.py").run()
    assert not app.exception
    return app


def press(app, label):
    """Press the button with a label."""
    next(button for button in app.button if button.label == label).click().run(timeout=120)
    assert not app.exception
    return app


def train(app, button, key):
    """Start a run, wait for its end, and look at the page again; gives the run."""
    press(app, button)
    run_id = app.session_state[key]
    assert app.query_params[key] == run_id
    end = time.monotonic() + 100
    while not session.runs().get(run_id).state.over:
        assert time.monotonic() < end
        time.sleep(0.02)
    app.run(timeout=60)
    assert not app.exception
    return session.runs().get(run_id)


def figures(app):
    """Values of all metrics on the page by their labels, without escapes."""
    return {m.label.replace("\\", ""): m.value.replace("\\", "") for m in app.metric}


def said(app):
    """All that the page says in errors, notes and captions, without escapes."""
    elements = [*app.error, *app.warning, *app.info, *app.caption]
    return " ".join(element.value for element in elements).replace("\\", "")
