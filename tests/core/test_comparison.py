import pytest

from core.comparison import compare_candidates, compare_models, compare_sentences
from core.errors import TextError
from core.prediction import predict_masks, score_positions


def test_a_candidate_of_one_piece_has_the_probability_of_the_mask(tiny):
    table = compare_candidates(tiny, "the cat sat on the mat", 1, ["dog", "cat"])
    (prediction,) = predict_masks(tiny, "the [MASK] sat on the mat", top_k=10**6)
    oracle = {c.token: c.probability for c in prediction.candidates}
    for row in table.itertuples():
        assert row.probability == pytest.approx(oracle[row.candidate], abs=1e-5)
    assert table["log_p"].is_monotonic_decreasing


def test_several_pieces_are_scored_whole_by_the_chain_rule(tiny):
    table = compare_candidates(tiny, "the cat sat in rain", 1, ["photosynthesises"])
    assert table["pieces"][0] == "photo ##synth ##esis ##es"
    assert table["count"][0] == 4
    texts = [
        "the [MASK] [MASK] [MASK] [MASK] sat in rain",
        "the photo [MASK] [MASK] [MASK] sat in rain",
    ]
    first, second = (
        {c.token: c.probability for c in predict_masks(tiny, text, top_k=10**6)[0].candidates}
        for text in texts
    )
    partial = compare_candidates(tiny, "the cat sat in rain", 1, ["photo"])
    assert partial["count"][0] == 1
    assert table["probability"][0] < first["photo"] * max(second.values()) + 1e-9


def test_candidates_stand_at_a_typed_mask_too(tiny):
    table = compare_candidates(tiny, "the [MASK] sat", 1, ["dog", " dog ", ""])
    assert table["candidate"].tolist() == ["dog"]


def test_no_candidate_is_said(tiny):
    with pytest.raises(TextError, match="candidates to compare"):
        compare_candidates(tiny, "the cat", 1, ["", " "])
    with pytest.raises(TextError, match="no character"):
        compare_candidates(tiny, "the cat", 1, ["\u200b"])


def test_a_pair_is_aligned_and_sums_to_the_pseudo_log_likelihood(tiny):
    first, second = "the cat sat on the mat", "the dog sat on the warm mat"
    table = compare_sentences(tiny, first, second)
    assert table["first"].fillna("-").tolist() == ["the", "cat", "sat", "on", "the", "-", "mat"]
    assert table["second"].tolist() == ["the", "dog", "sat", "on", "the", "warm", "mat"]
    for name, text in (("first", first), ("second", second)):
        expected = -score_positions(tiny, text)["loss"].sum()
        assert table[f"{name}_log_p"].sum() == pytest.approx(expected, abs=1e-6)


def test_pieces_of_a_word_are_one_row(tiny):
    table = compare_sentences(tiny, "moss photosynthesises", "moss ran")
    assert table["first"].tolist() == ["moss", "photosynthesises"]


def test_two_models_are_aligned_by_word(tiny, embedded):
    text = "moss photosynthesises in rain."
    table = compare_models(tiny, embedded, text)
    assert table["first"].tolist() == ["moss", "photosynthesises", "in", "rain", "."]
    assert table["second"].tolist() == table["first"].tolist()
    expected = -score_positions(embedded, text, within_word=True)["loss"].sum()
    assert table["second_log_p"].sum() == pytest.approx(expected, abs=1e-5)
    same = compare_models(tiny, tiny, text)
    assert same["first_log_p"].tolist() == same["second_log_p"].tolist()


def test_an_empty_sentence_is_said(tiny):
    with pytest.raises(TextError, match="no text yet"):
        compare_sentences(tiny, "the cat", " ")
