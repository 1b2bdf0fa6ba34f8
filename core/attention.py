"""Attention weights per layer and head."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core.errors import ModelError
from core.models import LoadedModel
from core.text import Reading, read


@dataclass(frozen=True)
class Attention:
    """Softmax weights of every head: row = the token that looks, column = the token looked at."""

    tokens: tuple[str, ...]  # all that the model reads, [CLS] and [SEP] included
    weights: np.ndarray  # (layers, heads, query, key) float32; every row sums to 1


def attention_weights(m: LoadedModel, text: str | Reading) -> Attention:
    """The attention weights of one pass over a text (Vaswani et al. 2017, equation 1)."""
    import torch

    reading = text if isinstance(text, Reading) else read(m, text)
    ids = torch.tensor([reading.input_ids], device=m.info.device)
    with torch.inference_mode():
        output = m.model.base_model(
            input_ids=ids, attention_mask=torch.ones_like(ids), output_attentions=True
        )
    if not output.attentions:
        raise ModelError(f"{m.info.name} does not return its attention weights.")
    weights = torch.stack([layer[0] for layer in output.attentions]).cpu().numpy()
    return Attention(tuple(m.token(i) for i in reading.input_ids), weights)
