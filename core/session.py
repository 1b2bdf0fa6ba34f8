"""The only module of core that imports Streamlit: cached loaders, state of a visit, the frame.

A page asks here for the model and for results; both are cached for all visitors, models read-only.
What is typed by people reaches the screen through `escape`, or through elements that show plain text.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import numpy as np
import pandas as pd
import streamlit as st

from core import charts
from core.attention import attention_weights
from core.causal import CausalModel, load_causal_model
from core.classifier import Classifier, load_classifier
from core.datasets import DEFAULT_SENTENCE
from core.errors import ClozeError, ModelError
from core.exports import safe_csv, zip_folder
from core.models import ASSETS, DEFAULT, LoadedModel, load_model
from core.prediction import MaskPrediction, score_positions
from core.projection import warm_up as warm_up_umap
from core.runs import Job, Run, Runs, State
from core.sentence_encoder import SentenceEncoder, load_sentence_encoder
from core.text import Reading, read

R = TypeVar("R")

logger = logging.getLogger(__name__)

ROOT = Path(__file__).parent.parent
SUGGESTED = (DEFAULT, "bert-base-uncased", "distilbert-base-uncased", "roberta-base")

Drawn = dict[str, tuple[pd.DataFrame, dict[str, Any], str]]  # by key: rows, specification, alt

_run = threading.local()  # one script run is one thread


def pages_with_summaries() -> list[tuple[Any, str]]:
    """The pages in their order, with a line on each; file names give the paths of their links."""
    folder = ROOT / "pages"
    return [
        (st.Page(folder / "0_Home.py", title="Home", icon=":material/home:", default=True), ""),
        (
            st.Page(
                folder / "1_Bidirectional_context.py",
                title="Bidirectional context",
                icon=":material/compare_arrows:",
            ),
            "What the words to the left and to the right are worth: predict a hidden word from one "
            "side and from both, follow the attention of every head, switch heads off.",
        ),
        (
            st.Page(
                folder / "2_Masking_strategy.py",
                title="Masking strategy",
                icon=":material/shuffle:",
            ),
            "Which tokens training hides and what it puts there: 15 %, and of those 80/10/10. By "
            "token, whole word or span; static or dynamic; and how much could be hidden.",
        ),
        (
            st.Page(
                folder / "3_Predicting_mask.py",
                title=r"Predicting \[MASK\]",
                icon=":material/visibility_off:",
            ),
            "Hide a word of your sentence: what the model expects there, how sure it is of the true "
            "word, at which layer it knew, which other words it needed; your candidates and your "
            "minimal pairs.",
        ),
        (
            st.Page(
                folder / "4_Pretraining_loss.py",
                title="Pre-training loss",
                icon=":material/trending_down:",
            ),
            "How the embedded model learned: its own training, step by step, with what it predicted "
            "on the way. And a training of yours, from scratch or from here, on your text.",
        ),
        (
            st.Page(folder / "5_Finetuning.py", title="Fine-tuning", icon=":material/tune:"),
            "Teach a copy of the model to tell your labels apart, on built-in reviews or your own "
            "table; see it learn, read its worst mistakes, take it home.",
        ),
        (
            st.Page(
                folder / "6_Contextual_embeddings.py",
                title="Contextual embeddings",
                icon=":material/bubble_chart:",
            ),
            "One word in many sentences: its vector in each, layer by layer, on a map and in "
            "figures; do its meanings come apart?",
        ),
        (
            st.Page(
                folder / "7_Sentences_and_corpora.py",
                title="Sentences and corpora",
                icon=":material/scatter_plot:",
            ),
            "Whole sentences: raw BERT vectors against Sentence-BERT on pairs that people graded; "
            "your corpus on a map, searched by meaning.",
        ),
    ]


def run_app() -> None:
    """Page set-up, navigation, model picker, and the page that the address asks for."""
    st.set_page_config(page_title="Cloze", page_icon=str(ASSETS / "icon.png"), layout="wide")
    page = st.navigation([page for page, _ in pages_with_summaries()])
    pick_model()
    offer_link()
    drawn: Drawn = st.session_state.setdefault("_drawn", {})
    drawn.clear()
    place = st.sidebar.empty()
    _run.framed = True
    try:
        page.run()
    except ClozeError as error:  # a page that did not catch it still ends in a sentence
        show_error(error)
    finally:
        _run.framed = False
    with place:
        offer_charts(drawn)


def warm_up() -> None:
    """Put the embedded model and the first prediction of page 3 in the caches, as a server starts."""
    # Streamlit remarks that no visitor is there yet, which is the point
    logging.getLogger("streamlit.runtime.scriptrunner_utils.script_run_context").disabled = True
    try:
        m = load(DEFAULT)
    except ModelError as error:
        logger.warning("The embedded model can't be loaded: %s", error)
        return
    compute(m, score_positions, compute(m, read, DEFAULT_SENTENCE), within_word=False)


def framed() -> None:
    """Called by each page before anything else; makes a page whole that was opened on its own.

    On a fresh server the first request may name a page, and Streamlit then runs that page's file
    before the entry script has ever declared its navigation. The page in turn runs the entry.
    """
    if not getattr(_run, "framed", False):
        run_app()
        st.stop()


def pick_model() -> None:
    """The model picker of the side bar. A name that can't be loaded leaves the last model in use."""
    with st.sidebar:
        st.selectbox(
            "Model",
            SUGGESTED,
            key="model",
            bind="query-params",
            accept_new_options=True,
            help="The embedded model needs no network. Type any masked language model of the "
            "Hugging Face hub, or a folder that starts with ./",
        )
        name = st.session_state.get("model") or DEFAULT
        try:
            m = load(allowed(name))
        except ModelError as error:
            show_error(error)
            kept = st.session_state.get("_loaded", DEFAULT)
            st.caption(f"Still in use: {escape(kept)}.")
            m = load(kept)
        else:
            st.session_state["_loaded"] = name
        info = m.info
        st.caption(
            f"{escape(info.family)} · {info.layers} layers · {info.heads} heads · "
            f"{info.parameters / 1e6:.1f} M parameters · {info.vocabulary:,} tokens"
        )
    _run.model = m


