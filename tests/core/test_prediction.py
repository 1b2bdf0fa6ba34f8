import math

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import pipeline

from core.errors import SettingError, TextError
from core.prediction import (
    layer_lens,
    log_probabilities,
    occlusion,
    predict_masks,
    predict_position,
    predict_word,
    pseudo_perplexity,
    score_positions,
)
from core.text import read

FIFTY = [
    f"{start} [MASK] {end}"
    for start in (
        "The cat sat on the", "She opened the old", "In winter the", "Nobody saw the", "He kept a",
        "The river carried the", "Every morning the", "At noon the", "They sold the", "My first",
    )
    for end in ("by the door.", "and went home.", "was gone.", "in the rain, as usual.", "again!")
]  # fmt: skip


def whole_distribution(m, ids, column):
    """The oracle: transformers' own forward pass, softmax over everything."""
    with torch.inference_mode():
        return m.model(input_ids=torch.tensor([ids])).logits[0, column].softmax(-1)


def test_agrees_with_the_pipeline_of_transformers(embedded):
    fill = pipeline("fill-mask", model=embedded.model, tokenizer=embedded.tokenizer, top_k=5)
    for text in FIFTY:
        (ours,) = predict_masks(embedded, text, top_k=5)
        theirs = fill(text)
        assert [c.token_id for c in ours.candidates] == [t["token"] for t in theirs]
        got = [c.probability for c in ours.candidates]
        assert got == pytest.approx([t["score"] for t in theirs], abs=1e-4)


def test_several_masks_come_in_order(tiny):
    found = predict_masks(tiny, "the [MASK] sat on [MASK] mat")
    assert [p.position for p in found] == [1, 4]
    ids = tiny.tokenizer("the [MASK] sat on [MASK] mat").input_ids
    for prediction in found:
        oracle = whole_distribution(tiny, ids, prediction.position + 1)
        for candidate in prediction.candidates:
            assert candidate.probability == pytest.approx(
                oracle[candidate.token_id].item(), abs=1e-5
            )


def test_a_text_without_mask_asks_for_one(tiny):
    with pytest.raises(TextError, match=r"no mask: write \[MASK\]"):
        predict_masks(tiny, "the kettle is whistling.")


def test_lower_case_mask_is_predicted_once(tiny):
    (prediction,) = predict_masks(tiny, "rain on the [mask] mat.")
    assert prediction.position == 3


@pytest.mark.parametrize("k", [1, 5, 10**6])
def test_lists_are_ordered_and_capped_and_sum_to_one(tiny, k):
    (prediction,) = predict_masks(tiny, "the cat [MASK].", top_k=k)
    listed = [c.probability for c in prediction.candidates]
    assert len(listed) == min(k, tiny.info.vocabulary)
    assert listed == sorted(listed, reverse=True)
    assert [c.rank for c in prediction.candidates] == list(range(1, len(listed) + 1))
    assert math.fsum(listed) + prediction.rest == pytest.approx(1, abs=1e-4)
    assert prediction.others == tiny.info.vocabulary - len(listed)


def test_zero_candidates_are_refused(tiny):
    with pytest.raises(SettingError, match="at least 1"):
        predict_masks(tiny, "the [MASK]", top_k=0)


def test_true_rank_is_exact_beyond_the_list(tiny):
    got = predict_position(tiny, "the cat sat", 1, top_k=1)
    ids = tiny.tokenizer("the cat sat").input_ids
    true, ids[2] = ids[2], tiny.mask_token_id
    oracle = whole_distribution(tiny, ids, 2)
    assert got.true_rank == int((oracle > oracle[true]).sum()) + 1
    assert got.true_probability == pytest.approx(oracle[true].item(), abs=1e-5)
    assert got.loss == pytest.approx(-math.log(oracle[true]), abs=1e-4)
    assert got.true_token == "cat"


def test_ties_go_to_the_smaller_id(tiny):
    from core.prediction import listed, ranks_of

    row = torch.tensor([0.1, 0.4, 0.1, 0.4]).log()
    assert ranks_of(torch.stack([row] * 4), np.arange(4)).tolist() == [3, 1, 4, 2]
    assert [c.token_id for c in listed(tiny.token, row, 4)[0]] == [1, 3, 0, 2]


def test_keep_shows_the_word_and_random_another(tiny):
    keep = predict_position(tiny, "the cat sat", 1, "keep")
    ids = tiny.tokenizer("the cat sat").input_ids
    assert keep.true_probability == pytest.approx(
        whole_distribution(tiny, ids, 2)[ids[2]].item(), abs=1e-5
    )
    draws = {
        predict_position(tiny, "the cat sat", 1, "random", seed=s).shown_token for s in range(30)
    }
    assert len(draws) > 10
    ordinary = {tiny.token(i) for i in tiny.vocabulary.ordinary}
    assert draws <= ordinary
    again = predict_position(tiny, "the cat sat", 1, "random", seed=3)
    assert again == predict_position(tiny, "the cat sat", 1, "random", seed=3)


def test_strategy_is_checked(tiny):
    with pytest.raises(SettingError, match="'hide'"):
        predict_position(tiny, "the cat", 0, "hide")


@pytest.mark.parametrize(("position", "said"), [(7, "outside the text"), (-1, "outside the text")])
def test_a_position_outside_is_refused(tiny, position, said):
    with pytest.raises(TextError, match=said):
        predict_position(tiny, "the cat sat", position)


def test_a_mask_or_control_token_has_no_truth(tiny):
    with pytest.raises(TextError, match="hides no true token"):
        predict_position(tiny, "the [MASK] sat", 1)
    with pytest.raises(TextError, match="hides no true token"):
        predict_position(tiny, "the [SEP] sat", 1)


