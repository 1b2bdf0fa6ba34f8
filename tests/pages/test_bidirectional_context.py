import pytest

from core.attention import attention_weights, shares, without_heads
from core.context import predict_from_sides
from core.prediction import predict_position
from tests.pages.conftest import figures, open_page

PAGE = "1_Bidirectional_context"
DEFAULT = "The cat sat on the warm mat"


def test_three_distributions(app, embedded):
    open_page(app, PAGE)
    oracle = predict_from_sides(embedded, DEFAULT, 2)
    ranks = [f"Rank {oracle[side].true_rank:,} of 30,522" for side in ("left", "right", "both")]
    captions = [caption.value for caption in app.caption]
    assert [caption for caption in captions if caption.startswith("Rank")] == ranks


def test_masses_are_those_of_core_and_sum_to_one(app, embedded):
    open_page(app, PAGE, p1_view="Attention", p1_layer="2", p1_head="3", p1_position="4")
    attention = attention_weights(embedded, DEFAULT)
    oracle = shares(attention.mean(1, 2), 5, attention.added)
    shown = figures(app)
    for name, value in oracle.items():
        assert shown[f"Mass {name}"] == f"{value:.1%}"
    assert (shown["Left tokens"], shown["Right tokens"]) == ("4", "2")
    assert any("The arcs sum to 1.000" in caption.value for caption in app.caption)


def test_heads_off(app, embedded):
    open_page(app, PAGE, p1_view="Heads off")
    before = predict_position(embedded, DEFAULT, 2)
    assert figures(app)["log p(true) here"] == f"{-before.loss:,.2f}"
    app.multiselect(key="p1_off").set_value(["1.1", "6.12"]).run()
    assert not app.exception
    off = predict_position(without_heads(embedded, [(0, 0), (5, 11)]), DEFAULT, 2)
    assert figures(app)["log p(true) here"] == f"{-off.loss:,.2f}"


@pytest.mark.parametrize("view", ["The experiment", "Attention", "All heads", "Heads off"])
@pytest.mark.parametrize("text", ["cat", "  ", "the [MASK] sat", "🙂 我们", "word " * 40])
def test_odd_texts_in_every_view(app, view, text):
    open_page(app, PAGE, p1_view=view, p1_text=text)
    assert not app.exception


def test_ranked_heads(app):
    open_page(app, PAGE, p1_view="All heads")
    table = app.dataframe[0].value
    assert len(table) == 72
    assert table["entropy"].is_monotonic_increasing
