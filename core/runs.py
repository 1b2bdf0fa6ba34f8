"""Runs of training that can be looked at: so far, the recorded one of the embedded model.

A recorded run is the history that `pretraining` writes as it goes, measured on held-out text at a few
steps; nothing of it is computed again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.models import DEFAULT_FOLDER
from core.pretraining import DEFAULT_SENTENCE

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
