import pandas as pd
import pytest
import torch

from core.context import predict_from_sides, score_sides, sides_over_texts
from core.datasets import sentences
from core.errors import TextError
from core.prediction import predict_position, score_positions

TEXT = "the cat sat on the warm mat"


@pytest.mark.parametrize("way", ["cut", "shut"])
def test_both_sides_is_the_ordinary_prediction(tiny, way):
    both = predict_from_sides(tiny, TEXT, 2, way)["both"]
    plain = predict_position(tiny, TEXT, 2)
    assert both.true_probability == pytest.approx(plain.true_probability, abs=1e-6)
    assert both.true_rank == plain.true_rank


def test_cut_is_the_shorter_text(tiny):
    found = predict_from_sides(tiny, TEXT, 2)
    for side, text in (("left", "the cat [MASK]"), ("right", "[MASK] on the warm mat")):
        ids = torch.tensor([tiny.tokenizer(text).input_ids])
        column = ids[0].tolist().index(tiny.mask_token_id)
        with torch.inference_mode():
            oracle = tiny.model(input_ids=ids).logits[0, column].softmax(-1)
        true = found[side].true_id
        assert found[side].true_probability == pytest.approx(oracle[true].item(), abs=1e-5)
        assert found[side].true_token == "sat"


def test_shut_is_the_attention_mask_of_transformers(tiny):
    found = predict_from_sides(tiny, TEXT, 2, "shut")
    ids = torch.tensor([tiny.tokenizer("the cat [MASK] on the warm mat").input_ids])
    for side, closed in (("left", slice(4, 8)), ("right", slice(1, 3))):
        mask = torch.ones_like(ids)
        mask[0, closed] = 0
        with torch.inference_mode():
            logits = tiny.model(input_ids=ids, attention_mask=mask).logits[0, 3]
        oracle = logits.softmax(-1)[found[side].true_id].item()
        assert found[side].true_probability == pytest.approx(oracle, abs=1e-5)


@pytest.mark.parametrize("way", ["cut", "shut"])
def test_every_position_at_once_is_one_after_the_other(tiny, way):
    frame = score_sides(tiny, TEXT, way)
    assert len(frame) == 21
    for row in frame.itertuples():
        alone = predict_from_sides(tiny, TEXT, row.position, way)[row.side]
        assert row.p_true == pytest.approx(alone.true_probability, abs=1e-5)
        assert row.rank == alone.true_rank
    both = frame[frame["side"] == "both"]
    assert both["loss"].tolist() == pytest.approx(
        score_positions(tiny, TEXT)["loss"].tolist(), abs=1e-4
    )


def test_what_comes_after_can_not_be_seen_from_the_left(tiny):
    for way in ("cut", "shut"):
        one = predict_from_sides(tiny, "the cat sat on a mat", 2, way)["left"]
        two = predict_from_sides(tiny, "the cat sat in the rain", 2, way)["left"]
        assert one.true_probability == pytest.approx(two.true_probability, abs=1e-6)


def test_one_word_has_no_sides_to_differ(tiny):
    found = predict_from_sides(tiny, "cat", 0)
    assert len({round(p.true_probability, 6) for p in found.values()}) == 1


def test_a_mask_has_no_truth(tiny):
    with pytest.raises(TextError, match="hides no true token"):
        predict_from_sides(tiny, "the [MASK] sat", 1)


@pytest.mark.parametrize("way", ["cut", "shut"])
def test_both_sides_are_worth_more_than_either(embedded, way):
    """The claim of the BERT paper, on every fourth of the built-in sentences."""
    frames = list(sides_over_texts(embedded, sentences()[::4], way))
    loss = pd.concat(frames).groupby("side")["loss"].mean()
    assert loss["both"] < loss["left"] - 0.5
    assert loss["both"] < loss["right"] - 0.5


def test_texts_come_one_by_one(tiny):
    frames = list(sides_over_texts(tiny, [TEXT, "a dog ran"]))
    assert [len(frame) for frame in frames] == [21, 9]
