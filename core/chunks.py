"""Tokenised text to train a masked LM on, cut to what the model reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from core.errors import SettingError
from core.models import LoadedModel
from core.text import word_numbers


@dataclass(frozen=True)
class Chunks:
    """Tokenised text, cut to what the model reads. Chunk i is `ids[starts[i]:starts[i] + lengths[i]]`."""

    ids: np.ndarray  # (tokens,) without special tokens
    words: np.ndarray  # (tokens,) number of the word within its paragraph; 0 where not asked for
    starts: np.ndarray  # (chunks,)
    lengths: np.ndarray  # (chunks,)

    def __len__(self) -> int:
        return len(self.starts)

    def first(self, count: int) -> Chunks:
        """The first `count` chunks."""
        return Chunks(self.ids, self.words, self.starts[:count], self.lengths[:count])


def chunk(m: LoadedModel, texts: Sequence[str], max_tokens: int, *, words: bool = False) -> Chunks:
    """Tokenise paragraphs and cut each into runs of at most `max_tokens` with [CLS] and [SEP].

    Word numbers, needed to mask by word or span, take longer than the rest and come on request.
    """
    room = min(max_tokens, m.info.max_tokens) - 2
    ids: list[np.ndarray] = []
    numbers: list[np.ndarray] = []
    spans: list[tuple[int, int]] = []
    total = 0
    for begin in range(0, len(texts), 1024):
        batch = [text for text in texts[begin : begin + 1024] if text.strip()]
        encodings = m.backend.encode_batch(batch, add_special_tokens=False)
        for text, encoding in zip(batch, encodings, strict=True):
            count = len(encoding.ids)
            ids.append(np.array(encoding.ids, dtype=np.int32))
            found = word_numbers(m, text, encoding, range(count)) if words else [0] * count
            numbers.append(np.array(found, dtype=np.int32))
            parts = -(-count // room)  # equal parts, rather than full ones and a crumb
            edges = [count * part // parts for part in range(parts + 1)] if parts else []
            spans += [(total + a, b - a) for a, b in pairwise(edges)]
            total += count
    if not spans:
        raise SettingError("The text is empty: there is nothing to train on.")
    table = np.array(spans)
    return Chunks(np.concatenate(ids), np.concatenate(numbers), table[:, 0], table[:, 1])


def padded(m: LoadedModel, chunks: Chunks, batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ids and word numbers of the chosen chunks, both (chunks, tokens) with [CLS], [SEP], padding."""
    lengths = chunks.lengths[batch]
    template = m.backend.encode("").ids  # [CLS] and [SEP], whatever they are called
    ids = np.full((len(batch), int(lengths.max()) + 2), m.pad_token_id, dtype=np.int64)
    words = np.full_like(ids, -1)
    ids[:, 0] = template[0]
    for row, (start, length) in enumerate(zip(chunks.starts[batch], lengths, strict=True)):
        ids[row, 1 : length + 1] = chunks.ids[start : start + length]
        words[row, 1 : length + 1] = chunks.words[start : start + length]
        ids[row, length + 1] = template[-1]
    return ids, words


def hold_out(chunks: Chunks, every: int = 50) -> tuple[Chunks, Chunks]:
    """Every 50th chunk, or the last one of a short text, and the rest."""
    number = np.arange(len(chunks))
    if len(chunks) < 2:
        raise SettingError("The text is too short: it needs two paragraphs, one to be held out.")
    out = number % every == every - 1 if len(chunks) >= every else number == len(chunks) - 1
    held, kept = (
        Chunks(chunks.ids, chunks.words, chunks.starts[part], chunks.lengths[part])
        for part in (out, ~out)
    )
    return held, kept
