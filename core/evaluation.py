"""How well a masked LM names hidden tokens: on held-out text, by action, by rate, at fixed probes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from core import masking, training
from core.batching import BATCH_TOKENS
from core.chunks import Chunks, chunk, padded
from core.datasets import DEFAULT_SENTENCE
from core.errors import SettingError
from core.models import LoadedModel, head_of

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

# Watched through a run: the default sentence with each word hidden, and nine others with one mask.
PROBES = (
    "She locked the [MASK] and put the key in her pocket.",
    "The capital of France is [MASK].",
    "He poured himself a cup of [MASK] before work.",
    "Two plus two is [MASK].",
    "The river burst its [MASK] after a week of rain.",
    "They deposited the cheque at the [MASK] in town.",
    "Mozart wrote the [MASK] in a few weeks.",
    "The battery died, so I want my [MASK] back.",
    "It was so cold that the lake had [MASK] over.",
)


@dataclass(frozen=True)
class Evaluation:
    """Means over the masked positions of a text; losses in nats."""

    targets: int
    loss: float
    accuracy: float  # share of positions whose top-1 is the true token
    loss_error: float  # standard errors of the two means over the targets
    accuracy_error: float

    def __str__(self) -> str:
        return f"loss {self.loss:.3f}, top-1 accuracy {self.accuracy:.3f}, {self.targets} targets"


@dataclass(frozen=True)
class ProbeResult:
    """The five most probable tokens at the mask of a fixed sentence."""

    sentence: str
    tokens: tuple[str, ...]
    probabilities: tuple[float, ...]


def target_logits(
    m: LoadedModel, model: PreTrainedModel, masked: masking.Masked
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (targets, vocabulary) and true ids (targets,) at the selected positions only."""
    import torch

    device = model.device
    inputs = torch.from_numpy(masked.inputs).to(device)
    selected = torch.from_numpy(masked.selected).to(device)
    attention = (inputs != m.pad_token_id).long()
    hidden = model.base_model(input_ids=inputs, attention_mask=attention)[0]
    targets = torch.from_numpy(masked.labels[masked.selected]).to(device)
    return head_of(model)(hidden[selected]), targets


def evaluate(
    m: LoadedModel,
    chunks: Chunks,
    *,
    model: PreTrainedModel | None = None,
    rate: float = 0.15,
    split: masking.Split = masking.Split(),  # noqa: B008 (frozen)
    seed: int = 0,
) -> Evaluation:
    """Masked-LM loss and accuracy on held-out text, under one fixed draw of masks.

    Each target weighs the same, whichever batch it falls in.
    """
    import torch

    losses, right = [], []
    for logits, truth in _passes(m, model or m.model, chunks, rate, split, seed):
        losses.append(torch.nn.functional.cross_entropy(logits, truth, reduction="none").cpu())
        right.append((logits.argmax(-1) == truth).double().cpu())
    if not losses:
        raise SettingError("The held-out text has no token to mask: give more of it.")
    loss, hits = torch.cat(losses).double(), torch.cat(right)
    errors = [float(x.std(correction=0) / len(x) ** 0.5) for x in (loss, hits)]
    return Evaluation(len(loss), float(loss.mean()), float(hits.mean()), *errors)


def loss_by_rate(
    m: LoadedModel, texts: Sequence[str], rates: Sequence[float], *, seed: int = 0
) -> Iterator[tuple[float, Evaluation]]:
    """Loss and accuracy at masked tokens as more of the text is hidden (Wettig et al. 2022).

    Every selected token becomes the mask, so that the rate is all that changes.
    """
    chunks = chunk(m, texts, m.info.max_tokens)
    for rate in rates:
        yield rate, evaluate(m, chunks, rate=rate, split=masking.Split(1, 0, 0), seed=seed)


def _passes(
    m: LoadedModel,
    model: PreTrainedModel,
    chunks: Chunks,
    rate: float,
    split: masking.Split,
    seed: int,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    import torch

    batches = training.by_length(chunks.lengths + 2, batch_tokens=BATCH_TOKENS, seed=0, pool=10**6)
    for number, batch in enumerate(batches):
        ids, _ = padded(m, chunks, batch)
        rng = np.random.default_rng((seed, number))
        masked = masking.mask_tokens(ids, m.vocabulary, rate=rate, split=split, seed=rng)
        if masked.selected.any():
            with torch.inference_mode():
                logits, truth = target_logits(m, model, masked)
            yield logits.float(), truth


def p_true(m: LoadedModel, model: PreTrainedModel, chunks: Chunks, action: masking.Action) -> float:
    """Mean probability of the true token when every selected position gets the same action."""
    split = masking.Split(*(float(action == a) for a in (1, 2, 3)))
    found = [
        logits.softmax(-1).gather(1, truth[:, None])
        for logits, truth in _passes(m, model, chunks, 0.15, split, seed=0)
    ]
    return float(np.concatenate([p.cpu().numpy() for p in found]).mean())


def default_probes(m: LoadedModel) -> list[str]:
    """The ten probe sentences, the default one with each of its words hidden in turn."""
    words = DEFAULT_SENTENCE.split()
    hidden = [" ".join([*words[:i], "[MASK]", *words[i + 1 :]]) for i in range(len(words))]
    return [text.replace("[MASK]", m.mask_token) for text in (*hidden, *PROBES)]


def probe(m: LoadedModel, model: PreTrainedModel, sentence: str) -> ProbeResult:
    import torch

    ids = np.array([m.backend.encode(sentence).ids])
    selected = ids == m.mask_token_id
    masked = masking.Masked(ids, np.where(selected, ids, -100), selected, selected)
    logits, _ = target_logits(m, model, masked)
    top = torch.topk(logits[0].float().softmax(-1), 5)
    tokens = tuple(m.token(i) for i in top.indices.tolist())
    return ProbeResult(sentence, tokens, tuple(round(p, 5) for p in top.values.tolist()))
