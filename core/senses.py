"""How well the vectors of a word keep its senses apart, by layer, in the original space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from core.datasets import senses
from core.embeddings import embed_word
from core.models import LoadedModel
from core.similarity import centre, cosines

if TYPE_CHECKING:
    import pandas as pd


def separation(
    vectors: np.ndarray, of_use: Sequence[str] | np.ndarray, *, centred: bool = False
) -> pd.DataFrame:
    """Figures of each layer from vectors (uses, layers + 1, hidden) and the sense of each use.

    Columns: layer; accuracy (of the nearest other use, see `neighbour_accuracy`); chance (what a
    random other use would give); silhouette (Rousseeuw 1987, by cosine; missing where all uses
    coincide, or a sense has but one); within and between (mean cosine of two uses of the same sense,
    and of different ones). `centred` takes the mean of all uses away first, since the vectors of a
    layer share one direction that makes all cosines high (Ethayarajh 2019).
    """
    import pandas as pd

    names = np.asarray(of_use)
    rows = []
    for layer in range(vectors.shape[1]):
        similar = cosines(centre(vectors[:, layer]) if centred else vectors[:, layer])
        rows.append(
            {
                "layer": layer,
                "accuracy": neighbour_accuracy(similar, names),
                "chance": chance(names),
                "silhouette": silhouette(similar, names),
                **mean_cosines(similar, names),
            }
        )
    return pd.DataFrame(rows).astype({"layer": int})


def neighbour_accuracy(similar: np.ndarray, senses: np.ndarray) -> float:
    """Share of uses whose nearest other use, by a matrix of cosines, has the same sense.

    Where several are nearest alike, as on the static layer, each counts by its share, so that equal
    vectors score as a random draw would. Missing for fewer than two uses.

    >>> similar = np.array([[1, 0.9, 0.1], [0.9, 1, 0.2], [0.1, 0.2, 1]])
    >>> round(neighbour_accuracy(similar, np.array(["a", "a", "b"])), 3)
    0.667
    """
    n = len(senses)
    if n < 2:
        return float("nan")
    others = np.where(np.eye(n, dtype=bool), -np.inf, similar)
    nearest = others >= others.max(1, keepdims=True) - 1e-6
    same = senses[:, None] == senses[None, :]
    return float(((nearest & same).sum(1) / nearest.sum(1)).mean())


def chance(senses: np.ndarray) -> float:
    """Expected accuracy where the neighbour is drawn at random among the other uses.

    >>> chance(np.array(["a", "a", "b", "b"]))
    0.3333333333333333
    """
    n = len(senses)
    if n < 2:
        return float("nan")
    _, counts = np.unique(senses, return_counts=True)
    return float((counts * (counts - 1)).sum() / (n * (n - 1)))


def silhouette(similar: np.ndarray, senses: np.ndarray) -> float:
    """Mean silhouette by cosine distance; missing where it is not defined."""
    from sklearn.metrics import silhouette_score

    kinds = len(np.unique(senses))
    if not 2 <= kinds <= len(senses) - 1 or similar.min() > 1 - 1e-6:
        return float("nan")
    distance = np.clip(1 - similar, 0, None)
    np.fill_diagonal(distance, 0)
    return float(silhouette_score(distance, senses, metric="precomputed"))


def mean_cosines(similar: np.ndarray, senses: np.ndarray) -> dict[str, float]:
    """Mean cosine of pairs within a sense, and between senses; missing where there are none."""
    pairs = np.triu(np.ones_like(similar, dtype=bool), 1)
    same = senses[:, None] == senses[None, :]
    return {
        name: float(similar[chosen].mean()) if chosen.any() else float("nan")
        for name, chosen in (("within", pairs & same), ("between", pairs & ~same))
    }


def best_layer(figures: pd.DataFrame) -> int:
    """The layer with the highest accuracy, of equals the one with the larger gap of cosines."""
    ranked = figures.assign(gap=figures["within"] - figures["between"])
    return int(ranked.sort_values(["accuracy", "gap"], ascending=False)["layer"].iloc[0])


def every_word(m: LoadedModel, centred: bool = False) -> dict[str, pd.DataFrame]:
    """`separation` of each built-in word."""
    found = {}
    for word, rows in senses().groupby("word", sort=False):
        uses = embed_word(m, str(word), rows["sentence"].tolist())
        names = rows["sense"].to_numpy()[uses.uses["sentence"]]
        found[str(word)] = separation(uses.vectors, names, centred=centred)
    return found


def over_words(by_word: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Mean figures over words, by layer; each word counts alike."""
    import pandas as pd

    frames = [figures.assign(word=word) for word, figures in by_word.items()]
    return pd.concat(frames).groupby("layer", as_index=False).mean(numeric_only=True)
