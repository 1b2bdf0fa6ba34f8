"""Fill several masks at once, one after another, and as a small beam of joint fillings.

A masked LM predicts each mask as if the others stayed unknown (Devlin et al. 2019 call the masks
independent), so that words which are likely one by one need not go together. The three ways side by
side show it; single distributions are in `prediction`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from core.errors import SettingError, TextError
from core.models import LoadedModel
from core.prediction import log_probabilities
from core.text import read


class Method(StrEnum):
    AT_ONCE = "all at once"
    IN_TURN = "one after another"
    BEAM = "beam"


@dataclass(frozen=True)
class Step:
    """One mask filled: its position, the token, and its probability when it was chosen."""

    position: int
    token: str
    probability: float


@dataclass(frozen=True)
class Filling:
    """A text with all of its masks filled.

    `score` is the mean over the filled tokens of log p(token), each hidden alone in the filled
    text: the same measure for every method, nearer to zero where the words go together.
    """

    method: Method
    steps: tuple[Step, ...]  # in the order in which they were filled
    text: str
    score: float

    @property
    def tokens(self) -> dict[int, str]:
        """Token by position, in reading order."""
        return {step.position: step.token for step in sorted(self.steps, key=lambda s: s.position)}


@dataclass(frozen=True)
class _Beam:
    ids: np.ndarray
    steps: tuple[tuple[int, int, float], ...]  # column, token id, log p
    log_p: float


def fill(
    m: LoadedModel, text: str, method: Method | str = Method.AT_ONCE, *, width: int = 4
) -> Filling:
    """Fill every mask of a text. Control tokens are never chosen.

    At once: the best token of each mask, none knowing of the others. One after another: the mask
    whose best token is most probable is filled first, and the next are asked again. Beam: the same
    order, but the `width` best partial fillings are kept, by the sum of log p. Raises `TextError`
    where there is no mask.
    """
    method = Method(method)
    reading = read(m, text)
    if not reading.masks:
        raise TextError(f"The text has no mask to fill: write {m.mask_token}.")
    if not 1 <= width <= 32:
        raise SettingError(f"The width of the beam must be 1 to 32, not {width}.")
    columns = [reading.index(position) for position in reading.masks]
    start = _Beam(np.array(reading.input_ids), (), 0.0)
    if method is Method.AT_ONCE:
        best = _best_of_each(m, start, columns)
    else:
        best = _search(m, start, len(columns), width if method is Method.BEAM else 1)
    position = dict(zip(columns, reading.masks, strict=True))
    steps = tuple(
        Step(position[column], m.token(token), float(np.exp(log)))
        for column, token, log in best.steps
    )
    return Filling(method, steps, _decoded(m, best.ids), _mean_log_p(m, best.ids, columns))


def _best_of_each(m: LoadedModel, start: _Beam, columns: Sequence[int]) -> _Beam:
    found = _distributions(m, start.ids[None], [0] * len(columns), columns)
    tokens = found.argmax(1)
    logs = found[np.arange(len(columns)), tokens]
    ids = start.ids.copy()
    ids[columns] = tokens
    steps = tuple(zip(columns, tokens.tolist(), logs.tolist(), strict=True))
    return _Beam(ids, steps, float(logs.sum()))


def _search(m: LoadedModel, start: _Beam, masks: int, width: int) -> _Beam:
    """Fill the most certain mask of each partial filling, and keep the best `width` of all."""
    beams = [start]
    for _ in range(masks):
        places = [np.flatnonzero(beam.ids == m.mask_token_id) for beam in beams]
        rows = np.repeat(np.arange(len(beams)), [len(p) for p in places])
        found = _distributions(m, np.stack([b.ids for b in beams]), rows, np.concatenate(places))
        grown: list[_Beam] = []
        for row, (beam, place) in enumerate(zip(beams, places, strict=True)):
            own = found[rows == row]
            surest = int(own.max(1).argmax())
            for token in np.argsort(-own[surest], kind="stable")[:width]:
                ids = beam.ids.copy()
                ids[place[surest]] = token
                log = float(own[surest, token])
                step = (int(place[surest]), int(token), log)
                grown.append(_Beam(ids, (*beam.steps, step), beam.log_p + log))
        distinct = {beam.ids.tobytes(): beam for beam in sorted(grown, key=lambda b: b.log_p)}
        beams = sorted(distinct.values(), key=lambda b: -b.log_p)[:width]
    return beams[0]


def _distributions(
    m: LoadedModel,
    ids: np.ndarray,
    rows: Sequence[int] | np.ndarray,
    columns: Sequence[int] | np.ndarray,
) -> np.ndarray:
    """log p (pairs, vocabulary) with control tokens ruled out."""
    found = log_probabilities(m, ids, list(map(int, rows)), list(map(int, columns))).numpy().copy()
    found[:, sorted(m.special_ids)] = -np.inf
    return found


def _mean_log_p(m: LoadedModel, ids: np.ndarray, columns: Sequence[int]) -> float:
    """Mean log p of the tokens at some columns, each hidden alone: one batch."""
    rows = np.arange(len(columns))
    hidden = np.tile(ids, (len(columns), 1))
    hidden[rows, columns] = m.mask_token_id
    found = log_probabilities(m, hidden, list(rows), list(columns))
    return float(found[list(rows), ids[columns].tolist()].mean())


def _decoded(m: LoadedModel, ids: np.ndarray) -> str:
    return m.backend.decode(ids.tolist(), skip_special_tokens=True)
