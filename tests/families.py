"""A tiny model of each family with a tokenizer of its kind, trained on the spot.

The tokenizers are built as the published ones are: normalisers, how spaces are kept, how control
tokens are spelled and numbered, what stands around a text, and how far they read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoModelForMaskedLM, PreTrainedTokenizerFast
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from core.datasets import DEFAULT_SENTENCE, sentences

VOCABULARY = 400
READS = 62  # tokens, those that the model adds included
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}

BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


@dataclass(frozen=True)
class Family:
    """How to build one: the names of its control tokens are (pad, unknown, start, end, mask)."""

    special: tuple[str, ...]  # in the order of their ids
    roles: tuple[str, ...]
    tokenizer: Callable[[tuple[str, ...], str], Tokenizer]
    config: dict[str, Any]


def word_piece(special: tuple[str, ...], unknown: str) -> Tokenizer:
    backend = Tokenizer(models.WordPiece(unk_token=unknown))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return _trained(backend, trainers.WordPieceTrainer, special)


def byte_level(special: tuple[str, ...], unknown: str) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return _trained(
        backend, partial(trainers.BpeTrainer, initial_alphabet=sorted(alphabet)), special
    )


def sentence_piece(special: tuple[str, ...], unknown: str, *, lowercase: bool = False) -> Tokenizer:
    backend = Tokenizer(models.Unigram())
    steps = [normalizers.NFKC(), normalizers.Lowercase()] if lowercase else [normalizers.NFKC()]
    backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return _trained(backend, partial(trainers.UnigramTrainer, unk_token=unknown), special)


def _trained(
    backend: Tokenizer, trainer: Callable[..., Any], special: tuple[str, ...]
) -> Tokenizer:
    # as published: where spaces are part of tokens, the space before the mask belongs to it
    spaced = not isinstance(backend.model, models.WordPiece)
    tokens = [AddedToken(t, lstrip=spaced and "mask" in t.lower(), special=True) for t in special]
    made = trainer(vocab_size=VOCABULARY, special_tokens=tokens, show_progress=False)
    backend.train_from_iterator([*sentences(), DEFAULT_SENTENCE], made)
    return backend


_LOWERED = partial(sentence_piece, lowercase=True)
_BERT_IDS = {"pad_token_id": 0}
_ROBERTA_IDS = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
_ALBERT_SPECIAL = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
_DEBERTA_SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")
_ROBERTA_ROLES = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
_DEBERTA = {
    "relative_attention": True,
    "position_biased_input": False,
    "max_relative_positions": -1,
    "pos_att_type": ["p2c", "c2p"],
}

FAMILIES: dict[str, Family] = {
    "bert": Family(BERT_SPECIAL, BERT_SPECIAL, word_piece, _BERT_IDS),
    "roberta": Family(ROBERTA_SPECIAL, _ROBERTA_ROLES, byte_level, _ROBERTA_IDS),
    "distilbert": Family(
        BERT_SPECIAL,
        BERT_SPECIAL,
        word_piece,
        {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "pad_token_id": 0},
    ),
    "albert": Family(
        _ALBERT_SPECIAL, _ALBERT_SPECIAL, _LOWERED, {"embedding_size": 8, "pad_token_id": 0}
    ),
    "electra": Family(
        BERT_SPECIAL, BERT_SPECIAL, word_piece, {"embedding_size": 8, "pad_token_id": 0}
    ),
    "deberta-v2": Family(
        _DEBERTA_SPECIAL,
        ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
        sentence_piece,
        {
            **_DEBERTA,
            "pad_token_id": 0,
            "position_buckets": 16,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "type_vocab_size": 0,
        },
    ),
    "deberta": Family(
        BERT_SPECIAL,
        BERT_SPECIAL,
        byte_level,
        {**_DEBERTA, "pad_token_id": 0, "type_vocab_size": 0},
    ),
    "modernbert": Family(
        ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"),
        BERT_SPECIAL,
        byte_level,
        {
            "pad_token_id": 3,
            "cls_token_id": 1,
            "bos_token_id": 1,
            "sep_token_id": 2,
            "eos_token_id": 2,
        },
    ),
    "xlm-roberta": Family(ROBERTA_SPECIAL, _ROBERTA_ROLES, sentence_piece, _ROBERTA_IDS),
    "mpnet": Family(ROBERTA_SPECIAL, _ROBERTA_ROLES, word_piece, _ROBERTA_IDS),
}


def build(family: str, folder: Path) -> Path:
    """Save a tiny random masked LM of a family, spread enough to be sure of something."""
    recipe = FAMILIES[family]
    tokenizer = build_tokenizer(family)
    offset = recipe.config["pad_token_id"] + 1 if "pad_token_id" in recipe.config else 0
    table = READS + (offset if family in ("roberta", "xlm-roberta", "mpnet") else 0)
    sizes = {} if family == "distilbert" else SIZES
    config = CONFIG_MAPPING[family](
        **{
            **sizes,
            **recipe.config,
            "vocab_size": len(tokenizer),
            "max_position_embeddings": table,
        }
    )
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def build_tokenizer(family: str) -> PreTrainedTokenizerFast:
    recipe = FAMILIES[family]
    pad, unknown, start, end, mask = recipe.roles
    backend = recipe.tokenizer(recipe.special, unknown)
    ids = {token: backend.token_to_id(token) for token in (start, end)}
    double = f"{end} " if start == "<s>" else ""  # as RoBERTa's kin part a pair
    backend.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} {double}$B:1 {end}:1",
        special_tokens=list(ids.items()),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=pad,
        unk_token=unknown,
        cls_token=start,
        sep_token=end,
        mask_token=mask,
    )
