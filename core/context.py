"""Predict a hidden token from its left, from its right, and from both sides.

That is the claim of the BERT paper (Devlin et al. 2019, section 1), tested on a text. Two ways, since
neither is quite fair. "cut": the other side is removed, which is unlike what the model was trained on
(a mask at the very end asks for a full stop). "shut": the other side stays in its place, but no token
of this side may attend to it; [CLS] and [SEP] are seen from both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from core.models import LoadedModel
from core.prediction import (
    PositionPrediction,
    check_has_truth,
    log_probabilities,
    position_prediction,
    true_scores,
)
from core.text import Reading, read

if TYPE_CHECKING:
    import pandas as pd

Side = Literal["left", "right", "both"]
Way = Literal["cut", "shut"]
SIDES: tuple[Side, ...] = ("left", "right", "both")


@dataclass(frozen=True)
class _Input:
    """One row for the model: the mask's place, what is read, and which of it may be attended to."""

    ids: np.ndarray  # (tokens,)
    seen: np.ndarray  # (tokens,) bool
    column: int


def predict_from_sides(
    m: LoadedModel, text: str | Reading, position: int, way: Way = "cut", top_k: int = 5
) -> dict[Side, PositionPrediction]:
    """The distribution at a hidden position from each side; raises `TextError` as its siblings."""
    reading = text if isinstance(text, Reading) else read(m, text, around=position)
    check_has_truth(reading, position)
    found = {}
    for side in SIDES:
        given = _input(m, reading, position, side, way)
        row = log_probabilities(m, given.ids[None], [0], [given.column], seen=given.seen[None])[0]
        true = reading.token(position)
        found[side] = position_prediction(
            m.token, row, position, true.id, m.mask_token, "mask", top_k
        )
    return found


def score_sides(m: LoadedModel, text: str | Reading, way: Way = "cut") -> pd.DataFrame:
    """Every position predicted from each side.

    Columns: position, token, side, p_true, rank, loss (nats); three rows a position.
    """
    import pandas as pd

    reading = text if isinstance(text, Reading) else read(m, text)
    rows = []
    for side in SIDES:
        inputs = [_input(m, reading, position, side, way) for position in reading.scorable]
        truth = np.array([reading.token(position).id for position in reading.scorable])
        logs, ranks = _scores(m, inputs, truth)
        for position, log, rank in zip(reading.scorable, logs, ranks, strict=True):
            label = reading.token(position).label
            rows.append((position, label, side, float(np.exp(log)), int(rank), -float(log)))
    columns = ["position", "token", "side", "p_true", "rank", "loss"]
    return pd.DataFrame(rows, columns=columns).sort_values(
        "position", kind="stable", ignore_index=True
    )


def sides_over_texts(
    m: LoadedModel, texts: Sequence[str], way: Way = "cut"
) -> Iterator[pd.DataFrame]:
    """`score_sides` of one text after the other, for a progress bar and a mean over many."""
    for text in texts:
        yield score_sides(m, text, way)


def _input(m: LoadedModel, reading: Reading, position: int, side: Side, way: Way) -> _Input:
    ids = np.array(reading.input_ids)
    column = reading.index(position)
    ids[column] = m.mask_token_id
    place = np.arange(len(ids))
    inside = (place >= len(reading.prefix)) & (place < len(ids) - len(reading.suffix))
    other = {"left": place > column, "right": place < column, "both": place < 0}[side] & inside
    if way == "shut":
        return _Input(ids, ~other, column)
    kept = np.flatnonzero(~other)
    return _Input(ids[kept], np.ones(len(kept), dtype=bool), int(np.flatnonzero(kept == column)[0]))


def _scores(
    m: LoadedModel, inputs: Sequence[_Input], truth: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """log p(true) and rank for each input, padded to one length."""
    shape = (len(inputs), max(len(given.ids) for given in inputs))
    ids, seen = np.full(shape, m.pad_token_id), np.zeros(shape, dtype=bool)
    for row, given in enumerate(inputs):
        ids[row, : len(given.ids)] = given.ids
        seen[row, : len(given.ids)] = given.seen
    return true_scores(m, ids, [given.column for given in inputs], truth, seen=seen)
