import numpy as np
import pytest
from scipy.stats import bootstrap, spearmanr
from sklearn.metrics.pairwise import cosine_similarity

from core.datasets import pairs
from core.errors import SettingError
from core.similarity import clusters, correlation, cosines, pair_cosines, pair_frame, search


def vectors(n, seed=0, dimensions=7):
    return np.random.default_rng(seed).normal(size=(n, dimensions))


def test_cosines_against_scikit_learn():
    a, b = vectors(6), vectors(6, 1)
    assert cosines(a) == pytest.approx(cosine_similarity(a))
    assert pair_cosines(a, b) == pytest.approx(np.diag(cosine_similarity(a, b)))
    assert cosines(np.zeros((2, 3))).tolist() == [[0, 0], [0, 0]]


def test_correlation_against_scipy():
    rng = np.random.default_rng(3)
    grades = rng.integers(0, 6, 40).astype(float)  # with ties
    cosine = grades / 10 + rng.normal(size=40) / 4
    found = correlation(cosine, grades)
    assert found.rho == pytest.approx(spearmanr(cosine, grades).statistic)
    expected = bootstrap(
        (cosine, grades),
        lambda a, b: spearmanr(a, b).statistic,
        paired=True,
        vectorized=False,
        n_resamples=1000,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=0.03)
    assert found.unrelated == pytest.approx(cosine[grades <= 1].mean())
    assert correlation(cosine, grades) == found


@pytest.mark.parametrize(
    ("cosine", "grades", "said"),
    [
        ([0.1, 0.2], [1, 2], "needs 5 pairs"),
        ([0.1] * 6, range(6), "no order"),
        (range(6), [3] * 6, "no order"),
    ],
)
def test_no_correlation_is_said(cosine, grades, said):
    with pytest.raises(SettingError, match=said):
        correlation(np.array(list(cosine), float), np.array(list(grades), float))


def test_pairs_as_rows():
    frame = pair_frame(np.array([[1, 0.5], [0.5, 1]]), ["a", "b"], ["text a", "text b"])
    assert frame["cosine"].tolist() == [1, 0.5, 0.5, 1]
    assert frame[["row", "column"]].to_numpy().tolist() == [
        ["a", "a"],
        ["a", "b"],
        ["b", "a"],
        ["b", "b"],
    ]


def test_search_finds_itself_first():
    found, cosine = search(vectors(9)[4], vectors(9), 3)
    assert found[0] == 4
    assert cosine[0] == pytest.approx(1)
    assert (np.diff(cosine) <= 0).all()


def test_clusters_of_two_clouds():
    rng = np.random.default_rng(0)
    places = np.concatenate([rng.normal(0, 0.1, (20, 2)), rng.normal(9, 0.1, (20, 2))])
    found = clusters(places, smallest=5)
    first, second = set(found[:20]) - {-1}, set(found[20:]) - {-1}
    assert len(first) == len(second) == 1
    assert first != second
    with pytest.raises(SettingError, match="need 10 texts"):
        clusters(places[:9], smallest=5)


def test_the_built_in_pairs():
    table = pairs()
    assert len(table) >= 60
    assert table["grade"].between(0, 5).all()
    assert np.histogram(table["grade"], bins=5)[0].min() >= 8
    assert not table[["one", "other"]].duplicated().any()