def test_a_word_of_several_pieces_is_hidden_whole(tiny):
    text = "moss photosynthesises in weak light, slowly."
    found = predict_word(tiny, text, 2)
    assert [p.position for p in found] == [1, 2, 3, 4]
    assert [p.true_token for p in found] == ["photo", "##synth", "##esis", "##es"]
    ids = tiny.tokenizer("moss [MASK] [MASK] [MASK] [MASK] in weak light, slowly.").input_ids
    for prediction in found:
        oracle = whole_distribution(tiny, ids, prediction.position + 1)
        assert prediction.true_probability == pytest.approx(
            oracle[prediction.true_id].item(), abs=1e-5
        )
    assert predict_position(tiny, text, 5).true_token == "in"


def test_one_word_alone(tiny):
    assert predict_position(tiny, "cat", 0).true_token == "cat"
    assert len(score_positions(tiny, "cat")) == 1


def test_score_positions_is_one_position_after_the_other(tiny):
    text = "the cat sat on the warm mat in the rain, slowly."
    scores = score_positions(tiny, text)
    assert scores["position"].tolist() == list(range(13))
    for row in scores.itertuples():
        alone = predict_position(tiny, text, row.position)
        assert row.p_true == pytest.approx(alone.true_probability, abs=1e-5)
        assert row.loss == pytest.approx(alone.loss, abs=1e-4)
        assert row.rank == alone.true_rank


def test_score_positions_in_several_passes(tiny, monkeypatch):
    text = "the cat sat on the warm mat"
    whole = score_positions(tiny, text)
    monkeypatch.setattr("core.prediction.BATCH_TOKENS", 20)
    pd.testing.assert_frame_equal(score_positions(tiny, text), whole, atol=1e-5)


def test_within_word_hides_the_later_pieces_too(tiny):
    """Kauf and Ivanova (2023): a piece is scored without the pieces after it in its word."""
    text = "moss photosynthesises in rain"
    scores = score_positions(tiny, text, within_word=True).set_index("position")
    plain = score_positions(tiny, text).set_index("position")
    shown = {1: "[MASK] [MASK] [MASK] [MASK]", 2: "photo [MASK] [MASK] [MASK]"}
    for position, pieces in shown.items():
        ids = tiny.tokenizer(f"moss {pieces} in rain").input_ids
        true = tiny.tokenizer(text).input_ids[position + 1]
        oracle = whole_distribution(tiny, ids, position + 1)[true].item()
        assert scores["p_true"][position] == pytest.approx(oracle, abs=1e-5)
    for position in (0, 4, 5, 6):  # words of one piece, and the last piece of a word
        assert scores["p_true"][position] == pytest.approx(plain["p_true"][position], abs=1e-5)


def test_masks_and_control_tokens_are_context_only(tiny):
    scores = score_positions(tiny, "the [MASK] sat [SEP] on")
    assert scores["position"].tolist() == [0, 2, 4]
    with pytest.raises(TextError, match="masks only"):
        score_positions(tiny, "[MASK] [MASK]")


def test_pseudo_perplexity_of_a_uniform_model_is_the_vocabulary_size():
    frame = pd.DataFrame({"loss": [math.log(50)] * 4})
    assert pseudo_perplexity(frame) == pytest.approx(50)


def test_the_last_layer_of_the_lens_is_the_prediction(tiny):
    text = "the cat sat on the warm mat"
    frame = layer_lens(tiny, text, 2)
    assert sorted(frame["layer"].unique()) == [0, 1, 2]
    last = frame[frame["layer"] == 2]
    direct = predict_position(tiny, text, 2)
    assert last["token"].tolist() == [c.token for c in direct.candidates]
    assert last["probability"].tolist() == pytest.approx(
        [c.probability for c in direct.candidates], abs=1e-5
    )
    assert last["p_true"].iloc[0] == pytest.approx(direct.true_probability, abs=1e-5)
    assert last["true_rank"].iloc[0] == direct.true_rank


def test_occlusion_is_a_difference_of_two_losses(tiny):
    text = "the cat sat on the warm mat"
    frame = occlusion(tiny, text, 2)
    assert frame["position"].tolist() == [0, 1, 3, 4, 5, 6]
    base = predict_position(tiny, text, 2).loss
    for row in frame.itertuples():
        words = text.split()
        words[row.position] = "[MASK]"
        assert row.fall == pytest.approx(
            predict_position(tiny, " ".join(words), 2).loss - base, abs=1e-4
        )


def test_occlusion_needs_another_word(tiny):
    with pytest.raises(TextError, match="no other word"):
        occlusion(tiny, "cat", 0)


def test_predictions_do_not_wobble(tiny):
    first = score_positions(tiny, "the cat sat")
    pd.testing.assert_frame_equal(score_positions(tiny, "the cat sat"), first)
    assert not tiny.model.training


def test_distributions_sum_to_one(embedded):
    ids = np.array([read(embedded, "The clock struck [MASK].").input_ids])
    row = log_probabilities(embedded, ids, [0], [4])[0]
    assert row.exp().sum().item() == pytest.approx(1, abs=1e-4)


def test_a_mask_far_beyond_the_limit_is_predicted(embedded):
    (prediction,) = predict_masks(embedded, "word " * 600 + "and the lamp was [MASK].")
    assert prediction.position == 604


@pytest.mark.xfail(strict=True, reason="four of seven: the embedded model has read too little yet")
def test_the_embedded_model_knows_the_default_sentence(embedded):
    ranks = score_positions(embedded, "The cat sat on the warm mat")["rank"]
    assert (ranks <= 5).sum() >= 5