def offer_link() -> None:
    """The address of this very view, to be copied."""
    with st.sidebar.popover("Link to this view", icon=":material/link:", width="stretch"):
        st.caption("Every input is part of the address; who opens it sees the same view.")
        query = urlencode(st.query_params.to_dict())
        st.code(f"{st.context.url}?{query}" if query else st.context.url, language=None)


def offer_charts(drawn: Drawn) -> None:
    """Every chart of the page as SVG, made when its button is pressed, as it then is."""
    if not drawn:
        return
    with st.popover("Save charts", icon=":material/image:", width="stretch"):
        st.caption("As SVG here; as PNG by the button in a chart's corner.")
        for key, (_, _, alt) in drawn.items():
            st.download_button(
                escape(alt),
                partial(saved_chart, drawn, key),
                f"{re.sub(r'[^a-z0-9]+', '-', alt.lower()).strip('-')[:60]}.svg",
                "image/svg+xml",
                key=f"svg_{key}",
                on_click="ignore",
                width="stretch",
            )


def saved_chart(drawn: Drawn, key: str) -> str:
    rows, spec, _ = drawn[key]
    return charts.as_svg(rows, spec)


def model() -> LoadedModel:
    """The model of this run, as picked in the side bar."""
    return _run.model


@st.cache_resource(max_entries=3, show_spinner="Loading the model …")
def load(name: str) -> LoadedModel:
    return load_model(name)


@st.cache_resource(max_entries=2, show_spinner="Loading the sentence encoder …")
def load_encoder(name: str) -> SentenceEncoder:
    return load_sentence_encoder(name)


def pick_causal(key: str) -> str | None:
    """The causal model that a view is to be compared with, None while none is named."""
    name = st.text_input(
        "Causal model",
        placeholder="A hub name such as gpt2, or a folder such as ./mine",
        key=key,
        bind="query-params",
    )
    if name.strip():
        return allowed(name)
    st.caption("None named: none ships with the app, and it is fetched from the hub by name.")
    return None


