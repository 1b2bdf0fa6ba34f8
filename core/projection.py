"""Vectors to the plane: UMAP and PCA, safe for few points, and how far a map can be trusted.

Maps are for looking at; every figure that is shown is computed in the original space.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import numpy as np

from core.errors import SettingError

if TYPE_CHECKING:
    from umap import UMAP

logger = logging.getLogger(__name__)

Method = Literal["umap", "pca"]

FEWEST = 6  # points from which UMAP is used; with fewer its graph of neighbours says nothing
NEIGHBOURS = 15  # umap-learn's default

_FITTING = threading.Lock()  # two fits at once abort the process (umap issue 665)
_warmed = threading.Event()


def project(
    vectors: np.ndarray,
    method: Method = "umap",
    *,
    seed: int = 0,
    neighbours: int = NEIGHBOURS,
    min_dist: float = 0.1,
) -> np.ndarray:
    """Places (n, 2) float64 of vectors (n, dimensions) in the plane, for any n >= 1.

    UMAP (McInnes, Healy and Melville 2018) by cosine, with `neighbours` lowered to n - 1 where there
    are fewer points; below 6 points, or where all are the same, it is PCA (see `method_for`). The
    same seed gives the same map. Raises `SettingError` for no rows, or rows that are not finite.
    """
    vectors = _checked(vectors)
    if method_for(vectors, method) == "pca":
        return _pca(vectors)
    with _FITTING, _quiet():
        reducer = _umap(len(vectors), seed, neighbours, min_dist)
        return reducer.fit_transform(vectors).astype(np.float64)


def project_corpus(
    vectors: np.ndarray, method: Method = "umap", *, seed: int = 0, most: int = 20_000
) -> np.ndarray:
    """As `project`, for many rows: above `most`, UMAP is fitted on a random sample of so many, and
    the others are placed by it (umap-learn's `transform`).
    """
    if method == "pca" or len(vectors) <= most:
        return project(vectors, method, seed=seed)
    vectors = _checked(vectors)
    sample = np.random.default_rng(seed).permutation(len(vectors))[:most]
    rest = np.setdiff1d(np.arange(len(vectors)), sample)
    places = np.zeros((len(vectors), 2))
    with _FITTING, _quiet():
        reducer = _umap(most, seed)
        places[sample] = reducer.fit_transform(vectors[sample])
        for part in np.array_split(rest, -(-len(rest) // most)):
            places[part] = reducer.transform(vectors[part])
    return places


def _umap(n: int, seed: int, neighbours: int = NEIGHBOURS, min_dist: float = 0.1) -> UMAP:
    from umap import UMAP

    return UMAP(
        n_neighbors=neighbours_for(n, neighbours),
        min_dist=min_dist,
        metric="cosine",
        random_state=seed,
        n_jobs=1,  # what a fixed seed means in any case; umap warns unless it is said
    )


def method_for(vectors: np.ndarray, method: Method) -> Method:
    """The method that `project` really uses: PCA where there are too few different points."""
    if method == "umap" and not _different(vectors, FEWEST):
        return "pca"
    return method


def _different(vectors: np.ndarray, wanted: int) -> bool:
    """Whether so many rows differ from each other; a pass over the rows for each of them."""
    rest = vectors
    for _ in range(wanted):
        if not len(rest):
            return False
        rest = rest[(rest != rest[0]).any(1)]
    return True


def neighbours_for(n: int, wanted: int = NEIGHBOURS) -> int:
    """UMAP's n_neighbors for n points: between 2 and n - 1.

    >>> neighbours_for(8), neighbours_for(100), neighbours_for(100, 1)
    (7, 15, 2)
    """
    return max(2, min(wanted, n - 1))


def warm_up() -> None:
    """Import umap and compile what it compiles, once a process; takes 6 to 17 s."""
    if _warmed.is_set():
        return
    _warmed.set()
    rng = np.random.default_rng(0)
    project(rng.normal(size=(20, 8)))
    logger.info("umap is warm")


def trust(vectors: np.ndarray, places: np.ndarray, k: int) -> float | None:
    """Trustworthiness (Venna and Kaski 2001) of a map, 1 at best: whether the k nearest on the map
    are near by cosine too. None where it is not defined: it needs k < n / 2.
    """
    from sklearn.manifold import trustworthiness

    if not 1 <= k < len(vectors) / 2:
        return None
    return float(trustworthiness(vectors, places, n_neighbors=k, metric="cosine"))


def nearest(vectors: np.ndarray, k: int) -> np.ndarray:
    """Row numbers (n, k) of the k nearest others of each row by cosine, nearest first."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    similar = unit @ unit.T
    np.fill_diagonal(similar, -np.inf)
    return np.argsort(-similar, axis=1, kind="stable")[:, : min(k, len(vectors) - 1)]


def _checked(vectors: np.ndarray) -> np.ndarray:
    vectors = np.asarray(vectors, dtype=np.float32)
    if vectors.ndim != 2 or not len(vectors):
        raise SettingError("There is nothing to map: no rows.")
    bad = np.flatnonzero(~np.isfinite(vectors).all(1))
    if len(bad):
        raise SettingError(
            f"Row {bad[0] + 1} has a value that is not a number: it can't be mapped."
        )
    return vectors


def _pca(vectors: np.ndarray) -> np.ndarray:
    """The first two principal components; each points where its largest weight is positive."""
    centred = (vectors - vectors.mean(0)).astype(np.float64)
    if min(centred.shape) < 2 or not centred.any():
        flat = np.zeros((len(vectors), 2))
        if centred.shape[1] == 1:
            flat[:, 0] = centred[:, 0]
        return flat
    from sklearn.decomposition import PCA

    return PCA(2, svd_solver="full").fit_transform(centred)


@contextmanager
def _quiet() -> Iterator[None]:
    """umap and numba warn of what is meant here, such as few points."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
