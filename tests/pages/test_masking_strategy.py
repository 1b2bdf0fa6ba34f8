import numpy as np
import pytest

from core import masking
from core.text import read
from tests.pages.conftest import figures, open_page

DEFAULT = "The cat sat on the warm mat"


@pytest.fixture
def page(app):
    return open_page(app, "2_Masking_strategy")


def test_the_draw_is_that_of_core(page, embedded):
    page.slider(key="p2_rate").set_value(50).run()
    page.number_input(key="p2_seed").set_value(3).run()
    ids = read(embedded, DEFAULT).input_ids
    oracle = masking.mask_tokens(
        ids, embedded.tokenizer, rate=0.5, seed=np.random.default_rng((3,))
    )
    shown = figures(page)
    assert shown["Selected"] == f"{oracle.selected.sum()} of 7"
    assert shown["[MASK]"] == str((oracle.action == masking.Action.MASK).sum())
    assert shown["Expected [MASK]"] == "40.0%"
    rows = page.dataframe[0].value
    assert rows.loc["The model reads"].tolist() == [embedded.token(i) for i in oracle.inputs[1:-1]]


def test_static_repeats_and_dynamic_draws_anew(page):
    def read_by_the_model():
        return page.dataframe[0].value.loc["The model reads"].tolist()

    page.slider(key="p2_rate").set_value(50).run()
    first = read_by_the_model()
    page.slider(key="p2_pass").set_value(2).run()
    assert read_by_the_model() == first
    page.toggle(key="p2_dynamic").set_value(True).run()
    draws = []
    for number in range(1, 6):
        page.slider(key="p2_pass").set_value(number).run()
        draws.append(tuple(read_by_the_model()))
    assert len(set(draws)) > 1


def test_draw_again_is_a_new_seed(page):
    page.button[0].click().run()
    assert page.number_input(key="p2_seed").value == 1


@pytest.mark.parametrize("unit", ["token", "word", "span"])
@pytest.mark.parametrize("rate", [0, 15, 50])
def test_units_and_rates(page, unit, rate):
    page.button_group(key="p2_unit").set_value(unit)
    page.slider(key="p2_rate").set_value(rate).run()
    assert not page.exception
    selected = int(figures(page)["Selected"].split()[0])
    assert selected == 0 or rate > 0
    if selected == 0:
        assert any("Nothing was selected" in info.value for info in page.info)


@pytest.mark.parametrize("text", ["cat", "[MASK]", "🙂", "我们", "  ", "word " * 800])
def test_odd_texts(page, text):
    page.text_area(key="p2_text").set_value(text).run()
    assert not page.exception
    page.text_area(key="p2_text").set_value(DEFAULT).run()
    assert figures(page)["Selected"].endswith("of 7")


def test_loss_by_rate_is_measured_on_text_of_ones_own(page):
    page.text_area(key="p2_texts").set_value("The cat sat on the mat.\nA dog ran home.").run()
    measure = next(b for b in page.button if b.label == "Measure")
    measure.click().run()
    assert not page.exception
    assert any("standard error" in caption.value for caption in page.caption)
    page.text_area(key="p2_texts").set_value("🙂").run()
    next(b for b in page.button if b.label == "Measure").click().run()
    assert not page.exception
    assert any("no token to mask" in error.value.replace("\\", "") for error in page.error)