@st.cache_resource(max_entries=1, show_spinner="Loading the causal model …")
def load_causal(name: str) -> CausalModel:
    return load_causal_model(name)


def allowed(name: str) -> str:
    """Refuse folders outside the one that this server opens models from.

    That is `CLOZE_MODELS`, else the folder the server was started in. Whether a path outside exists
    is not said.
    """
    text = name.strip()
    if not text.startswith((".", "/", "~", "\\")) and not re.match(r"[A-Za-z]:[\\/]", text):
        return text
    root = Path(os.environ.get("CLOZE_MODELS", ".")).resolve()
    folder = (root / Path(text.replace("\\", "/")).expanduser()).resolve()
    if not folder.is_relative_to(root):
        raise ModelError("Folders outside this server's model folder are not opened.")
    return str(folder)


@dataclass(frozen=True)
class Computed:
    """A result, and how long it took to compute when it was computed."""

    value: Any
    seconds: float


def compute(m: LoadedModel, function: Callable[..., R], *args: Any, **options: Any) -> R:
    """`function(m, *args, **options)`, kept for all visitors under the model's weights."""
    return timed(m, function, *args, **options).value


def timed(m: LoadedModel, function: Callable[..., Any], *args: Any, **options: Any) -> Computed:
    """As `compute`, with the time it took when it was computed."""
    name = f"{function.__module__}.{function.__qualname__}"
    return _cached(m, function, m.weights_hash, name, args, options)


@st.cache_data(max_entries=200, show_spinner=False)
def _kept(_function: Callable[..., Any], name: str, args: Any, options: Any) -> Any:
    return _function(*args, **options)


def kept(function: Callable[..., R], *args: Any, **options: Any) -> R:
    """`function(*args, **options)` of plain data, kept for all visitors."""
    value: R = _kept(function, f"{function.__module__}.{function.__qualname__}", args, options)
    return value


def encoded(encoder: SentenceEncoder, texts: tuple[str, ...]) -> np.ndarray:
    """Sentence-BERT vectors of a few texts, kept for all visitors."""
    return _encoded(encoder, encoder.name, texts)


@st.cache_data(max_entries=20, show_spinner=False)
def _encoded(_encoder: SentenceEncoder, name: str, texts: tuple[str, ...]) -> np.ndarray:
    return _encoder.embed(texts)


@st.cache_resource
def warm_umap() -> None:
    """Have UMAP imported and compiled in the background, once a server, when a map is near."""
    threading.Thread(target=warm_up_umap, name="umap", daemon=True).start()


def attention(m: LoadedModel, reading: Reading) -> Computed:
    """The attention of a text; kept for short texts only, since it grows with their square.

    At 64 tokens it is 1 MB for the embedded model, at 512 tokens 75 MB.
    """
    if len(reading.tokens) <= 64:
        return timed(m, attention_weights, reading)
    start = time.perf_counter()
    return Computed(attention_weights(m, reading), time.perf_counter() - start)


@st.cache_data(max_entries=500, show_spinner=False)
def _cached(
    _m: LoadedModel,
    _function: Callable[..., Any],
    weights: str,
    name: str,
    args: tuple[Any, ...],
    options: dict[str, Any],
) -> Computed:
    start = time.perf_counter()
    value = _function(_m, *args, **options)
    return Computed(value, time.perf_counter() - start)


def draw(
    drawing: charts.Drawing, frame: Any, *args: Any, key: str, alt: str, **options: Any
) -> Any:
    """Show a chart of `charts`; `alt` says in words what is to be seen."""
    rows, spec = drawing.parts(frame, *args)
    st.session_state.setdefault("_drawn", {})[key] = (rows, spec, alt)
    return st.vega_lite_chart(rows, spec, key=key, alt=alt, **options)


def escape(text: str) -> str:
    """Text for a Markdown element, every character shown as it was typed.

    >>> escape(":red[x] *y*")
    '\\\\:red\\\\[x\\\\] \\\\*y\\\\*'
    """
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text.replace("\n", " "))


