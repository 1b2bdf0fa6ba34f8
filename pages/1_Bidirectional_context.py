"""Page 1: what a token's left and right context are worth, in attention and in prediction."""

import time

import numpy as np
import pandas as pd
import streamlit as st

from core import charts, session
from core.attention import (
    Attention,
    rank_heads,
    rollout,
    shares,
    without_heads,
)
from core.causal import predict_next
from core.context import SIDES, Way, predict_from_sides, score_sides, sides_over_texts
from core.datasets import sentences
from core.models import LoadedModel
from core.prediction import predict_position, pseudo_perplexity, score_positions
from core.text import Reading

GRID = 24  # tokens up to which every head fits as a small heat map
SLOW = 128  # tokens from which a view over all positions waits for a click

session.framed()
m = session.model()


def choose_focus(reading: Reading) -> int:
    position = session.position_slider(reading, "Focus token", "p1_position")
    before = reading.text[: reading.token(position).start][-60:]
    after = reading.text[reading.token(position).end :][:60]
    word = reading.token(position).label
    st.markdown(
        f":{charts.LEFT_NAME}[{session.escape(before)}] **{session.escape(word)}** "
        f":{charts.RIGHT_NAME}[{session.escape(after)}]"
    )
    return position


def experiment(reading: Reading, position: int) -> None:
    """Hide the focus token and predict it from the left only, the right only, and both."""
    st.caption(
        "The claim of the BERT paper, tested here: a hidden word is predicted better from both sides."
    )
    ways: list[Way] = ["cut", "shut"]
    way = st.segmented_control(
        "The other side is",
        ways,
        default=ways[0],
        required=True,
        format_func={"cut": "cut off", "shut": "in place, shut out"}.__getitem__,
        key="p1_way",
        bind="query-params",
        help="Cut off: the text ends at the mask, which is unlike what the model was trained on and "
        "makes it expect a full stop. Shut out: the other side stays, but attention can't reach it.",
    )
    done = session.timed(m, predict_from_sides, reading, position, way)
    columns = st.columns(3, gap="large")
    for column, side in zip(columns, SIDES, strict=True):
        found = done.value[side]
        with column:
            name = {"left": "Left only", "right": "Right only", "both": "Both sides"}[side]
            st.markdown(f"**{name}**")
            session.draw(
                charts.top_k,
                session.candidate_frame(found),
                key=f"p1_{side}",
                alt=f"Most probable tokens, {name.lower()}",
            )
            st.metric("p(true)", session.share(found.true_probability))
            st.caption(f"Rank {found.true_rank:,} of {m.info.vocabulary:,}")
    session.provenance(
        m,
        done.seconds,
        "from core.context import predict_from_sides",
        f"predict_from_sides(m, {reading.text!r}, {position}, way={way!r})",
    )
    st.markdown("**Every position of the text**: one word proves nothing")
    if session.agreed(reading, SLOW, "p1_all"):
        scored = session.timed(m, score_sides, reading, way)
        session.draw(charts.sides, scored.value, key="p1_sides", alt="log p(true) by side")
        means = -scored.value.groupby("side")["loss"].mean()
        st.caption(
            "Mean log p(true): "
            + ", ".join(f"{side} {means[side]:.2f}" for side in SIDES)
            + " nats. Nearer to zero is better."
        )
        session.provenance(
            m,
            scored.seconds,
            "from core.context import score_sides",
            f"score_sides(m, {reading.text!r}, {way!r})",
            data=scored.value,
        )
    over_sentences(way)
    beside_causal(reading, position)


def beside_causal(reading: Reading, position: int) -> None:
    """The next-token distribution of a causal model for the same left context."""
    st.markdown("**Beside a causal model**, which has only ever read from the left")
    name = session.pick_causal("p1_causal")
    if name is None:
        return
    causal = session.load_causal(name)
    left, word = reading.text[: reading.token(position).start], reading.token(position).label
    start = time.perf_counter()
    prediction = predict_next(causal, left, word)
    session.draw(
        charts.top_k,
        session.candidate_frame(prediction),
        key="p1_next",
        alt="Most probable next tokens of the causal model",
    )
    st.caption(
        f"p of the true word's first token, “{session.escape(prediction.true_token)}”: "
        f"{session.share(prediction.true_probability)}, rank {prediction.true_rank:,}."
    )
    session.footer(
        f"Live from {session.escape(causal.name)} in {(time.perf_counter() - start) * 1000:,.0f} ms",
        "from core.causal import load_causal_model, predict_next",
        "",
        f"causal = load_causal_model({name!r})",
        f"predict_next(causal, {left!r}, {word!r})",
    )


