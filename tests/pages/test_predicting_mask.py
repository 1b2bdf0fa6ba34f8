import ast

import pytest

from core.prediction import predict_masks, predict_position, pseudo_perplexity, score_positions
from tests.pages.conftest import figures, open_page, said

PAGE = "3_Predicting_mask"
DEFAULT = "The cat sat on the warm mat"


@pytest.fixture
def page(app):
    return open_page(app, PAGE)


def type_text(app, text):
    app.text_area(key="p3_text").set_value(text)
    app.run()
    assert not app.exception
    return app


def still_usable(app):
    type_text(app, DEFAULT)
    app.slider(key="p3_position").set_value(1).run()
    assert not app.exception
    assert "cat" in figures(app)["True token ★"]


def test_the_figures_are_those_of_core(page, embedded):
    oracle = predict_position(embedded, DEFAULT, 2)
    shown = figures(page)
    assert "sat" in shown["True token ★"]
    assert shown["True rank"] == f"{oracle.true_rank:,}"
    assert shown["Loss (nats)"] == f"{oracle.loss:.2f}"
    scores = score_positions(embedded, DEFAULT)
    assert shown["Pseudo-perplexity"] == f"{pseudo_perplexity(scores):,.2f}"
    assert "30,517 other tokens share" in said(page)


def test_a_chip_and_the_slider_say_the_same(page):
    page.button_group(key="p3_chip").set_value(5).run()
    assert page.slider(key="p3_position").value == 5
    assert "warm" in figures(page)["True token ★"]
    page.slider(key="p3_position").set_value(6).run()
    assert "mat" in figures(page)["True token ★"]


def test_strategies(page, embedded):
    for strategy in ("keep", "random"):
        page.button_group(key="p3_strategy").set_value(strategy).run()
        oracle = predict_position(embedded, DEFAULT, 2, strategy)
        assert figures(page)["True rank"] == f"{oracle.true_rank:,}"
    assert f"The model read “{oracle.shown_token}” there" in said(page)


def test_masks_of_ones_own(page, embedded):
    text = "The [MASK] sat on the [MASK]."
    type_text(page, text)
    assert "2 [MASK] of your own" in said(page)
    assert len(predict_masks(embedded, text)) == 2
    assert page.markdown[-2].value.startswith("**Mask 1**")
    assert "True rank" not in figures(page)
    still_usable(page)


@pytest.mark.parametrize("view", ["Which words matter", "Layer by layer", "Your candidates",
                                  "Two sentences", "Can it write?", "Two models"])  # fmt: skip
def test_every_view_opens(app, view):
    app.query_params["p3_view"] = view
    open_page(app, PAGE)
    assert not app.exception
    assert not app.error


def test_the_address_gives_the_state(app):
    app.query_params["p3_text"] = "A dog ran"
    app.query_params["p3_position"] = "1"
    app.query_params["p3_k"] = "7"
    open_page(app, PAGE)
    assert app.text_area(key="p3_text").value == "A dog ran"
    assert "dog" in figures(app)["True token ★"]
    assert "30,515 other tokens" in said(app)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "There is no text yet"),
        ("     ", "There is no text yet"),
        ("\u200b", "no character that this model can read"),
        ("word " * 5000, "tokens 0 to 509 of 5000 are read, the text is cut after “word”"),
        ("Rain on the [mask] roof", "it is spelled [MASK]"),
        ("the [CLS] cat [SEP] sat", "[CLS], [SEP] in the text is read as"),
        ("fine 🙂 👩‍🚀", "not in the vocabulary"),
        ("see " + "a" * 400, "not in the vocabulary"),
        ("the\u0007 cat", "dropped by the tokenizer: U+0007"),
        ("e\u0301te\u0301", "other tokens share"),
        ("我们在河边散步", "other tokens share"),
        ("החתול ישן על הגג 12 abc", "other tokens share"),
        ("word", "other tokens share"),
        ("word", "no other word"),
    ],
)
def test_bad_input_gets_a_sentence_and_leaves_the_page_usable(page, text, sentence):
    if sentence == "no other word":
        page.session_state["p3_view"] = "Which words matter"
    type_text(page, text)
    assert sentence in said(page)
    page.session_state["p3_view"] = "Every position"
    still_usable(page)


def test_a_position_left_over_from_a_longer_text(page):
    page.slider(key="p3_position").set_value(6).run()
    type_text(page, "A dog")
    assert page.slider(key="p3_position").value == 0
    assert not page.exception


def test_text_comes_back_after_a_visit_elsewhere(page):
    type_text(page, "A dog ran home")
    page.slider(key="p3_k").set_value(9).run()
    page.switch_page("pages/0_Home.py").run()
    page.switch_page("pages/3_Predicting_mask.py").run()
    assert page.text_area(key="p3_text").value == "A dog ran home"
    assert page.slider(key="p3_k").value == 9


def test_two_models_side_by_side(app, tiny_folder, monkeypatch):
    monkeypatch.setenv("CLOZE_MODELS", str(tiny_folder.parent))
    app.query_params["p3_view"] = "Two models"
    app.query_params["p3_other"] = f"./{tiny_folder.name}"
    open_page(app, PAGE)
    assert not app.exception
    assert not app.error
    assert any("Second" in element.value for element in app.markdown)
    app.text_input(key="p3_other").set_value("./nothing").run()
    assert "There is no folder" in said(app)


def run_snippet(code):
    """Run a page's snippet as a notebook would, and give the value of its last expression."""
    tree = ast.parse(code)
    last = ast.Expression(tree.body.pop().value)
    scope = {}
    exec(compile(tree, "snippet", "exec"), scope)
    return eval(compile(last, "snippet", "eval"), scope)


def test_the_code_on_the_page_gives_the_numbers_of_the_page(page):
    prediction, scores = (run_snippet(block.value) for block in page.main.code)
    shown = figures(page)
    assert f"{prediction.true_rank:,}" == shown["True rank"]
    assert f"{prediction.loss:.2f}" == shown["Loss (nats)"]
    assert f"{pseudo_perplexity(scores):,.2f}" == shown["Pseudo-perplexity"]


@pytest.mark.parametrize("view", ["Which words matter", "Layer by layer", "Your candidates",
                                  "Two sentences", "Can it write?"])  # fmt: skip
def test_the_code_of_every_view_runs(app, view):
    app.query_params["p3_view"] = view
    open_page(app, PAGE)
    assert run_snippet(app.main.code[-1].value) is not None


def test_markup_is_shown_as_typed(page):
    type_text(page, "cost $5 and $6 *not* bold _x_ :red[y] `##ing` <b>")
    chips = page.button_group(key="p3_chip").options
    assert any(r"\*" in chip for chip in chips)
    assert any(r"\$" in chip for chip in chips)
    assert not page.exception
