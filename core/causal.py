"""A causal language model beside the masked one: its next-token distribution for a left context."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import ModelError
from core.models import explain, load_config, load_tokenizer, locate
from core.prediction import PositionPrediction, position_prediction

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class CausalModel:
    """A model that predicts the next token, such as GPT-2, in evaluation mode."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def load_causal_model(name: str | Path) -> CausalModel:
    """Load by hub name or folder, under the rules of `models.load_model`; raises `ModelError`."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    folder, shown = locate(name)
    config = load_config(folder, shown)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING or not _reads_left_only(config):
        raise ModelError(f"{shown} is a {config.model_type} model, not a causal one.")
    tokenizer = load_tokenizer(folder, shown)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
        )
    except Exception as error:
        raise explain(shown, error) from error
    model.eval().requires_grad_(False)
    return CausalModel(shown, model, tokenizer)


def predict_next(causal: CausalModel, left: str, word: str, top_k: int = 5) -> PositionPrediction:
    """The distribution after a left context; the truth is the first token of the word that follows.

    An empty context is given as the model's own start of text, where it has one.
    """
    import torch

    tokenizer = copy.deepcopy(causal.tokenizer)  # one per call: threads must not share one
    context = tokenizer(left.rstrip(), add_special_tokens=False).input_ids
    joint = tokenizer(left.rstrip() + " " * bool(left.strip()) + word, add_special_tokens=False)
    true = int(joint.input_ids[min(len(context), len(joint.input_ids) - 1)])
    start = tokenizer.bos_token_id
    ids = ([start] if start is not None else []) + context
    if not ids:
        raise ModelError(f"{causal.name} can't start from nothing: pick a word with one before it.")
    with torch.inference_mode():
        logits = causal.model(input_ids=torch.tensor([ids])).logits[0, -1]
        row = logits.log_softmax(-1)
    return position_prediction(tokenizer.decode, row, len(context), true, "", "mask", top_k)


def _reads_left_only(config: object) -> bool:
    """BERT and its kin are in the causal mapping too, as decoders that almost nobody trained."""
    from transformers import AutoModelForMaskedLM

    masked = type(config) in AutoModelForMaskedLM._model_mapping
    return not masked or bool(getattr(config, "is_decoder", False))
