"""Page 3: hide a word and see what the model expects there."""

import time
from collections.abc import Callable

import pandas as pd
import streamlit as st

from core import charts, session
from core.causal import write_on
from core.comparison import compare_candidates, compare_models, compare_sentences
from core.errors import ClozeError
from core.filling import Method, fill
from core.prediction import (
    MaskPrediction,
    PositionPrediction,
    layer_lens,
    occlusion,
    predict_masks,
    predict_position,
    predict_word,
    pseudo_perplexity,
    score_positions,
)
from core.text import Reading, code_points, read

CHIPS = 60  # more tokens than this are picked by the slider alone
SCORE_HELP = (
    "Nats, mean over the filled tokens, each hidden alone in the filled text; nearer to zero where "
    "the words go together"
)
SLOW = 128  # tokens from which a view over all positions waits for a click

session.framed()
m = session.model()


def choose_position(reading: Reading) -> int:
    """A token picked by its chip or by the slider; both say the same."""
    chips = st.container()
    position = session.position_slider(reading, "Hidden position", "p3_position")
    if 1 < len(reading.tokens) <= CHIPS:
        st.session_state["p3_chip"] = position
        chips.pills(
            "Click a word to hide it",
            [token.position for token in reading.tokens],
            format_func=lambda p: session.escape(charts.isolated(reading.token(p).label)),
            key="p3_chip",
            on_change=follow_chip,
        )
    return position


def follow_chip() -> None:
    if st.session_state["p3_chip"] is not None:
        st.session_state["p3_position"] = st.session_state["p3_chip"]


def show_candidates(prediction: MaskPrediction) -> None:
    best = prediction.candidates[0]
    session.draw(
        charts.top_k,
        session.candidate_frame(prediction),
        key=f"p3_bars_{prediction.position}",
        alt=f"Most probable tokens, first {best.token} with {best.probability:.1%}",
    )
    if prediction.others:
        st.caption(f"{prediction.others:,} other tokens share {prediction.rest:.1%}.")


def show_truth(predictions: list[PositionPrediction]) -> None:
    """The true token of each hidden piece: rank, p(true), loss."""
    for prediction in predictions:
        bars, figures = st.columns([3, 2], gap="large", vertical_alignment="center")
        with bars:
            show_candidates(prediction)
        left, right = figures.columns(2)
        left.metric("True token ★", session.escape(charts.isolated(prediction.true_token)))
        left.metric("p(true)", session.share(prediction.true_probability))
        right.metric("True rank", f"{prediction.true_rank:,}", help=f"Of {m.info.vocabulary:,}")
        right.metric("Loss (nats)", f"{prediction.loss:.2f}", help="−log p(true)")
        if prediction.strategy == "random":
            shown = session.escape(prediction.shown_token)
            figures.caption(f"The model read “{shown}” there.")
    if len(predictions) > 1:
        joint = sum(prediction.loss for prediction in predictions)
        st.caption(
            f"The word has {len(predictions)} pieces, each under its own mask and predicted "
            f"independently: summed loss {joint:.3f} nats."
        )


def hidden_word(position: int, reading: Reading) -> int | None:
    """Predict the hidden word. Returns the id of its true token."""
    pieces = reading.word_of(position)
    settings = st.columns([2, 2, 1], vertical_alignment="bottom", gap="large")
    ways = {"mask": session.escape(m.mask_token), "random": "random word", "keep": "itself"}
    strategy = settings[0].segmented_control(
        "What stands in its place",
        list(ways),
        default="mask",
        required=True,
        format_func=lambda way: ways[way],
        key="p3_strategy",
        bind="query-params",
        help="The three ways in which BERT's training treats a chosen word: 80 %, 10 %, 10 %.",
    )
    top_k = settings[1].slider("Candidates", 1, 50, 5, key="p3_k", bind="query-params")
    seed, whole = 0, len(pieces) > 1
    if strategy == "random":
        seed = settings[2].number_input("Draw", 0, 9999, 0, key="p3_seed", bind="query-params")
    if len(pieces) > 1:
        label = f"Hide all {len(pieces)} pieces of the word"
        whole = st.toggle(label, True, key="p3_whole", bind="query-params")
    function = predict_word if whole else predict_position
    try:
        done = session.timed(m, function, reading, position, strategy, top_k, seed=seed)
    except ClozeError as error:
        session.show_error(error)
        return None
    predictions = done.value if whole else [done.value]
    show_truth(predictions)
    extra = f", seed={seed}" if strategy == "random" else ""
    session.provenance(
        m,
        done.seconds,
        f"from core.prediction import {function.__name__}",
        f"text = {reading.text!r}",
        f"{function.__name__}(m, text, {position}, {strategy!r}, top_k={top_k}{extra})",
    )
    return next(p.true_id for p in predictions if p.position == position)


