"""Page 5: fine-tune a copy of the model as a classifier, and look at what it learned."""

import time

import numpy as np
import pandas as pd
import streamlit as st

from core import charts, charts_training, session
from core.classifier import Classifier, as_frame, classify, classifying
from core.datasets import Table, labelled, read_table, reviews, split, without
from core.encoder_change import cls_attention, cls_similarity
from core.errors import ClozeError, SettingError
from core.exports import safe_csv
from core.finetuning import Epoch, FinetuneConfig, epochs_in, job
from core.history import losses, recorded_finetuning
from core.hub_data import hub_files, hub_table
from core.metrics import by_label, wilson
from core.runs import Run
from core.text import read

MOST_ROWS = 5000  # more than this trains for hours on a laptop: a sample is taken, and said
WORST = 20

session.framed()
m = session.model()


def show_table_notes(table: Table) -> None:
    for note in table.notes:
        st.info(session.escape(note), icon=":material/info:")


def chosen_rows() -> tuple[pd.DataFrame, pd.DataFrame | None] | None:
    """Rows with text and label, and test rows where there is a file of them; None while awaited."""
    source = st.segmented_control(
        "Data",
        ["Built-in reviews", "Your own table", "Hub data set"],
        default="Built-in reviews",
        required=True,
        key="p5_source",
        bind="query-params",
        help="Short reviews written for this project; a CSV, TSV or JSONL file; or a data set of the "
        "Hugging Face hub by its name.",
    )
    if source == "Built-in reviews":
        return reviews(), None
    table = (
        hub_choice() if source == "Hub data set" else own_table("A table with a text and a label")
    )
    if table is None:
        return None
    show_table_notes(table)
    st.dataframe(table.frame.head(5), hide_index=True)
    names = list(table.frame.columns)
    left, right = st.columns(2)
    text = left.selectbox("Text column", names, names.index("text") if "text" in names else 0)
    guess = names.index("label") if "label" in names else len(names) - 1
    label = right.selectbox("Label column", names, guess)
    checked = labelled(table.frame, text, label)
    show_table_notes(checked)
    if source == "Hub data set":
        return sampled(checked.frame), None
    test = own_table(
        "Test rows of your own, with the same columns; else a part is held out", "test"
    )
    if test is None:
        return sampled(checked.frame), None
    missing = {text, label} - set(test.frame.columns)
    if missing:
        raise SettingError(f"The test table has no column {' and '.join(sorted(missing))}.")
    tested = labelled(test.frame, text, label)
    show_table_notes(tested)
    rest = without(checked.frame, tested.frame)
    show_table_notes(rest)
    return sampled(rest.frame), tested.frame


def own_table(label: str, name: str = "table") -> Table | None:
    upload = session.kept_upload(label, ["csv", "tsv", "txt", "jsonl"], key=f"p5_{name}")
    if upload is None:
        if name == "table":
            st.info("Choose a file: a header, then a row for each text.", icon=":material/upload:")
        return None
    table: Table = session.kept(read_table, upload.data, upload.name)
    return table


def hub_choice() -> Table | None:
    name = st.text_input(
        "Name of the data set", placeholder="owner/name", key="p5_hub", bind="query-params"
    )
    if not name.strip():
        return None
    files = session.kept(hub_files, name)
    file = st.selectbox("File", files, help="Those for training come first.")
    table: Table = session.kept(hub_table, name, file)
    return table


def sampled(rows: pd.DataFrame) -> pd.DataFrame:
    if len(rows) <= MOST_ROWS or st.toggle(f"Use all {len(rows):,} rows", key="p5_all"):
        return rows
    st.info(
        f"A sample of {MOST_ROWS:,} of the {len(rows):,} rows is used, drawn with seed 0.",
        icon=":material/info:",
    )
    return rows.sample(MOST_ROWS, random_state=0).reset_index(drop=True)


