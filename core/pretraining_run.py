"""Masked-LM pre-training as a background run of `runs`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core import training
from core.datasets import python_reference
from core.models import LoadedModel
from core.next_sentence import Pairing
from core.pretraining import (
    Chunks,
    PretrainConfig,
    as_record,
    chunk,
    export,
    pretrain,
    steps_in,
)
from core.runs import Job, Record
from core.training import TrainConfig


def job(
    m: LoadedModel,
    chunks: Chunks,
    held_out: Chunks,
    config: PretrainConfig,
    *,
    probes: Sequence[str],
    budget: int,
) -> Job:
    """Training a copy of a model on chunks for `config.epochs`, watched at `probes`. `budget` is the
    number of tokens that the chunks were cut to, to be told. What can be refused is refused here.
    """
    if config.next_sentence:
        for part, name in ((chunks, "training"), (held_out, "held-out")):
            Pairing(m, part, name=f"{name} part of the text")
    about = {
        "model": m.info.name,
        "weights": m.weights_hash,
        "config": asdict(config),
        "budget": budget,
        "tokens": int(chunks.lengths.sum()),
        "held_out_tokens": int(held_out.lengths.sum()),
        "steps_per_epoch": steps_in(chunks, config),
    }

    def save(event: training.Done, folder: Path) -> None:
        export(m, event.model, folder)

    return Job(
        kind="pretraining",
        steps=(config.epochs or 1) * steps_in(chunks, config),
        start=lambda stop: pretrain(m, chunks, config, held_out=held_out, probes=probes, stop=stop),
        record=_record,
        save=save,
        about=about,
    )


def tokens_a_second(m: LoadedModel) -> float:
    """How fast a copy of the model trains here: the second of two small steps, measured now."""
    used = chunk(m, python_reference()[:60], 128)
    config = PretrainConfig(optimiser=TrainConfig(steps=2), batch_tokens=1024)
    events = pretrain(m, used, config, held_out=used.first(1), probes=[])
    speeds = [e.samples_per_second for e in events if isinstance(e, training.StepDone)]
    return speeds[-1]


def _record(event: Any) -> Record | None:
    return as_record(event) if isinstance(event, training.Measured) else training.as_record(event)
