"""Page 6: one word, its senses, and the vectors that the model gives it in each sentence."""

import numpy as np
import pandas as pd
import streamlit as st

from core import charts, charts_vectors, projection, session
from core.datasets import read_table, senses
from core.embeddings import WordUses, embed_word
from core.errors import ClozeError, SettingError
from core.projection import Method
from core.senses import best_layer, every_word, over_words, separation
from core.similarity import centre, cosines, pair_frame

MOST = 300  # uses of a word on one map: more is a corpus, which page 7 is for
TRUSTED = 5  # neighbours that trustworthiness asks about
OWN = "Your own"

session.framed()
m = session.model()
session.warm_umap()


def chosen_table() -> tuple[str, pd.DataFrame]:
    """A word, and a table of sentences with a sense each."""
    built_in = senses()
    words = [*built_in["word"].unique(), OWN]
    left, right = st.columns([3, 2], gap="large")
    word = left.selectbox("Word", words, key="p6_word", bind="query-params")
    if word != OWN:
        rows = built_in[built_in["word"] == word]
        table = rows[["sentence", "sense"]].reset_index(drop=True)
    else:
        word = right.text_input("The word to follow", "bank", key="p6_own", bind="query-params")
        upload = session.kept_upload(
            "A table with the columns sentence and sense, or edit the one below",
            ["csv", "tsv", "jsonl"],
            key="p6_table",
        )
        table = uploaded(upload) if upload is not None else started(built_in)
    with st.expander("The sentences and their senses; change them, add your own"):
        edited = session.kept_editor(table, key=f"p6_rows_{word}_{len(table)}")
    return word, cleaned(edited)


def started(built_in: pd.DataFrame) -> pd.DataFrame:
    """What an own table starts with, to be overwritten."""
    rows = built_in[built_in["word"] == "bank"]
    return rows[["sentence", "sense"]].reset_index(drop=True)


def uploaded(upload: session.Upload) -> pd.DataFrame:
    table = read_table(upload.data, upload.name)
    for note in table.notes:
        st.info(session.escape(note), icon=":material/info:")
    missing = {"sentence", "sense"} - set(table.frame.columns)
    if missing:
        found = ", ".join(table.frame.columns)
        raise SettingError(f"The table needs the columns sentence and sense; it has: {found}.")
    return table.frame[["sentence", "sense"]]