def text_input(prefix: str) -> Reading:
    """The text of a page as the model reads it; ends the page with a sentence if it can't be.

    `prefix` is the page's own, so that its inputs keep apart from those of other pages in a link.
    """
    text = st.text_area(
        "Text",
        DEFAULT_SENTENCE,
        key=f"{prefix}_text",
        bind="query-params",
        height=80,
        help=f"{escape(model().mask_token)} may stand in it, as often as you like.",
    )
    try:
        reading: Reading = compute(model(), read, text)
    except ClozeError as error:
        show_error(error)
        st.stop()
    show_notes(reading)
    return reading


def position_slider(reading: Reading, label: str, key: str) -> int:
    """A position of the text; what is left over from a longer text goes back to the start."""
    first, last = reading.first, reading.tokens[-1].position
    if first == last:
        st.session_state.pop(key, None)
        return first
    if not first <= st.session_state.get(key, first) <= last:
        st.session_state[key] = first
    return st.slider(label, first, last, min(first + 2, last), key=key, bind="query-params")


def show_views(views: Mapping[str, Callable[..., None]], key: str, *args: Any) -> None:
    """Tabs of which only the open one computes; an error of ours is said inside it."""
    tabs = st.tabs(list(views), key=key, bind="query-params")
    for tab, view in zip(tabs, views.values(), strict=True):
        if tab.open:
            with tab:
                try:
                    view(*args)
                except ClozeError as error:
                    show_error(error)


@st.cache_resource
def runs() -> Runs:
    """The background runs of this server.

    CLOZE_RUNS is the folder they are kept in, CLOZE_RUNS_AT_ONCE how many train at once.
    """
    folder = Path(os.environ.get("CLOZE_RUNS", ROOT / "runs"))
    return Runs(folder, at_once=int(os.environ.get("CLOZE_RUNS_AT_ONCE", "1")))


def start_run(job: Job, key: str) -> None:
    """Submit a job; its id goes into the address, so that a refresh or a link finds the run again."""
    visitor = st.session_state.setdefault("_visitor", uuid.uuid4().hex)
    st.session_state[key] = st.query_params[key] = runs().submit(job, owner=visitor)


def current_run(key: str) -> Run | None:
    """The run that the address names, else the last of this visit."""
    run_id = st.query_params.get(key) or st.session_state.get(key)
    if run_id is None:
        return None
    run = runs().get(run_id)
    if run is None:
        st.info(
            "The run of this address is not on this server: it was started on another one, or too "
            "long ago. The form above starts a new one.",
            icon=":material/search_off:",
        )
    else:
        st.session_state[key] = st.query_params[key] = run_id
    return run


def at_work(key: str) -> bool:
    """Whether the run on show is still queued or running."""
    run_id = st.query_params.get(key) or st.session_state.get(key)
    run = runs().get(run_id) if run_id else None
    return run is not None and not run.state.over


def watch(key: str, show: Callable[[Run], None]) -> None:
    """Show a run where there is one, every second anew while it is at work."""
    run = current_run(key)
    if run is not None:
        every = None if run.state.over else 1.0
        st.fragment(_watched, run_every=every)(key, run.state.over, show)


def _watched(key: str, was_over: bool, show: Callable[[Run], None]) -> None:
    run = current_run(key)
    if run is None:
        return
    if run.state.over and not was_over:
        st.rerun()  # once, so that the timer ends and the form is free again
    _show_state(run, key)
    show(run)


