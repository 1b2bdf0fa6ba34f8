from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

ENTRY = str(Path(__file__).parents[2] / "streamlit_app.py")


@pytest.fixture
def app():
    """The app as a visitor first sees it, at Home."""
    st.cache_data.clear()
    return AppTest.from_file(ENTRY, default_timeout=60)


def open_page(app, page, **parameters):
    """Open a page of the app with parameters in its address."""
    for name, value in parameters.items():
        app.query_params[name] = value
    app.run()
    app.switch_page(f"pages/{page}.py").run()
    assert not app.exception
    return app


def figures(app):
    """Values of all metrics on the page by their labels, without escapes."""
    return {m.label.replace("\\", ""): m.value.replace("\\", "") for m in app.metric}


def said(app):
    """All that the page says in errors, notes and captions, without escapes."""
    elements = [*app.error, *app.info, *app.caption]
    return " ".join(element.value for element in elements).replace("\\", "")