def typed_masks(reading: Reading) -> int:
    """Predict every mask that was typed. Returns the id of the first choice at the first one."""
    st.caption(f"The text holds {len(reading.masks)} {session.escape(m.mask_token)} of your own.")
    top_k = st.slider("Candidates", 1, 50, 5, key="p3_k", bind="query-params")
    done = session.timed(m, predict_masks, reading.text, top_k)
    for number, prediction in enumerate(done.value, 1):
        st.markdown(f"**Mask {number}**, position {prediction.position}")
        show_candidates(prediction)
    session.provenance(
        m,
        done.seconds,
        "from core.prediction import predict_masks",
        f"predict_masks(m, {reading.text!r}, top_k={top_k})",
    )
    return done.value[0].candidates[0].token_id


def every_position(reading: Reading, position: int, _: int | None) -> None:
    st.caption("Each token hidden alone, all in one batch. Click a bar to hide that token above.")
    if not session.agreed(reading, SLOW, "p3_all_positions"):
        return
    within = len(reading.words) < len(reading.tokens) and st.toggle(
        "Hide the later pieces of a word along with each piece",
        key="p3_within",
        bind="query-params",
        help="They give the word away (Kauf and Ivanova 2023).",
    )
    done = session.timed(m, score_positions, reading, within_word=within)
    scores = done.value
    left, middle, right = st.columns(3)
    left.metric(
        "Pseudo-perplexity",
        f"{pseudo_perplexity(scores):,.2f}",
        help="exp of the mean loss over all positions (Salazar et al. 2020); 1 would be certainty",
    )
    middle.metric("Mean loss (nats)", f"{scores['loss'].mean():.3f}")
    right.metric("True token first", f"{(scores['rank'] == 1).sum()} of {len(scores)}")
    picked = session.draw(
        charts.positions,
        scores,
        position,
        key="p3_positions",
        on_select="rerun",
        selection_mode="picked",
        alt="Probability of the true token at every position",
    )
    follow_bar(picked, reading)
    session.provenance(
        m,
        done.seconds,
        "from core.prediction import score_positions",
        f"score_positions(m, {reading.text!r}, within_word={within})",
        data=scores,
    )


def follow_bar(event: object, reading: Reading) -> None:
    """A click on a bar moves the slider, once; the slider is drawn already, so by a rerun."""
    points = event["selection"].get("picked", [])  # type: ignore[index]
    chosen = int(points[0]["position"]) if points else None
    if chosen != st.session_state.get("p3_clicked"):
        st.session_state["p3_clicked"] = chosen
        if chosen is not None and not reading.masks:
            st.session_state["p3_next"] = chosen
            st.rerun()


def which_matter(reading: Reading, position: int, target: int | None) -> None:
    if target is None:
        return
    word = session.escape(m.token(target))
    st.caption(
        f"Each other token is hidden as well: how far does log p of “{word}” fall? "
        "This asks for a change in the prediction, which attention weights alone can't tell."
    )
    if not session.agreed(reading, SLOW, "p3_all_occlusion"):
        return
    done = session.timed(m, occlusion, reading, position, target_id=target)
    session.draw(
        charts.falls,
        done.value,
        position,
        key="p3_falls",
        alt="Fall of log p when each other token is hidden",
    )
    session.provenance(
        m,
        done.seconds,
        "from core.prediction import occlusion",
        f"occlusion(m, {reading.text!r}, {position}, target_id={target})",
        data=done.value,
    )