def _show_state(run: Run, key: str) -> None:
    """How far a run is, with a button to stop it; or how it ended."""
    if not run.state.over:
        bar, stop = st.columns([5, 1], vertical_alignment="center")
        bar.progress(run.step / run.steps, _progress(run))
        stop.button(
            "Stop",
            icon=":material/stop:",
            width="stretch",
            key=f"{key}_stop",
            on_click=runs().stop,
            args=(run.id,),
            help="It ends after the step it is in, and keeps what it has learned.",
        )
        return
    where = f"step {run.step:,} of {run.steps:,}"
    if run.diverged is not None:
        st.warning(
            f"The loss was no longer a number at step {run.diverged['step']:,}: try a smaller "
            f"learning rate. The model is as it was after step {run.diverged['restored']:,}.",
            icon=":material/trending_up:",
        )
    match run.state:
        case State.DONE:
            st.caption(f"Trained here in {run.seconds:,.0f} s, {run.step:,} steps.")
        case State.STOPPED:
            st.info(f"Stopped after {where}; what it had learned is kept.", icon=":material/stop:")
        case State.FAILED:
            st.error(f"It ended at {where}. {escape(run.error or '')}", icon=":material/error:")
        case State.INTERRUPTED:
            st.warning(
                f"Its server ended when it was at {where}. What was recorded is shown; the model "
                "is lost.",
                icon=":material/power_off:",
            )


def _progress(run: Run) -> str:
    if run.state is State.QUEUED:
        before = "1 run comes" if run.ahead == 1 else f"{run.ahead} runs come"
        return f"Waiting: {before} first" if run.ahead else "About to start"
    if run.seconds_left is None:
        return "Starting …"
    speed = run.records[-1].get("samples_per_second")
    rate = f"{speed:,.0f} samples a second, " if speed else ""
    return f"Step {run.step:,} of {run.steps:,}, {rate}{run.seconds_left:,.0f} s left"


@st.cache_resource(max_entries=2, show_spinner=False)
def load_trained(folder: str) -> LoadedModel:
    """The masked LM that a run saved."""
    return load_model(Path(folder))


@st.cache_resource(max_entries=2, show_spinner=False)
def load_trained_classifier(folder: str) -> Classifier:
    """The classifier that a run saved."""
    return load_classifier(Path(folder))


def finished(key: str) -> Run | None:
    """The run on show, once it is over and has a result."""
    run_id = st.session_state.get(key)
    run = runs().get(run_id) if run_id else None
    return run if run is not None and run.result is not None else None


@dataclass(frozen=True)
class Upload:
    """A file as it was uploaded; its name is only ever shown."""

    name: str
    data: bytes


def kept_upload(label: str, types: list[str], *, key: str) -> Upload | None:
    """A file of the visitor's, kept when the page is left, until it is removed or replaced."""
    kept = f"_{key}"

    def keep() -> None:
        file = st.session_state[key]
        st.session_state[kept] = Upload(file.name, file.getvalue()) if file else None

    if st.file_uploader(label, types, key=key, on_change=keep) is None and st.session_state.get(
        kept
    ):
        left, right = st.columns([5, 1], vertical_alignment="center")
        left.caption(f"Still in use: {escape(st.session_state[kept].name)}")
        if right.button("Remove", key=f"{key}_remove", width="stretch"):
            st.session_state[kept] = None
            st.rerun()
    upload: Upload | None = st.session_state.get(kept)
    return upload


def kept_editor(table: pd.DataFrame, *, key: str) -> pd.DataFrame:
    """A table to be edited; what was changed is there again after the page was left."""
    base, last = f"_{key}_base", f"_{key}_last"
    if key not in st.session_state:  # the editor is new here: it starts from what it last gave
        st.session_state[base] = st.session_state.get(last, table)
    edited: pd.DataFrame = st.data_editor(
        st.session_state[base], num_rows="dynamic", hide_index=True, key=key
    )
    st.session_state[last] = edited
    return edited


@dataclass
class Parts:
    """Work that is done in parts; between two of them it waits, and loses nothing."""

    identity: Any
    sizes: Iterator[int]  # yields how many rows a part had
    done: int = 0


