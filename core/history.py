"""The records of runs as data frames: the recorded runs that ship with the project, and anyone's.

Nothing here is computed again; everything was measured when the run was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from core.datasets import DEFAULT_SENTENCE
from core.errors import SettingError
from core.models import ASSETS, DEFAULT_FOLDER
from core.runs import Record, Run, read_records, read_run

if TYPE_CHECKING:
    import pandas as pd

RECORDED = DEFAULT_FOLDER / "recorded_run.jsonl"
RECORDED_FINETUNING = ASSETS / "recorded_finetuning"
MASKS = "[MASK]"


@dataclass(frozen=True)
class PretrainingHistory:
    """What was measured of a masked-LM run at a few steps.

    `figures` has a row a step: step, train_loss, held_out_loss, accuracy, p_mask, p_random, p_keep;
    where next-sentence prediction was trained too, pair_loss and pair_accuracy.
    `probes` has five rows for each probe sentence and step: step, sentence, rank, token,
    probability, is_true. The truth is known for the default sentence only.
    """

    figures: pd.DataFrame
    probes: pd.DataFrame

    @property
    def steps(self) -> list[int]:
        return self.figures["step"].tolist()


@cache
def recorded_pretraining(path: Path = RECORDED) -> PretrainingHistory:
    """The run that trained the embedded model; read once."""
    return pretraining_history(read_records(path))


@cache
def recorded_finetuning() -> Run:
    """A fine-tuning on the built-in reviews; read once."""
    run = read_run(RECORDED_FINETUNING)
    if run is None:
        raise SettingError("The recorded fine-tuning run is missing from this installation.")
    return run


def pretraining_history(records: Sequence[Record]) -> PretrainingHistory:
    """What was measured, among the records of a masked-LM run."""
    import pandas as pd

    measured = [record for record in records if record["event"] == "measured"]
    figures = pd.DataFrame(
        [
            {
                "step": record["step"],
                "train_loss": record["train_loss"],
                "held_out_loss": record["held_out"]["loss"],
                "accuracy": record["held_out"]["accuracy"],
                **{f"p_{way}": share for way, share in record["p_true"].items()},
                **_pair_figures(record),
            }
            for record in measured
        ]
    )
    figures["train_loss"] = figures["train_loss"].astype(float)  # missing before the first step
    probes = [row for record in measured for row in _probe_rows(record)]
    return PretrainingHistory(figures, pd.DataFrame(probes))


def _pair_figures(record: Record) -> Record:
    told = record.get("next_sentence")
    return {"pair_loss": told["loss"], "pair_accuracy": told["accuracy"]} if told else {}


def losses(records: Sequence[Record]) -> pd.DataFrame:
    """A row a step: step, loss."""
    import pandas as pd

    steps = [(r["step"], r["loss"]) for r in records if r["event"] == "step"]
    return pd.DataFrame(steps, columns=["step", "loss"])


def _probe_rows(record: Record) -> list[Record]:
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
