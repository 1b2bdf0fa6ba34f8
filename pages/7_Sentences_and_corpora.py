"""Page 7: vectors of whole sentences, against people's grades, and of a whole corpus."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import streamlit as st

from core import charts_vectors, session
from core.corpus_map import corpus_map, selected_rows
from core.datasets import graded, pairs, read_table, read_texts, reviews, sentences
from core.embeddings import embed_sentences, embedding
from core.errors import ClozeError
from core.exports import parquet, safe_csv
from core.projection import Method, project_corpus
from core.sentence_encoder import PACKAGED, SentenceEncoder
from core.similarity import (
    Correlation,
    centre,
    clusters,
    correlation,
    cosines,
    pair_cosines,
    pair_frame,
    search,
)

MOST_TEXTS = 100_000
MOST_LINES = 40  # of the matrix
RAW, CLS = "Mean of the raw vectors", "[CLS] vector"

session.framed()
m = session.model()
session.warm_umap()


def sentence_encoder() -> SentenceEncoder:
    name = st.selectbox(
        "Sentence-BERT model",
        [PACKAGED],
        key="p7_encoder",
        bind="query-params",
        accept_new_options=True,
        help="The packaged one needs no network. Type any sentence-transformers model of the hub.",
    )
    return session.load_encoder(name or PACKAGED)


def kinds(encoder: SentenceEncoder) -> dict[str, Callable[[list[str]], np.ndarray]]:
    """The three kinds of vectors that are compared."""
    return {
        RAW: lambda texts: session.compute(m, embed_sentences, tuple(texts)),
        CLS: lambda texts: session.compute(m, embed_sentences, tuple(texts), pooling="cls"),
        f"Sentence-BERT ({encoder.name})": lambda texts: session.encoded(encoder, tuple(texts)),
    }


def show_pairs() -> None:
    encoder = sentence_encoder()
    table = chosen_pairs()
    if table is None:
        return
    centred = st.toggle(
        "Without the mean",
        key="p7_centred",
        bind="query-params",
        help="Raw vectors share one direction, which makes every cosine high (Ethayarajh 2019).",
    )
    one, other = table["one"].tolist(), table["other"].tolist()
    found: dict[str, Correlation] = {}
    points: list[pd.DataFrame] = []
    for name, embed in kinds(encoder).items():
        vectors = embed(one + other)
        vectors = centre(vectors) if centred else vectors
        cosine = pair_cosines(vectors[: len(one)], vectors[len(one) :])
        found[name] = correlation(cosine, table["grade"].to_numpy())
        points.append(table.assign(name=name, number=len(points), cosine=cosine))
    show_correlations(found)
    session.draw(
        charts_vectors.grades,
        pd.concat(points),
        key="p7_grades",
        alt="Cosine against grade for each kind of vectors",
        width="content",
    )
    computed = session.timed(m, embed_sentences, tuple(one + other))
    session.provenance(
        m,
        computed.seconds,
        "from core.datasets import pairs\nfrom core.embeddings import embed_sentences\n"
        "from core.similarity import correlation, pair_cosines",
        "table = pairs()",
        "one, other = (embed_sentences(m, table[side].tolist()) for side in ('one', 'other'))",
        "correlation(pair_cosines(one, other), table['grade'])",
        data=pd.concat(points),
    )


def chosen_pairs() -> pd.DataFrame | None:
    upload = session.kept_upload(
        "Graded pairs of yours, in place of the built-in ones",
        ["csv", "tsv", "jsonl"],
        key="p7_own",
    )
    if upload is None:
        st.caption(f"{len(pairs())} pairs written and graded for this project, 0 to 5.")
        return pairs()
    read = read_table(upload.data, upload.name)
    names = list(read.frame.columns)
    places = [*range(min(3, len(names)))] + [0] * max(0, 3 - len(names))
    columns = st.columns(3)
    one = columns[0].selectbox("One sentence", names, places[0])
    other = columns[1].selectbox("The other", names, places[1])
    grade = columns[2].selectbox("Grade", names, places[2])
    table = graded(read.frame, one, other, grade)
    for note in (*read.notes, *table.notes):
        st.info(session.escape(note), icon=":material/info:")
    return table.frame


def show_correlations(found: dict[str, Correlation]) -> None:
    columns = st.columns(len(found))
    for column, (name, told) in zip(columns, found.items(), strict=True):
        column.metric(
            session.escape(name),
            f"{told.rho:.2f}",
            help=f"Spearman's correlation with the grades; 95 % interval {told.low:.2f} to "
            f"{told.high:.2f} (bootstrap over pairs, 2,000 resamples)",
        )
        if told.unrelated is not None:
            column.caption(f"Mean cosine of unrelated pairs: {told.unrelated:.2f}")
    raw, trained = found[RAW], list(found.values())[-1]
    verb = "agrees better" if trained.rho > raw.rho else "does not agree better"
    st.markdown(
        f"Sentence-BERT {verb} with people than the raw means ({trained.rho:.2f} and {raw.rho:.2f}), "
        "which is the claim of Reimers and Gurevych (2019). A cosine is no percentage of likeness: "
        "compare it with that of unrelated pairs."
    )
    frame = pd.DataFrame(
        [
            {"name": name, "rho": told.rho, "low": told.low, "high": told.high}
            for name, told in found.items()
        ]
    )
    session.draw(charts_vectors.correlations, frame, key="p7_rho", alt="Correlations")


def show_matrices() -> None:
    encoder = sentence_encoder()
    typed = st.text_area(
        "Sentences, one a line",
        "The kettle boiled over.\nThe tea water was boiling.\nParliament passed the budget.\n"
        "The deputies voted for the spending plan.\nA goat climbed onto the roof.",
        key="p7_lines",
        bind="query-params",
        height=160,
    )
    lines = [line.strip() for line in typed.splitlines() if line.strip()]
    if len(lines) < 2:
        st.info("Type two sentences at least, one a line.", icon=":material/edit:")
        return
    if len(lines) > MOST_LINES:
        st.info(f"The first {MOST_LINES} of {len(lines)} lines are shown.", icon=":material/info:")
        lines = lines[:MOST_LINES]
    names = [f"{number} {line[:18]}" for number, line in enumerate(lines, 1)]
    frames = []
    columns = st.columns(3, gap="medium")
    for column, (name, embed) in zip(columns, kinds(encoder).items(), strict=True):
        frame = pair_frame(cosines(embed(lines)), names, lines)
        frames.append(frame.assign(vectors=name))
        with column:
            st.markdown(f"**{session.escape(name)}**")
            session.draw(
                charts_vectors.cosine_matrix, frame, key=f"p7_matrix_{name}", alt=f"Cosines: {name}"
            )
    session.provenance(
        m,
        session.timed(m, embed_sentences, tuple(lines)).seconds,
        "from core.embeddings import embed_sentences\nfrom core.similarity import cosines",
        f"cosines(embed_sentences(m, {lines!r}))",
        data=pd.concat(frames),
    )


@dataclass
class Corpus:
    """The texts of a visitor with their vectors, filled batch by batch."""

    identity: tuple[object, ...]
    vectors: np.ndarray
    places: dict[str, np.ndarray] = field(default_factory=dict)


def show_corpus() -> None:
    encoder = sentence_encoder()
    table, name = chosen_corpus()
    if table is None:
        return
    names = list(table.columns)
    one, two, three = st.columns(3, gap="large")
    column = one.selectbox("Text column", names, names.index("text") if "text" in names else 0)
    colour = two.selectbox("Colour by", ["Clusters", *[n for n in names if n != column]])
    ours = three.segmented_control(
        "Vectors",
        ["Sentence-BERT", "Raw mean"],
        default="Sentence-BERT",
        required=True,
        key="p7_vectors",
        bind="query-params",
    )
    texts, rows = kept_texts(table, column)
    if len(texts) < 2:
        st.info("A map needs two texts at least.", icon=":material/info:")
        return
    by = encoder.name if ours == "Sentence-BERT" else m.weights_hash
    identity = (name, column, by, len(texts))

    def start() -> Iterator[int]:
        width = encoder.dimensions if ours == "Sentence-BERT" else m.info.hidden
        corpus = Corpus(identity, np.zeros((len(texts), width), dtype=np.float32))
        st.session_state["p7_corpus"] = corpus
        batches = encoder.embedding(texts) if ours == "Sentence-BERT" else embedding(m, texts)
        return fill(corpus, batches)

    label = f"Embed {len(texts):,} texts"
    if session.in_parts("p7_embedding", label, identity, len(texts), start):
        show_map(st.session_state["p7_corpus"], encoder, ours, texts, table.iloc[rows], colour)


def fill(corpus: Corpus, batches: Iterator[tuple[np.ndarray, np.ndarray]]) -> Iterator[int]:
    for rows, found in batches:
        corpus.vectors[rows] = found
        yield len(rows)


def chosen_corpus() -> tuple[pd.DataFrame | None, str]:
    source = st.segmented_control(
        "Corpus",
        ["Built-in reviews", "Built-in sentences", "Your own file"],
        default="Built-in reviews",
        required=True,
        key="p7_source",
        bind="query-params",
    )
    if source == "Built-in reviews":
        return reviews()[["text", "label"]], source
    if source == "Built-in sentences":
        return pd.DataFrame({"text": sentences()}), source
    upload = session.kept_upload(
        "CSV, TSV, JSONL, or TXT with a text a line", ["csv", "tsv", "jsonl", "txt"], key="p7_file"
    )
    if upload is None:
        st.info("Choose a file.", icon=":material/upload:")
        return None, ""
    read = session.kept(read_texts, upload.data, upload.name)
    for note in read.notes:
        st.info(session.escape(note), icon=":material/info:")
    return read.frame, upload.name


def kept_texts(table: pd.DataFrame, column: str) -> tuple[list[str], np.ndarray]:
    """Texts that are not blank, and their rows; what is left out is said."""
    texts = table[column].astype(str).str.strip()
    rows = np.flatnonzero(texts != "")
    if len(rows) < len(texts):
        st.info(f"{len(texts) - len(rows):,} blank rows are left out.", icon=":material/info:")
    if len(rows) > MOST_TEXTS:
        st.info(
            f"The first {MOST_TEXTS:,} of {len(rows):,} texts are used.", icon=":material/info:"
        )
        rows = rows[:MOST_TEXTS]
    return texts.iloc[rows].tolist(), rows


def show_map(
    corpus: Corpus,
    encoder: SentenceEncoder,
    ours: str,
    texts: list[str],
    table: pd.DataFrame,
    colour: str,
) -> None:
    one, two, three = st.columns([1, 1, 2], gap="large")
    method: Method = (
        "umap"
        if one.segmented_control(
            "Map",
            ["UMAP", "PCA"],
            default="UMAP",
            required=True,
            key="p7_map",
            bind="query-params",
        )
        == "UMAP"
        else "pca"
    )
    smallest = two.slider("Smallest cluster", 3, 100, 8, key="p7_smallest", bind="query-params")
    query = three.text_input("Search by meaning", key="p7_query", bind="query-params")
    if method not in corpus.places:
        with st.spinner("Drawing the map …"):
            corpus.places[method] = project_corpus(corpus.vectors, method)
    places = corpus.places[method]
    frame = pd.DataFrame({"x": places[:, 0], "y": places[:, 1], "text": texts})
    if colour == "Clusters":
        numbers = session.kept(clusters, places, smallest=smallest)
        frame["group"] = [f"cluster {n + 1}" if n >= 0 else "no cluster" for n in numbers]
    else:
        frame["group"] = table[colour].astype(str).to_numpy()
    frame["found"] = False
    if query.strip():
        embed = encoder.embed if ours == "Sentence-BERT" else lambda q: embed_sentences(m, q)
        found, cosine = search(embed([query])[0], corpus.vectors, 10)
        frame.loc[found, "found"] = True
    chosen = selected_rows(
        st.plotly_chart(
            corpus_map(frame),
            key=f"p7_plot_{method}",
            on_select="rerun",
            selection_mode=("box", "lasso"),
            config={"scrollZoom": True, "displaylogo": False},
        )
    )
    st.caption(
        "Scroll to zoom, drag to move; box and lasso are in the corner of the map. Distances on the "
        "map can lie; search and downloads use the vectors."
    )
    if query.strip():
        st.markdown("**Nearest to your words**, by cosine; ★ on the map")
        hits = pd.DataFrame({"cosine": cosine.round(3), "text": [texts[i] for i in found]})
        st.dataframe(hits, hide_index=True)
    show_selection(frame, table, chosen)
    st.download_button(
        "Download the vectors (Parquet)",
        lambda: parquet(texts, corpus.vectors),
        "vectors.parquet",
        icon=":material/download:",
        on_click="ignore",
        help="A row a text: text, and vector as a list of floats",
    )


def show_selection(frame: pd.DataFrame, table: pd.DataFrame, chosen: np.ndarray) -> None:
    if not len(chosen):
        return
    rows = table.reset_index(drop=True).assign(group=frame["group"]).iloc[chosen]
    st.markdown(f"**Selected on the map**: {len(chosen):,} texts")
    st.dataframe(rows, hide_index=True, height=260)
    st.download_button(
        "Download the selection (CSV)",
        lambda: safe_csv(rows),
        "selection.csv",
        "text/csv",
        icon=":material/download:",
        on_click="ignore",
    )


st.title("Sentences and corpora")
st.markdown(
    "One vector for a whole sentence: the mean of what BERT gives its tokens, its [CLS] vector, or "
    "that of a Sentence-BERT model, which was trained for likeness."
)
try:
    session.show_views(
        {"Pairs": show_pairs, "Matrix": show_matrices, "Corpus": show_corpus}, "p7_view"
    )
except ClozeError as error:
    session.show_error(error)