def over_sentences(way: Way) -> None:
    st.markdown("**One hundred built-in sentences**")
    key = (m.weights_hash, way)
    results: dict[object, list[pd.DataFrame]] = st.session_state.setdefault("p1_hundred", {})
    known = results.setdefault(key, [])
    texts = sentences()
    start, stop = st.columns(2)
    label = f"Measure {len(texts) - len(known)} sentences"
    if len(known) < len(texts) and start.button(label, icon=":material/play_arrow:"):
        stop.button("Stop", icon=":material/stop:")  # a click ends this run; what is done is kept
        progress = st.progress(0.0)
        for frame in sides_over_texts(m, texts[len(known) :], way):
            known.append(frame)
            progress.progress(len(known) / len(texts), f"{len(known)} of {len(texts)} sentences")
        progress.empty()
    if known:
        every = pd.concat(known)
        means = -every.groupby("side")["loss"].mean()
        row = st.columns(3)
        for column, side in zip(row, SIDES, strict=True):
            gain = None if side == "both" else f"{means[side] - means['both']:+.2f} against both"
            column.metric(f"Mean log p(true), {side}", f"{means[side]:.2f}", gain)
        st.caption(
            f"Nats, over {len(every) // 3} positions of {len(known)} sentences. {better(every)}"
        )
        session.provenance(
            m,
            None,
            "import pandas as pd\nfrom core.context import sides_over_texts\n"
            "from core.datasets import sentences",
            f"found = pd.concat(sides_over_texts(m, sentences()[:{len(known)}], {way!r}))",
            "-found.groupby('side')['loss'].mean()",
            data=every,
        )


def better(every: pd.DataFrame) -> str:
    """By how much both sides are better than the better single one, with the standard error."""
    by_side = every.assign(place=every.groupby("side").cumcount()).pivot(
        index="place", columns="side", values="loss"
    )
    single = min(("left", "right"), key=lambda side: by_side[side].mean())
    gain = by_side[single] - by_side["both"]
    mean, error = float(gain.mean()), float(gain.std() / len(gain) ** 0.5)
    return (
        f"Both sides are better than the {single} one by {mean:.2f} ± {error:.2f} nats "
        "(mean and standard error)."
    )


def attention_view(reading: Reading, position: int) -> None:
    done = session.attention(m, reading)
    attention: Attention = done.value
    left, middle, right = st.columns(3, gap="large", vertical_alignment="bottom")
    layers = ["mean", *map(str, range(1, m.info.layers + 1))]
    heads = ["mean", *map(str, range(1, m.info.heads + 1))]
    if "p1_opened" in st.session_state:
        layer, head = st.session_state.pop("p1_opened")
        st.session_state["p1_layer"], st.session_state["p1_head"] = str(layer), str(head)
    chosen = [
        column.selectbox(name, options, key=key, bind="query-params") or "mean"
        for column, name, options, key in (
            (left, "Layer", layers, "p1_layer"),
            (middle, "Head", heads, "p1_head"),
        )
    ]
    special = right.toggle(r"Show \[CLS\] and \[SEP\]", key="p1_special", bind="query-params")
    layer, head = (None if choice == "mean" else int(choice) - 1 for choice in chosen)
    weights = attention.mean(layer, head)
    focus = reading.index(position)
    parts = shares(weights, focus, attention.added)
    shown = np.ones(len(attention.tokens), bool) if special else ~attention.added
    total = float(weights[focus][shown].sum())
    frame = pd.DataFrame(
        {
            "place": np.flatnonzero(shown),
            "token": [attention.tokens[i] for i in np.flatnonzero(shown)],
            "weight": weights[focus][shown] / total,
        }
    )
    session.draw(charts.arcs, frame, focus, key="p1_arcs", alt="Attention from the focus token")
    row = st.columns(6)
    row[0].metric("Left tokens", position - reading.first)
    row[1].metric("Right tokens", reading.tokens[-1].position - position)
    for column, name in zip(row[2:], ("left", "right", "self", "special"), strict=True):
        column.metric(f"Mass {name}", f"{parts[name]:.1%}")
    st.caption(
        f"The arcs sum to {frame['weight'].sum():.3f} over what is shown, which has {total:.1%} of "
        f"the attention; {parts['special']:.1%} goes to tokens that the model added."
    )
    flow = rollout(attention.weights)[-1 if layer is None else layer][focus]
    st.markdown("**Rollout**: which tokens reach the focus token over all paths up to this layer")
    roll = pd.DataFrame({"place": range(len(flow)), "token": attention.tokens, "weight": flow})
    session.draw(charts.rollout, roll, focus, key="p1_rollout", alt="Attention rollout")
    session.provenance(
        m,
        done.seconds,
        "from core.attention import attention_weights",
        f"attention_weights(m, {reading.text!r}).mean({layer}, {head})[{focus}]",
        data=frame,
    )


