"""One view of a tokenised text, used by every page: tokens, words, offsets, positions.

Positions count the tokens of the text, 0 being the first; what the model adds around them ([CLS] and
[SEP]) has no position. What was changed, cut, or not understood on the way is said in `notes`.
Leaves what the model makes of the tokens to the other subjects.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from core.errors import TextError
from core.models import LoadedModel

if TYPE_CHECKING:
    from tokenizers import Encoding

ANY_MASK = re.compile(r"\[\s*mask\s*\]|<\s*mask\s*>", re.IGNORECASE)
_SURROGATE = re.compile("[\ud800-\udfff]")


class Kind(StrEnum):
    WORD = "word"
    MASK = "mask"
    UNKNOWN = "unknown"  # outside the vocabulary: the model sees only [UNK]
    CONTROL = "control"  # [CLS], [SEP] or [PAD], typed by the person


@dataclass(frozen=True)
class Token:
    """One token of a text. `start` and `end` are characters of `Reading.text`."""

    position: int
    text: str  # the characters it covers, as typed
    piece: str  # the vocabulary's spelling, such as "##ing"
    id: int
    start: int
    end: int
    word: int  # number of the word it belongs to
    kind: Kind

    @property
    def label(self) -> str:
        """What to show: the typed characters, or the vocabulary's spelling where there are none."""
        return self.text if self.text.strip() else self.piece


@dataclass(frozen=True)
class Reading:
    """A text as a model reads it.

    `tokens` holds the tokens that fit the model: all of them, or a window of a longer text, whose
    size in tokens is `total`.
    """

    text: str
    tokens: tuple[Token, ...]
    total: int
    normalised: str
    notes: tuple[str, ...]
    prefix: tuple[int, ...]  # ids the model adds before the text, such as [CLS]
    suffix: tuple[int, ...]  # and after it, such as [SEP]

    @property
    def first(self) -> int:
        """Position of the first token that is read."""
        return self.tokens[0].position

    @cached_property
    def input_ids(self) -> list[int]:
        return [*self.prefix, *(token.id for token in self.tokens), *self.suffix]

    @cached_property
    def input_words(self) -> list[int]:
        """Number of the word of each of `input_ids`, -1 where there is none."""
        words = [token.word for token in self.tokens]
        return [-1] * len(self.prefix) + words + [-1] * len(self.suffix)

    @property
    def masks(self) -> list[int]:
        """Positions of the mask tokens."""
        return [token.position for token in self.tokens if token.kind is Kind.MASK]

    @property
    def scorable(self) -> list[int]:
        """Positions with a true token that the model could name."""
        return [token.position for token in self.tokens if token.kind in (Kind.WORD, Kind.UNKNOWN)]

    @property
    def words(self) -> list[list[Token]]:
        """The tokens, grouped into words in reading order."""
        groups: dict[int, list[Token]] = {}
        for token in self.tokens:
            groups.setdefault(token.word, []).append(token)
        return list(groups.values())

    def token(self, position: int) -> Token:
        """The token at a position; raises `TextError` outside the part that is read."""
        last = self.tokens[-1].position
        if not self.first <= position <= last:
            raise TextError(
                f"Position {position} is outside the text: its positions are {self.first} to {last}."
            )
        return self.tokens[position - self.first]

    def index(self, position: int) -> int:
        """Where a position stands in `input_ids`."""
        return len(self.prefix) + self.token(position).position - self.first

    def word_of(self, position: int) -> list[int]:
        """Positions of all tokens of the word at a position."""
        word = self.token(position).word
        return [token.position for token in self.tokens if token.word == word]


def read(m: LoadedModel, text: str, *, around: int | None = None) -> Reading:
    """Tokenise a text for a model.

    Masks in another spelling (`[mask]`, `<mask>`) become the model's own. A text longer than the
    model reads is cut to the window around `around` (a position), else around its masks, else to
    its beginning; `notes` says where. Raises `TextError` when there is nothing to read.
    """
    if not text.strip():
        raise TextError("There is no text yet: type a sentence.")
    notes: list[str] = []
    text = _repair(m, text, notes)
    encoding = m.backend.encode(text)
    inside = [i for i, added in enumerate(encoding.special_tokens_mask) if not added]
    if not inside:
        raise TextError("The text holds no character that this model can read.")
    prefix = tuple(encoding.ids[: inside[0]])
    suffix = tuple(encoding.ids[inside[-1] + 1 :])
    tokens = _tokens(m, text, encoding, inside)
    window = _window(tokens, m.info.max_tokens - len(prefix) - len(suffix), around)
    if len(window) < len(tokens):
        notes.append(_cut_note(tokens, window))
    notes += _unread_notes(text, tokens)
    normaliser = m.backend.normalizer
    normalised = normaliser.normalize_str(text) if normaliser else text
    return Reading(text, tuple(window), len(tokens), normalised, tuple(notes), prefix, suffix)


def code_points(text: str) -> str:
    """
    >>> code_points("e\u0301")
    'U+0065 U+0301'
    """
    return " ".join(f"U+{ord(character):04X}" for character in text)


def with_mask(reading: Reading, position: int, mask_token: str) -> str:
    """The text with the word at a position replaced by as many masks as it has tokens."""
    tokens = [reading.token(p) for p in reading.word_of(position)]
    masks = " ".join([mask_token] * len(tokens))
    return reading.text[: tokens[0].start] + masks + reading.text[tokens[-1].end :]


