import numpy as np
import torch

from core.attention import attention_weights


def test_rows_sum_to_one(embedded):
    got = attention_weights(embedded, "The cat sat on the warm mat")
    assert got.weights.shape == (6, 12, 9, 9)
    assert got.tokens[0] == "[CLS]"
    assert got.tokens[-1] == "[SEP]"
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
