"""Page 5: fine-tune a copy of the model as a classifier, and look at what it learned."""

import numpy as np
import pandas as pd
import streamlit as st

from core import charts, session
from core.datasets import Table, labelled, read_table, reviews, split
from core.errors import ClozeError
from core.finetuning import Classifier, Epoch, FinetuneConfig, classify, finetune, wilson
from core.runs import LiveRun

MOST_ROWS = 5000  # more than this trains for hours on a laptop: a sample is taken, and said

session.framed()
m = session.model()


def show_table_notes(table: Table) -> None:
    for note in table.notes:
        st.info(session.escape(note), icon=":material/info:")


def chosen_rows() -> pd.DataFrame:
    """Rows with text and label: the built-in reviews, or columns of an upload."""
    source = st.segmented_control(
        "Data",
        ["Built-in reviews", "Your own table"],
        default="Built-in reviews",
        required=True,
        key="p5_source",
        bind="query-params",
        help="402 short reviews written for this project, or a CSV, TSV or JSONL file of yours.",
    )
    if source == "Built-in reviews":
        return reviews()
    upload = st.file_uploader("A table with a text and a label", ["csv", "tsv", "txt", "jsonl"])
    if upload is None:
        st.info("Choose a file: a header, then a row for each text.", icon=":material/upload:")
        st.stop()
    table = read_table(upload.getvalue(), upload.name)
    show_table_notes(table)
    st.dataframe(table.frame.head(5), hide_index=True)
    names = list(table.frame.columns)
    left, right = st.columns(2)
    text = left.selectbox("Text column", names, names.index("text") if "text" in names else 0)
    guess = names.index("label") if "label" in names else len(names) - 1
    label = right.selectbox("Label column", names, guess)
    checked = labelled(table.frame, text, label)
    show_table_notes(checked)
    if len(checked.frame) > MOST_ROWS:
        st.info(
            f"{len(checked.frame):,} rows: a sample of {MOST_ROWS:,} is used, drawn with seed 0.",
            icon=":material/info:",
        )
        return checked.frame.sample(MOST_ROWS, random_state=0).reset_index(drop=True)
    return checked.frame


