import numpy as np
import pytest
from sklearn.metrics import silhouette_score
from sklearn.neighbors import KNeighborsClassifier

from core.datasets import senses
from core.embeddings import embed_word
from core.senses import (
    best_layer,
    chance,
    every_word,
    neighbour_accuracy,
    over_words,
    separation,
)
from core.similarity import centre, cosines


def clusters(seed=0, n=20, dimensions=6):
    rng = np.random.default_rng(seed)
    names = rng.choice(["a", "b", "c"], n)
    centres = {name: rng.normal(size=dimensions) for name in "abc"}
    return np.array([centres[name] + 0.8 * rng.normal(size=dimensions) for name in names]), names


@pytest.mark.parametrize("seed", range(4))
def test_neighbour_accuracy_against_scikit_learn(seed):
    vectors, names = clusters(seed)
    right = 0
    for i in range(len(names)):  # leave one out
        rest = np.arange(len(names)) != i
        near = KNeighborsClassifier(1, metric="cosine").fit(vectors[rest], names[rest])
        right += near.predict(vectors[i : i + 1])[0] == names[i]
    assert neighbour_accuracy(cosines(vectors), names) == pytest.approx(right / len(names))


def test_equal_vectors_score_as_chance():
    names = np.array(["a"] * 5 + ["b"] * 3)
    same = cosines(np.ones((8, 4)))
    assert neighbour_accuracy(same, names) == pytest.approx(chance(names))
    assert chance(names) == pytest.approx((5 * 4 + 3 * 2) / (8 * 7))


@pytest.mark.parametrize("seed", range(3))
def test_silhouette_and_cosines_against_scikit_learn(seed):
    vectors, names = clusters(seed)
    figures = separation(vectors[:, None], names).iloc[0]
    assert figures["silhouette"] == pytest.approx(
        silhouette_score(vectors, names, metric="cosine"), abs=1e-9
    )
    pairs = [(i, j) for i in range(len(names)) for j in range(i)]
    cosine = {
        (i, j): vectors[i] @ vectors[j] / np.linalg.norm(vectors[i]) / np.linalg.norm(vectors[j])
        for i, j in pairs
    }
    within = [cosine[i, j] for i, j in pairs if names[i] == names[j]]
    assert figures["within"] == pytest.approx(np.mean(within))


def test_centring_takes_the_mean_away():
    vectors, names = clusters()
    moved = vectors + 100
    assert cosines(centre(moved)) == pytest.approx(cosines(centre(vectors)), abs=1e-6)
    raw = separation(moved[:, None], names).iloc[0]
    assert raw["between"] > 0.99
    assert separation(moved[:, None], names, centred=True).iloc[0]["between"] < 0.2


def test_one_use_and_one_sense_have_no_figures():
    one = separation(np.ones((1, 2, 3)), ["a"])
    assert one[["accuracy", "chance", "silhouette", "within", "between"]].isna().all(axis=None)
    same = separation(np.random.default_rng(0).normal(size=(4, 1, 3)), ["a"] * 4).iloc[0]
    assert same["accuracy"] == 1
    assert np.isnan(same["silhouette"])
    assert np.isnan(same["between"])


def test_the_built_in_words():
    table = senses()
    counts = table.groupby(["word", "sense"]).size()
    assert counts.min() >= 6
    assert table["word"].nunique() >= 13
    assert {"bank", "bat", "light"} <= set(table["word"])
    assert not table["sentence"].duplicated().any()


def test_senses_come_apart_in_the_embedded_model(embedded):
    """The static layer knows nothing; the best layer is far better than chance."""
    by_word = every_word(embedded)
    mean = over_words(by_word)
    assert mean["accuracy"].iloc[0] == pytest.approx(mean["chance"].iloc[0])
    assert mean["accuracy"].max() > mean["chance"].iloc[0] + 0.3
    assert best_layer(by_word["bank"]) >= 1
    for word, rows in senses().groupby("word"):
        assert embed_word(embedded, word, rows["sentence"].tolist()).absent == ()
