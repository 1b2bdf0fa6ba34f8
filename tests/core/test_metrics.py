import numpy as np
import pytest
from sklearn import metrics

from core.metrics import by_label, confusion_matrix, macro_f1


@pytest.mark.parametrize("seed", range(5))
def test_figures_against_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    true, found = rng.integers(0, 4, 30), rng.integers(0, 3, 30)
    confusion = metrics.confusion_matrix(true, found, labels=range(4))
    assert (confusion_matrix(true, found, 4) == confusion).all()
    precision, recall, f1, rows = metrics.precision_recall_fscore_support(
        true, found, labels=range(4), zero_division=0
    )
    ours = by_label(confusion, list("abcd"))
    assert ours["precision"].fillna(0).to_numpy() == pytest.approx(precision)
    assert ours["recall"].fillna(0).to_numpy() == pytest.approx(recall)
    assert ours["F1"].to_numpy() == pytest.approx(f1)
    assert ours["rows"].tolist() == rows.tolist()
    assert macro_f1(confusion) == pytest.approx(f1.mean())
