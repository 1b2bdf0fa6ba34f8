"""Cosines of sentence vectors, what they are worth against people's grades, search, clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from core.errors import SettingError

if TYPE_CHECKING:
    import pandas as pd

FEWEST_PAIRS = 5  # below this a rank correlation says nothing
RESAMPLES = 2000  # of the bootstrap


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation with its 95 % bootstrap interval, and the mean cosine."""

    rho: float
    low: float
    high: float
    pairs: int
    unrelated: float | None  # mean cosine of the pairs graded 1 or less: the baseline of a cosine


def cosines(vectors: np.ndarray) -> np.ndarray:
    """Cosine of each pair (n, n); 0 with a vector of length zero."""
    unit = normalised(vectors)
    return np.clip(unit @ unit.T, -1, 1)


def normalised(vectors: np.ndarray) -> np.ndarray:
    """Vectors (n, dimensions) float64 of length 1; those of length zero stay."""
    vectors = np.asarray(vectors, dtype=np.float64)
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, length, where=length > 1e-12, out=np.zeros_like(vectors))


def centre(vectors: np.ndarray) -> np.ndarray:
    """Vectors without their mean; rounding errors of equal ones become zero."""
    rest = vectors - vectors.mean(0, keepdims=True)
    return np.where(np.abs(rest) < 1e-6 * np.abs(vectors).max(initial=0), 0, rest)


def pair_frame(similar: np.ndarray, names: Sequence[str], texts: Sequence[str]) -> pd.DataFrame:
    """A matrix of cosines as rows: row, column, row_number, column_number, one, other, cosine."""
    import pandas as pd

    row, column = (index.ravel() for index in np.indices(similar.shape))
    return pd.DataFrame(
        {
            "row": np.array(names)[row],
            "column": np.array(names)[column],
            "row_number": row,
            "column_number": column,
            "one": np.array(texts)[row],
            "other": np.array(texts)[column],
            "cosine": similar.ravel(),
        }
    )


def pair_cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Cosine (n,) of each row of one with the same row of the other."""
    return (normalised(one) * normalised(other)).sum(1)


def correlation(cosine: np.ndarray, grades: np.ndarray, *, seed: int = 0) -> Correlation:
    """Spearman's correlation of cosines with grades, its interval by a percentile bootstrap over
    pairs (Efron 1979). Raises `SettingError` for few pairs, or where all are alike.
    """
    from scipy.stats import rankdata

    cosine, grades = np.asarray(cosine, float), np.asarray(grades, float)
    if len(grades) < FEWEST_PAIRS:
        raise SettingError(
            f"A rank correlation needs {FEWEST_PAIRS} pairs at least; there are {len(grades)}."
        )
    if np.ptp(grades) == 0 or np.ptp(cosine) == 0:
        raise SettingError("All pairs have the same grade or cosine: there is no order to compare.")
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(grades), (RESAMPLES, len(grades)))
    resampled = _row_correlations(rankdata(cosine[drawn], axis=1), rankdata(grades[drawn], axis=1))
    low, high = np.nanpercentile(resampled, [2.5, 97.5])
    rho = _row_correlations(rankdata(cosine)[None], rankdata(grades)[None])[0]
    unrelated = cosine[grades <= 1]
    mean = float(unrelated.mean()) if len(unrelated) else None
    return Correlation(float(rho), float(low), float(high), len(grades), mean)


def _row_correlations(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Pearson's correlation of each row; missing where a row is constant."""
    a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    below = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    return np.divide((a * b).sum(1), below, where=below > 0, out=np.full(len(a), np.nan))


def search(query: np.ndarray, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers and cosines of the k rows nearest to a vector (dimensions,), nearest first.

    >>> rows, cosine = search(np.array([1.0, 0]), np.array([[0, 1.0], [2, 0], [1, 1]]), 2)
    >>> rows.tolist(), cosine.round(3).tolist()
    ([1, 2], [1.0, 0.707])
    """
    similar = normalised(vectors) @ normalised(query[None])[0]
    best = np.argsort(-similar, kind="stable")[:k]
    return best, similar[best]


def clusters(places: np.ndarray, *, smallest: int) -> np.ndarray:
    """Cluster numbers (n,) of places on a map by HDBSCAN (Campello et al. 2013); -1 is noise.

    Raises `SettingError` where there are too few points for one cluster.
    """
    from sklearn.cluster import HDBSCAN

    if len(places) < 2 * smallest:
        raise SettingError(
            f"Clusters of {smallest} points at least need {2 * smallest} texts; there are "
            f"{len(places)}."
        )
    return HDBSCAN(min_cluster_size=smallest, copy=True).fit_predict(places)
