"""Page 2: which tokens the training hides, what it puts there, and how much should be hidden."""

import numpy as np
import pandas as pd
import streamlit as st

from core import charts, masking, session
from core.datasets import sentences
from core.errors import ClozeError
from core.models import LoadedModel
from core.pretraining import Evaluation, loss_by_rate
from core.text import Reading

RATES = [round(0.05 * step, 2) for step in range(1, 11)]
LOOKS = {  # colour and words for what happened to a token; the words alone tell them apart too
    masking.Action.NONE: ("", "·"),
    masking.Action.MASK: (f"background-color: {charts.MASKED}66", "mask"),
    masking.Action.RANDOM: (f"background-color: {charts.RANDOM}66", "random"),
    masking.Action.KEEP: (f"background-color: {charts.KEPT}66", "kept"),
}

session.framed()
m = session.model()


def settings() -> tuple[float, masking.Split, masking.Unit]:
    left, middle, right = st.columns(3, gap="large")
    rate = left.slider(
        "Mask probability", 0, 50, 15, format="%d%%", key="p2_rate", bind="query-params"
    )
    first, second = middle.slider(
        r"Split: \[MASK\] up to the first mark, random up to the second, the rest kept",
        0,
        100,
        (80, 90),
        format="%d%%",
        key="p2_split",
        bind="query-params",
    )
    unit = right.segmented_control(
        "What is chosen",
        [unit.value for unit in masking.Unit],
        default="token",
        required=True,
        format_func={"token": "token", "word": "whole word", "span": "span"}.__getitem__,
        key="p2_unit",
        bind="query-params",
        help="Spans as in SpanBERT: 1 to 10 words, lengths geometric with p = 0.2. Words and spans "
        "are drawn until the share of tokens is reached; tokens each on their own.",
    )
    split = masking.Split(first / 100, (second - first) / 100, (100 - second) / 100)
    return rate / 100, split, masking.Unit(unit)


def choose_seed() -> tuple[int, ...]:
    """The seed of the draw on show: one for ever, or a new one for each pass over the text."""
    left, middle, right = st.columns(3, gap="large", vertical_alignment="bottom")
    seed = left.number_input("Seed", 0, 99_999, 0, key="p2_seed", bind="query-params")
    middle.button("Draw again", on_click=draw_again, icon=":material/casino:", width="stretch")
    dynamic = right.toggle(
        "Dynamic",
        key="p2_dynamic",
        bind="query-params",
        help="BERT masked each text once and trained on that (static). RoBERTa draws anew each "
        "time a text is seen (dynamic).",
    )
    step = st.slider("Pass over the text", 1, 40, 1, key="p2_pass", bind="query-params")
    if not dynamic:
        st.caption("Static: every pass reads the same draw.")
    return (seed, step) if dynamic else (seed,)


def draw_again() -> None:
    st.session_state["p2_seed"] = (st.session_state["p2_seed"] + 1) % 100_000


def show_draw(masked: masking.Masked, reading: Reading) -> pd.DataFrame:
    """The original above what the model reads, and what happened to each token; gives the table."""
    inside = slice(len(reading.prefix), len(reading.input_ids) - len(reading.suffix))
    actions = [masking.Action(action) for action in masked.action[inside]]
    columns = [str(token.position) for token in reading.tokens]
    frame = pd.DataFrame(
        [
            [token.piece for token in reading.tokens],
            [m.token(i) for i in masked.inputs[inside]],
            [LOOKS[action][1] for action in actions],
        ],
        index=["Original", "The model reads", "What happened"],
        columns=columns,
    )
    colours = pd.DataFrame(
        [[""] * len(actions)] + 2 * [[LOOKS[action][0] for action in actions]],
        index=frame.index,
        columns=columns,
    )
    st.dataframe(frame.style.apply(lambda _: colours, axis=None))
    return frame


def show_figures(masked: masking.Masked, rate: float, split: masking.Split, n: int) -> None:
    counts = [int((masked.action == action).sum()) for action in masking.Action]
    selected = sum(counts[1:])
    row = st.columns(5)
    row[0].metric("Selected", f"{selected} of {n}")
    row[1].metric(r"\[MASK\]", counts[masking.Action.MASK])
    row[2].metric("Random", counts[masking.Action.RANDOM])
    row[3].metric("Kept", counts[masking.Action.KEEP])
    row[4].metric(
        r"Expected \[MASK\]",
        f"{rate * split.mask:.1%}",
        help="Mask probability times the share of [MASK] in the split",
    )
    if selected == 0:
        st.info(
            "Nothing was selected in this draw: the model would have nothing to learn from it, and "
            "training skips such a step.",
            icon=":material/info:",
        )


