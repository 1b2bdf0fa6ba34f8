"""Masked-LM pre-training on top of `training`, and its command line.

    python -m core.pretraining --corpus FOLDER --start ENCODER --output FOLDER

The command trains until its steps are done; stopped at any moment, the same command goes on from the
last measurement. What the loop does is in `training`, what is masked is in `masking`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from core import masking, next_sentence, training
from core.chunks import Chunks, chunk, hold_out, padded
from core.errors import SettingError
from core.evaluation import (
    Evaluation,
    ProbeResult,
    default_probes,
    evaluate,
    loss_by_rate,
    p_true,
    probe,
    target_logits,
)
from core.models import LoadedModel, head_of
from core.next_sentence import NextSentence, Pairing
from core.starting import export, from_encoder, from_scratch

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

__all__ = [
    "Chunks",
    "Evaluation",
    "Measurement",
    "PretrainConfig",
    "chunk",
    "default_probes",
    "evaluate",
    "export",
    "from_encoder",
    "from_scratch",
    "hold_out",
    "loss_by_rate",
    "pretrain",
    "steps_in",
]


@dataclass(frozen=True)
class PretrainConfig:
    """What is masked, and how the text is cut and batched."""

    optimiser: training.TrainConfig = field(default_factory=lambda: training.TrainConfig(steps=200))
    epochs: int | None = None  # passes over the text; they set the optimiser's steps, and measure
    rate: float = 0.15  # the share of tokens to predict, as in BERT
    split: masking.Split = field(default_factory=masking.Split)
    unit: masking.Unit = masking.Unit.TOKEN
    dynamic: bool = True  # a new draw at each pass (RoBERTa); else one draw for all (BERT)
    next_sentence: bool = False  # BERT's second objective, its loss added to the first
    max_tokens: int = 128  # [CLS] and [SEP] included; most paragraphs are shorter
    batch_tokens: int = 4096  # padding included
    open_ends: float = 0.0  # share of chunks read without their final . ! or ?, as people type
    dropout: float = 0.0  # a short run sees nothing twice, so there is little to overfit

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise SettingError(f"The mask probability must be above 0 and at most 1: {self.rate}.")
        if self.epochs is not None and self.epochs < 1:
            raise SettingError(f"Training needs at least 1 epoch, not {self.epochs}.")
        if not 8 <= self.max_tokens <= 8192:
            raise SettingError(f"A chunk must hold 8 to 8192 tokens, not {self.max_tokens}.")


@dataclass(frozen=True)
class Measurement:
    """What is recorded of a run at one step."""

    held_out: Evaluation
    p_true: dict[str, float]  # mean probability of the true token under mask, random, keep
    probes: tuple[ProbeResult, ...]
    next_sentence: NextSentence | None = None  # where it is trained too


def pretrain(
    m: LoadedModel,
    texts: Sequence[str] | Chunks,
    config: PretrainConfig = PretrainConfig(),
    *,
    held_out: Sequence[str] | Chunks = (),
    probes: Sequence[str] | None = None,
    checkpoint: Path | None = None,
    stop: Callable[[], bool] = training.never,
) -> Iterator[training.Event]:
    """Train a copy of a masked LM on texts; the last event, `Done`, holds the copy.

    Without `held_out`, every 50th chunk is kept aside. Where `stop` says so, the run ends after its
    step with what it has; closing the generator ends it without.
    """
    by_word = config.unit is not masking.Unit.TOKEN
    cut = partial(chunk, m, max_tokens=config.max_tokens, words=by_word)
    chunks = texts if isinstance(texts, Chunks) else cut(texts)
    if held_out:
        kept = held_out if isinstance(held_out, Chunks) else cut(held_out)
    else:
        kept, chunks = hold_out(chunks)
    if config.epochs is not None:
        config = _in_steps(config, chunks)
    model = copy.deepcopy(m.model)
    model.requires_grad_(True)
    _set_dropout(model, config.dropout)
    watched = default_probes(m) if probes is None else probes
    if not config.next_sentence:
        task = MaskedLM(m, chunks, kept, watched, config)
        return training.train(model, task, config.optimiser, checkpoint=checkpoint, stop=stop)
    task = MaskedLMWithNextSentence(m, chunks, kept, watched, config)
    next_sentence.add_head(model, seed=config.optimiser.seed)
    events = training.train(model, task, config.optimiser, checkpoint=checkpoint, stop=stop)
    return _without_head(events)


def _without_head(events: Iterator[training.Event]) -> Iterator[training.Event]:
    """The events of a run, whose last one has a plain masked LM."""
    for event in events:
        if isinstance(event, training.Done):
            next_sentence.remove_head(event.model)
        yield event


def _in_steps(config: PretrainConfig, chunks: Chunks) -> PretrainConfig:
    """The same configuration with its epochs as optimiser steps, measured after each epoch."""
    each = steps_in(chunks, config)
    optimiser = replace(config.optimiser, steps=each * (config.epochs or 1), measure_every=each)
    return replace(config, epochs=None, optimiser=optimiser)


class MaskedLM:
    """The masked-LM objective as a `training.Task`."""

    def __init__(
        self,
        m: LoadedModel,
        chunks: Chunks,
        held_out: Chunks,
        probes: Sequence[str],
        config: PretrainConfig,
    ) -> None:
        self.m, self.chunks, self.held_out = m, chunks, held_out
        self.probes, self.config = probes, config

    def batches(self, epoch: int) -> Iterator[np.ndarray]:
        seed = (self.config.optimiser.seed, epoch)
        lengths = self.chunks.lengths + 2
        yield from training.by_length(lengths, batch_tokens=self.config.batch_tokens, seed=seed)

    def size(self, batch: np.ndarray) -> int:
        return int(self.chunks.lengths[batch].sum())

    def loss(self, model: PreTrainedModel, batch: np.ndarray, step: int) -> torch.Tensor | None:
        import torch

        rng = np.random.default_rng((self.config.optimiser.seed, step))
        ids, words = padded(self.m, self._opened(batch, rng), batch)
        masked = self._masked(ids, words, batch, rng)
        if not masked.selected.any():
            return None
        logits, targets = target_logits(self.m, model, masked)
        return torch.nn.functional.cross_entropy(logits.float(), targets)

    def _masked(
        self, ids: np.ndarray, words: np.ndarray, batch: np.ndarray, rng: np.random.Generator
    ) -> masking.Masked:
        draw = partial(
            masking.mask_tokens,
            tokenizer=self.m.vocabulary,
            rate=self.config.rate,
            split=self.config.split,
            unit=self.config.unit,
        )
        if self.config.dynamic:
            return draw(ids, words=words, seed=rng)
        rows = [  # each chunk has a generator of its own, so that it is masked alike in every pass
            draw(
                ids[row : row + 1],
                words=words[row : row + 1],
                seed=np.random.default_rng((self.config.optimiser.seed, int(number))),
            )
            for row, number in enumerate(batch)
        ]
        return masking.Masked(
            *(np.concatenate(part) for part in zip(*map(_parts, rows), strict=True))
        )

    def _opened(self, batch: np.ndarray, rng: np.random.Generator) -> Chunks:
        """The chunks, some of a batch without their final full stop."""
        if self.config.open_ends == 0:
            return self.chunks
        lengths = self.chunks.lengths.copy()
        last = self.chunks.ids[self.chunks.starts[batch] + lengths[batch] - 1]
        known = [self.m.backend.token_to_id(stop) for stop in ".!?"]
        stops = np.isin(last, [token for token in known if token is not None])
        drawn = rng.random(len(batch)) < self.config.open_ends
        lengths[batch] -= stops & drawn & (lengths[batch] > 1)
        return replace(self.chunks, lengths=lengths)

    def measure(self, model: PreTrainedModel) -> Measurement:
        return Measurement(
            held_out=evaluate(self.m, self.held_out, model=model),
            p_true={
                action.name.lower(): p_true(self.m, model, self.held_out, action)
                for action in (masking.Action.MASK, masking.Action.RANDOM, masking.Action.KEEP)
            },
            probes=tuple(probe(self.m, model, sentence) for sentence in self.probes),
        )


class MaskedLMWithNextSentence(MaskedLM):
    """Both objectives of BERT: the sum of their losses, on pairs."""

    def __init__(
        self,
        m: LoadedModel,
        chunks: Chunks,
        held_out: Chunks,
        probes: Sequence[str],
        config: PretrainConfig,
    ) -> None:
        super().__init__(m, chunks, held_out, probes, config)
        self.pairing, self.held_out_pairing = Pairing(m, chunks), Pairing(m, held_out)

    def loss(self, model: PreTrainedModel, batch: np.ndarray, step: int) -> torch.Tensor | None:
        import torch
        from torch.nn.functional import cross_entropy

        rng = np.random.default_rng((self.config.optimiser.seed, step))
        pairs = self.pairing.draw(batch, rng)
        masked = self._masked(pairs.ids, pairs.words, batch, rng)
        paired = pairs.labels != next_sentence.UNPAIRED
        if not masked.selected.any() and not paired.any():
            return None
        hidden = next_sentence.hidden_states(self.m, model, masked.inputs, pairs.segments)
        total = hidden.new_zeros(())
        if masked.selected.any():
            logits = head_of(model)(hidden[torch.from_numpy(masked.selected).to(hidden.device)])
            targets = torch.from_numpy(masked.labels[masked.selected]).to(hidden.device)
            total = total + cross_entropy(logits.float(), targets)
        if paired.any():
            found = self._pair_logits(model, hidden)
            total = total + cross_entropy(
                found.float(), torch.from_numpy(pairs.labels).to(hidden.device)
            )
        return total

    def measure(self, model: PreTrainedModel) -> Measurement:
        found = next_sentence.evaluate_pairs(self.m, model, self.held_out_pairing)
        return replace(super().measure(model), next_sentence=found)

    def _pair_logits(self, model: Any, hidden: torch.Tensor) -> torch.Tensor:
        return model.next_sentence(hidden[:, 0])


def _parts(masked: masking.Masked) -> tuple[np.ndarray, ...]:
    return tuple(getattr(masked, part.name) for part in fields(masked))


def _set_dropout(model: torch.nn.Module, p: float) -> None:
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = p


def steps_in(chunks: Chunks, config: PretrainConfig) -> int:
    """Optimiser steps in one pass over the text."""
    lengths, seed = chunks.lengths + 2, (config.optimiser.seed, 1)
    return len(training.by_length(lengths, batch_tokens=config.batch_tokens, seed=seed))


def as_record(event: training.Measured) -> dict[str, object]:
    """A measurement as plain data, for the recorded run."""
    return {
        "event": "measured",
        "step": event.step,
        "train_loss": event.train_loss,
        **asdict(event.result),
    }


if __name__ == "__main__":
    from core.pretraining_cli import main

    main()
