"""A tiny BERT and its vocabulary, built on the spot: nothing here needs a network."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, BertModel, PreTrainedTokenizerFast

from core.models import LoadedModel, load_model

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "warm",
    "mat",
    "a",
    "dog",
    "ran",
    "in",
    "rain",
    "moss",
    "photo",
    "##synth",
    "##esis",
    "##es",
    "weak",
    "light",
    "slowly",
    "river",
    "bank",
    "lamp",
    "was",
    "kettle",
    "is",
    "whistling",
    "well",
    "known",
    "isn",
    "t",
    "it",
    "?",
    ",",
    ".",
    "'",
    "-",
    "cafe",
    "naive",
    "cost",
    "5",
    "6",
    "not",
    "bold",
    "x",
    "y",
    "red",
    "and",
    "$",
    "*",
    "_",
    ":",
    "`",
    "#",
    "[",
    "]",
    "(",
    ")",
    "!",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "e",
    "é",
]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """An uncased WordPiece tokenizer as BERT's, with two unused tokens."""
    pieces = [*SPECIAL, "[unused0]", "[unused1]", *dict.fromkeys(WORDS)]
    backend = Tokenizer(
        models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]")
    )
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=64,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def tiny_config(vocabulary: int) -> BertConfig:
    return BertConfig(
        vocab_size=vocabulary,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny masked LM, its weights spread enough to be sure of something."""
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = build_tokenizer()
    torch.manual_seed(0)
    model = BertForMaskedLM(tiny_config(len(tokenizer)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> LoadedModel:
    return load_model(tiny_folder)


@pytest.fixture
def headless_folder(tmp_path: Path) -> Path:
    """A checkpoint of a bare encoder."""
    tokenizer = build_tokenizer()
    BertModel(tiny_config(len(tokenizer))).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def embedded() -> LoadedModel:
    """The model that ships with the project."""
    return load_model()


@pytest.fixture(scope="session")
def words() -> list[str]:
    return [word for word in WORDS if word.isalpha()]


def edit_json(path: Path, **changes: object) -> None:
    data = json.loads(path.read_text())
    data.update(changes)
    path.write_text(json.dumps(data))
