import numpy as np
import pytest
import torch
from transformers import BertModel

from core.classifier import untrained
from core.encoder_change import cls_attention, cls_similarity
from core.text import read


@pytest.fixture
def made(tiny):
    return untrained(tiny, ["a", "b"], max_tokens=64, seed=0)


def test_nothing_changed_before_training(tiny, made):
    reading = read(tiny, "the cat sat")
    assert cls_similarity(tiny, made, reading)["cosine"].to_numpy() == pytest.approx(1, abs=1e-6)
    frame = cls_attention(tiny, made, reading)
    assert frame["token"].tolist() == ["[CLS]", "the", "cat", "sat", "[SEP]"]
    assert frame["before"].to_numpy() == pytest.approx(frame["after"].to_numpy(), abs=1e-6)
    assert frame["before"].sum() == pytest.approx(1, abs=1e-5)


def test_a_changed_layer_shows_from_that_layer_on(tiny, made, tmp_path):
    with torch.no_grad():
        made.model.base_model.encoder.layer[-1].output.dense.weight.mul_(-3)
    reading = read(tiny, "the cat sat")
    cosine = cls_similarity(tiny, made, reading)["cosine"].to_numpy()
    assert cosine[:-1] == pytest.approx(1, abs=1e-6)
    assert cosine[-1] < 0.99
    made.model.base_model.save_pretrained(tmp_path)
    alone = BertModel.from_pretrained(tmp_path, attn_implementation="eager").eval()
    with torch.inference_mode():
        output = alone(torch.tensor([reading.input_ids]), output_attentions=True)
    expected = output.attentions[-1][0].mean(0)[0].numpy()
    after = cls_attention(tiny, made, reading)["after"].to_numpy()
    assert np.allclose(after, expected, atol=1e-6)
