"""Choose positions and corrupt them, as BERT is trained (Devlin et al. 2019, section 3.1).

Positions are chosen by token, by whole word, or by span (SpanBERT, Joshi et al. 2020). Of the chosen
ones 80 % become [MASK], 10 % a random word, 10 % stay; the model must name the original in all
three. Nothing here calls a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from math import lgamma, log, log1p
from typing import TYPE_CHECKING, Protocol

import numpy as np

from core.errors import SettingError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

IGNORED = -100  # the label that a cross-entropy loss leaves out
SPAN_P = 0.2  # SpanBERT's geometric distribution of span lengths, in words
SPAN_MAX = 10


class Unit(StrEnum):
    TOKEN = "token"
    WORD = "word"
    SPAN = "span"


class Action(IntEnum):
    """What happened to a position. NONE: it was not selected."""

    NONE = 0
    MASK = 1
    RANDOM = 2
    KEEP = 3


@dataclass(frozen=True)
class Split:
    """Shares of the three actions among the selected positions; they sum to 1."""

    mask: float = 0.8  # the paper's 80/10/10
    random: float = 0.1
    keep: float = 0.1

    def __post_init__(self) -> None:
        shares = (self.mask, self.random, self.keep)
        if min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
            shown = " + ".join(f"{share:.0%}" for share in shares)
            raise SettingError(
                f"The shares of [MASK], random and keep must sum to 100%, not {shown} "
                f"= {sum(shares):.0%}."
            )


@dataclass(frozen=True)
class Vocabulary:
    """What masking needs to know of a tokenizer."""

    mask_id: int
    special: np.ndarray  # (vocabulary,) bool: never selected
    ordinary: np.ndarray  # ids a random replacement is drawn from: neither special nor unused


@dataclass(frozen=True)
class Masked:
    """A corrupted batch; every array has the shape of the ids that went in."""

    inputs: np.ndarray  # ids that the model reads
    labels: np.ndarray  # original ids where selected, -100 elsewhere
    selected: np.ndarray  # bool
    action: np.ndarray  # `Action` per position


class HasVocabulary(Protocol):
    """A loaded model, which keeps its vocabulary."""

    @property
    def vocabulary(self) -> Vocabulary: ...


def vocabulary_of(tokenizer: PreTrainedTokenizerBase) -> Vocabulary:
    """The vocabulary of a tokenizer; takes milliseconds, so keep it for repeated use."""
    pieces = tokenizer.get_vocab()
    special = np.zeros(max(pieces.values()) + 1, dtype=bool)
    special[list(tokenizer.all_special_ids)] = True
    usable = np.zeros_like(special)
    usable[[i for piece, i in pieces.items() if not piece.startswith("[unused")]] = True
    return Vocabulary(
        mask_id=int(tokenizer.mask_token_id),
        special=special,
        ordinary=np.flatnonzero(usable & ~special),
    )


def _vocabulary(source: PreTrainedTokenizerBase | Vocabulary | HasVocabulary) -> Vocabulary:
    if isinstance(source, Vocabulary):
        return source
    kept = getattr(source, "vocabulary", None)
    return kept if isinstance(kept, Vocabulary) else vocabulary_of(source)


def mask_tokens(
    input_ids: np.ndarray | Sequence[int] | Sequence[Sequence[int]],
    tokenizer: PreTrainedTokenizerBase | Vocabulary | HasVocabulary,
    *,
    rate: float = 0.15,
    split: Split | tuple[float, float, float] = Split(),
    seed: int | np.random.Generator = 0,
    unit: Unit | str = Unit.TOKEN,
    words: np.ndarray | Sequence[int] | None = None,
    exact: bool = False,
) -> Masked:
    """Select positions and corrupt them. Special tokens and padding are never selected.

    `input_ids` has shape (tokens,) or (texts, tokens). By token, each position is drawn on its own
    with probability `rate`, as in transformers' collator; with `exact` round(rate x n) of them are
    drawn without replacement, and at least one. Words and spans need `words`, of the same shape:
    the number of the word that each token belongs to, negative where there is none; they are drawn
    until that same budget is full, never beyond it unless a single word is larger. A span has one
    action for all its tokens, and so has a word.

    The draw depends on `seed` and the ids alone. Raises `SettingError` for a rate outside 0 to 1.
    """
    if not 0 <= rate <= 1:
        raise SettingError(f"The mask probability must be between 0 and 1, not {rate}.")
    chosen = Unit(unit)
    if chosen is not Unit.TOKEN and words is None:
        raise SettingError(f"Masking by {chosen.value} needs the word number of each token.")
    vocabulary = _vocabulary(tokenizer)
    share = split if isinstance(split, Split) else Split(*split)
    ids = np.asarray(input_ids)
    rng = np.random.default_rng(seed)
    eligible = ~vocabulary.special[ids]
    if chosen is Unit.TOKEN and not exact:
        selected = eligible & (rng.random(ids.shape) < rate)
        return corrupt(ids, selected, vocabulary, split=share, seed=rng)
    rows = np.atleast_2d(eligible)
    owners = np.broadcast_to(np.arange(rows.shape[1]), rows.shape)
    if chosen is not Unit.TOKEN:
        owners = np.where(rows, np.atleast_2d(np.asarray(words)), -1)
    groups = np.stack(
        [_draw_groups(row, own, rate, chosen, rng) for row, own in zip(rows, owners, strict=True)]
    ).reshape(ids.shape)
    return corrupt(ids, groups >= 0, vocabulary, split=share, seed=rng, groups=groups)


def corrupt(
    input_ids: np.ndarray,
    selected: np.ndarray,
    vocabulary: Vocabulary,
    *,
    split: Split = Split(),
    seed: int | np.random.Generator = 0,
    groups: np.ndarray | None = None,
) -> Masked:
    """Draw an action for each selected position, one for all positions of a group, and apply it.

    `groups` numbers the groups (within a row) from 0. A random replacement is drawn from all
    ordinary tokens, the original among them, so 1 in len(vocabulary) of them changes nothing.
    """
    rng = np.random.default_rng(seed)
    draw = rng.random(input_ids.shape)
    if groups is not None:
        draw = np.take_along_axis(draw, np.maximum(groups, 0), axis=-1)
    action = np.full(input_ids.shape, Action.KEEP, dtype=np.int8)
    action[draw < split.mask + split.random] = Action.RANDOM
    action[draw < split.mask] = Action.MASK
    action[~selected] = Action.NONE
    inputs = np.where(action == Action.MASK, vocabulary.mask_id, input_ids)
    random = action == Action.RANDOM
    inputs[random] = rng.choice(vocabulary.ordinary, size=int(random.sum()))
    return Masked(inputs, np.where(selected, input_ids, IGNORED), selected, action)


def repeat_draw(
    input_ids: np.ndarray | Sequence[int],
    tokenizer: PreTrainedTokenizerBase | Vocabulary | HasVocabulary,
    *,
    rate: float = 0.15,
    split: Split = Split(),
    unit: Unit | str = Unit.TOKEN,
    words: np.ndarray | Sequence[int] | None = None,
    draws: int = 10_000,
    seed: int = 0,
) -> np.ndarray:
    """Mask one text many times: how many tokens were selected, and got each action.

    Shape (draws, 4): selected, mask, random, keep. By token the number selected is binomial; by
    word and span it is held to the budget of round(rate x n) tokens.
    """
    vocabulary = _vocabulary(tokenizer)
    ids, chosen, rng = np.asarray(input_ids), Unit(unit), np.random.default_rng(seed)
    many = np.tile(ids, (draws, 1))
    if chosen is Unit.TOKEN:
        action = mask_tokens(many, vocabulary, rate=rate, split=split, seed=rng).action
    else:
        eligible = ~vocabulary.special[ids]
        groups = _draw_groups(eligible, np.asarray(words), rate, chosen, rng, draws=draws)
        action = corrupt(many, groups >= 0, vocabulary, split=split, seed=rng, groups=groups).action
    counts = [(action == a).sum(1) for a in (Action.MASK, Action.RANDOM, Action.KEEP)]
    return np.stack([np.sum(counts, axis=0), *counts], axis=1)


def binomial(n: int, rate: float) -> np.ndarray:
    """Probability of 0..n selected among n tokens drawn independently: shape (n + 1,).

    >>> binomial(2, 0.5).tolist()
    [0.25, 0.5, 0.25]
    """
    if rate in (0, 1):
        return (np.arange(n + 1) == n * rate).astype(float)
    k = np.arange(n + 1)
    log_choose = np.array([lgamma(n + 1) - lgamma(i + 1) - lgamma(n - i + 1) for i in k])
    return np.exp(log_choose + k * log(rate) + (n - k) * log1p(-rate)).round(15)


def span_lengths(rng: np.random.Generator, size: int | tuple[int, ...]) -> np.ndarray:
    """Span lengths in words: geometric with p = 0.2, renormalised to 1..10, mean about 3.8."""
    weights = SPAN_P * (1 - SPAN_P) ** np.arange(SPAN_MAX)
    return rng.choice(np.arange(1, SPAN_MAX + 1), size=size, p=weights / weights.sum())


def draw_units(
    sizes: np.ndarray, budget: int, *, unit: Unit, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw words, or spans of words, of one text many times over: (draws, words).

    Each entry numbers the draw's unit that the word fell into, from 0, or is -1. `sizes` are the
    words' tokens. Words are tried in random order and taken while they fit the budget of tokens,
    as in BERT's own code; a first word that is larger than the budget is taken all the same. A span
    ends early where it meets another, the end of the text, or the budget.
    """
    words = len(sizes)
    groups = np.full((draws, words), -1)
    used, number, rows = np.zeros(draws, int), np.zeros(draws, int), np.arange(draws)
    order = rng.permuted(np.tile(np.arange(words), (draws, 1)), axis=1)
    shape = (draws, words)
    lengths = span_lengths(rng, shape) if unit is Unit.SPAN else np.ones(shape, int)
    for start, length in zip(order.T, lengths.T, strict=True):
        if (used >= budget).all():
            break
        growing = np.ones(draws, dtype=bool)
        for step in range(int(length.max())):
            at = np.minimum(start + step, words - 1)
            fits = (used + sizes[at] <= budget) | (used == 0)
            growing &= (step < length) & (start + step < words) & (groups[rows, at] < 0) & fits
            groups[rows[growing], at[growing]] = number[growing]
            used[growing] += sizes[at[growing]]
        number += groups[rows, start] == number
    return groups


def _draw_groups(
    eligible: np.ndarray,
    owners: np.ndarray,
    rate: float,
    unit: Unit,
    rng: np.random.Generator,
    *,
    draws: int = 1,
) -> np.ndarray:
    """Number the drawn units of one text from 0, -1 where a token is not drawn: (draws, tokens)."""
    groups = np.full((draws, len(eligible)), -1)
    count = int(eligible.sum())
    if rate == 0 or count == 0:
        return groups
    _, word, sizes = np.unique(owners[eligible], return_inverse=True, return_counts=True)
    budget = max(1, round(rate * count))
    groups[:, eligible] = draw_units(sizes, budget, unit=unit, draws=draws, rng=rng)[:, word]
    return groups
