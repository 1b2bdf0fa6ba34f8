import io

import pandas as pd

from core.datasets import pairs, reviews
from core.embeddings import embed_sentences
from core.exports import parquet
from core.similarity import correlation, pair_cosines
from tests.pages.conftest import figures, open_page, press, said

PAGE = "7_Sentences_and_corpora"


def test_the_correlations_of_the_built_in_pairs(app, embedded):
    open_page(app, PAGE)
    table = pairs()
    one, other = (embed_sentences(embedded, table[side].tolist()) for side in ("one", "other"))
    raw = correlation(pair_cosines(one, other), table["grade"].to_numpy())
    shown = figures(app)
    assert shown["Mean of the raw vectors"] == f"{raw.rho:.2f}"
    assert float(shown["Sentence-BERT (all-MiniLM-L6-v2)"]) > raw.rho
    assert f"Mean cosine of unrelated pairs: {raw.unrelated:.2f}" in said(app)


def test_pairs_of_ones_own(app):
    open_page(app, PAGE)
    rows = "\n".join(f"text {n},other {n},{n}" for n in range(5))
    file = f"a,b,grade\n{rows}\nx,,3\nx,y,good\n".encode()
    app.file_uploader[0].upload("pairs.csv", file, "text/csv").run()
    assert not app.exception
    assert "a grade that is not a number and were left out: row 7" in said(app)
    assert "no text on one side and were left out: row 6" in said(app)
    few = b"a,b,grade\none,two,3\n"
    app.file_uploader[0].upload("pairs.csv", few, "text/csv").run()
    assert "needs 5 pairs" in said(app)


def test_matrices_of_ones_own_sentences(app):
    open_page(app, PAGE, p7_view="Matrix")
    assert not app.exception
    app.text_area(key="p7_lines").set_value("only one\n\n").run()
    assert "two sentences at least" in said(app)
    app.text_area(key="p7_lines").set_value("*a* :red[b]\nsame\nsame").run()
    assert not app.exception


def test_a_corpus_on_a_map_searched_and_kept(app):
    open_page(app, PAGE, p7_view="Corpus", p7_map="PCA", p7_source="Built-in sentences")
    press(app, "Embed 100 texts")
    corpus = app.session_state["p7_corpus"]
    assert (abs(corpus.vectors).sum(1) > 0).all()
    app.text_input(key="p7_query").set_value("food and drink").run()
    assert not app.exception
    hits = app.dataframe[0].value
    assert len(hits) == 10
    assert hits["cosine"].is_monotonic_decreasing
    app.switch_page("pages/0_Home.py").run()
    app.switch_page(f"pages/{PAGE}.py").run()
    assert app.session_state["p7_corpus"] is corpus
    assert app.text_input(key="p7_query").value == "food and drink"


def test_a_corpus_of_ones_own(app):
    open_page(app, PAGE, p7_view="Corpus", p7_map="PCA", p7_source="Your own file")
    lines = "\n".join(f"Line {n} <b>bold</b>" for n in range(20))
    app.file_uploader[0].upload("mine.txt", f"{lines}\n\n".encode(), "text/plain").run()
    press(app, "Embed 20 texts")
    assert not app.exception
    app.file_uploader[0].upload("mine.txt", b"", "text/plain").run()
    assert "is empty" in said(app)


def test_vectors_as_parquet():
    texts = reviews()["text"].head(3).tolist()
    vectors = pd.DataFrame([[1.0, 2], [3, 4], [5, 6]]).to_numpy()
    frame = pd.read_parquet(io.BytesIO(parquet(texts, vectors)))
    assert frame["text"].tolist() == texts
    assert [list(vector) for vector in frame["vector"]] == vectors.tolist()
