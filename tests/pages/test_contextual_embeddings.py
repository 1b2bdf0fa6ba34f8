import pytest

from core.datasets import senses
from core.embeddings import embed_word
from core.senses import every_word, over_words, separation
from tests.pages.conftest import figures, open_page, said

PAGE = "6_Contextual_embeddings"


def test_bank_is_on_show_with_its_figures(app, embedded):
    open_page(app, PAGE)
    rows = senses()[senses()["word"] == "bank"]
    uses = embed_word(embedded, "bank", rows["sentence"].tolist())
    last = separation(uses.vectors, rows["sense"].to_numpy()).iloc[-1]
    shown = figures(app)
    assert shown["Uses"] == str(len(rows))
    assert shown["Neighbour accuracy"] == f"{last['accuracy']:.0%}"
    assert shown["Silhouette"] == f"{last['silhouette']:.2f}"
    assert "Trustworthiness" in said(app)


def test_layer_0_is_what_word2vec_has(app):
    open_page(app, PAGE, p6_layer="0")
    shown = figures(app)
    assert shown["Neighbour accuracy"] == shown["Chance"]
    assert shown["Silhouette"] == "n/a"
    assert "Word2Vec" in said(app)
    assert "this is PCA" in said(app)


def test_the_code_gives_the_figures_of_the_page(app):
    open_page(app, PAGE, p6_word="mouse", p6_centred="true")
    code = next(block.value for block in app.code if "embed_word" in block.value)
    *lines, last = code.splitlines()
    names = {}
    exec("\n".join(lines), names)
    frame = eval(last, names)
    shown = figures(app)
    assert shown["Neighbour accuracy"] == f"{frame['accuracy'].iloc[-1]:.0%}"


def test_a_word_of_ones_own_that_is_not_there(app):
    open_page(app, PAGE, p6_word="Your own", p6_own="zebra")
    assert "No sentence has the word “zebra”" in app.error[0].value.replace("\\", "")
    app.text_input(key="p6_own").set_value("river").run()
    assert not app.exception
    assert "Left out, since the word is not in them" in said(app)


def test_a_table_of_ones_own(app):
    open_page(app, PAGE, p6_word="Your own", p6_own="cat")
    table = "sentence,sense\nThe cat sat.,pet\nA cat ran.,pet\n*A* :red[cat] bit.,wild\n"
    app.file_uploader[0].upload("cats.csv", table.encode(), "text/csv").run()
    assert not app.exception
    assert figures(app)["Uses"] == "3"


def test_a_table_without_its_columns_is_refused(app):
    open_page(app, PAGE, p6_word="Your own")
    app.file_uploader[0].upload("cats.csv", b"text,label\na,b\n", "text/csv").run()
    assert not app.exception
    assert "it has: text, label" in said(app)


@pytest.mark.parametrize("centred", ["false", "true"])
def test_all_words(app, embedded, centred):
    open_page(app, PAGE, p6_view="All words", p6_all_centred=centred)
    mean = over_words(every_word(embedded, centred == "true"))
    shown = figures(app)
    assert shown["Neighbour accuracy there"] == f"{mean['accuracy'].max():.0%}"
    assert shown["Words"] == str(senses()["word"].nunique())