def all_heads(reading: Reading, position: int) -> None:
    done = session.attention(m, reading)
    attention: Attention = done.value
    size = len(attention.tokens)
    if size <= GRID:
        st.caption("Rows look, columns are looked at. Click a head to open it under Attention.")
        layer, head, query, key = np.indices(attention.weights.shape)
        cells = pd.DataFrame(
            {
                "layer": layer.ravel() + 1,
                "head": head.ravel() + 1,
                "query": query.ravel(),
                "key": key.ravel(),
                "weight": attention.weights.ravel(),
            }
        )
        event = session.draw(
            charts.head_grid,
            cells,
            key="p1_grid",
            alt="Attention of every head",
            on_select="rerun",
            selection_mode="opened",
            width="content",
        )
        points = event["selection"].get("opened", [])
        opened = (points[0]["layer"], points[0]["head"]) if points else None
        if opened != st.session_state.get("p1_last_opened"):
            st.session_state["p1_last_opened"] = opened
            if opened:
                st.session_state["p1_opened"] = opened
                st.session_state["p1_view_next"] = "Attention"
                st.rerun()
    else:
        st.info(f"The grid of heads is drawn for up to {GRID} tokens; this text has {size}.")
    st.markdown("**Heads ranked**: entropy in nats (0: one token only), distance in tokens")
    ranked = rank_heads(attention).sort_values("entropy")
    st.dataframe(
        ranked,
        hide_index=True,
        column_config={
            "entropy": st.column_config.NumberColumn(format="%.3f"),
            "distance": st.column_config.NumberColumn(format="%.2f"),
        },
    )
    session.provenance(
        m,
        done.seconds,
        "from core.attention import attention_weights, rank_heads",
        f"rank_heads(attention_weights(m, {reading.text!r})).sort_values('entropy')",
        data=ranked,
    )


def heads_off(reading: Reading, position: int) -> None:
    st.caption(
        "Attention is not explanation. Switch heads off, and see what becomes of the prediction: "
        "their share of what a layer hands on is set to zero."
    )
    names = [f"{x}.{y}" for x in range(1, m.info.layers + 1) for y in range(1, m.info.heads + 1)]
    chosen = st.multiselect("Heads off (layer.head)", names, key="p1_off", bind="query-params")
    heads = tuple((int(a) - 1, int(b) - 1) for a, b in (name.split(".") for name in chosen))
    before, after = (
        session.timed(m, prediction_without, reading, position, h) for h in ((), heads)
    )
    row = st.columns(3)
    for column, name, place in (
        (row[0], "log p(true) here", 0),
        (row[1], "True rank here", 1),
        (row[2], "Pseudo-perplexity", 2),
    ):
        old, new = before.value[place], after.value[place]
        change = f"{new - old:+,.2f}" if heads else None
        column.metric(name, f"{new:,.2f}", change, delta_color="off")
    session.provenance(
        m,
        after.seconds,
        "from core.attention import without_heads\nfrom core.prediction import predict_position",
        f"off = without_heads(m, {list(heads)})",
        f"predict_position(off, {reading.text!r}, {position})",
    )


def prediction_without(
    model: LoadedModel, reading: Reading, position: int, heads: tuple[tuple[int, int], ...]
) -> tuple[float, float, float]:
    """log p(true) and rank at a position, and the pseudo-perplexity, with heads switched off."""
    off = without_heads(model, heads) if heads else model
    here = predict_position(off, reading, position)
    return -here.loss, float(here.true_rank), pseudo_perplexity(score_positions(off, reading))


if "p1_view_next" in st.session_state:
    st.session_state["p1_view"] = st.session_state.pop("p1_view_next")
st.title("Bidirectional context")
reading = session.text_input("p1")
position = choose_focus(reading)
views = {
    "The experiment": experiment,
    "Attention": attention_view,
    "All heads": all_heads,
    "Heads off": heads_off,
}
session.show_views(views, "p1_view", reading, position)
