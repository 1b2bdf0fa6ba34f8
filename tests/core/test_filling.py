import math

import pytest

from core.errors import SettingError, TextError
from core.filling import Method, fill
from core.prediction import predict_masks, score_positions

TEXT = "the [MASK] sat on the [MASK] [MASK]"


def test_at_once_is_the_first_choice_of_each_mask(tiny):
    found = fill(tiny, TEXT)
    oracle = predict_masks(tiny, TEXT, top_k=50)
    ordinary = [next(c for c in p.candidates if c.token_id not in tiny.special_ids) for p in oracle]
    assert list(found.tokens) == [1, 5, 6]
    assert list(found.tokens.values()) == [c.token for c in ordinary]
    assert [s.probability for s in found.steps] == pytest.approx([c.probability for c in ordinary])


def test_one_after_another_asks_again_after_each(tiny):
    found = fill(tiny, TEXT, Method.IN_TURN)
    words = TEXT.split()
    for step in found.steps:
        candidates = {
            p.position: next(c for c in p.candidates if c.token_id not in tiny.special_ids)
            for p in predict_masks(tiny, " ".join(words), top_k=50)
        }
        surest = max(candidates, key=lambda position: candidates[position].probability)
        assert step.position == surest
        assert step.token == candidates[surest].token
        assert step.probability == pytest.approx(candidates[surest].probability, abs=1e-5)
        words[surest] = step.token


def test_a_beam_of_one_is_one_after_another_and_a_wider_one_never_worse(tiny):
    def log_p(filling):
        return sum(math.log(step.probability) for step in filling.steps)

    narrow = fill(tiny, TEXT, Method.BEAM, width=1)
    greedy = fill(tiny, TEXT, Method.IN_TURN)
    assert narrow.tokens == greedy.tokens
    assert log_p(fill(tiny, TEXT, Method.BEAM, width=8)) >= log_p(greedy) - 1e-6


def test_the_score_is_the_mean_log_p_of_the_filled_tokens(embedded):
    found = fill(embedded, "She put the [MASK] on the table and [MASK] home.", Method.IN_TURN)
    scores = score_positions(embedded, found.text)
    chosen = scores[scores["position"].isin(found.tokens)]
    if chosen["token"].str.lower().tolist() == list(found.tokens.values()):  # no "##" among them
        assert found.score == pytest.approx(-chosen["loss"].mean(), abs=1e-3)
    assert "[MASK]" not in found.text


@pytest.mark.parametrize("method", list(Method))
def test_one_mask_is_filled_alike_by_every_method(tiny, method):
    assert fill(tiny, "the [MASK] sat", method).tokens == fill(tiny, "the [MASK] sat").tokens


def test_what_can_not_be_filled(tiny):
    with pytest.raises(TextError, match="no mask to fill"):
        fill(tiny, "the cat")
    with pytest.raises(SettingError, match="1 to 32"):
        fill(tiny, TEXT, Method.BEAM, width=0)
