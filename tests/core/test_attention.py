import copy

import numpy as np
import pytest
import torch

from core.attention import attention_weights, rank_heads, rollout, shares, without_heads
from core.errors import SettingError
from core.prediction import predict_position

TEXT = "the cat sat on the warm mat"


def test_rows_sum_to_one(embedded):
    got = attention_weights(embedded, "The cat sat on the warm mat")
    assert got.weights.shape == (6, 12, 9, 9)
    tokens, weights = got
    assert tokens is got.tokens
    assert weights is got.weights
    assert got.tokens[0] == "[CLS]"
    assert got.tokens[-1] == "[SEP]"
    assert got.added.tolist() == [True, *[False] * 7, True]
    np.testing.assert_allclose(got.weights.sum(-1), 1, atol=1e-5)


def test_weights_are_the_softmax_of_the_first_layer_by_hand(tiny):
    """Softmax(q k / sqrt(d)) of layer 0, computed from its matrices."""
    got = attention_weights(tiny, "the cat sat")
    bert = tiny.model.base_model
    ids = torch.tensor([tiny.tokenizer("the cat sat").input_ids])
    with torch.inference_mode():
        x = bert.embeddings(input_ids=ids)[0]
        layer = bert.encoder.layer[0].attention.self
        q, k = (f(x).view(5, 2, 8).transpose(0, 1) for f in (layer.query, layer.key))
        expected = (q @ k.transpose(1, 2) / 8**0.5).softmax(-1)
    np.testing.assert_allclose(got.weights[0], expected.numpy(), atol=1e-5)


def test_shares_by_hand():
    weights = np.array([[0.1, 0.2, 0.3, 0.4]] * 4)
    added = np.array([True, False, False, True])
    got = shares(weights, 2, added)
    assert got == pytest.approx({"left": 0.2, "right": 0.0, "self": 0.3, "special": 0.5})
    assert sum(got.values()) == pytest.approx(1)


def test_rollout_of_two_layers_by_hand():
    one = np.array([[[0.0, 1.0], [1.0, 0.0]]])
    two = np.array([[[1.0, 0.0], [1.0, 0.0]]])
    got = rollout(np.stack([one, two]))
    np.testing.assert_allclose(got[0], [[0.5, 0.5], [0.5, 0.5]])
    np.testing.assert_allclose(got[1], [[0.5, 0.5], [0.5, 0.5]])
    np.testing.assert_allclose(got.sum(-1), 1)


def test_uniform_heads_have_the_greatest_entropy(tiny):
    from dataclasses import replace

    got = attention_weights(tiny, TEXT)
    uniform = np.full_like(got.weights, 1 / 9)
    sharp = np.broadcast_to(np.eye(9), got.weights.shape)
    assert rank_heads(replace(got, weights=uniform))["entropy"].tolist() == pytest.approx(
        [np.log(9)] * 4, abs=1e-5
    )
    diagonal = rank_heads(replace(got, weights=sharp))
    assert diagonal["entropy"].abs().max() == 0
    assert diagonal["distance"].max() == 0
    assert diagonal[["layer", "head"]].to_numpy().tolist() == [[1, 1], [1, 2], [2, 1], [2, 2]]


def test_no_head_off_changes_nothing_and_all_off_does(tiny):
    before = predict_position(tiny, TEXT, 2)
    assert predict_position(without_heads(tiny, []), TEXT, 2) == before
    off = without_heads(tiny, [(0, 0), (1, 1)])
    assert predict_position(off, TEXT, 2).loss != pytest.approx(before.loss, abs=1e-4)
    assert predict_position(tiny, TEXT, 2) == before


def test_a_head_off_is_a_zeroed_slice_of_the_output_projection(tiny):
    oracle = copy.deepcopy(tiny.model)
    with torch.no_grad():
        oracle.base_model.encoder.layer[1].attention.output.dense.weight[:, 8:] = 0
        ids = torch.tensor([tiny.tokenizer(TEXT).input_ids])
        off = without_heads(tiny, [(1, 1)])
        torch.testing.assert_close(off.model(input_ids=ids).logits, oracle(input_ids=ids).logits)


def test_weights_are_shared_not_copied(tiny):
    off = without_heads(tiny, [(0, 1)])
    pairs = zip(off.model.parameters(), tiny.model.parameters(), strict=True)
    assert all(a.data_ptr() == b.data_ptr() for a, b in pairs)


def test_a_head_that_is_not_there(tiny):
    with pytest.raises(SettingError, match="no head 3 in layer 1"):
        without_heads(tiny, [(0, 2)])
