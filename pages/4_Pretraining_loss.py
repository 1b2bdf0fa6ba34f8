"""Page 4: the pre-training loss, in the recorded run of the embedded model and in one of yours."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import streamlit as st

from core import charts, charts_training, masking, session, training
from core.datasets import paragraphs, python_reference
from core.errors import ClozeError
from core.history import PretrainingHistory, losses, pretraining_history, recorded_pretraining
from core.models import DEFAULT, LoadedModel
from core.next_sentence import reads_segments
from core.prediction import predict_masks
from core.pretraining import (
    PretrainConfig,
    chunk,
    default_probes,
    from_scratch,
    hold_out,
)
from core.pretraining_run import job, tokens_a_second
from core.runs import Run

SCRATCH = (2, 128)  # layers and hidden size of a model from scratch

session.framed()
m = session.model()


def play(run: PretrainingHistory) -> None:
    """The step on show: moved by hand, or by the clock while it plays."""
    playing = st.session_state.get("p4_playing", False)
    st.fragment(view, run_every=0.8 if playing else None)(run)


def view(run: PretrainingHistory) -> None:
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
        session.draw(charts_training.run_loss, run.figures, step, key="p4_loss", alt="Loss by step")
    with p_true:
        st.markdown("**Mean p(true)**, by what stood in the token's place")
        session.draw(
            charts_training.run_p_true, run.figures, step, key="p4_p_true", alt="p(true) by step"
        )
    st.markdown("**What it predicted**, at the hidden word of fixed sentences; ★ is the true word")
    st.dataframe(probe_table(run, step), hide_index=True, height="content")


def show_figures(run: PretrainingHistory, step: int) -> None:
    row = run.figures[run.figures["step"] == step].to_dict("records")[0]
    columns = st.columns(5)
    train = "not yet" if pd.isna(row["train_loss"]) else f"{row['train_loss']:.3f}"
    columns[0].metric("Train loss", train, help="Mean since the last measurement")
    columns[1].metric("Held-out loss", f"{row['held_out_loss']:.3f}")
    columns[2].metric("Held-out top-1", f"{row['accuracy']:.1%}")
    columns[3].metric("p(true), masked", session.share(row["p_mask"]))
    columns[4].metric("p(true), kept", session.share(row["p_keep"]))


def probe_table(run: PretrainingHistory, step: int) -> pd.DataFrame:
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


def settings(texts: Sequence[str]) -> None:
    """The form of a run, and its start."""
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
    static = first.toggle(
        "Static masks",
        key="p4_static",
        bind="query-params",
        help="One draw for all epochs, as in BERT; else a new one at each epoch, as in RoBERTa.",
    )
    both = second.toggle(
        "Next sentence too",
        key="p4_nsp",
        bind="query-params",
        help="BERT's second objective: does B follow A in the text? For half of the pairs it does. "
        + (
            "This model tells A and B apart by segment ids."
            if reads_segments(m.model)
            else "This model has no segment ids: only the separator tells A and B apart."
        ),
    )
    busy = session.at_work("p4_run")
    start_it = st.button("Train", type="primary", icon=":material/play_arrow:", disabled=busy)
    if not start_it:
        if not busy:
            pace = session.compute(starting_model(scratch, seed=0), tokens_a_second)
            st.caption(
                f"About {1000 * budget * epochs / pace:,.0f} s here, by a step measured when this "
                "form was opened; less if the text is shorter."
            )
        return
    start = starting_model(scratch, seed)
    chunks = chunk(start, texts, 128, words=unit != "token")
    kept = int(np.searchsorted(np.cumsum(chunks.lengths), 1000 * budget)) + 1
    held, used = hold_out(chunks.first(kept), every=10)
    config = PretrainConfig(
        optimiser=training.TrainConfig(steps=1, learning_rate=learning_rate, warmup=0.1, seed=seed),
        epochs=epochs,
        rate=rate / 100,
        unit=masking.Unit(unit),
        dynamic=not static,
        next_sentence=both,
        batch_tokens=1024,
    )
    probes = [
        probe.replace("[MASK]", start.mask_token)
        for probe in ("A [MASK] statement returns a value.", *default_probes(start)[:2])
    ]
    session.start_run(job(start, used, held, config, probes=probes, budget=1000 * budget), "p4_run")
    st.rerun()


def starting_model(scratch: bool, seed: int) -> LoadedModel:
    layers, hidden = SCRATCH
    return from_scratch(m, layers=layers, hidden=hidden, seed=seed) if scratch else m


def train_now() -> None:
    st.markdown(
        "**Computed now**, on a copy of the model: the loaded one stays as it is for everyone. The "
        "same loop trained the embedded model. The run goes on while you look at other pages; its "
        "address finds it again."
    )
    try:
        settings(chosen_text())
    except ClozeError as error:
        session.show_error(error)
    session.watch("p4_run", show_run)
    run = session.finished("p4_run")
    if run is not None:
        before_and_after(run)


def show_run(run: Run) -> None:
    """All that was recorded of a run."""
    st.caption(settings_line(run))
    steps = losses(run.records)
    measured = pretraining_history(run.records) if run.measured else None
    left, right = st.columns(2, gap="large")
    if len(steps):
        with left:
            st.markdown("**Loss of each step**, nats a masked token")
            session.draw(charts_training.live_loss, steps, key="p4_live", alt="Loss by step")
    if measured is not None:
        with right:
            st.markdown("**Mean p(true)** on held-out text, by what stood in the token's place")
            session.draw(
                charts_training.run_p_true,
                measured.figures,
                measured.steps[-1],
                key="p4_live_p_true",
                alt="p(true) by step",
            )
        show_epochs(run, measured)
        session.footer(
            "Measured while it trained, on this server",
            *code_of(run),
            data=measured.figures,
        )


def code_of(run: Run) -> list[str]:
    """The lines that give the same run from the same text."""
    config, about = run.about["config"], run.about
    optimiser = config["optimiser"]
    scratch = about["model"] != m.info.name
    layers, hidden = SCRATCH
    start = f"from_scratch(m, layers={layers}, hidden={hidden}, seed={optimiser['seed']})"
    return [
        "import numpy as np",
        "from core.datasets import python_reference",
        "from core.masking import Unit",
        "from core.models import load_model",
        "from core.pretraining import PretrainConfig, chunk, from_scratch, hold_out, pretrain",
        "from core.training import TrainConfig",
        "",
        "m = load_model()",
        f"start = {start if scratch else 'm'}",
        "texts = python_reference()  # or your own paragraphs",
        f"chunks = chunk(start, texts, 128, words={config['unit'] != 'token'})",
        f"most = {about['budget']}  # tokens",
        "chunks = chunks.first(int(np.searchsorted(np.cumsum(chunks.lengths), most)) + 1)",
        "held_out, used = hold_out(chunks, every=10)",
        f"optimiser = TrainConfig(steps=1, learning_rate={optimiser['learning_rate']}, warmup=0.1, "
        f"seed={optimiser['seed']})",
        f"config = PretrainConfig(optimiser, epochs={config['epochs']}, rate={config['rate']}, "
        f"unit=Unit({config['unit']!r}), dynamic={config['dynamic']}, "
        f"next_sentence={config['next_sentence']}, batch_tokens=1024)",
        "list(pretrain(start, used, config, held_out=held_out))",
    ]


def settings_line(run: Run) -> str:
    """What a run was asked to do, in a line."""
    about, config = run.about, run.about["config"]
    return " · ".join(
        [
            f"Model {session.escape(about['model'])} (weights {about['weights']})",
            f"{about['tokens']:,} training and {about['held_out_tokens']:,} held-out tokens",
            f"{config['epochs']} epochs",
            f"{config['rate']:.0%} masked by {config['unit']}, "
            + ("dynamic" if config["dynamic"] else "static"),
            *(["next-sentence prediction"] if config["next_sentence"] else []),
            f"learning rate {config['optimiser']['learning_rate']:.0e}",
            f"seed {config['optimiser']['seed']}",
        ]
    )


def show_epochs(run: Run, measured: PretrainingHistory) -> None:
    """Held-out measurements, epoch 0 being before training."""
    figures = measured.figures
    table = pd.DataFrame(
        {
            "Epoch": figures["step"] // run.about["steps_per_epoch"],
            "Held-out loss": figures["held_out_loss"],
            "Top-1": figures["accuracy"],
            "p(true), masked": figures["p_mask"],
            "p(true), random": figures["p_random"],
            "p(true), kept": figures["p_keep"],
        }
    )
    if "pair_loss" in figures:
        table["Next-sentence loss"] = figures["pair_loss"]
        table["Next-sentence accuracy"] = figures["pair_accuracy"]
    st.dataframe(table.round(4), hide_index=True)
    st.markdown("**What it predicted** after each epoch")
    rows = measured.probes.assign(epoch=measured.probes["step"] // run.about["steps_per_epoch"])
    cells = [
        f"{charts.isolated(token)} {session.share(p)}"
        for token, p in zip(rows["token"], rows["probability"], strict=True)
    ]
    first = rows.assign(cell=cells)[rows["rank"] == 1]
    wide = first.pivot(index="sentence", columns="epoch", values="cell")
    wide.columns = [f"epoch {epoch}" for epoch in wide.columns]
    st.dataframe(wide.reset_index(names="Sentence"), hide_index=True)


def before_and_after(run: Run) -> None:
    st.subheader("Before and after")
    sentence = st.text_input(
        "A sentence with a mask of your own",
        f"A {m.mask_token} statement returns a value.",
        key="p4_probe",
        bind="query-params",
    )
    config, about = run.about["config"], run.about
    models = {"After": session.load_trained(str(run.result))}
    if about["weights"] == m.weights_hash:
        models = {"Before": m, **models}
    else:
        before = starting_model(True, config["optimiser"]["seed"])
        if before.weights_hash == about["weights"]:
            models = {"Before": before, **models}
    columns = st.columns(len(models), gap="large")
    for column, (title, model) in zip(columns, models.items(), strict=True):
        with column:
            st.markdown(f"**{title}**")
            for prediction in predict_masks(model, sentence):
                session.draw(
                    charts.top_k,
                    session.candidate_frame(prediction),
                    key=f"p4_{title}_{prediction.position}",
                    alt=f"Most probable tokens {title.lower()} training",
                )
    if "Before" not in models:
        st.caption("It started from another model than the loaded one, which is not shown.")
    session.download_run(
        run,
        "Download the trained model",
        "model.zip",
        "A folder that transformers loads: AutoModelForMaskedLM.from_pretrained('model')",
    )


def recorded() -> None:
    st.markdown(
        "**Recorded run**: this is how the embedded model was trained, measured as it went on text "
        "that it never trained on."
    )
    play(recorded_pretraining())
    session.footer(
        f"Recorded while {session.escape(DEFAULT)} was trained, not computed now",
        "from core.history import recorded_pretraining",
        "",
        "recorded_pretraining().figures",
        data=recorded_pretraining().figures,
    )
    st.caption(
        "The recipe is in the model card on the Home page. Masking "
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
