"""Cloze: a live laboratory for BERT and masked language models. Start with `make run`.

The server imports this file once, as it starts, and finds an app that warms up before the first
visitor comes; each visitor's run then executes it as a script.
"""

import contextlib
import threading
from collections.abc import AsyncIterator

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx


@contextlib.asynccontextmanager
async def warm_up(_: object) -> AsyncIterator[None]:
    """Import torch and transformers and read the weights while no one waits for them yet.

    That is most of the time until a first page is whole. It goes through `core.models` alone, since
    a thread of our own must not touch Streamlit; the visitor's own load then takes half a second.
    """
    from core.models import load_model

    threading.Thread(target=load_model, name="warm-up", daemon=True).start()
    yield


if get_script_run_ctx(suppress_warning=True) is None:
    app = st.App(__file__, lifespan=warm_up)
else:
    from core.session import run_app

    run_app()
