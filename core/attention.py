"""Attention weights per layer and head: whom a token looks at, heads compared, rollout, heads off.

Attention is not explanation (Jain and Wallace 2019): `without_heads` gives a model in which chosen
heads say nothing, so that what they do to a prediction can be measured by `prediction`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from core.errors import ModelError, SettingError
from core.models import LoadedModel, share_weights
from core.text import Reading, read

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Attention:
    """Softmax weights of every head: row = the token that looks, column = the token looked at."""

    tokens: tuple[str, ...]  # all that the model reads, [CLS] and [SEP] included
    added: np.ndarray  # (tokens,) bool: added by the model, such as [CLS] and [SEP]
    weights: np.ndarray  # (layers, heads, query, key) float32; every row sums to 1

    def __iter__(self) -> Iterator[Any]:
        """Unpacks as tokens, weights."""
        return iter((self.tokens, self.weights))

    def mean(self, layer: int | None, head: int | None) -> np.ndarray:
        """Weights (query, key) of one head, or the mean over all layers or heads where None."""
        weights = self.weights if layer is None else self.weights[layer : layer + 1]
        weights = weights if head is None else weights[:, head : head + 1]
        return weights.mean((0, 1))


def attention_weights(m: LoadedModel, text: str | Reading) -> Attention:
    """The attention weights of one pass over a text (Vaswani et al. 2017, equation 1)."""
    import torch

    reading = text if isinstance(text, Reading) else read(m, text)
    ids = torch.tensor([reading.input_ids], device=m.info.device)
    with torch.inference_mode():
        output = m.attending.base_model(
            input_ids=ids, attention_mask=torch.ones_like(ids), output_attentions=True
        )
    if not output.attentions:
        raise ModelError(f"{m.info.name} does not return its attention weights.")
    weights = torch.stack([layer[0] for layer in output.attentions]).cpu().numpy()
    added = np.array([word < 0 for word in reading.input_words])
    return Attention(tuple(m.token(i) for i in reading.input_ids), added, weights)


def shares(weights: np.ndarray, focus: int, added: np.ndarray) -> dict[str, float]:
    """How one row (query = focus) of weights (query, key) divides: left, right, self, special.

    Tokens that the model added, such as [CLS], count as special on whichever side they stand. The
    four sum to 1.
    """
    row, place = weights[focus], np.arange(weights.shape[1])
    return {
        "left": float(row[(place < focus) & ~added].sum()),
        "right": float(row[(place > focus) & ~added].sum()),
        "self": float(row[focus]),
        "special": float(row[added & (place != focus)].sum()),
    }


def rollout(weights: np.ndarray) -> np.ndarray:
    """Attention rollout (Abnar and Zuidema 2020): (layers, query, key), rows sum to 1.

    Heads are averaged, half of the identity stands for the residual connection, and layer l is the
    product of all up to it: which input tokens reach a position by way of any path.
    """
    mixed = 0.5 * weights.mean(1) + 0.5 * np.eye(weights.shape[-1])
    out = [mixed[0]]
    for layer in mixed[1:]:
        out.append(layer @ out[-1])
    return np.stack(out)


def rank_heads(attention: Attention) -> pd.DataFrame:
    """How spread and how far each head looks, on average over the text's own tokens.

    Columns: layer, head (from 1), entropy (nats; 0 is one token only), distance (tokens).
    """
    import pandas as pd

    layers, heads, size, _ = attention.weights.shape
    own = ~attention.added
    weights = attention.weights[:, :, own]
    logs = np.log(weights, where=weights > 0, out=np.zeros_like(weights))
    place = np.arange(size)
    away = np.abs(place[None] - place[own][:, None])
    layer, head = np.divmod(np.arange(layers * heads), heads)
    return pd.DataFrame(
        {
            "layer": layer + 1,
            "head": head + 1,
            "entropy": -(weights * logs).sum(-1).mean(-1).ravel(),
            "distance": (weights * away).sum(-1).mean(-1).ravel(),
        }
    )


def without_heads(m: LoadedModel, heads: Iterable[tuple[int, int]]) -> LoadedModel:
    """The same model with some heads, (layer, head) from 0, switched off (Michel et al. 2019).

    The weights are shared, not copied; the modules are new, so that the model passed in is not
    touched. A hook zeroes what the heads hand to their layer's output projection.
    """
    off: dict[int, list[int]] = {}
    for layer, head in heads:
        if not (0 <= layer < m.info.layers and 0 <= head < m.info.heads):
            raise SettingError(
                f"There is no head {head + 1} in layer {layer + 1}: the model has "
                f"{m.info.layers} layers of {m.info.heads} heads."
            )
        off.setdefault(layer, []).append(head)
    model = share_weights(m.model)
    projections = _output_projections(model)
    width = m.info.hidden // m.info.heads
    for layer, chosen in off.items():
        projections[layer].register_forward_pre_hook(_zeroing(chosen, width))
    return replace(m, model=model)


def _zeroing(heads: list[int], width: int) -> Any:
    def hook(_: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        context = inputs[0].clone()
        for head in heads:
            context[..., head * width : (head + 1) * width] = 0
        return (context, *inputs[1:])

    return hook


def _output_projections(model: Any) -> list[Any]:
    """The linear layer that mixes the heads of each layer, in order of the layers."""
    _part_layers(model)
    endings = (
        "attention.output.dense",
        "attention.out_lin",  # DistilBERT
        "attn.Wo",  # ModernBERT
        "attention.dense",  # ALBERT
        "attention.attn.o",  # MPNet
    )
    found = [module for name, module in model.base_model.named_modules() if name.endswith(endings)]
    if len(found) != model.config.num_hidden_layers:
        raise ModelError(f"Heads of a {model.config.model_type} model can't be switched off yet.")
    return found


def _part_layers(model: Any) -> None:
    """Where layers share one module (ALBERT), give each its own around the same weights."""
    encoder: Any = getattr(model.base_model, "encoder", None)
    groups = getattr(encoder, "albert_layer_groups", None)
    if groups is None:
        return
    layers, config = model.config.num_hidden_layers, encoder.config
    each = layers / config.num_hidden_groups
    encoder.albert_layer_groups = type(groups)(
        share_weights(groups[int(layer / each)]) for layer in range(layers)
    )
    config.num_hidden_groups = layers
