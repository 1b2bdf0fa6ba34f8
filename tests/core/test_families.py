"""Every family that we promise, measured against transformers on tiny models."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import pipeline

from core.attention import attention_weights, without_heads
from core.classifier import classify
from core.comparison import compare_candidates
from core.context import predict_from_sides
from core.datasets import DEFAULT_SENTENCE, sentences
from core.embeddings import embed_sentences, embed_word
from core.filling import Method, fill
from core.finetuning import FinetuneConfig, finetune
from core.models import LoadedModel, head_of, load_model
from core.prediction import layer_lens, occlusion, predict_masks, predict_position, score_positions
from core.pretraining import PretrainConfig, export, pretrain
from core.text import read, with_mask
from core.training import TrainConfig
from tests.families import FAMILIES, READS, build

LONG = " ".join(sentences()[:20])


@pytest.fixture(scope="module", params=FAMILIES)
def m(request, tmp_path_factory) -> LoadedModel:
    return load_model(build(request.param, tmp_path_factory.mktemp("family")))


@pytest.fixture
def fill_mask(m):
    """transformers' own pipeline, asked for the whole vocabulary."""
    pipe = pipeline("fill-mask", model=m.model, tokenizer=m.tokenizer, top_k=m.info.vocabulary)
    return lambda text: {found["token"]: found["score"] for found in pipe(text)}


def test_what_a_model_is(m, request):
    assert (m.info.layers, m.info.heads, m.info.hidden) == (2, 2, 16)
    assert m.info.family == request.node.callspec.params["m"]
    assert m.info.max_tokens == READS


def test_predictions_are_those_of_the_pipeline(m, fill_mask):
    text = f"The {m.mask_token} sat on the warm mat."
    expected = fill_mask(text)
    (found,) = predict_masks(m, text, top_k=m.info.vocabulary)
    assert found.rest == 0
    for candidate in found.candidates:
        assert candidate.probability == pytest.approx(expected[candidate.token_id], abs=1e-4)


def test_hidden_words_are_those_of_the_pipeline(m, fill_mask):
    """A word of one piece, hidden by position, against the mask typed in its place."""
    reading = read(m, DEFAULT_SENTENCE)
    position = next(w[0].position for w in reading.words[1:] if len(w) == 1)
    found = predict_position(m, reading, position)
    expected = fill_mask(with_mask(reading, position, m.mask_token))
    assert found.true_probability == pytest.approx(expected[found.true_id], abs=1e-4)
    scores = score_positions(m, reading).set_index("position")
    assert scores.loc[position, "p_true"] == pytest.approx(found.true_probability, abs=1e-4)


def test_the_head_alone_gives_the_logits_of_the_whole_model(m):
    ids = torch.tensor([read(m, DEFAULT_SENTENCE).input_ids])
    with torch.inference_mode():
        whole = m.model(input_ids=ids).logits
        alone = head_of(m.model)(m.model.base_model(input_ids=ids)[0][:, 3])
    torch.testing.assert_close(alone, whole[:, 3])


def test_words_and_punctuation(m):
    reading = read(m, "The cat sat, didn't it?")
    words = ["".join(token.text for token in word) for word in reading.words]
    assert words == ["The", "cat", "sat", ",", "didn", "'", "t", "it", "?"]
    assert reading.input_ids == m.tokenizer("The cat sat, didn't it?").input_ids


def test_the_longest_text_it_reads(m):
    """One token too far, and the position table of RoBERTa's kin would end."""
    reading = read(m, LONG)
    assert len(reading.input_ids) == READS
    assert reading.total > READS
    assert np.isfinite(predict_position(m, reading, 5).loss)


