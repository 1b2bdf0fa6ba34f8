"""Distributions at positions: top-k, rank, p(true), loss, pseudo-log-likelihood, lens, occlusion.

Every number is a softmax over the whole vocabulary. Ranks start at 1, the best, and are exact beyond
the listed candidates; among equal probabilities the smaller token id comes first. Positions count the
tokens of the text, as in `text`. What is compared over whole sentences is in `comparison`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from core.errors import SettingError, TextError
from core.models import LoadedModel, head_of
from core.text import Kind, Reading, read

if TYPE_CHECKING:
    import pandas as pd
    import torch

Strategy = Literal["mask", "random", "keep"]
BATCH_TOKENS = 2048  # a pass of about this many tokens keeps both cores busy and stays in cache


@dataclass(frozen=True)
class Candidate:
    token: str  # the vocabulary's spelling, such as "##ing"
    token_id: int
    probability: float
    rank: int


@dataclass(frozen=True)
class MaskPrediction:
    """What the model expects at one mask."""

    position: int
    candidates: tuple[Candidate, ...]
    rest: float  # probability of all tokens that are not listed
    others: int  # how many those are


@dataclass(frozen=True)
class PositionPrediction(MaskPrediction):
    """What the model expects at a position whose true token is known."""

    strategy: Strategy
    shown_token: str  # what the model read there: the mask, a random token, or the true one
    true_token: str
    true_id: int
    true_rank: int
    true_probability: float
    loss: float  # -log p(true), nats


def predict_masks(m: LoadedModel, text: str, top_k: int = 5) -> list[MaskPrediction]:
    """The most probable tokens at each mask of a text, all masks in one pass.

    Raises `TextError` where the text holds no mask.
    """
    reading = read(m, text)
    if not reading.masks:
        raise TextError(f"The text has no mask: write {m.mask_token} for a word, or pick a word.")
    ids = np.array([reading.input_ids])
    columns = [reading.index(position) for position in reading.masks]
    found = log_probabilities(m, ids, [0] * len(columns), columns)
    return [
        MaskPrediction(position, *listed(m.token, row, top_k))
        for position, row in zip(reading.masks, found, strict=True)
    ]


def predict_position(
    m: LoadedModel,
    text: str | Reading,
    position: int,
    strategy: Strategy = "mask",
    top_k: int = 5,
    *,
    seed: int = 0,
) -> PositionPrediction:
    """Hide one token and ask for it: by the mask, by a random token, or not at all ("keep").

    The random token is drawn by `seed` from the ordinary tokens. Raises `TextError` for a position
    that is not in the text or holds a mask, which has no true token.
    """
    reading = text if isinstance(text, Reading) else read(m, text, around=position)
    return predict_positions(m, reading, [position], strategy, top_k, seed=seed)[0]


def predict_word(
    m: LoadedModel,
    text: str | Reading,
    position: int,
    strategy: Strategy = "mask",
    top_k: int = 5,
    *,
    seed: int = 0,
) -> list[PositionPrediction]:
    """As `predict_position`, with all pieces of the word hidden together, one prediction for each.

    The masks are predicted independently: the joint probability is their product only if they are.
    """
    reading = text if isinstance(text, Reading) else read(m, text, around=position)
    return predict_positions(m, reading, reading.word_of(position), strategy, top_k, seed=seed)


def predict_positions(
    m: LoadedModel,
    reading: Reading,
    positions: Sequence[int],
    strategy: Strategy,
    top_k: int,
    *,
    seed: int = 0,
) -> list[PositionPrediction]:
    """Hide the tokens at several positions at once and predict each."""
    for position in positions:
        check_has_truth(reading, position)
    ids = np.array([reading.input_ids])
    columns = [reading.index(position) for position in positions]
    truth = ids[0, columns].copy()
    ids[0, columns] = _shown(m, truth, strategy, seed)
    found = log_probabilities(m, ids, [0] * len(columns), columns)
    return [
        position_prediction(
            m.token, row, position, int(true), m.token(ids[0, column]), strategy, top_k
        )
        for position, column, true, row in zip(positions, columns, truth, found, strict=True)
    ]


def check_has_truth(reading: Reading, position: int) -> None:
    """Raise `TextError` for a position that is not in the text, or hides no true token."""
    token = reading.token(position)
    if token.kind in (Kind.MASK, Kind.CONTROL):
        raise TextError(
            f"Position {position} holds {token.piece}, which hides no true token: pick a word."
        )


def position_prediction(
    spell: Callable[[int], str],
    row: torch.Tensor,
    position: int,
    true_id: int,
    shown_token: str,
    strategy: Strategy,
    top_k: int,
) -> PositionPrediction:
    """What a distribution (vocabulary,), of log probabilities, says of a known token.

    `spell` gives the spelling of an id.
    """
    return PositionPrediction(
        position,
        *listed(spell, row, top_k),
        strategy=strategy,
        shown_token=shown_token,
        true_token=spell(true_id),
        true_id=true_id,
        true_rank=int(ranks_of(row[None], np.array([true_id]))[0]),
        true_probability=float(row[true_id].exp()),
        loss=-float(row[true_id]),
    )


def score_positions(
    m: LoadedModel, text: str | Reading, *, within_word: bool = False
) -> pd.DataFrame:
    """Hide each token in turn and ask for it, in bounded batches (Salazar et al. 2020).

    With `within_word` the later pieces of the same word are hidden along with each piece, since
    they give the word away (Kauf and Ivanova 2023, "PLL-word-l2r"). Columns: position, token,
    p_true, rank, loss (nats). Masks and control tokens, which have no true token, are left out.
    """
    import pandas as pd

    reading = text if isinstance(text, Reading) else read(m, text)
    positions = reading.scorable
    if not positions:
        raise TextError("The text holds masks only: there is no word to score.")
    columns = [reading.index(position) for position in positions]
    rows = np.arange(len(columns))
    ids = np.tile(np.array(reading.input_ids), (len(columns), 1))
    truth = ids[rows, columns].copy()
    ids[rows, columns] = m.mask_token_id
    if within_word:
        words = np.array(reading.input_words)
        place = np.arange(ids.shape[1])
        later = (words == words[columns][:, None]) & (place > np.array(columns)[:, None])
        ids[later] = m.mask_token_id
    true_log, ranks = true_scores(m, ids, columns, truth)
    return pd.DataFrame(
        {
            "position": positions,
            "token": [reading.token(position).label for position in positions],
            "p_true": np.exp(true_log),
            "rank": ranks,
            "loss": -true_log,
        }
    )


def pseudo_perplexity(scores: pd.DataFrame) -> float:
    """exp of the mean loss over all positions (Salazar et al. 2020); 1 is certainty.

    >>> import pandas as pd
    >>> round(pseudo_perplexity(pd.DataFrame({"loss": [math.log(2), math.log(8)]})), 6)
    4.0
    """
    return math.exp(scores["loss"].mean())


def layer_lens(
    m: LoadedModel,
    text: str | Reading,
    position: int,
    top_k: int = 5,
    *,
    target_id: int | None = None,
) -> pd.DataFrame:
    """What each layer would have predicted at a hidden position (nostalgebraist 2020, logit lens).

    The masked-LM head reads the hidden state after every layer, 0 being the input embeddings; only
    the last was trained for it. The truth is the hidden token, or `target_id` where a mask was
    typed. Columns: layer, rank, token, probability, is_true, p_true, true_rank.
    """
    import pandas as pd
    import torch

    reading = text if isinstance(text, Reading) else read(m, text, around=position)
    ids = np.array([reading.input_ids])
    column = reading.index(position)
    true = int(ids[0, column]) if target_id is None else target_id
    ids[0, column] = m.mask_token_id
    with torch.inference_mode():
        output = m.model.base_model(
            input_ids=torch.from_numpy(ids).to(m.info.device), output_hidden_states=True
        )
        hidden = torch.stack([layer[0, column] for layer in output.hidden_states])
        found = head_of(m.model)(hidden).log_softmax(-1).cpu()
    ranks = ranks_of(found, np.full(len(found), true))
    rows = [
        {
            "layer": layer,
            "rank": candidate.rank,
            "token": candidate.token,
            "probability": candidate.probability,
            "is_true": candidate.token_id == true,
            "p_true": float(row[true].exp()),
            "true_rank": int(ranks[layer]),
        }
        for layer, row in enumerate(found)
        for candidate in listed(m.token, row, top_k)[0]
    ]
    return pd.DataFrame(rows)


def occlusion(
    m: LoadedModel, text: str | Reading, position: int, *, target_id: int | None = None
) -> pd.DataFrame:
    """How far log p(true) at a hidden position falls when each other token is hidden as well.

    The truth is the hidden token, or `target_id` where a mask was typed. Columns: position, token,
    fall (nats); a positive fall means that the token helped. One batch.
    """
    import pandas as pd

    reading = text if isinstance(text, Reading) else read(m, text, around=position)
    column = reading.index(position)
    base = np.array(reading.input_ids)
    true = int(base[column]) if target_id is None else target_id
    base[column] = m.mask_token_id
    others = [
        token
        for token in reading.tokens
        if token.position != position and token.kind is not Kind.MASK
    ]
    if not others:
        raise TextError("There is no other word in the text that could matter.")
    ids = np.tile(base, (len(others) + 1, 1))
    for row, token in enumerate(others, 1):
        ids[row, reading.index(token.position)] = m.mask_token_id
    found, _ = true_scores(m, ids, [column] * len(ids), np.full(len(ids), true))
    return pd.DataFrame(
        {
            "position": [token.position for token in others],
            "token": [token.label for token in others],
            "fall": found[0] - found[1:],
        }
    )


def log_probabilities(
    m: LoadedModel,
    ids: np.ndarray,
    rows: Sequence[int],
    columns: Sequence[int],
    *,
    seen: np.ndarray | None = None,
) -> torch.Tensor:
    """Log-softmax over the vocabulary at (row, column) pairs of a batch: (pairs, vocabulary).

    `ids` is (texts, tokens), all of one length; `seen`, of the same shape, is False where a token
    is shut out by the attention mask. Logits are computed at the asked places only.
    """
    import torch

    with torch.inference_mode():
        batch = torch.from_numpy(np.ascontiguousarray(ids)).to(m.info.device)
        mask = torch.ones_like(batch)
        if seen is not None:
            mask = torch.from_numpy(np.ascontiguousarray(seen)).to(batch)
        hidden = m.model.base_model(input_ids=batch, attention_mask=mask)[0]
        return head_of(m.model)(hidden[list(rows), list(columns)]).log_softmax(-1).cpu()


def true_scores(
    m: LoadedModel,
    ids: np.ndarray,
    columns: Sequence[int],
    truth: np.ndarray,
    *,
    seen: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """log p(true) and rank at one column of each row, in passes that fit the memory.

    `ids` and `seen` as in `log_probabilities`; `truth` holds the true id of each row.
    """
    size = max(1, BATCH_TOKENS // ids.shape[1])
    logs, ranks = [], []
    for start in range(0, len(ids), size):
        part = slice(start, start + size)
        rows = range(len(ids[part]))
        shown = None if seen is None else seen[part]
        found = log_probabilities(m, ids[part], rows, columns[part], seen=shown)
        logs.append(found[list(rows), truth[part]].numpy().astype(float))
        ranks.append(ranks_of(found, truth[part]))
    return np.concatenate(logs), np.concatenate(ranks)


def ranks_of(found: torch.Tensor, truth: np.ndarray) -> np.ndarray:
    """Rank of the true id in each row, 1 the best; the smaller id goes first among equals."""
    import torch

    ids = torch.as_tensor(np.asarray(truth))[:, None]
    own = found.gather(1, ids)
    above = (found > own).sum(1)
    before = ((found == own) & (torch.arange(found.shape[1])[None] < ids)).sum(1)
    return (above + before + 1).numpy()


def listed(
    spell: Callable[[int], str], row: torch.Tensor, top_k: int
) -> tuple[tuple[Candidate, ...], float, int]:
    """The best `top_k` of a distribution, at most all of it, and the probability of the others."""
    import torch

    if top_k < 1:
        raise SettingError(f"The number of candidates must be at least 1, not {top_k}.")
    order = torch.sort(row, descending=True, stable=True).indices[:top_k]
    probabilities = row[order].exp().tolist()
    candidates = tuple(
        Candidate(spell(token), token, probability, rank)
        for rank, (token, probability) in enumerate(
            zip(order.tolist(), probabilities, strict=True), 1
        )
    )
    others = len(row) - len(candidates)
    return candidates, max(0.0, 1.0 - math.fsum(probabilities)) if others else 0.0, others


def _shown(m: LoadedModel, truth: np.ndarray, strategy: Strategy, seed: int) -> np.ndarray:
    """The ids that the model reads instead of the true ones."""
    if strategy == "mask":
        return np.full_like(truth, m.mask_token_id)
    if strategy == "keep":
        return truth
    if strategy == "random":
        return np.random.default_rng(seed).choice(m.vocabulary.ordinary, size=len(truth))
    raise SettingError(f"The strategy must be mask, random or keep, not {strategy!r}.")