def settings(rows: pd.DataFrame, tested: pd.DataFrame | None) -> None:
    """The form of a run, and its start."""
    counts = rows["label"].value_counts()
    shown = ", ".join(f"{label}: {count}" for label, count in counts.head(12).items())
    more = f" and {len(counts) - 12} more labels" if len(counts) > 12 else ""
    st.caption(f"{len(rows)} rows, {len(counts)} labels. {session.escape(shown + more)}")
    single = counts.index[counts < 2]
    if tested is None and len(single):
        st.info(
            session.escape(
                f"Labels with a single row stay in training, and are not tested: "
                f"{', '.join(single[:10])}" + (" and more." if len(single) > 10 else ".")
            ),
            icon=":material/info:",
        )
    first, second, third = st.columns(3, gap="large")
    epochs = first.slider("Epochs", 1, 20, 3, key="p5_epochs", bind="query-params")
    share = first.slider(
        "Held out",
        10,
        50,
        25,
        format="%d%%",
        key="p5_share",
        bind="query-params",
        disabled=tested is not None,
    )
    rate = second.select_slider(
        "Learning rate",
        [1e-5, 2e-5, 3e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3],
        5e-5,
        format_func="{:.0e}".format,
        key="p5_rate",
        bind="query-params",
        help="Devlin et al. (2019) recommend 2e-5 to 5e-5. The head starts untrained, and learns at "
        f"{FinetuneConfig.head_factor:.0f} times this rate.",
    )
    size = second.select_slider(
        "Batch size", [8, 16, 32, 64], 16, key="p5_batch", bind="query-params"
    )
    seed = third.number_input("Seed", 0, 99_999, 0, key="p5_seed", bind="query-params")
    frozen = third.toggle(
        "Encoder frozen",
        key="p5_frozen",
        bind="query-params",
        help="Train the head only, on vectors that are computed once.",
    )
    balanced = third.toggle(
        "Class weights",
        key="p5_balanced",
        bind="query-params",
        help="Weigh the rows of a label by the inverse of their number.",
    )
    early = third.toggle(
        "Stop early",
        key="p5_early",
        bind="query-params",
        help="End when the held-out loss has not fallen for 2 epochs, and go back to the best one.",
    )
    example = st.text_input(
        "An example to follow from epoch to epoch",
        "It is not perfect, but I would see it again.",
        key="p5_example",
        bind="query-params",
    )
    if st.button(
        "Fine-tune",
        type="primary",
        icon=":material/play_arrow:",
        disabled=session.at_work("p5_run"),
    ):
        config = FinetuneConfig(
            epochs=epochs,
            batch_size=size,
            learning_rate=rate,
            frozen=frozen,
            balanced=balanced,
            patience=2 if early else None,
            seed=seed,
        )
        train, test = rows, tested
        if test is None:
            train, test = (part.frame for part in split(rows, share=share / 100, seed=seed))
        examples = [example] if example.strip() else []
        made = job(m, train, test, config, examples=examples, share=share / 100)
        session.start_run(made, "p5_run")
        st.rerun()


def settings_line(run: Run) -> str:
    """What a run was asked to do, in a line."""
    config, about = run.about["config"], run.about
    parts = [
        f"Model {session.escape(about['model'])} (weights {about['weights']})",
        f"{about['train_rows']:,} training and {len(about['test']['label']):,} held-out rows",
        f"{config['epochs']} epochs",
        f"batch {config['batch_size']}",
        f"learning rate {config['learning_rate']:.0e}",
        f"seed {config['seed']}",
    ]
    if about["cut"]:
        parts.append(f"{about['cut']:,} texts cut at {config['max_tokens']} tokens")
    parts += ["encoder frozen"] if config["frozen"] else []
    parts += ["class weights"] if config["balanced"] else []
    parts += ["early stop"] if config["patience"] else []
    return " · ".join(parts)


def majority(run: Run) -> float:
    """Accuracy of always answering the commonest label of the training rows."""
    counts = run.about["train_counts"]
    return float(
        np.mean([label == max(counts, key=counts.get) for label in run.about["test"]["label"]])
    )