def cleaned(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with a sentence; a blank sense is one of its own."""
    rows = table.fillna("").astype(str)
    rows = rows[rows["sentence"].str.strip() != ""].reset_index(drop=True)
    if len(rows) > MOST:
        st.info(f"The first {MOST} of {len(rows):,} sentences are used.", icon=":material/info:")
    rows["sense"] = rows["sense"].str.strip().replace("", "(no sense)")
    return rows.head(MOST)


def show_word(word: str, table: pd.DataFrame) -> None:
    one, two, three = st.columns([3, 2, 2], gap="large", vertical_alignment="bottom")
    layer = one.slider(
        "Layer",
        0,
        m.info.layers,
        m.info.layers,
        key="p6_layer",
        bind="query-params",
        help="0 is the static input vector, the only one that Word2Vec would have.",
    )
    inflected = two.toggle(
        "Inflected forms too",
        key="p6_inflected",
        bind="query-params",
        help="Regular English endings: banks, banked, banking.",
    )
    centred = three.toggle(
        "Without the mean",
        key="p6_centred",
        bind="query-params",
        help="All vectors of a layer share one direction, which makes every cosine high "
        "(Ethayarajh 2019). This takes the mean of all uses away before cosines are measured.",
    )
    computed = session.timed(m, embed_word, word, tuple(table["sentence"]), inflected=inflected)
    uses: WordUses = computed.value
    if uses.absent:
        numbers = ", ".join(str(i + 1) for i in uses.absent[:10])
        st.info(
            session.escape(
                f"Left out, since the word is not in them: sentence {numbers}"
                + (" and more." if len(uses.absent) > 10 else ".")
            ),
            icon=":material/info:",
        )
    labels = table["sense"].to_numpy()[uses.uses["sentence"]]
    figures: pd.DataFrame = session.kept(separation, uses.vectors, labels, centred=centred)
    show_figures(figures, layer, labels)
    vectors = uses.vectors[:, layer]
    vectors = centre(vectors) if centred else vectors
    show_maps(uses, labels, vectors, layer)
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("**By layer**, in the original space")
        session.draw(
            charts_vectors.layer_curve,
            figures,
            layer,
            key="p6_curve",
            alt="Separation of the senses by layer",
        )
    with right:
        st.markdown("**Cosine of each pair of uses**")
        session.draw(
            charts_vectors.cosine_matrix,
            matrix_frame(uses, labels, vectors),
            key="p6_matrix",
            alt="Matrix of cosines",
        )
    session.provenance(
        m,
        computed.seconds,
        "from core.embeddings import embed_word\nfrom core.senses import separation",
        f"sentences = {table['sentence'].tolist()!r}",
        f"senses = {table['sense'].tolist()!r}",
        f"uses = embed_word(m, {word!r}, sentences, inflected={inflected})",
        "of_use = [senses[i] for i in uses.uses['sentence']]",
        f"separation(uses.vectors, of_use, centred={centred})",
        data=figures,
    )


def show_figures(figures: pd.DataFrame, layer: int, labels: np.ndarray) -> None:
    row = figures.iloc[layer]
    columns = st.columns(5)
    columns[0].metric("Uses", len(labels), help=f"Of {len(np.unique(labels))} senses")
    columns[1].metric(
        "Neighbour accuracy",
        figure(row["accuracy"], "{:.0%}"),
        help="Share of uses whose nearest other use, by cosine, has the same sense",
    )
    columns[2].metric("Chance", figure(row["chance"], "{:.0%}"), help="With a random other use")
    columns[3].metric(
        "Silhouette", figure(row["silhouette"], "{:.2f}"), help="By cosine; 1 is best"
    )
    columns[4].metric(
        "Within, between",
        f"{figure(row['within'], '{:.2f}')}, {figure(row['between'], '{:.2f}')}",
        help="Mean cosine over pairs of uses of the same sense, and of different senses",
    )
    if len(np.unique(labels)) < 2:
        st.info(
            "One sense only: what tells senses apart can't be measured.", icon=":material/info:"
        )
    elif layer == 0:
        st.info(
            "Layer 0 is the static vector of the word: all uses of a form lie on one point, whatever "
            "they mean. That is what Word2Vec would give.",
            icon=":material/adjust:",
        )
    else:
        st.caption(
            f"Best layer here: {best_layer(figures)}. Meaning is told apart better in higher layers, "
            "as a rule (Tenney et al. 2019)."
        )


def figure(value: float, form: str) -> str:
    return "n/a" if pd.isna(value) else form.format(value)


def show_maps(uses: WordUses, labels: np.ndarray, vectors: np.ndarray, layer: int) -> None:
    second = st.toggle(
        "A second seed beside the first",
        key="p6_second",
        bind="query-params",
        help="UMAP starts at random: what two seeds agree on is worth more.",
    )
    maps: list[tuple[str, Method, int]] = [("UMAP, seed 0", "umap", 0), ("PCA", "pca", 0)]
    if second:
        maps.insert(1, ("UMAP, seed 1", "umap", 1))
    hover = hover_frame(uses, labels, vectors)
    for column, (title, method, seed) in zip(st.columns(len(maps)), maps, strict=True):
        with column, st.spinner("The first UMAP of a server takes some seconds …"):
            places = session.kept(projection.project, vectors, method, seed=seed)
            used = projection.method_for(vectors, method)
            k = min(TRUSTED, (len(vectors) - 1) // 2)
            trusted = projection.trust(vectors, places, k) if k else None
            st.markdown(f"**{title}**")
            session.draw(
                charts_vectors.word_map,
                hover.assign(x=places[:, 0], y=places[:, 1]),
                key=f"p6_map_{method}_{seed}",
                alt=f"Uses of the word on a map by {title}",
            )
            said = [] if trusted is None else [f"Trustworthiness {trusted:.2f} (k = {k})."]
            if method == "umap" and used == "pca":
                said.append("Too few different points for UMAP: this is PCA.")
            elif method == "umap":
                said.append(f"n_neighbors {projection.neighbours_for(len(vectors))}, cosine.")
            st.caption(" ".join(said))
    st.caption("A map can lie: hover a point for its neighbours in the original space.")


def hover_frame(uses: WordUses, labels: np.ndarray, vectors: np.ndarray) -> pd.DataFrame:
    """What a point shows: its sentence with the word marked, and its nearest uses by cosine."""
    texts = marked(uses)
    near = projection.nearest(vectors, 3)
    similar = cosines(vectors)
    frame = pd.DataFrame({"group": labels, "text": texts})
    for rank in range(3):
        frame[f"near_{rank + 1}"] = [
            f"{similar[i, near[i, rank]]:.2f} {labels[near[i, rank]]}: {texts[near[i, rank]]}"
            if rank < near.shape[1]
            else ""
            for i in range(len(texts))
        ]
    return frame


def marked(uses: WordUses) -> list[str]:
    columns = (uses.uses[name] for name in ("text", "start", "end"))
    return [
        charts.isolated(f"{text[:start]}»{text[start:end]}«{text[end:]}")
        for text, start, end in zip(*columns, strict=True)
    ]


def matrix_frame(uses: WordUses, labels: np.ndarray, vectors: np.ndarray) -> pd.DataFrame:
    """Pairs of uses, those of a sense side by side."""
    order = np.argsort(labels, kind="stable")
    names = [f"{labels[i]} {place}" for place, i in enumerate(order, 1)]
    texts = marked(uses)
    return pair_frame(cosines(vectors[order]), names, [texts[i] for i in order])


def one_word() -> None:
    word, table = chosen_table()
    if not len(table):
        raise SettingError("The table has no sentence: add a row, or choose another word.")
    show_word(word, table)


def all_words() -> None:
    """Figures over all built-in words."""
    st.markdown(
        "The same figures for every built-in word, each word counting alike. They are computed when "
        "this view is opened."
    )
    centred = st.toggle("Without the mean", key="p6_all_centred", bind="query-params")
    computed = session.timed(m, every_word, centred)
    by_word: dict[str, pd.DataFrame] = computed.value
    mean = over_words(by_word)
    layer = int(mean.sort_values("accuracy")["layer"].iloc[-1])
    row = mean.iloc[layer]
    columns = st.columns(4)
    columns[0].metric("Words", len(by_word))
    columns[1].metric("Best layer", layer)
    columns[2].metric("Neighbour accuracy there", f"{row['accuracy']:.0%}")
    columns[3].metric("Static layer", f"{mean['accuracy'].iloc[0]:.0%}", help="Equal to chance")
    session.draw(
        charts_vectors.layer_curve,
        mean,
        layer,
        key="p6_all_curve",
        alt="Mean separation of the senses by layer",
    )
    table = pd.DataFrame(
        {word: figures.set_index("layer")["accuracy"] for word, figures in by_word.items()}
    ).T
    table.columns = [f"layer {layer}" for layer in table.columns]
    st.markdown("**Neighbour accuracy** of each word by layer")
    st.dataframe(table.round(2).reset_index(names="Word"), hide_index=True)
    session.provenance(
        m,
        computed.seconds,
        "from core.datasets import senses\nfrom core.senses import every_word, over_words",
        f"over_words(every_word(m, {centred}))",
        data=mean,
    )


st.title("Contextual embeddings")
st.markdown(
    "A static vector, as Word2Vec has it, is the same wherever the word stands. Here a word gets a "
    "vector for each sentence, layer by layer: do its meanings come apart?"
)
try:
    session.show_views({"One word": one_word, "All words": all_words}, "p6_view")
except ClozeError as error:
    session.show_error(error)
