"""Next-sentence prediction, BERT's second objective (Devlin et al. 2019, section 3.1), beside masking.

A chunk is parted after one of its sentences into A and B; for half of the chunks B comes from another
one. A head on the final [CLS] vector tells the two kinds apart, and its loss is added to that of the
masked tokens. The head serves the training only: what is exported is a masked LM as ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from core.batching import BATCH_TOKENS
from core.chunks import Chunks
from core.errors import SettingError
from core.models import LoadedModel

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

IS_NEXT, NOT_NEXT, UNPAIRED = 0, 1, -100  # BERT's numbers; an unpaired row has no target


@dataclass(frozen=True)
class NextSentence:
    """Means over held-out pairs; the loss in nats."""

    pairs: int
    loss: float
    accuracy: float
    accuracy_error: float  # standard error


@dataclass(frozen=True)
class Pairs:
    """A batch of pairs, [CLS] A [SEP] B [SEP]; every array but `labels` is (rows, tokens)."""

    ids: np.ndarray
    segments: np.ndarray  # 0 for A, 1 for B
    words: np.ndarray  # as in `Chunks`, -1 at special tokens; those of B go on from those of A
    labels: np.ndarray  # (rows,) IS_NEXT, NOT_NEXT or UNPAIRED


class Pairing:
    """Parts the chunks of a text into pairs. A sentence ends at a token that is . ! or ?"""

    def __init__(self, m: LoadedModel, chunks: Chunks, *, name: str = "text") -> None:
        self.m, self.chunks = m, chunks
        stops = [token for token in map(m.backend.token_to_id, ".!?") if token is not None]
        ends = np.flatnonzero(np.isin(chunks.ids, stops)) + 1
        self._ends = [
            ends[(ends > start) & (ends < start + length)] - start
            for start, length in zip(chunks.starts, chunks.lengths, strict=True)
        ]
        # chunks of two sentences or more
        self.pairable = np.array([i for i, found in enumerate(self._ends) if len(found)])
        if len(self.pairable) < 2:
            raise SettingError(
                "Next-sentence prediction needs two paragraphs of two sentences each at least; the "
                f"{name} has {len(self.pairable)}."
            )

    def draw(self, batch: np.ndarray, rng: np.random.Generator) -> Pairs:
        """Pairs of the chosen chunks; one of a single sentence stays whole and unpaired."""
        rows = [self._row(int(i), rng) for i in batch]
        longest = max(len(ids) for ids, _, _, _ in rows)
        ids = np.full((len(rows), longest), self.m.pad_token_id, dtype=np.int64)
        segments, words = np.zeros_like(ids), np.full_like(ids, -1)
        for row, (own, segment, word, _) in enumerate(rows):
            ids[row, : len(own)] = own
            segments[row, : len(own)] = segment
            words[row, : len(own)] = word
        return Pairs(ids, segments, words, np.array([label for *_, label in rows]))

    def _row(self, i: int, rng: np.random.Generator) -> tuple[list[int], list[int], list[int], int]:
        first, last = self.m.backend.encode("").ids
        ids, words = self._part(i, 0, None)
        if not len(self._ends[i]):
            return [first, *ids, last], [0] * (len(ids) + 2), [-1, *words, -1], UNPAIRED
        end = int(rng.choice(self._ends[i]))
        label = IS_NEXT if rng.random() < 0.5 else NOT_NEXT
        other, start = i, end
        if label == NOT_NEXT:
            others = self.pairable[self.pairable != i]
            other = int(rng.choice(others))
            start = int(rng.choice(self._ends[other]))
        room = self.m.info.max_tokens - 3 - end
        next_ids, next_words = self._part(other, start, start + max(1, room))
        shift = max(words[:end], default=0) + 1  # words of B are never those of A
        return (
            [first, *ids[:end], last, *next_ids, last],
            [0] * (end + 2) + [1] * (len(next_ids) + 1),
            [-1, *words[:end], -1, *(word + shift for word in next_words), -1],
            label,
        )

    def _part(self, i: int, start: int, end: int | None) -> tuple[list[int], list[int]]:
        """Ids and word numbers of a part of a chunk."""
        begin, length = int(self.chunks.starts[i]), int(self.chunks.lengths[i])
        own = slice(begin + start, begin + (length if end is None else min(length, end)))
        return self.chunks.ids[own].tolist(), self.chunks.words[own].tolist()


def add_head(model: PreTrainedModel, *, seed: int) -> None:
    """Give a model BERT's pooler and classifier for pairs, untrained, as `model.next_sentence`."""
    import torch

    hidden, device = model.config.hidden_size, model.device
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        pooler, classifier = torch.nn.Linear(hidden, hidden), torch.nn.Linear(hidden, 2)
        for layer in (pooler, classifier):
            torch.nn.init.normal_(layer.weight, std=0.02)
            torch.nn.init.zeros_(layer.bias)
    head = torch.nn.Sequential(pooler, torch.nn.Tanh(), classifier)
    model.add_module("next_sentence", head.to(device))


def remove_head(model: Any) -> None:
    del model.next_sentence


def reads_segments(model: PreTrainedModel) -> bool:
    """Whether a model tells A and B apart by segment ids; to others only [SEP] does."""
    return int(getattr(model.config, "type_vocab_size", 0) or 0) >= 2


def hidden_states(
    m: LoadedModel, model: PreTrainedModel, inputs: np.ndarray, segments: np.ndarray
) -> torch.Tensor:
    """Final hidden states (rows, tokens, hidden) of pairs."""
    import torch

    ids = torch.from_numpy(inputs).to(model.device)
    options = {"attention_mask": (ids != m.pad_token_id).long()}
    if reads_segments(model):
        options["token_type_ids"] = torch.from_numpy(segments).to(model.device)
    return model.base_model(input_ids=ids, **options)[0]


def evaluate_pairs(
    m: LoadedModel, model: Any, pairing: Pairing, *, batch_tokens: int = BATCH_TOKENS, seed: int = 0
) -> NextSentence:
    """Loss and accuracy on one fixed draw of pairs of held-out text, nothing being masked."""
    import torch

    rng, losses, hits = np.random.default_rng(seed), [], []
    rows = pairing.pairable
    size = max(1, batch_tokens // int(pairing.chunks.lengths[rows].max() + 3))
    for start in range(0, len(rows), size):
        pairs = pairing.draw(rows[start : start + size], rng)
        with torch.inference_mode():
            hidden = hidden_states(m, model, pairs.ids, pairs.segments)
            logits = model.next_sentence(hidden[:, 0]).float()
            labels = torch.from_numpy(pairs.labels).to(logits.device)
            losses.append(torch.nn.functional.cross_entropy(logits, labels, reduction="none"))
            hits.append(logits.argmax(-1) == labels)
    loss, hit = torch.cat(losses).double(), torch.cat(hits).double()
    error = float(hit.std(correction=0) / len(hit) ** 0.5)
    return NextSentence(len(hit), float(loss.mean()), float(hit.mean()), error)