def show_run(run: Run) -> None:
    """All that was recorded of a run, and once it is over, what it made."""
    st.caption(settings_line(run))
    steps, epochs = losses(run.records), epochs_in(run.records)
    if not run.state.over and len(steps):
        session.draw(charts_training.live_loss, steps, key="p5_live", alt="Loss by step")
    if epochs:
        show_epochs(run, epochs)


def show_epochs(run: Run, epochs: list[Epoch]) -> None:
    chosen = epochs[-1]
    if len(epochs) > 1:
        last = len(epochs) - 1
        key = (
            f"p5_epoch_{run.id}"  # while a run goes on, the newest epoch unless another was chosen
        )
        followed = st.session_state.get(f"{key}_last")
        if st.session_state.get(key, followed) == followed:
            st.session_state[key] = last
        st.session_state[f"{key}_last"] = last
        chosen = epochs[st.slider("Epoch", 0, last, key=key, help="0: the untrained head")]
    show_figures(run, chosen)
    labels = run.about["labels"]
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("**Confusion matrix**, held-out rows; click a cell to read its rows")
        cell = show_confusion(run, chosen)
    with right:
        st.markdown("**Loss**, nats a row")
        session.draw(
            charts_training.epoch_loss,
            epoch_losses(epochs),
            chosen.number,
            key=f"p5_loss_{run.id}",
            alt="Loss by epoch",
        )
    with st.expander("Precision, recall and F1 of each label"):
        st.dataframe(by_label(chosen.confusion, labels).round(3), hide_index=True)
    show_rows(run, chosen, cell)
    show_examples(run, epochs, chosen)
    session.footer(
        "Measured while it trained",
        *code_of(run),
        data=epoch_losses(epochs).assign(
            accuracy=[epoch.accuracy for epoch in epochs],
            macro_f1=[epoch.macro_f1 for epoch in epochs],
        ),
    )


def code_of(run: Run) -> list[str]:
    """The lines that give the same run on the same rows."""
    config = ", ".join(
        f"{name}={value!r}"
        for name, value in run.about["config"].items()
        if value != getattr(FinetuneConfig(), name)
    )
    return [
        "from core.datasets import reviews, split",
        "from core.finetuning import FinetuneConfig, finetune",
        "from core.models import load_model",
        "",
        "m = load_model()",
        "rows = reviews()  # or a frame of yours with the columns text and label",
        f"train, test = (part.frame for part in split(rows, share={run.about['share']}, "
        f"seed={run.about['config']['seed']}))",
        f"list(finetune(m, train, test, FinetuneConfig({config})))",
    ]


def show_figures(run: Run, epoch: Epoch) -> None:
    n = int(epoch.confusion.sum())
    low, high = wilson(round(epoch.accuracy * n), n)
    row = st.columns(4)
    row[0].metric("Accuracy", f"{epoch.accuracy:.1%}", help=f"On the {n} held-out rows")
    row[1].metric("95 % interval", f"{low:.0%} to {high:.0%}", help="Wilson (1927)")
    row[2].metric("Macro F1", f"{epoch.macro_f1:.3f}")
    row[3].metric(
        "Majority baseline",
        f"{majority(run):.1%}",
        help="Accuracy of always answering the commonest label",
    )
    answered = np.flatnonzero(epoch.confusion.sum(0))
    if epoch.number and len(answered) == 1 and (epoch.confusion.sum(1) > 0).sum() > 1:
        label = session.escape(run.about["labels"][answered[0]])
        st.warning(
            f"It answers “{label}” for every held-out row: it has learned nothing yet, or its "
            "learning rate is too high.",
            icon=":material/warning:",
        )