def test_attention_is_that_of_transformers(m):
    got = attention_weights(m, DEFAULT_SENTENCE)
    oracle = copy.deepcopy(m.model)
    oracle.set_attn_implementation("eager")
    with torch.inference_mode():
        ids = torch.tensor([read(m, DEFAULT_SENTENCE).input_ids])
        expected = oracle(input_ids=ids, output_attentions=True).attentions
    np.testing.assert_allclose(got.weights.sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(got.weights, torch.cat(expected).numpy(), atol=1e-5)
    pairs = zip(m.attending.parameters(), m.model.parameters(), strict=True)
    assert all(a.data_ptr() == b.data_ptr() for a, b in pairs)


def test_heads_off_change_their_own_layer_only(m):
    """What the layers before it say stays; and each of the four heads says something else."""
    ids = torch.tensor([read(m, DEFAULT_SENTENCE).input_ids])

    def states(model):
        with torch.inference_mode():
            return model.base_model(input_ids=ids, output_hidden_states=True).hidden_states

    before = states(m.model)
    second = states(without_heads(m, [(1, 0)]).model)
    torch.testing.assert_close(second[1], before[1])
    ends = [states(without_heads(m, [(x, y)]).model)[2] for x in range(2) for y in range(2)]
    for i, end in enumerate([*ends, before[2]]):
        assert all((end - other).abs().max() > 1e-3 for other in ends[:i])
    torch.testing.assert_close(states(m.model)[2], before[2])


def test_lens_occlusion_and_sides_end_in_the_prediction(m):
    found = predict_position(m, DEFAULT_SENTENCE, 3)
    lens = layer_lens(m, DEFAULT_SENTENCE, 3)
    assert lens["layer"].max() == 2
    last = lens[lens["layer"] == 2]
    assert last["p_true"].iloc[0] == pytest.approx(found.true_probability, rel=1e-3)
    assert np.isfinite(occlusion(m, DEFAULT_SENTENCE, 3)["fall"]).all()
    for way in ("cut", "shut"):
        both = predict_from_sides(m, DEFAULT_SENTENCE, 3, way)["both"]
        assert both.true_probability == pytest.approx(found.true_probability, rel=1e-4)


def test_candidates_and_fillings(m):
    table = compare_candidates(m, read(m, DEFAULT_SENTENCE), 3, ["on", "photosynthesised"])
    assert table["count"].max() > 1
    assert np.isfinite(table.select_dtypes("number").to_numpy()).all()
    for method in Method:
        filled = fill(m, f"The {m.mask_token} {m.mask_token} on the mat.", method)
        assert len(filled.tokens) == 2
        assert m.mask_token not in filled.text


def test_padding_changes_no_vector(m):
    texts = [*sentences()[:6], "One."]
    together = embed_sentences(m, texts)
    alone = np.concatenate([embed_sentences(m, [text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-4)


def test_uses_of_a_word_coincide_in_the_static_layer_alone(m):
    uses = embed_word(m, "light", ["The light is on.", "A light wind.", "light"])
    assert len(uses.uses) == 3
    same_form = uses.vectors[:2]
    assert np.ptp(same_form[:, 0], axis=0).max() == 0
    assert np.ptp(same_form[:, 2], axis=0).max() > 1e-3


@pytest.mark.parametrize("next_sentence", [False, True])
def test_it_trains_on_and_is_saved(m, next_sentence, tmp_path):
    texts = [f"{one} {two}" for one, two in zip(sentences(), sentences()[1:], strict=False)]
    config = PretrainConfig(
        optimiser=TrainConfig(steps=3, measure_every=3), next_sentence=next_sentence
    )
    done = list(pretrain(m, texts[:80], config, held_out=texts[80:]))[-1]
    export(m, done.model, tmp_path / "saved")
    again = load_model(tmp_path / "saved")
    assert again.info.family == m.info.family
    pairs = zip(again.model.parameters(), done.model.parameters(), strict=True)
    assert all(torch.allclose(a, b, atol=1e-2) for a, b in pairs)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_classifier_is_what_the_pipeline_loads(m, frozen, tmp_path):
    frame = pd.DataFrame({"text": sentences()[:40], "label": ["even", "odd"] * 20})
    config = FinetuneConfig(epochs=1, frozen=frozen, learning_rate=1e-3)
    made = list(finetune(m, frame, frame[:10], config))[-1].result
    made.save(tmp_path)
    loaded = pipeline("text-classification", model=str(tmp_path), top_k=None)
    (expected,) = loaded([DEFAULT_SENTENCE])
    found = classify(made, [DEFAULT_SENTENCE]).iloc[0]
    for row in expected:
        assert found[f"p: {row['label']}"] == pytest.approx(row["score"], abs=1e-4)
