"""Figures of a classifier from its confusion matrix, rows true and columns predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


def confusion_matrix(true: np.ndarray, predicted: np.ndarray, labels: int) -> np.ndarray:
    """Counts (labels, labels) of rows by true and predicted label number.

    >>> confusion_matrix(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    counts = np.zeros((labels, labels), dtype=int)
    np.add.at(counts, (true, predicted), 1)
    return counts


def macro_f1(confusion: np.ndarray) -> float:
    """Mean F1 over the labels, 0 where a label neither occurs nor is predicted.

    >>> macro_f1(np.array([[2, 0], [0, 2]])), round(macro_f1(np.array([[0, 2], [0, 2]])), 4)
    (1.0, 0.3333)
    """
    return float(_f1(confusion).mean())


def by_label(confusion: np.ndarray, labels: Sequence[str]) -> pd.DataFrame:
    """A row a label: label, rows, precision, recall, F1. Missing where there is nothing to divide.

    >>> by_label(np.array([[3, 1], [0, 0]]), ["a", "b"])["recall"].tolist()
    [0.75, nan]
    """
    import pandas as pd

    hits, true, found = np.diag(confusion), confusion.sum(1), confusion.sum(0)
    return pd.DataFrame(
        {
            "label": list(labels),
            "rows": true,
            "precision": _ratio(hits, found),
            "recall": _ratio(hits, true),
            "F1": _f1(confusion),
        }
    )


def wilson(hits: int, n: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927); it stays within 0 and 1 for any n.

    >>> tuple(round(x, 3) for x in wilson(8, 10))
    (0.49, 0.943)
    """
    z = 1.959964
    share, spread = hits / n, z * z / n
    middle = (share + spread / 2) / (1 + spread)
    reach = z / (1 + spread) * (share * (1 - share) / n + spread / (4 * n)) ** 0.5
    return middle - reach, middle + reach


def _f1(confusion: np.ndarray) -> np.ndarray:
    hits, either = np.diag(confusion), confusion.sum(0) + confusion.sum(1)
    return np.divide(2 * hits, either, where=either > 0, out=np.zeros(len(hits)))


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, where=whole > 0, out=np.full(len(whole), np.nan))