def show_confusion(run: Run, epoch: Epoch) -> tuple[str, str] | None:
    """The matrix; the cell that was clicked, as true and predicted label."""
    labels, size = np.array(run.about["labels"]), len(run.about["labels"])
    true, predicted = np.indices((size, size))
    cells = pd.DataFrame(
        {
            "true": labels[true.ravel()],
            "predicted": labels[predicted.ravel()],
            "rows": epoch.confusion.ravel(),
        }
    )
    if size > charts_training.ROOMY:
        wrong = cells[(cells["true"] != cells["predicted"]) & (cells["rows"] > 0)]
        st.caption(f"{size} labels are too many for a matrix: the commonest confusions.")
        st.dataframe(wrong.nlargest(50, "rows"), hide_index=True)
        return None
    event = session.draw(
        charts_training.confusion,
        cells,
        key=f"p5_confusion_{run.id}",
        alt="Confusion matrix",
        on_select="rerun",
        selection_mode="cell",
    )
    points = event["selection"].get("cell", [])
    return (points[0]["true"], points[0]["predicted"]) if points else None


def epoch_losses(epochs: list[Epoch]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "step": [epoch.number for epoch in epochs],
            "train_loss": [epoch.train_loss for epoch in epochs],
            "held_out_loss": [epoch.held_out_loss for epoch in epochs],
        }
    ).astype(float)


def show_rows(run: Run, epoch: Epoch, cell: tuple[str, str] | None) -> None:
    """The held-out rows of a cell of the matrix, or those it gets wrong, the surest first."""
    found = pd.DataFrame(
        {
            "text": run.about["test"]["text"],
            "true": run.about["test"]["label"],
            "predicted": np.array(run.about["labels"])[epoch.predicted],
            "probability": epoch.confidence,
        }
    ).sort_values("probability", ascending=False)
    if cell is None:
        rows = found[found["true"] != found["predicted"]]
        st.markdown(f"**Worst mistakes**: {len(rows)} of {len(found)} held-out rows are wrong")
        rows = rows.head(WORST)
    else:
        rows = found[(found["true"] == cell[0]) & (found["predicted"] == cell[1])]
        said = f"true “{cell[0]}”, predicted “{cell[1]}”"
        st.markdown(f"**Rows of the cell** {session.escape(said)}: {len(rows)}")
    if len(rows):
        st.dataframe(rows.round(3), hide_index=True)


def show_examples(run: Run, epochs: list[Epoch], chosen: Epoch) -> None:
    examples, labels = run.about["examples"], run.about["labels"]
    if not examples or len(labels) > 10:
        return
    st.markdown("**P(label)** of an example, epoch by epoch")
    number = 0
    if len(examples) > 1:
        number = st.selectbox(
            "Example",
            range(len(examples)),
            format_func=lambda i: examples[i],
            key=f"p5_which_{run.id}",
        )
    else:
        st.text(examples[0])
    frame = pd.DataFrame(
        [
            {"epoch": epoch.number, "label": label, "probability": probability}
            for epoch in epochs
            for label, probability in zip(labels, epoch.examples[number], strict=True)
        ]
    )
    session.draw(
        charts_training.label_probabilities,
        frame,
        chosen.number,
        key=f"p5_examples_{run.id}",
        alt="Probability of each label by epoch",
    )


def use(run: Run) -> None:
    """Classify with what a run made, and take it home."""
    if run.result is None:
        return
    st.subheader("Use it")
    classifier = session.load_trained_classifier(str(run.result))
    text = st.text_input(
        "Classify a text of your own",
        "It is not perfect, but I would see it again.",
        key="p5_text",
        bind="query-params",
    )
    if text.strip():
        show_labels(classifier, text)
        show_change(run, classifier, text)
    try:
        classify_file(classifier)
    except ClozeError as error:
        session.show_error(error)
    session.download_run(
        run,
        "Download the classifier",
        "classifier.zip",
        'transformers.pipeline("text-classification", model="model") loads it as it is.',
    )


