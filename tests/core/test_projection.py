import threading

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness

from core.errors import SettingError
from core.projection import FEWEST, method_for, nearest, neighbours_for, project, trust


def cloud(n, seed=0, dimensions=8):
    return np.random.default_rng(seed).normal(size=(n, dimensions)).astype(np.float32)


@pytest.mark.parametrize("method", ["umap", "pca"])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 30])
def test_any_number_of_points(n, method):
    places = project(cloud(n), method)
    assert places.shape == (n, 2)
    assert np.isfinite(places).all()


@pytest.mark.parametrize("method", ["umap", "pca"])
def test_identical_points_fall_together(method):
    places = project(np.ones((9, 4), dtype=np.float32), method)
    assert (places == places[0]).all()
    assert method_for(np.ones((9, 4)), method) == "pca"


def test_too_few_different_points_are_said():
    assert method_for(cloud(FEWEST - 1), "umap") == "pca"
    assert method_for(cloud(FEWEST), "umap") == "umap"


def test_a_row_that_is_not_a_number_is_named():
    vectors = cloud(5)
    vectors[2, 1] = np.nan
    with pytest.raises(SettingError, match="Row 3"):
        project(vectors)
    with pytest.raises(SettingError, match="no rows"):
        project(np.zeros((0, 4)))


def test_the_same_seed_gives_the_same_map():
    assert (project(cloud(20), seed=3) == project(cloud(20), seed=3)).all()
    assert not (project(cloud(20), seed=3) == project(cloud(20), seed=4)).all()


def test_umap_is_umap_learn():
    from umap import UMAP

    expected = UMAP(n_neighbors=9, metric="cosine", random_state=5, n_jobs=1).fit_transform(
        cloud(10)
    )
    assert project(cloud(10), seed=5) == pytest.approx(expected.astype(float))


def test_pca_is_that_of_scikit_learn():
    expected = PCA(2, svd_solver="full").fit_transform(cloud(12).astype(float))
    assert project(cloud(12), "pca") == pytest.approx(expected, abs=1e-5)


def test_neighbours_stay_within_the_points():
    assert [neighbours_for(n, 15) for n in (3, 8, 16, 100)] == [2, 7, 15, 15]
    assert neighbours_for(8, 1) == 2


def test_two_threads_at_once():
    places = {}
    threads = [
        threading.Thread(target=lambda i=i: places.update({i: project(cloud(12), seed=i)}))
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((places[i] == project(cloud(12), seed=i)).all() for i in range(4))


def test_trust_against_scikit_learn():
    vectors, places = cloud(14), cloud(14, 1, 2)
    expected = trustworthiness(vectors, places, n_neighbors=3, metric="cosine")
    assert trust(vectors, places, 3) == pytest.approx(expected)
    assert trust(vectors, places, 7) is None


def test_nearest_by_cosine():
    vectors = np.array([[1, 0], [10, 1], [0, 1], [-1, 0.0]])
    assert nearest(vectors, 2).tolist() == [[1, 2], [0, 2], [1, 0], [2, 1]]
    assert nearest(vectors[:2], 5).tolist() == [[1], [0]]
