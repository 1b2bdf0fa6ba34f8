"""Compare what could stand in a text: candidates for one word, and two sentences word by word.

Words of several pieces are scored whole, by the chain rule over their pieces. Distributions come from
`prediction`.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from core.errors import TextError
from core.models import LoadedModel
from core.prediction import log_probabilities, score_positions
from core.text import Reading, Token, read

if TYPE_CHECKING:
    import pandas as pd


def compare_candidates(
    m: LoadedModel, text: str | Reading, position: int, candidates: Sequence[str]
) -> pd.DataFrame:
    """Score words of one's own in place of the word (or mask) at a position.

    A candidate of k pieces takes k masks, which are filled from left to right, each piece scored
    given those before it: log p = sum of log p(piece | pieces before, masks after). So the number
    of masks tells the model how long the word is, which favours words of several pieces a little.

    Columns: candidate, pieces (their spellings), count, log_p (nats), probability.
    """
    import pandas as pd

    reading = text if isinstance(text, Reading) else read(m, text, around=position)
    word = [reading.token(p) for p in reading.word_of(position)]
    rows = []
    for candidate in dict.fromkeys(c.strip() for c in candidates if c.strip()):
        before = reading.text[: word[0].start]
        filled = read(m, before + candidate + reading.text[word[-1].end :], around=position)
        begin, end = len(before), len(before) + len(candidate)
        pieces = [t for t in filled.tokens if begin <= t.start < end]
        if not pieces:
            raise TextError(f"The candidate “{candidate[:40]}” holds no character the model reads.")
        logs = _chain(m, filled, pieces)
        rows.append(
            {
                "candidate": candidate,
                "pieces": " ".join(token.piece for token in pieces),
                "count": len(pieces),
                "log_p": float(logs.sum()),
                "probability": float(np.exp(logs.sum())),
            }
        )
    if not rows:
        raise TextError("Type the candidates to compare, one a line or separated by commas.")
    return pd.DataFrame(rows).sort_values("log_p", ascending=False, ignore_index=True)


def compare_sentences(
    m: LoadedModel, first: str, second: str, *, within_word: bool = False
) -> pd.DataFrame:
    """Pseudo-log-likelihood of two sentences, word by word (Salazar et al. 2020).

    The words are aligned; a word that stands in one sentence only has a missing value beside it. Columns:
    row, first, first_log_p, second, second_log_p; log_p sums log p(true) over the word's tokens,
    each hidden alone, or as `score_positions` has it with `within_word`.
    """
    return _aligned(
        _word_scores(m, first, within_word=within_word),
        _word_scores(m, second, within_word=within_word),
    )


def compare_models(m: LoadedModel, other: LoadedModel, text: str) -> pd.DataFrame:
    """What two models make of one text, aligned by word where their tokenizers differ.

    Columns as in `compare_sentences`, first being `m`. The later pieces of a word are hidden along
    with each piece, so that a tokenizer with more pieces gains nothing by them.
    """
    return _aligned(
        _word_scores(m, text, within_word=True), _word_scores(other, text, within_word=True)
    )


def _aligned(left: list[tuple[str, float]], right: list[tuple[str, float]]) -> pd.DataFrame:
    import pandas as pd

    names = [[word.casefold() for word, _ in side] for side in (left, right)]
    rows: list[tuple[str | None, float | None, str | None, float | None]] = []
    matcher = difflib.SequenceMatcher(None, names[0], names[1], autojunk=False)
    for _, a, b, c, d in matcher.get_opcodes():
        pairs = max(b - a, d - c)
        for i in range(pairs):
            x = left[a + i] if a + i < b else (None, None)
            y = right[c + i] if c + i < d else (None, None)
            rows.append((*x, *y))
    table = pd.DataFrame(rows, columns=["first", "first_log_p", "second", "second_log_p"])
    table[["first_log_p", "second_log_p"]] = table[["first_log_p", "second_log_p"]].astype(float)
    table.insert(0, "row", np.arange(len(table)))
    return table


def _chain(m: LoadedModel, reading: Reading, pieces: Sequence[Token]) -> np.ndarray:
    """log p of each piece given the pieces before it, the later ones masked: one batch."""
    columns = [reading.index(token.position) for token in pieces]
    ids = np.tile(np.array(reading.input_ids), (len(pieces), 1))
    for row in range(len(pieces)):
        ids[row, columns[row:]] = m.mask_token_id
    found = log_probabilities(m, ids, range(len(pieces)), columns)
    return found[range(len(pieces)), [token.id for token in pieces]].numpy().astype(float)


def _word_scores(m: LoadedModel, text: str, *, within_word: bool) -> list[tuple[str, float]]:
    """Each word of a text with the sum of log p over its tokens."""
    reading = read(m, text)
    scores = score_positions(m, reading, within_word=within_word)
    logs = dict(zip(scores["position"].tolist(), scores["loss"].tolist(), strict=True))
    words = []
    for tokens in reading.words:
        scored = [-logs[token.position] for token in tokens if token.position in logs]
        if scored:
            words.append((reading.text[tokens[0].start : tokens[-1].end], float(sum(scored))))
    return words