def settings(rows: pd.DataFrame) -> LiveRun | None:
    """The form of a run; what it starts, or None."""
    counts = rows["label"].value_counts()
    shown = ", ".join(f"{label}: {count}" for label, count in counts.head(12).items())
    st.caption(f"{len(rows)} rows, {len(counts)} labels. {session.escape(shown)}")
    first, second, third = st.columns(3, gap="large")
    epochs = first.slider("Epochs", 1, 20, 3, key="p5_epochs", bind="query-params")
    share = first.slider("Held out", 10, 50, 25, format="%d%%", key="p5_share", bind="query-params")
    rate = second.select_slider(
        "Learning rate",
        [1e-5, 2e-5, 3e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3],
        5e-5,
        format_func="{:.0e}".format,
        key="p5_rate",
        bind="query-params",
        help="Devlin et al. (2019) recommend 2e-5 to 5e-5 for BERT-base.",
    )
    size = second.select_slider(
        "Batch size", [8, 16, 32, 64], 16, key="p5_batch", bind="query-params"
    )
    frozen = third.toggle(
        "Encoder frozen", key="p5_frozen", bind="query-params", help="Train the head only."
    )
    seed = third.number_input("Seed", 0, 99_999, 0, key="p5_seed", bind="query-params")
    if not st.button("Fine-tune", type="primary", icon=":material/play_arrow:"):
        return None
    train, test = split(rows, share=share / 100, seed=seed)
    show_table_notes(train)
    config = FinetuneConfig(
        epochs=epochs, batch_size=size, learning_rate=rate, frozen=frozen, seed=seed
    )
    st.session_state["p5_test"] = test.frame
    st.session_state["p5_majority"] = majority(train.frame, test.frame)
    events = finetune(m, train.frame, test.frame, config)
    return LiveRun(events, epochs * -(-len(train.frame) // size))


def majority(train: pd.DataFrame, test: pd.DataFrame) -> float:
    """Accuracy of always answering the commonest label of the training rows."""
    return float((test["label"] == train["label"].mode()[0]).mean())


def show_epochs(epochs: list[Epoch], labels: tuple[str, ...]) -> None:
    chosen = epochs[-1]
    if len(epochs) > 1:
        number = st.slider("Epoch", 0, len(epochs) - 1, len(epochs) - 1, key="p5_epoch")
        chosen = epochs[number]
    n = int(chosen.confusion.sum())
    low, high = wilson(round(chosen.accuracy * n), n)
    row = st.columns(4)
    row[0].metric("Accuracy", f"{chosen.accuracy:.1%}", help="On the held-out rows")
    row[1].metric("95 % interval", f"{low:.0%} to {high:.0%}", help="Wilson (1927)")
    row[2].metric("Macro F1", f"{chosen.macro_f1:.3f}")
    row[3].metric(
        "Majority baseline",
        f"{st.session_state['p5_majority']:.1%}",
        help="Accuracy of always answering the commonest label",
    )
    left, right = st.columns(2, gap="large")
    size = len(labels)
    with left:
        true, predicted = np.indices((size, size))
        cells = pd.DataFrame(
            {
                "true": np.array(labels)[true.ravel()],
                "predicted": np.array(labels)[predicted.ravel()],
                "rows": chosen.confusion.ravel(),
            }
        )
        session.draw(charts.confusion, cells, key="p5_confusion", alt="Confusion matrix")
    with right:
        history = pd.DataFrame(
            {
                "step": [epoch.number for epoch in epochs],
                "train_loss": [epoch.train_loss for epoch in epochs],
                "held_out_loss": [epoch.held_out_loss for epoch in epochs],
            }
        ).astype(float)
        session.draw(charts.epoch_loss, history, chosen.number, key="p5_loss", alt="Loss by epoch")


def show_mistakes(classifier: Classifier) -> None:
    """Held-out rows that it gets wrong, the surest first."""
    test: pd.DataFrame = st.session_state["p5_test"]
    found = classify(classifier, test["text"].tolist())
    found.insert(1, "true", test["label"].tolist())
    wrong = found[found["label"] != found["true"]].sort_values("probability", ascending=False)
    st.markdown(f"**Worst mistakes**: {len(wrong)} of {len(found)} held-out rows are wrong")
    if len(wrong):
        table = wrong.head(20)[["text", "true", "label", "probability"]]
        st.dataframe(table.rename(columns={"label": "predicted"}).round(3), hide_index=True)


def try_it(classifier: Classifier) -> None:
    text = st.text_input(
        "Classify a text of your own",
        "It is not perfect, but I would see it again.",
        key="p5_text",
        bind="query-params",
    )
    if text.strip():
        found = classify(classifier, [text])
        scores = pd.DataFrame(
            {
                "token": classifier.labels,
                "probability": [found[f"p: {label}"][0] for label in classifier.labels],
                "is_true": False,
            }
        ).sort_values("probability", ascending=False)
        scores["rank"] = range(1, len(scores) + 1)
        session.draw(charts.top_k, scores, key="p5_scores", alt="Probability of each label")
    st.download_button(
        "Download the classifier",
        classifier.as_zip,
        "classifier.zip",
        "application/zip",
        icon=":material/download:",
        help='transformers.pipeline("text-classification", model="model") loads it as it is.',
        on_click="ignore",
    )


def train_and_show() -> None:
    run = session.live_run("p5_run", settings(chosen_rows()))
    if run is None or not run.measured:
        return
    labels = tuple(sorted(st.session_state["p5_test"]["label"].unique()))
    if run.result is not None:
        labels = run.result.result.labels
    if len(labels) == len(run.measured[0].confusion):
        show_epochs(run.measured, labels)
    if run.result is not None:
        show_mistakes(run.result.result)
        try_it(run.result.result)


st.title("Fine-tuning")
st.markdown(
    "A copy of the model gets a new head and learns to tell labels apart, here and now. Epoch 0 is "
    "the untrained head. The loaded model stays as it is for everyone."
)
try:
    train_and_show()
except ClozeError as error:
    session.show_error(error)