def in_parts(
    key: str, label: str, identity: Any, total: int, start: Callable[[], Iterator[int]]
) -> bool:
    """Work of this visitor under a progress bar with a stop button; says whether it is done.

    Any click ends this script; the work then waits for "Go on". Other work than `identity` starts
    anew.
    """
    parts: Parts | None = st.session_state.get(key)
    if parts is None or parts.identity != identity:
        if not st.button(label, icon=":material/play_arrow:", type="primary", key=f"{key}_start"):
            return False
        parts = st.session_state[key] = Parts(identity, start())
    elif parts.done < total:
        left, right = st.columns([5, 1], vertical_alignment="center")
        left.caption(f"Stopped after {parts.done:,} of {total:,}; nothing is lost.")
        if not right.button("Go on", icon=":material/play_arrow:", key=f"{key}_on"):
            return False
    if parts.done < total:
        bar_place, stop = st.columns([5, 1], vertical_alignment="center")
        stop.button("Stop", icon=":material/stop:", width="stretch", key=f"{key}_stop")
        bar, began, first = bar_place.progress(parts.done / total), time.perf_counter(), parts.done
        for size in parts.sizes:
            parts.done += size
            pace = (parts.done - first) / (time.perf_counter() - began)
            bar.progress(
                min(1.0, parts.done / total),
                f"{parts.done:,} of {total:,}, {pace:,.0f} a second, "
                f"{(total - parts.done) / pace:,.0f} s left",
            )
        st.rerun()
    return True


def download_run(run: Run, label: str, file_name: str, said: str) -> None:
    """What a run saved, packed when the button is pressed."""
    if run.result is not None:
        st.download_button(
            label,
            partial(zip_folder, run.result),
            file_name,
            "application/zip",
            icon=":material/download:",
            help=said,
            on_click="ignore",
        )


def share(probability: float) -> str:
    """A percentage with enough digits not to read as zero.

    >>> share(0.25), share(3e-7)
    ('25.00%', '3.0e-07')
    """
    return f"{probability:.2%}" if probability >= 1e-4 else f"{probability:.1e}"


def candidate_frame(prediction: MaskPrediction) -> pd.DataFrame:
    """What `charts.top_k` draws: rank, token, probability, is_true."""
    true_id = getattr(prediction, "true_id", None)
    return pd.DataFrame(
        {
            "rank": [c.rank for c in prediction.candidates],
            "token": [c.token for c in prediction.candidates],
            "probability": [c.probability for c in prediction.candidates],
            "is_true": [c.token_id == true_id for c in prediction.candidates],
        }
    )


def agreed(reading: Reading, limit: int, key: str) -> bool:
    """A view over all positions runs at once for a short text, on a click for a long one."""
    count = len(reading.tokens)
    return count <= limit or st.checkbox(
        f"Compute for all {count} tokens: {count} passes over {count} tokens, which takes a while",
        key=key,
    )


def show_error(error: ClozeError) -> None:
    st.error(escape(str(error)), icon=":material/error:")


def show_notes(reading: Reading) -> None:
    """What was cut, changed or not understood in a text."""
    for note in reading.notes:
        st.info(escape(note), icon=":material/info:")


def provenance(
    m: LoadedModel,
    seconds: float | None,
    imports: str,
    *lines: str,
    data: pd.DataFrame | None = None,
) -> None:
    """The quiet line under a view, its data, and the lines of Python that give the same numbers.

    `seconds` is how long it took, None for what was measured bit by bit.
    """
    took = "" if seconds is None else f" in {seconds * 1000:,.0f} ms"
    name = "" if m.info.name == DEFAULT else repr(m.info.name)
    start = ["from core.models import load_model", imports, "", f"m = load_model({name})"]
    footer(
        f"Live from {escape(m.info.name)} (weights {m.weights_hash}){took}",
        *start,
        *lines,
        data=data,
    )


def footer(said: str, *code: str, data: pd.DataFrame | None = None) -> None:
    """A quiet line under a view with its data as CSV and its code."""
    left, middle, right = st.columns([4, 1, 1], vertical_alignment="center")
    left.caption(said)
    text = "\n".join(code)
    if data is not None:
        middle.download_button(
            "CSV",
            partial(safe_csv, data),
            "cloze.csv",
            "text/csv",
            key=f"csv_{zlib.crc32(text.encode())}",
            icon=":material/download:",
            on_click="ignore",
            width="stretch",
        )
    with right.popover("Code", icon=":material/code:", width="stretch"):
        st.code(text, language="python", wrap_lines=True)