def many_draws(
    reading: Reading, rate: float, split: masking.Split, unit: masking.Unit, n: int
) -> None:
    st.subheader("The same draw, 10,000 times")
    seed = int(st.session_state["p2_seed"])
    done = session.timed(m, repeated, reading, rate, split, unit, seed)
    counts = done.value
    share = np.bincount(counts[:, 0], minlength=n + 1) / len(counts)
    law = masking.binomial(n, rate)
    last = int(np.flatnonzero(share + (law > 1e-4)).max())
    frame = pd.DataFrame({"selected": np.arange(n + 1), "share": share, "expected": law})
    session.draw(
        charts.draws,
        frame[: last + 1],
        key="p2_draws",
        alt=f"Number of selected tokens in 10,000 draws, mean {counts[:, 0].mean():.2f}",
    )
    st.caption(
        f"Mean {counts[:, 0].mean():.3f} selected (expected {n * rate:.3f}), of which "
        f"{counts[:, 1].mean():.3f} masked, {counts[:, 2].mean():.3f} random, "
        f"{counts[:, 3].mean():.3f} kept. "
        + (
            "The line is the binomial law for tokens drawn on their own."
            if unit is masking.Unit.TOKEN
            else "Words and spans are held to a budget, so the binomial line does not apply."
        )
    )
    session.provenance(
        m,
        done.seconds,
        "from core.masking import Split, repeat_draw\nfrom core.text import read",
        f"reading = read(m, {reading.text!r})",
        f"split = Split({split.mask}, {split.random}, {split.keep})",
        f"repeat_draw(reading.input_ids, m.vocabulary, rate={rate}, split=split, "
        f"unit={unit.value!r}, words=reading.input_words, seed={seed})",
        data=frame[: last + 1],
    )


def repeated(
    model: LoadedModel,
    reading: Reading,
    rate: float,
    split: masking.Split,
    unit: masking.Unit,
    seed: int,
) -> np.ndarray:
    return masking.repeat_draw(
        reading.input_ids,
        model.vocabulary,
        rate=rate,
        split=split,
        unit=unit,
        words=reading.input_words,
        seed=seed,
    )


def how_much() -> None:
    """Loss and accuracy of the loaded model as more of the text is hidden."""
    st.subheader("How much should be hidden?")
    st.caption(
        "Wettig et al. (2022) asked whether 15 % is right. Here the model in use reads the hundred "
        "built-in sentences, or your own, with more and more of their tokens masked. It says how "
        "hard prediction becomes, not what training at that rate would give."
    )
    typed = st.text_area(
        "Sentences of your own, one a line (empty: the built-in ones)",
        key="p2_texts",
        bind="query-params",
        height=80,
    )
    texts = tuple(line.strip() for line in typed.splitlines() if line.strip()) or sentences()
    key = (m.weights_hash, texts)
    points: dict[float, Evaluation] = st.session_state.setdefault("p2_points", {}).setdefault(
        key, {}
    )
    start, stop = st.columns(2)
    left = [rate for rate in RATES if rate not in points]
    if left and start.button("Measure", icon=":material/play_arrow:", width="stretch"):
        stop.button("Stop", icon=":material/stop:", width="stretch")  # a click ends this run
        progress = st.progress(0.0, "Measuring …")
        for rate, result in loss_by_rate(m, texts, left):
            points[rate] = result
            progress.progress(len(points) / len(RATES), f"{rate:.0%} of the tokens masked")
        progress.empty()
    if points:
        frame = pd.DataFrame(
            [
                (rate, found.loss, found.loss_error, found.accuracy, found.accuracy_error)
                for rate, found in sorted(points.items())
            ],
            columns=["rate", "loss", "loss_error", "accuracy", "accuracy_error"],
        )
        loss, accuracy = st.columns(2)
        with loss:
            session.draw(charts.loss_by_rate, frame, key="p2_loss", alt="Loss by masking rate")
        with accuracy:
            session.draw(
                charts.accuracy_by_rate, frame, key="p2_accuracy", alt="Accuracy by masking rate"
            )
        st.caption("Bars are one standard error of the mean over the masked tokens.")
        session.provenance(
            m,
            None,
            "from core.datasets import sentences\nfrom core.pretraining import loss_by_rate",
            f"texts = {list(texts)!r}" if typed.strip() else "texts = sentences()",
            f"list(loss_by_rate(m, texts, {sorted(points)}))",
            data=frame,
        )


st.title("Masking strategy")
reading = session.text_input("p2")
rate, split, unit = settings()
seeds = choose_seed()
masked = masking.mask_tokens(
    reading.input_ids,
    m.vocabulary,
    rate=rate,
    split=split,
    unit=unit,
    words=reading.input_words,
    seed=np.random.default_rng(seeds),
)
n = sum(i not in m.special_ids for i in reading.input_ids)
table = show_draw(masked, reading)
show_figures(masked, rate, split, n)
session.provenance(
    m,
    None,
    "import numpy as np\nfrom core.masking import Split, mask_tokens\nfrom core.text import read",
    f"reading = read(m, {reading.text!r})",
    f"split = Split({split.mask}, {split.random}, {split.keep})",
    f"mask_tokens(reading.input_ids, m.vocabulary, rate={rate}, split=split, unit={unit.value!r}, "
    f"words=reading.input_words, seed=np.random.default_rng({seeds}))",
    data=table.T.reset_index(names="Position"),
)
st.divider()
many_draws(reading, rate, split, unit, n)
st.divider()
try:
    how_much()
except ClozeError as error:
    session.show_error(error)
