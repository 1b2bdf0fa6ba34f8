import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from core.causal import load_causal_model, predict_next, write_on
from core.errors import ModelError
from tests.conftest import build_tokenizer


@pytest.fixture(scope="module")
def causal_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("causal")
    tokenizer = build_tokenizer()
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=64, n_embd=16, n_layer=2, n_head=2,
        bos_token_id=2, eos_token_id=3,
    )  # fmt: skip
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_the_next_token_is_that_of_transformers(causal_folder):
    causal = load_causal_model(causal_folder)
    found = predict_next(causal, "the cat ", "sat", top_k=4)
    ids = torch.tensor([build_tokenizer()("the cat", add_special_tokens=False).input_ids])
    with torch.inference_mode():
        oracle = causal.model(input_ids=ids).logits[0, -1].softmax(-1)
    assert found.true_token == "sat"
    assert found.true_probability == pytest.approx(oracle[found.true_id].item(), abs=1e-6)
    assert found.true_rank == int((oracle > oracle[found.true_id]).sum()) + 1
    assert [c.probability for c in found.candidates] == pytest.approx(
        oracle.topk(4).values.tolist(), abs=1e-6
    )
    assert sum(c.probability for c in found.candidates) + found.rest == pytest.approx(1, abs=1e-5)


def test_it_writes_on_token_by_token(causal_folder):
    """Against the argmax of one whole pass a token, without a cache."""
    causal = load_causal_model(causal_folder)
    found = write_on(causal, "the cat sat", 5)
    ids = build_tokenizer()("the cat sat", add_special_tokens=False).input_ids
    for token, log_p in zip(found.tokens, found.log_p, strict=True):
        with torch.inference_mode():
            row = causal.model(input_ids=torch.tensor([ids])).logits[0, -1].log_softmax(-1)
        ids.append(int(row.argmax()))
        assert causal.tokenizer.decode([ids[-1]]) == token
        assert row.max().item() == pytest.approx(log_p, abs=1e-5)
    assert found.text.startswith("the cat sat")


def test_a_context_beyond_what_it_reads_is_cut_at_its_start(causal_folder):
    causal = load_causal_model(causal_folder)
    left = "the cat sat on the warm mat " * 20
    ids = build_tokenizer()(left, add_special_tokens=False).input_ids[-64:]
    with torch.inference_mode():
        oracle = causal.model(input_ids=torch.tensor([ids])).logits[0, -1].softmax(-1)
    assert predict_next(causal, left, "a").candidates[0].probability == pytest.approx(
        oracle.max().item(), abs=1e-6
    )
    assert len(write_on(causal, left, 4).tokens) <= 4


def test_an_empty_context_needs_a_start_token(causal_folder):
    with pytest.raises(ModelError, match="can't start from nothing"):
        predict_next(load_causal_model(causal_folder), "", "the")


def test_a_masked_model_is_not_a_causal_one(tiny_folder):
    with pytest.raises(ModelError, match="not a causal one"):
        load_causal_model(tiny_folder)


def test_a_name_that_can_not_be_had(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="the hub can't be reached"):
        load_causal_model("gpt2")
