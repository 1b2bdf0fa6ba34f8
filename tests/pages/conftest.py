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


@pytest.fixture
def page(app):
    """Page 3, with the default sentence."""
    app.run()
    app.switch_page("pages/3_Predicting_mask.py").run()
    assert not app.exception
    return app
