"""Where a masked LM's training starts, and how its end is saved."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from core.errors import SettingError
from core.models import LoadedModel, wrap

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def with_fresh_head(folder: Path, counts: np.ndarray) -> PreTrainedModel:
    """A BERT masked LM from a bare encoder: the head starts as near to useful as it can.

    The transform is the identity and the output bias the log frequency of each token in the
    training text, so that the first predictions are the unigram distribution and not noise.
    """
    import torch
    from transformers import BertForMaskedLM
    from transformers.utils import logging

    logging.set_verbosity_error()  # it would report the head that we are about to make
    model = BertForMaskedLM.from_pretrained(folder, dtype=torch.float32, use_safetensors=True)
    with torch.no_grad():
        predictions = model.cls.predictions
        torch.nn.init.eye_(predictions.transform.dense.weight)
        torch.nn.init.zeros_(predictions.transform.dense.bias)
        share = (counts + 0.1) / (counts + 0.1).sum()
        predictions.bias.copy_(torch.from_numpy(np.log(share)))
    return model


def from_encoder(folder: Path, texts: Sequence[str]) -> LoadedModel:
    """A masked LM to be trained, from the folder of a BERT encoder without a head."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()  # sentence encoders often ship a limit that the model does not have
    backend.no_padding()
    for setting in ("max_length", "stride", "truncation_strategy", "pad_to_multiple_of"):
        tokenizer.init_kwargs.pop(setting, None)  # else they would be saved along
    counts = np.zeros(len(tokenizer))
    for encoding in backend.encode_batch(list(texts[::10]), add_special_tokens=False):
        np.add.at(counts, encoding.ids, 1)
    return wrap(with_fresh_head(folder, counts), tokenizer, name=folder.name)


def from_scratch(m: LoadedModel, *, layers: int, hidden: int, seed: int = 0) -> LoadedModel:
    """An untrained small BERT that reads with the tokenizer of `m`. Its heads are 32 wide."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    if not 1 <= layers <= 12 or hidden % 32 or not 32 <= hidden <= 768:
        raise SettingError(
            f"A BERT from scratch has 1 to 12 layers and a hidden size of 32 to 768 in steps of 32, "
            f"not {layers} and {hidden}."
        )
    config = BertConfig(
        vocab_size=m.info.vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        intermediate_size=4 * hidden,
        max_position_embeddings=min(512, m.info.max_tokens),
        pad_token_id=m.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = BertForMaskedLM(config)
    return wrap(model.to(m.info.device), m.tokenizer, name=f"BERT {layers} x {hidden} from scratch")


def export(m: LoadedModel, model: PreTrainedModel, folder: Path) -> None:
    """Float16 safetensors with config and tokenizer, as transformers loads them."""
    import torch

    copy.deepcopy(model).to(torch.float16).save_pretrained(folder)
    m.tokenizer.save_pretrained(folder)
