import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub.errors import (
    GatedRepoError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from transformers import (
    BertForMaskedLM,
    ElectraConfig,
    ElectraForPreTraining,
    PreTrainedTokenizerFast,
)

from core.models import ModelError, load_model
from tests.conftest import build_tokenizer, edit_json, tiny_config

SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
}


def test_embedded_is_the_model_of_the_spec(embedded):
    info = embedded.info
    assert (info.name, info.family) == ("embedded", "bert")
    assert (info.layers, info.heads, info.hidden) == (6, 12, 384)
    assert info.vocabulary == 30522
    assert info.max_tokens == 512
    assert info.parameters == pytest.approx(22.7e6, rel=0.01)
    assert info.parameters == info.embeddings + info.encoder + info.head


def test_embedded_ships_without_truncation_or_padding(embedded):
    assert embedded.backend.truncation is None
    assert embedded.backend.padding is None
    assert len(embedded.tokenizer("word " * 400).input_ids) == 402


def test_info_counts_shared_parameters_once(tiny):
    model = BertForMaskedLM(tiny_config(tiny.info.vocabulary))
    assert tiny.info.parameters == sum(p.numel() for p in model.parameters())
    # transform (16 x 16 + 16), its LayerNorm (2 x 16), output bias
    assert tiny.info.head == 16 * 16 + 16 + 32 + tiny.info.vocabulary


def test_a_checkpoint_without_head_is_refused(headless_folder):
    with pytest.raises(ModelError, match="no trained masked-LM head"):
        load_model(headless_folder)


def test_a_discriminator_is_refused(tmp_path):
    tokenizer = build_tokenizer()
    config = ElectraConfig(**SIZES | {"vocab_size": len(tokenizer)}, embedding_size=16)
    ElectraForPreTraining(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="no trained masked-LM head"):
        load_model(tmp_path)


def test_a_tokenizer_without_mask_token_is_refused(tiny_folder, tmp_path):
    shutil.copytree(tiny_folder, tmp_path, dirs_exist_ok=True)
    bare = PreTrainedTokenizerFast(
        tokenizer_object=build_tokenizer().backend_tokenizer, unk_token="[UNK]"
    )
    bare.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="no mask token"):
        load_model(tmp_path)


def test_a_decoder_is_refused(tiny_folder, tmp_path):
    shutil.copytree(tiny_folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(ModelError, match="not trained to fill masks"):
        load_model(tmp_path)


def test_incomplete_weights_are_refused(tiny_folder, tmp_path):
    shutil.copytree(tiny_folder, tmp_path, dirs_exist_ok=True)
    edit_json(tmp_path / "config.json", num_hidden_layers=3)
    with pytest.raises(ModelError, match="incomplete"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "No model named"),
        ("   ", "No model named"),
        ("Not A Model!!", "not a model name"),
        ("https://huggingface.co/x/y", "not a model name"),
        ("C:\\models\\x", "There is no folder"),
        ("/nowhere/at/all", "There is no folder"),
        ("a/b/c", "not a model name"),
    ],
)
def test_a_bad_name_gets_its_own_sentence(name, said):
    with pytest.raises(ModelError, match=said):
        load_model(name)


def test_spaces_around_a_name_do_not_matter(tiny_folder):
    assert load_model(f"  {tiny_folder} ").info.layers == 2


def test_a_folder_named_like_a_hub_model_does_not_stand_in_for_it(tmp_path, monkeypatch):
    (tmp_path / "bert-nowhere").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="the hub can't be reached"):
        load_model("bert-nowhere")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (GatedRepoError, "is gated on the hub: ask there for access"),
        (RepositoryNotFoundError, "was not found on the hub, or is private"),
        (LocalEntryNotFoundError, "the hub can't be reached"),
    ],
)
def test_missing_gated_and_unreachable_are_told_apart(error, said, monkeypatch):
    def fail(*_, **__):
        raise error.__new__(error)  # without the answer of a server that its __init__ wants

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(ModelError, match=said):
        load_model("owner/name")


def test_a_hub_model_is_loaded_from_its_files(tiny_folder, monkeypatch):
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(tiny_folder))
    assert load_model("owner/name").info.name == "owner/name"


def test_a_file_is_not_a_folder(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"")
    with pytest.raises(ModelError, match="is a file"):
        load_model(path)


def test_a_folder_that_is_not_a_model(tmp_path):
    with pytest.raises(ModelError, match=r"no config\.json"):
        load_model(tmp_path)


def test_pickled_weights_are_not_opened(tiny_folder, tmp_path):
    shutil.copy(tiny_folder / "config.json", tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(ModelError, match="pickle"):
        load_model(tmp_path)


def test_an_index_that_points_outside_is_refused(tiny_folder, tmp_path):
    shutil.copytree(tiny_folder, tmp_path, dirs_exist_ok=True)
    index = {"weight_map": {"x": "../x.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="outside the folder"):
        load_model(tmp_path)


def test_every_thread_has_its_own_tokenizer(tiny):
    text = "the cat sat on the warm mat " * 4
    wrong = []

    def work(truncate: bool) -> None:
        expected = 16 if truncate else 30
        for _ in range(300):
            got = tiny.tokenizer(text, truncation=truncate, max_length=16 if truncate else None)
            if len(got.input_ids) != expected:
                wrong.append(len(got.input_ids))

    threads = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_hash_names_the_weights(tiny, tiny_folder):
    again = load_model(tiny_folder)
    assert again.weights_hash == tiny.weights_hash
    with torch.no_grad():
        next(again.model.parameters()).view(-1)[0] += 1
    changed = load_model(tiny_folder)
    changed.model.load_state_dict(again.model.state_dict())
    assert changed.weights_hash != tiny.weights_hash


def test_loading_leaves_evaluation_mode_and_no_gradients(tiny):
    assert not tiny.model.training
    assert not any(p.requires_grad for p in tiny.model.parameters())
    assert np.isfinite(tiny.info.parameters)


def test_loading_needs_no_streamlit():
    source = Path("core").glob("*.py")
    importing = [p.name for p in source if "import streamlit" in p.read_text()]
    assert importing == ["session.py"]
