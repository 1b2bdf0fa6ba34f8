"""Runs of training that can be looked at: the recorded one of the embedded model, and live ones.

A recorded run is the history that `pretraining` writes as it goes, measured on held-out text at a few
steps; nothing of it is computed again. A live run is a generator of events that waits wherever it is
left.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import finetuning, training
from core.datasets import DEFAULT_SENTENCE
from core.models import DEFAULT_FOLDER

if TYPE_CHECKING:
    import pandas as pd

RECORDED = DEFAULT_FOLDER / "recorded_run.jsonl"
MASKS = "[MASK]"


@dataclass(frozen=True)
class RecordedRun:
    """A real run, measured at a few steps.

    `history` has a row a step: step, train_loss, held_out_loss, accuracy, p_mask, p_random, p_keep.
    `probes` has five rows for each probe sentence and step: step, sentence, rank, token,
    probability, is_true. The truth is known for the default sentence only.
    """

    history: pd.DataFrame
    probes: pd.DataFrame

    @property
    def steps(self) -> list[int]:
        return self.history["step"].tolist()


@dataclass
class LiveRun:
    """A run that its owner drives event by event; between two of them it waits, and loses nothing."""

    events: Iterator[Any]
    steps: int
    step: int = 0
    speed: float = 0.0  # samples a second, as the events report it
    losses: list[tuple[int, float]] = field(default_factory=list)
    measured: list[Any] = field(default_factory=list)  # the task's own measurements, in order
    result: Any = None  # the last event
    _began: float = 0.0
    _first: int = 0

    def resume(self) -> Iterator[LiveRun]:
        """Go on; yields itself after each event, until the run is over or its owner stops asking."""
        self._began, self._first = time.perf_counter(), self.step
        for event in self.events:
            match event:
                case training.StepDone():
                    self.step, self.speed = event.step, event.samples_per_second
                    self.losses.append((event.step, event.loss))
                case training.StepSkipped():
                    self.step = event.step
                case training.Done() | finetuning.Done():
                    self.result = event
                case _:
                    self.measured.append(event)
            yield self

    @property
    def seconds_left(self) -> float:
        """By the pace since it last went on."""
        done = max(1, self.step - self._first)
        return (time.perf_counter() - self._began) / done * (self.steps - self.step)


@cache
def recorded_run(path: Path = RECORDED) -> RecordedRun:
    """The run that trained the embedded model; read once."""
    import pandas as pd

    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    history = [
        {
            "step": record["step"],
            "train_loss": record["train_loss"],
            "held_out_loss": record["held_out"]["loss"],
            "accuracy": record["held_out"]["accuracy"],
            **{f"p_{way}": share for way, share in record["p_true"].items()},
        }
        for record in records
    ]
    probes = [row for record in records for row in _probe_rows(record)]
    frame = pd.DataFrame(history)
    frame["train_loss"] = frame["train_loss"].astype(float)  # missing before the first step
    return RecordedRun(frame, pd.DataFrame(probes))


def _probe_rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "step": record["step"],
            "sentence": probe["sentence"],
            "rank": rank,
            "token": token,
            "probability": probability,
            "is_true": token == _truth(probe["sentence"]),
        }
        for probe in record["probes"]
        for rank, (token, probability) in enumerate(
            zip(probe["tokens"], probe["probabilities"], strict=True), 1
        )
    ]


def _truth(sentence: str) -> str | None:
    """The hidden word, where a sentence is the default one with a word hidden.

    >>> _truth("The cat [MASK] on the warm mat"), _truth("Two plus two is [MASK].")
    ('sat', None)
    """
    whole, hidden = DEFAULT_SENTENCE.split(), sentence.split()
    if MASKS not in hidden or len(whole) != len(hidden):
        return None
    place = hidden.index(MASKS)
    hidden[place] = whole[place]
    return whole[place].lower() if hidden == whole else None
