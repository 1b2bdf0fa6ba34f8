import json
import shutil

import numpy as np
import pytest

from core import sentence_encoder
from core.datasets import pairs
from core.embeddings import embed_sentences
from core.errors import ModelError
from core.sentence_encoder import load_sentence_encoder
from core.similarity import correlation, pair_cosines


@pytest.fixture(scope="module")
def packaged():
    return load_sentence_encoder()


def test_vectors_are_those_of_sentence_transformers(packaged):
    texts = ["A short note.", "", "word " * 300, *pairs()["one"].head(20)]
    expected = packaged.whole.encode(texts, normalize_embeddings=True, show_progress_bar=False)
    assert packaged.encoder is not None
    assert packaged.embed(texts) == pytest.approx(expected, abs=1e-4)


def test_sentence_bert_agrees_better_with_people_than_raw_means(packaged, embedded):
    """The claim of Reimers and Gurevych (2019), table 1, on our pairs."""
    table = pairs()
    one, other = table["one"].tolist(), table["other"].tolist()
    grades = table["grade"].to_numpy()
    trained = correlation(pair_cosines(packaged.embed(one), packaged.embed(other)), grades)
    raw = correlation(
        pair_cosines(embed_sentences(embedded, one), embed_sentences(embedded, other)), grades
    )
    assert trained.rho > raw.rho
    assert trained.unrelated < raw.unrelated


def test_a_model_with_more_modules_is_embedded_by_its_library(packaged, monkeypatch, tmp_path):
    monkeypatch.setattr(sentence_encoder, "_plain_pooling", lambda folder: None)
    other = load_sentence_encoder()
    assert other.encoder is None
    assert other.embed(["a", "b c"]) == pytest.approx(packaged.embed(["a", "b c"]), abs=1e-5)


def test_models_that_need_code_or_are_none_are_refused(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    shutil.copytree(sentence_encoder._packaged(), folder)
    monkeypatch.setattr(sentence_encoder, "_packaged", lambda: folder)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = "evil.module.Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match="code of its own"):
        load_sentence_encoder()
    (folder / "modules.json").unlink()
    with pytest.raises(ModelError, match="not a Sentence-BERT model"):
        load_sentence_encoder()


def test_no_network_is_said(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelError, match="can't be reached"):
        load_sentence_encoder("all-mpnet-base-v2")


def test_dimensions(packaged):
    assert packaged.dimensions == packaged.embed(["a"]).shape[1] == 384
    assert np.linalg.norm(packaged.embed(["a"])) == pytest.approx(1, abs=1e-5)
