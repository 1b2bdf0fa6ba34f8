"""Cloze: a live laboratory for BERT and masked language models. Start with `make run`.

The server imports this file once, as it starts, and finds an app that warms up before the first
visitor comes; each visitor's run then executes it as a script.
"""

import contextlib
from collections.abc import AsyncIterator

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx


@contextlib.asynccontextmanager
async def warm_up(_: object) -> AsyncIterator[None]:
    """Load the embedded model before the server answers, so that no visitor waits for it.

    Importing torch and transformers takes longer than all the rest. Done while a first visitor
    waits it would compete with the page that is being sent, and take twice as long.
    """
    from core import session

    session.warm_up()
    yield


if get_script_run_ctx(suppress_warning=True) is None:
    app = st.App(__file__, lifespan=warm_up)
else:
    from core.session import run_app

    run_app()
