"""Page 4: the pre-training loss, in the recorded run of the embedded model."""

import pandas as pd
import streamlit as st

from core import charts, session
from core.runs import RecordedRun, recorded_run

session.framed()


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
    row = run.history.set_index("step").loc[step]
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


if "p4_next" in st.session_state:
    st.session_state["p4_step"] = st.session_state.pop("p4_next")
st.title("Pre-training loss")
st.markdown(
    "The model learns by one question, asked millions of times: which word stood here? The loss is "
    "the mean of −log p(true) over the masked positions. **Recorded run**: this is how the embedded "
    "model was trained, measured as it went on text that it never trained on."
)
play(recorded_run())
st.caption(
    "Recorded, not computed now. The recipe is in the model card on the Home page. Masking while "
    "training and while measuring differ in rate (25 % and 15 %), so the two losses are not on the "
    "same scale."
)
