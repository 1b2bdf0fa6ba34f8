"""Page 4: the pre-training loss, in the recorded run of the embedded model and in one of yours."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import streamlit as st

from core import charts, masking, session, training
from core.datasets import paragraphs, python_reference
from core.models import LoadedModel, wrap
from core.prediction import predict_masks
from core.pretraining import (
    PretrainConfig,
    as_zip,
    chunk,
    default_probes,
    from_scratch,
    hold_out,
    pretrain,
    steps_in,
)
from core.runs import LiveRun, RecordedRun, recorded_run

session.framed()
m = session.model()


def play(run: RecordedRun) -> None:
    """The step on show: moved by hand, or by the clock while it plays."""
    playing = st.session_state.get("p4_playing", False)
    st.fragment(view, run_every=0.8 if playing else None)(run)


def view(run: RecordedRun) -> None:
    steps = run.steps
    if st.session_state.get("p4_playing"):
        place = steps.index(st.session_state.get("p4_step", steps[0]))
        if place + 1 < len(steps):
            st.session_state["p4_step"] = steps[place + 1]
        else:
            st.session_state["p4_playing"] = False
            st.rerun()
    left, right = st.columns([5, 1], gap="large", vertical_alignment="bottom")
    step = left.select_slider("After step", steps, steps[-1], key="p4_step", bind="query-params")
    playing = st.session_state.get("p4_playing", False)
    label, icon = ("Pause", ":material/pause:") if playing else ("Play", ":material/play_arrow:")
    if right.button(label, icon=icon, width="stretch"):
        st.session_state["p4_playing"] = not playing
        if not playing:
            st.session_state["p4_next"] = steps[0]
        st.rerun()
    show_figures(run, step)
    loss, p_true = st.columns(2, gap="large")
    with loss:
        st.markdown("**Loss**, nats a masked token")
        session.draw(charts.run_loss, run.history, step, key="p4_loss", alt="Loss by step")
    with p_true:
        st.markdown("**Mean p(true)**, by what stood in the token's place")
        session.draw(charts.run_p_true, run.history, step, key="p4_p_true", alt="p(true) by step")
    st.markdown("**What it predicted**, at the hidden word of fixed sentences; ★ is the true word")
    st.dataframe(probe_table(run, step), hide_index=True, height="content")


def show_figures(run: RecordedRun, step: int) -> None:
    row = run.history[run.history["step"] == step].to_dict("records")[0]
    columns = st.columns(5)
    train = "not yet" if pd.isna(row["train_loss"]) else f"{row['train_loss']:.3f}"
    columns[0].metric("Train loss", train, help="Mean since the last measurement")
    columns[1].metric("Held-out loss", f"{row['held_out_loss']:.3f}")
    columns[2].metric("Held-out top-1", f"{row['accuracy']:.1%}")
    columns[3].metric("p(true), masked", session.share(row["p_mask"]))
    columns[4].metric("p(true), kept", session.share(row["p_keep"]))


def probe_table(run: RecordedRun, step: int) -> pd.DataFrame:
    """A row a probe sentence: its five most probable words with their probabilities."""
    rows = run.probes[run.probes["step"] == step]
    cells = [
        ("★ " if true else "") + f"{charts.isolated(token)} {probability:.0%}"
        for token, probability, true in zip(
            rows["token"], rows["probability"], rows["is_true"], strict=True
        )
    ]
    table = rows.assign(cell=cells).pivot(index="sentence", columns="rank", values="cell")
    table = table.loc[rows["sentence"].drop_duplicates()]
    table.columns = [f"{rank}" for rank in table.columns]
    return table.reset_index(names="Sentence")


def chosen_text() -> Sequence[str]:
    source = st.segmented_control(
        "Text",
        ["Python reference", "Your own"],
        default="Python reference",
        required=True,
        key="p4_source",
        bind="query-params",
        help="The language reference that ships inside Python, or text that you paste or upload.",
    )
    if source == "Python reference":
        return python_reference()
    pasted = st.text_area("Paragraphs, with an empty line between them", key="p4_text", height=140)
    upload = st.file_uploader("Or a text file", type=["txt"], key="p4_file")
    text = upload.getvalue().decode("utf-8", errors="replace") if upload else pasted
    return paragraphs(text)


def settings(texts: Sequence[str]) -> LiveRun | None:
    """The form of a run; what it starts, or None."""
    first, second, third = st.columns(3, gap="large")
    scratch = first.toggle(
        "From scratch",
        key="p4_scratch",
        bind="query-params",
        help="An untrained BERT of 2 layers, hidden size 128; else a copy of the loaded model.",
    )
    budget = first.slider(
        "Thousand tokens of text", 5, 200, 20, 5, key="p4_budget", bind="query-params"
    )
    epochs = second.slider("Epochs", 1, 30, 3, key="p4_epochs", bind="query-params")
    rate = second.slider(
        "Mask probability", 5, 50, 15, format="%d%%", key="p4_rate", bind="query-params"
    )
    learning_rate = third.select_slider(
        "Learning rate",
        [1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3],
        1e-4,
        format_func="{:.0e}".format,
        key="p4_learning_rate",
        bind="query-params",
    )
    unit = third.segmented_control(
        "What is masked",
        [unit.value for unit in masking.Unit],
        default="token",
        required=True,
        key="p4_unit",
        bind="query-params",
    )
    seed = third.number_input("Seed", 0, 99_999, 0, key="p4_seed", bind="query-params")
    if not st.button("Train", type="primary", icon=":material/play_arrow:"):
        return None
    start = from_scratch(m, layers=2, hidden=128, seed=seed) if scratch else m
    chunks = chunk(start, texts, 128, words=unit != "token")
    kept = int(np.searchsorted(np.cumsum(chunks.lengths), 1000 * budget)) + 1
    held, used = hold_out(chunks.first(kept))
    config = PretrainConfig(
        optimiser=training.TrainConfig(steps=1, learning_rate=learning_rate, warmup=0.1, seed=seed),
        epochs=epochs,
        rate=rate / 100,
        unit=masking.Unit(unit),
        batch_tokens=1024,
    )
    probes = ["A [MASK] statement returns a value.", *default_probes(start)[:2]]
    events = pretrain(
        start,
        used,
        config,
        held_out=held,
        probes=[probe.replace("[MASK]", start.mask_token) for probe in probes],
    )
    st.session_state["p4_start"] = start
    return LiveRun(events, epochs * steps_in(used, config))


def train_now() -> None:
    st.markdown(
        "**Computed now**, on a copy of the model: the loaded one stays as it is for everyone. The "
        "same loop trained the embedded model."
    )
    run = session.live_run("p4_run", settings(chosen_text()))
    if run is None:
        return
    if len(run.measured) > 1:
        show_epochs(run)
    if run.result is not None:
        start: LoadedModel = st.session_state["p4_start"]
        before_and_after(start, wrap(run.result.model, start.tokenizer, name="trained here"))


def show_epochs(run: LiveRun) -> None:
    """Held-out measurements, epoch 0 being before training."""
    rows = [
        {
            "Epoch": number,
            "Held-out loss": event.result.held_out.loss,
            "Top-1": event.result.held_out.accuracy,
            **{f"p(true), {way}": p for way, p in event.result.p_true.items()},
        }
        for number, event in enumerate(run.measured)
    ]
    st.dataframe(pd.DataFrame(rows).round(4), hide_index=True)


def before_and_after(start: LoadedModel, trained: LoadedModel) -> None:
    sentence = st.text_input(
        "A sentence with a mask of your own",
        f"A {m.mask_token} statement returns a value.",
        key="p4_probe",
        bind="query-params",
    )
    left, right = st.columns(2, gap="large")
    for column, title, model in ((left, "Before", start), (right, "After", trained)):
        with column:
            st.markdown(f"**{title}**")
            for prediction in predict_masks(model, sentence):
                session.draw(
                    charts.top_k,
                    session.candidate_frame(prediction),
                    key=f"p4_{title}_{prediction.position}",
                    alt=f"Most probable tokens {title.lower()} training",
                )
    st.download_button(
        "Download the trained model",
        lambda: as_zip(start, trained.model),
        "model.zip",
        "application/zip",
        icon=":material/download:",
        help="A folder that transformers loads: AutoModelForMaskedLM.from_pretrained('model')",
        on_click="ignore",
    )


def recorded() -> None:
    st.markdown(
        "**Recorded run**: this is how the embedded model was trained, measured as it went on text "
        "that it never trained on."
    )
    play(recorded_run())
    st.caption(
        "Recorded, not computed now. The recipe is in the model card on the Home page. Masking "
        "while training and while measuring differ in rate (25 % and 15 %), so the two losses are "
        "not on the same scale."
    )


if "p4_next" in st.session_state:
    st.session_state["p4_step"] = st.session_state.pop("p4_next")
st.title("Pre-training loss")
st.markdown(
    "The model learns by one question, asked millions of times: which word stood here? The loss is "
    "the mean of −log p(true) over the masked positions."
)
session.show_views({"Recorded run": recorded, "Train now": train_now}, "p4_view")