def _repair(m: LoadedModel, text: str, notes: list[str]) -> str:
    if _SURROGATE.search(text):
        text = _SURROGATE.sub("\ufffd", text)
        notes.append("Broken characters (half of a surrogate pair) were replaced by U+FFFD.")
    others = sorted({found for found in ANY_MASK.findall(text) if found != m.mask_token})
    if others:
        shown = ", ".join(f"“{other}”" for other in others)
        notes.append(f"{shown} was read as this model's mask; it is spelled {m.mask_token}.")
        text = ANY_MASK.sub(m.mask_token, text)
    return text


def _tokens(m: LoadedModel, text: str, encoding: Encoding, inside: Sequence[int]) -> list[Token]:
    unknown = m.backend.token_to_id(m.unk_token) if m.unk_token else None
    spans = _spans(text, encoding, inside)
    words = word_numbers(m, text, encoding, inside)
    tokens = []
    for position, (i, (start, end), word) in enumerate(zip(inside, spans, words, strict=True)):
        token_id = encoding.ids[i]
        kind = Kind.WORD
        if token_id == m.mask_token_id:
            kind = Kind.MASK
        elif token_id == unknown:
            kind = Kind.UNKNOWN
        elif token_id in m.special_ids:
            kind = Kind.CONTROL
        piece = m.token(token_id)
        tokens.append(Token(position, text[start:end], piece, token_id, start, end, word, kind))
    return tokens


def word_numbers(m: LoadedModel, text: str, encoding: Encoding, inside: Sequence[int]) -> list[int]:
    """Number of the word of each token, from 0.

    Words are those of the tokenizer, cut further where it joins what stands apart: tokenizers that
    split at spaces only keep "mat." together, and those that split by script keep a whole Chinese
    sentence together. The pieces of one character stay together in any case.
    """
    numbers: list[int] = []
    before: tuple[int, int] | None = None
    apart_before = False
    for place, (i, span) in enumerate(zip(inside, _spans(text, encoding, inside), strict=True)):
        apart = encoding.ids[i] in m.special_ids or _stands_alone(text[span[0] : span[1]])
        same_word = place > 0 and encoding.word_ids[i] == encoding.word_ids[inside[place - 1]]
        joined = span == before or (same_word and not apart and not apart_before)
        numbers.append(numbers[-1] + (not joined) if numbers else 0)
        before, apart_before = span, apart
    return numbers


def _spans(text: str, encoding: Encoding, inside: Sequence[int]) -> list[tuple[int, int]]:
    """Characters that each token covers, without the space that some tokenizers count in."""
    spans = []
    for i in inside:
        start, end = encoding.offsets[i]
        covered = text[start:end]
        spans.append((start + len(covered) - len(covered.lstrip()), end))
    return spans


def _stands_alone(text: str) -> bool:
    """Punctuation, symbols and CJK characters are words of their own.

    >>> _stands_alone("."), _stands_alone("河"), _stands_alone("cat")
    (True, True, False)
    """
    return bool(text) and all(
        unicodedata.category(character)[0] in "PS"
        or unicodedata.name(character, "").startswith(("CJK", "HIRAGANA", "KATAKANA"))
        for character in text
    )


def _window(tokens: list[Token], limit: int, around: int | None) -> list[Token]:
    """At most `limit` tokens: those around a position, or around the masks, or the first."""
    if len(tokens) <= limit:
        return tokens
    masks = [token.position for token in tokens if token.kind is Kind.MASK]
    centre = around
    if centre is None and masks and masks[-1] >= limit:
        fits = masks[-1] - masks[0] < limit
        centre = (masks[0] + masks[-1]) // 2 if fits else masks[0]
    if centre is None or not 0 <= centre < len(tokens):
        centre = 0
    start = min(max(0, centre - limit // 2), len(tokens) - limit)
    return tokens[start : start + limit]


def _cut_note(tokens: list[Token], window: list[Token]) -> str:
    first, last = window[0].position, window[-1].position
    kept = f"tokens {first} to {last} of {len(tokens)} are read"
    where = f"the text is cut after “{_clip(window[-1].text)}” (character {window[-1].end})"
    if first:
        where = (
            f"from “{_clip(window[0].text)}” (character {window[0].start}) "
            f"to “{_clip(window[-1].text)}” (character {window[-1].end})"
        )
    outside = sum(t.kind is Kind.MASK for t in tokens) - sum(t.kind is Kind.MASK for t in window)
    lost = f" {outside} of its masks lie outside and are not predicted." if outside else ""
    return (
        f"Too long for this model, which reads {len(window)} tokens at once: {kept}, {where}.{lost}"
    )


def _unread_notes(text: str, tokens: list[Token]) -> list[str]:
    """What the model does not see as it was typed."""
    notes = []
    unknown = [_clip(token.text) for token in tokens if token.kind is Kind.UNKNOWN]
    if unknown:
        shown = ", ".join(f"“{word}”" for word in dict.fromkeys(unknown[:8]))
        notes.append(
            f"{len(unknown)} of {len(tokens)} tokens are not in the vocabulary, and the model sees "
            f"[UNK] there: {shown}{' and others' if len(unknown) > 8 else ''}."
        )
    control = [token.piece for token in tokens if token.kind is Kind.CONTROL]
    if control:
        shown = ", ".join(dict.fromkeys(control))
        notes.append(
            f"{shown} in the text is read as the model's control token, and is not scored."
        )
    covered = bytearray(len(text))
    for token in tokens:
        covered[token.start : token.end] = b"\1" * (token.end - token.start)
    dropped = [c for c, seen in zip(text, covered, strict=True) if not seen and not c.isspace()]
    if dropped:
        shown = " ".join(code_points(character) for character in list(dict.fromkeys(dropped))[:8])
        notes.append(f"{len(dropped)} characters are dropped by the tokenizer: {shown}.")
    return notes


def _clip(text: str) -> str:
    return text if len(text) <= 24 else text[:20] + "…"