def by_layer(reading: Reading, position: int, target: int | None) -> None:
    if target is None:
        return
    st.caption(
        "The masked-LM head, read after every layer. It was trained for the last layer only, so "
        "lower layers show what is already there in its terms, not all that they know."
    )
    done = session.timed(m, layer_lens, reading, position, target_id=target)
    session.draw(charts.lens, done.value, key="p3_lens", alt="Top five tokens after each layer")
    session.provenance(
        m,
        done.seconds,
        "from core.prediction import layer_lens",
        f"layer_lens(m, {reading.text!r}, {position}, target_id={target})",
        data=done.value,
    )


def own_candidates(reading: Reading, position: int, _: int | None) -> None:
    typed = st.text_input(
        "Words to compare in the hidden place, separated by commas",
        "sat, slept, lay, photosynthesised",
        key="p3_candidates",
        bind="query-params",
    )
    words = [word.strip() for word in typed.split(",")]
    done = session.timed(m, compare_candidates, reading, position, words)
    table = done.value
    session.draw(charts.candidates, table, key="p3_compare", alt="log p of each candidate")
    several = table[table["count"] > 1]
    if len(several):
        st.caption(
            "Words of several pieces are scored whole, piece after piece: "
            + "; ".join(session.escape(pieces) for pieces in several["pieces"])
            + ". They get as many masks as they have pieces, which tells the model their length."
        )
    session.provenance(
        m,
        done.seconds,
        "from core.comparison import compare_candidates",
        f"compare_candidates(m, {reading.text!r}, {position}, {words!r})",
        data=table,
    )


def two_sentences(*_: object) -> None:
    st.caption("Two sentences that differ in little, scored word by word, each token hidden alone.")
    left, right = st.columns(2)
    first = left.text_input(
        "First sentence",
        "The keys to the cabinet are on the table.",
        key="p3_first",
        bind="query-params",
    )
    second = right.text_input(
        "Second sentence",
        "The keys to the cabinet is on the table.",
        key="p3_second",
        bind="query-params",
    )
    done = session.timed(m, compare_sentences, first, second)
    table = done.value
    one, two = table[["first_log_p", "second_log_p"]].sum()
    left.metric("log p, first", f"{one:.2f} nats")
    right.metric("log p, second", f"{two:.2f} nats", f"{two - one:+.2f} against the first")
    session.draw(charts.word_pairs, table, key="p3_pairs", alt="log p of each word")
    session.provenance(
        m,
        done.seconds,
        "from core.comparison import compare_sentences",
        f"compare_sentences(m, {first!r}, {second!r})",
        data=table,
    )


def two_models(reading: Reading, position: int, _: int | None) -> None:
    st.caption(
        "The same text read by another masked language model, aligned by word where the two cut it "
        "differently. Later pieces of a word are hidden along with each piece."
    )
    name = st.text_input(
        "The other model",
        placeholder="A hub name such as bert-base-uncased, or a folder such as ./mine",
        key="p3_other",
        bind="query-params",
    )
    if not name.strip():
        return
    other = session.load(session.allowed(name))
    start = time.perf_counter()
    table = compare_models(m, other, reading.text)
    one, two = table[["first_log_p", "second_log_p"]].sum()
    left, right = st.columns(2, gap="large")
    for column, title, loaded, total in ((left, "First", m, one), (right, "Second", other, two)):
        with column:
            st.markdown(f"**{title}**: {session.escape(loaded.info.name)}")
            st.metric("log p of the text", f"{total:.2f} nats")
            if not reading.masks:
                here = read(loaded, reading.text)
                start_of_word = reading.token(position).start
                place = next(t.position for t in here.tokens if t.end > start_of_word)
                for prediction in predict_word(loaded, here, place):
                    session.draw(
                        charts.top_k,
                        session.candidate_frame(prediction),
                        key=f"p3_{title}_{prediction.position}",
                        alt=f"Most probable tokens of the {title.lower()} model",
                    )
    session.draw(charts.word_pairs, table, key="p3_models", alt="log p of each word by model")
    session.provenance(
        m,
        time.perf_counter() - start,
        "from core.comparison import compare_models",
        f"compare_models(m, load_model({name!r}), {reading.text!r})",
        data=table,
    )


