"""A causal language model beside the masked one: what comes after a left context, and on from there."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import ModelError
from core.models import explain, load_config, load_tokenizer, locate
from core.prediction import PositionPrediction, position_prediction

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class CausalModel:
    """A model that predicts the next token, such as GPT-2, in evaluation mode."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    @property
    def max_tokens(self) -> int:
        """The longest input, as far as the configuration tells."""
        return int(getattr(self.model.config, "max_position_embeddings", 0) or 1024)


@dataclass(frozen=True)
class Continuation:
    """What a causal model writes after a prompt, always taking its most probable token."""

    text: str  # prompt and continuation
    tokens: tuple[str, ...]
    log_p: tuple[float, ...]  # of each token, given all before it; nats


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
    context = _context(causal, tokenizer, left)
    before = len(tokenizer(left.rstrip(), add_special_tokens=False).input_ids)
    joint = tokenizer(left.rstrip() + " " * bool(left.strip()) + word, add_special_tokens=False)
    true = int(joint.input_ids[min(before, len(joint.input_ids) - 1)])
    with torch.inference_mode():
        logits = causal.model(input_ids=context[:, -causal.max_tokens :]).logits[0, -1]
        row = logits.log_softmax(-1)
    return position_prediction(tokenizer.decode, row, before, true, "", "mask", top_k)


def write_on(causal: CausalModel, prompt: str, tokens: int) -> Continuation:
    """The most probable next token, again and again; ends early where the model ends its text."""
    import torch
    from transformers import GenerationConfig

    tokenizer = copy.deepcopy(causal.tokenizer)
    model: Any = causal.model
    context = _context(causal, tokenizer, prompt)[:, -max(1, causal.max_tokens - tokens) :]
    with torch.inference_mode():
        found = model.generate(
            input_ids=context,
            attention_mask=torch.ones_like(context),
            generation_config=GenerationConfig(
                max_new_tokens=tokens,
                do_sample=False,
                eos_token_id=model.config.eos_token_id,
                pad_token_id=tokenizer.pad_token_id or model.config.eos_token_id or 0,
                output_logits=True,
                return_dict_in_generate=True,
            ),
        )
    ids = found.sequences[0, context.shape[1] :]
    logs = [row[0].log_softmax(-1)[i].item() for row, i in zip(found.logits, ids, strict=True)]
    # decoded with what is before, since a first token may be spelled with or without its space
    shown = tokenizer.decode([*context[0].tolist(), *ids.tolist()], skip_special_tokens=True)
    return Continuation(shown, tuple(map(tokenizer.decode, ids.tolist())), tuple(logs))


def _context(causal: CausalModel, tokenizer: PreTrainedTokenizerBase, left: str) -> torch.Tensor:
    """Ids (1, tokens) of a left context, after the model's own start of text where it has one."""
    import torch

    start = tokenizer.bos_token_id
    context = tokenizer(left.rstrip(), add_special_tokens=False).input_ids
    ids = ([start] if start is not None else []) + context
    if not ids:
        raise ModelError(f"{causal.name} can't start from nothing: pick a word with one before it.")
    return torch.tensor([ids])


def _reads_left_only(config: object) -> bool:
    """BERT and its kin are in the causal mapping too, as decoders that almost nobody trained."""
    from transformers import AutoModelForMaskedLM

    masked = type(config) in AutoModelForMaskedLM._model_mapping
    return not masked or bool(getattr(config, "is_decoder", False))