def show_labels(classifier: Classifier, text: str) -> None:
    found = classify(classifier, [text])
    scores = pd.DataFrame(
        {
            "token": classifier.labels,
            "probability": [found[f"p: {label}"][0] for label in classifier.labels],
            "is_true": False,
        }
    ).nlargest(20, "probability")
    scores["rank"] = range(1, len(scores) + 1)
    session.draw(charts.top_k, scores, key="p5_scores", alt="Probability of each label")


def show_change(run: Run, classifier: Classifier, text: str) -> None:
    """What fine-tuning did to the encoder on this text, where it started from the loaded model."""
    if run.about["weights"] != m.weights_hash:
        st.caption("It started from another model than the loaded one: no before and after.")
        return
    reading = session.compute(m, read, text)
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("**Whom \\[CLS\\] looks at**, last layer, mean over heads")
        session.draw(
            charts_training.attention_change,
            cls_attention(m, classifier, reading),
            key="p5_attention",
            alt="Attention of [CLS] before and after",
        )
    with right:
        st.markdown("**The \\[CLS\\] vector**, before and after, by layer: 1 is unchanged")
        session.draw(
            charts_training.cls_change,
            cls_similarity(m, classifier, reading),
            key="p5_cls",
            alt="Cosine of the [CLS] vectors before and after, by layer",
        )


def classify_file(classifier: Classifier) -> None:
    """Label every row of a table; what is done when it is stopped is kept."""
    upload = session.kept_upload(
        "Or a table to be labelled", ["csv", "tsv", "txt", "jsonl"], key="p5_file"
    )
    if upload is None:
        return
    table = read_table(upload.data, upload.name)
    show_table_notes(table)
    names = list(table.frame.columns)
    column = st.selectbox("Column to read", names, names.index("text") if "text" in names else 0)
    texts = table.frame[column].tolist()
    if st.button(f"Classify {len(texts):,} rows", icon=":material/label:"):
        place = st.empty()
        st.button("Stop", icon=":material/stop:", key="p5_file_stop")
        done = np.full((len(texts), len(classifier.labels)), np.nan)
        st.session_state["p5_labelled"] = (upload.name, column, done)
        began, count = time.perf_counter(), 0
        for rows, found in classifying(classifier, texts):
            done[rows] = np.exp(found)
            count += len(rows)
            pace = count / (time.perf_counter() - began)
            left = f"{pace:,.0f} rows a second, {(len(texts) - count) / pace:,.0f} s left"
            place.progress(count / len(texts), left)
        st.rerun()
    name, read, done = st.session_state.get("p5_labelled", (None, None, None))
    if (name, read) == (upload.name, column) and len(done) == len(texts):
        labelled_rows = as_frame(classifier, texts, done)[~np.isnan(done[:, 0])]
        st.caption(f"{len(labelled_rows):,} of {len(texts):,} rows are labelled.")
        st.dataframe(labelled_rows.head(100).round(3), hide_index=True)
        st.download_button(
            "Download the labels",
            lambda: safe_csv(labelled_rows),
            "labels.csv",
            "text/csv",
            icon=":material/download:",
            on_click="ignore",
        )


def recorded() -> None:
    st.markdown(
        "**Recorded run**: the embedded model, fine-tuned on the built-in reviews with the settings "
        "that the form of the other tab starts with."
    )
    show_run(recorded_finetuning())


def train_now() -> None:
    st.markdown(
        "**Computed now**, on a copy of the model: the loaded one stays as it is for everyone. The "
        "run goes on while you look at other pages; its address finds it again."
    )
    try:
        chosen = chosen_rows()
        if chosen is not None:
            settings(*chosen)
    except ClozeError as error:
        session.show_error(error)
    session.watch("p5_run", show_run)
    run = session.finished("p5_run")
    if run is not None:
        use(run)


st.title("Fine-tuning")
st.markdown(
    "A copy of the model gets a new head on its [CLS] vector and learns to tell labels apart. "
    "Epoch 0 is the untrained head."
)
session.show_views({"Recorded run": recorded, "Train now": train_now}, "p5_view")