def can_it_write(*_: object) -> None:
    st.caption(
        "An encoder predicts each mask as if the others stayed unknown. All at once, its words need "
        "not go together; one after another, each choice is known to the next; a beam keeps the "
        "best few of the joint fillings."
    )
    left, right = st.columns([3, 1], gap="large", vertical_alignment="bottom")
    prompt = left.text_input(
        f"A beginning, or a text with {session.escape(m.mask_token)}s of your own",
        "Late in the evening she opened the door and",
        key="p3_prompt",
        bind="query-params",
    )
    count = right.slider("Masks to add", 0, 20, 8, key="p3_masks", bind="query-params")
    text = " ".join([prompt, *[m.mask_token] * count]) + ("." if count else "")
    columns = st.columns(len(Method), gap="large")
    start = time.perf_counter()
    fillings = [session.compute(m, fill, text, method) for method in Method]
    first = fillings[0].tokens
    for column, filling in zip(columns, fillings, strict=True):
        with column:
            st.markdown(f"**{filling.method.value.capitalize()}**")
            st.text(filling.text)
            differ = sum(first[position] != token for position, token in filling.tokens.items())
            st.metric("Mean log p", f"{filling.score:.2f}", help=SCORE_HELP)
            st.caption(f"{differ} of {len(first)} differ from all at once")
    st.dataframe(
        pd.DataFrame(
            {
                "Position": list(first),
                **{f.method.value.capitalize(): list(f.tokens.values()) for f in fillings},
                "Filled as number": [
                    1 + [step.position for step in fillings[1].steps].index(p) for p in first
                ],
                "Agreement": [
                    "all agree" if len({f.tokens[p] for f in fillings}) == 1 else "they differ"
                    for p in first
                ],
            }
        ),
        hide_index=True,
    )
    session.provenance(
        m,
        time.perf_counter() - start,
        "from core.filling import Method, fill",
        f"text = {text!r}",
        "[fill(m, text, method) for method in Method]",
    )
    beside_causal(prompt, count)


def beside_causal(prompt: str, count: int) -> None:
    """The same beginning, written on by a model that was trained to write."""
    st.markdown("**Beside a causal model**, which was trained to write on from the left")
    name = session.pick_causal("p3_causal")
    if name is None:
        return
    if m.mask_token in prompt:
        st.caption("It can only write on from a beginning: leave the masks out of the text.")
        return
    causal = session.load_causal(name)
    start = time.perf_counter()
    written = write_on(causal, prompt, max(1, count))
    st.text(written.text)
    st.metric(
        "Mean log p",
        f"{sum(written.log_p) / len(written.log_p):.2f}",
        help="Nats, mean over the tokens that it wrote, each given all before it",
    )
    session.footer(
        f"Live from {session.escape(causal.name)} in {time.perf_counter() - start:.1f} s",
        "from core.causal import load_causal_model, write_on",
        "",
        f"causal = load_causal_model({name!r})",
        f"write_on(causal, {prompt!r}, {max(1, count)})",
    )


def how_it_was_read(reading: Reading) -> None:
    """Token by token: what was typed, what the vocabulary has for it, and its characters."""
    with st.expander("How the text was read", icon=":material/format_letter_spacing:"):
        st.text(f"After the tokenizer's normalisation: {reading.normalised[:2000]}")
        st.dataframe(
            pd.DataFrame(
                {
                    "Position": [t.position for t in reading.tokens],
                    "Typed": [t.text for t in reading.tokens],
                    "Token": [t.piece for t in reading.tokens],
                    "Id": [t.id for t in reading.tokens],
                    "Word": [t.word for t in reading.tokens],
                    "Kind": [t.kind.value for t in reading.tokens],
                    "Characters": [code_points(t.text[:12]) for t in reading.tokens],
                }
            ),
            hide_index=True,
        )


if "p3_next" in st.session_state:
    st.session_state["p3_position"] = st.session_state.pop("p3_next")
st.title(r"Predicting \[MASK\]")
reading = session.text_input("p3")
target: int | None
if reading.masks:
    position = reading.masks[0]
    target = typed_masks(reading)
else:
    position = choose_position(reading)
    target = hidden_word(position, reading)

st.divider()
views: dict[str, Callable[..., None]] = {
    "Every position": every_position,
    "Which words matter": which_matter,
    "Layer by layer": by_layer,
    "Your candidates": own_candidates,
    "Two sentences": two_sentences,
    "Can it write?": can_it_write,
    "Two models": two_models,
}
session.show_views(views, "p3_view", reading, position, target)
how_it_was_read(reading)
