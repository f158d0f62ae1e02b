"""Neighbours: equal distances built by hand, duplicates, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import (
    KernelDensity,
    KNeighborsClassifier,
    KNeighborsRegressor,
    LocalOutlierFactor,
    NearestCentroid,
    RadiusNeighborsClassifier,
    RadiusNeighborsRegressor,
)

import sqlml
from sqlml.errors import MissingValueError, ProgramError, UnsupportedModelError
from sqlml.importers.registry import import_model
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from tests.support.sklearn_checks import (
    assert_close,
    assert_same,
    multiplies_fused,
    needs_fused_blas,
    scored,
)

SEARCHES = ("brute", "kd_tree", "ball_tree")


def grid(rows: int, width: int, seed: int = 0) -> np.ndarray:
    """Rows on a grid of halves, where many points are equally far."""
    return np.random.default_rng(seed).integers(-4, 5, (rows, width)) / 2


@pytest.mark.by_day(6)
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("leaf_size", [1, 3, 30])
@pytest.mark.parametrize("metric", [{"p": 2}, {"p": 1}, {"p": 3}, {"metric": "chebyshev"}], ids=str)
def test_the_same_points_of_equally_far_ones(
    search: str, leaf_size: int, metric: dict[str, Any]
) -> None:
    for width, k in ((1, 1), (2, 4), (3, 17)):
        points, rows = grid(90, width), grid(60, width, 1)
        # Targets are powers of two apart, so that their mean names the points.
        targets = np.random.default_rng(2).permutation(90).astype(float) ** 3
        model = KNeighborsRegressor(k, algorithm=search, leaf_size=leaf_size, **metric)
        assert_same(model.fit(points, targets), rows)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("width", [2, 18])
def test_equally_far_but_for_the_rounding(search: str, width: int) -> None:
    """Tenths are no floats, so the order of the source's arithmetic decides between the points."""
    points, rows = grid(90, width) / 5, grid(60, width, 1) / 5
    targets = np.random.default_rng(2).permutation(90).astype(float) ** 3
    by_blas = search == "brute" and not multiplies_fused()
    for metric in ("manhattan",) if by_blas else ("euclidean", "manhattan"):
        model = KNeighborsRegressor(11, algorithm=search, metric=metric, leaf_size=4)
        assert_same(model.fit(points, targets), rows)


@pytest.mark.parametrize("search", SEARCHES)
def test_more_duplicates_than_neighbours(search: str) -> None:
    points = np.repeat([[0.0, 0.0], [1.0, 1.0]], 20, axis=0)
    targets = np.arange(40.0)
    rows = np.array([[0.0, 0.0], [1.0, 1.0], [0.5, 0.5], [3.0, -3.0]])
    for weights in ("uniform", "distance"):
        model = KNeighborsRegressor(7, algorithm=search, weights=weights, leaf_size=4)
        assert_same(model.fit(points, targets), rows)
        named = KNeighborsClassifier(7, algorithm=search, weights=weights, leaf_size=4)
        assert_same(named.fit(points, targets % 3), rows)


def test_whole_numbers_are_searched_by_partition() -> None:
    points = np.random.default_rng(0).integers(-4, 5, (90, 2))
    model = KNeighborsRegressor(4, algorithm="brute").fit(points, np.arange(90.0) ** 2)
    imported = assert_same(model, grid(60, 2, 1))
    assert [n.attrs["ties"] for n in imported.program if n.op == "nearest"] == ["partition"]


def test_all_points_are_neighbours() -> None:
    model = KNeighborsClassifier(12).fit(grid(12, 2), np.arange(12) % 4)
    assert_same(model, grid(30, 2, 1))


def test_equal_votes_go_to_the_first_class() -> None:
    points, named = np.array([[0.0], [2.0]]), np.array(["b", "a"])
    model = KNeighborsClassifier(2).fit(points, named)
    assert model.predict([[1.0]]).tolist() == ["a"]
    assert_same(model, np.array([[1.0], [0.0], [2.0], [-5.0]]))
    assert_same(KNeighborsClassifier(2, weights="distance").fit(points, named), points)


def test_a_sparse_training_table() -> None:
    from scipy.sparse import csr_array

    points = grid(60, 3)
    model = KNeighborsClassifier(5).fit(csr_array(points), np.arange(60) % 3)
    imported = import_model(model)
    rows = grid(40, 3, 1) + 0.01 * np.arange(3)
    theirs = model.predict_proba(csr_array(rows))
    assert_close(scored(imported, rows)["proba"], theirs)


def test_too_many_neighbours_are_refused() -> None:
    model = KNeighborsClassifier(9, algorithm="kd_tree").fit(grid(4, 2), [0, 1, 0, 1])
    with pytest.raises(UnsupportedModelError, match="needs 9 neighbours, but was fitted on 4"):
        import_model(model)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"metric": lambda a, b: abs(a - b).sum()}, "Python object as its metric"),
        ({"metric": "jaccard"}, "metric 'jaccard', which sqlml does not support"),
        ({"metric": "nan_euclidean"}, "does not support"),
        ({"weights": lambda d: 1 / (1 + d)}, "Python function as its weights"),
        ({"metric": "braycurtis"}, "fit it with algorithm='brute'"),
    ],
)
def test_what_cannot_be_searched_is_refused(parameters: dict[str, Any], message: str) -> None:
    model = KNeighborsClassifier(2, **parameters).fit(grid(20, 2), np.arange(20) % 2)
    with pytest.raises(UnsupportedModelError, match=message):
        import_model(model)


def test_a_matrix_of_distances_is_no_table() -> None:
    far = np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0)))
    model = KNeighborsClassifier(2, metric="precomputed").fit(far, [0, 1] * 3)
    with pytest.raises(UnsupportedModelError, match="a matrix of distances"):
        import_model(model)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_row_without_neighbours(search: str) -> None:
    points = grid(50, 2)
    model = RadiusNeighborsClassifier(0.5, algorithm=search).fit(points, np.arange(50) % 3)
    near, far = points[:8] + 0.1, np.array([[90.0, 90.0]])
    assert_same(model, near)
    with pytest.raises(ValueError, match="No neighbors"):
        model.predict(far)
    with pytest.raises(MissingValueError, match="no neighbour within the radius"):
        scored(import_model(model), far)
    model.set_params(outlier_label=2).fit(points, np.arange(50) % 3)
    assert_same(model, np.concatenate([near, far]))


def test_an_outlier_label_that_is_no_class_is_refused() -> None:
    model = RadiusNeighborsClassifier(0.5, outlier_label=9).fit(grid(20, 2), np.arange(20) % 2)
    with pytest.raises(UnsupportedModelError, match="outlier_label 9, not one of its classes"):
        import_model(model)


def test_a_regressor_without_neighbours_answers_nan_or_the_least_integer() -> None:
    points, rows = grid(30, 2), np.array([[0.1, 0.1], [99.0, 0.0]])
    for targets in (np.arange(30.0), np.arange(30)):
        with np.errstate(invalid="ignore"):
            assert_same(RadiusNeighborsRegressor(1.0).fit(points, targets), rows)


def test_points_on_the_edge_of_the_radius_are_inside() -> None:
    points = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 5.0], [6.0, 0.0]])
    for search in SEARCHES:
        model = RadiusNeighborsRegressor(5.0, algorithm=search).fit(points, [1.0, 10, 100, 1000])
        assert model.predict([[0.0, 0.0]]).tolist() == [37.0]
        assert_same(model, np.array([[0.0, 0.0], [3.0, 0.0], [6.0, 5.0]]))


def test_an_outlier_factor_without_novelty_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="novelty=True"):
        import_model(LocalOutlierFactor(5).fit(grid(30, 2)))


def test_weights_of_a_density() -> None:
    model = KernelDensity(kernel="epanechnikov", bandwidth=1.2)
    points = grid(40, 2)
    model.fit(points, sample_weight=np.arange(40.0))
    rows = np.concatenate([grid(20, 2, 1), [[50.0, 50.0]]])
    ours = scored(import_model(model), rows)["samples"]
    assert np.isneginf(ours[-1])
    assert_close(ours, model.score_samples(rows)[:, None])


def test_a_density_that_stops_early_is_refused() -> None:
    model = KernelDensity(rtol=0.01).fit(grid(40, 2))
    with pytest.raises(UnsupportedModelError, match="atol=0 and rtol=0"):
        import_model(model)


def test_the_nearer_of_equal_centroids_is_the_first() -> None:
    points = np.array([[-1.0, 0.0], [-1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    model = NearestCentroid().fit(points, ["x", "x", "a", "a"])
    imported = assert_same(model, np.array([[0.0, 0.5], [0.0, -3.0], [0.1, 0.0]]))
    assert imported.program.labels


def test_too_many_points_are_refused() -> None:
    b = Builder()
    x = b.input("x", "float64", 1)
    with pytest.raises(ProgramError, match="too many"):
        b.op("pairwise", x, points=np.zeros(((1 << 20) + 1, 1)), metric="dot")


def test_a_search_needs_no_matrix_of_distances() -> None:
    """More points than a row may have values."""
    b = Builder()
    x = b.input("x", "float64", 1)
    points = np.arange(1_100_000.0)[:, None]
    found = b.op("nearest", x, points=points, metric="manhattan", k=2, ties="heap")
    program = b.build({"transform": found})
    rows = np.array([3.2, 1_050_000.9, -8.0])
    made = reference.run(program, {"x": rows})["transform"]
    assert made[:, 2:].tolist() == [[3, 4], [1_050_001, 1_050_000], [0, 1]]
    np.testing.assert_allclose(made[:, 0], [0.2, 0.1, 8.0], rtol=1e-6)


def test_points_that_are_infinitely_far_are_never_taken() -> None:
    far = {"points": np.array([[1e200], [2e200], [0.0]]), "metric": "sqeuclidean"}
    found = reference.FUNCTIONS["nearest"]([np.zeros((1, 1))], {**far, "k": 2, "ties": "heap"})
    assert found.tolist() == [[0.0, np.inf, 2.0, 0.0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "k is 0 for 40 points"),
        ({"k": 41}, "k is 41 for 40 points"),
        ({"ties": "some"}, "rule for ties"),
        ({"metric": "dot"}, "not a distance"),
        ({"metric": "euclid"}, "unknown metric"),
        ({"p": 2.0}, "has a p"),
        ({"metric": "minkowski", "p": float("nan")}, "positive and finite"),
        ({"metric": "minkowski"}, "has a p"),
        ({"weights": np.ones(3)}, r"weights must be float64\[2\], not float64\[3\]"),
        ({"metric": "manhattan", "weights": np.ones(2)}, "has no weights"),
        ({"points": np.zeros((40, 3))}, "points"),
        ({"points": np.zeros((40, 2), np.float32)}, "points"),
        ({"order": np.arange(40)}, "only trees have nodes"),
        ({"ties": "kd_tree"}, "order, leaves and bounds"),
        ({"ties": "partition", "expanded": True}, "with a heap"),
        ({"metric": "manhattan", "expanded": True}, "with a heap"),
    ],
)
def test_a_search_that_is_none_is_no_program(change: dict[str, Any], message: str) -> None:
    attrs: dict[str, Any] = {"metric": "sqeuclidean", "k": 3, "ties": "heap"}
    b = Builder()
    x = b.input("x", "float64", 2)
    with pytest.raises(ProgramError, match=message):
        b.op("nearest", x, **{"points": np.zeros((40, 2)), **attrs, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"order": np.arange(1, 41)}, "each point once"),
        ({"order": np.zeros(40, np.int64)}, "each point once"),
        ({"leaves": np.array([[0, 40], [0, 20]])}, "2\\^depth"),
        ({"leaves": np.array([[0, 39], [0, 20], [20, 39]])}, "ranges"),
        ({"leaves": np.array([[0, 40], [0, 50], [50, 40]])}, "ranges"),
        ({"leaves": np.array([[0, 40], [0, 20], [21, 40]])}, "children"),
        ({"bounds": np.zeros((3, 3))}, "bounds"),
        ({"metric": "canberra"}, "a kd_tree does not support"),
    ],
)
def test_a_tree_that_reaches_outside_is_no_program(change: dict[str, Any], message: str) -> None:
    leaves = np.array([[0, 40], [0, 20], [20, 40]])
    tree = {"order": np.arange(40), "leaves": leaves, "bounds": np.zeros((3, 4))}
    attrs: dict[str, Any] = {"metric": "sqeuclidean", "k": 3, "ties": "kd_tree", **tree}
    b = Builder()
    x = b.input("x", "float64", 2)
    with pytest.raises(ProgramError, match=message):
        b.op("nearest", x, **{"points": np.zeros((40, 2)), **attrs, **change})


@needs_fused_blas
@pytest.mark.parametrize("model", [RadiusNeighborsRegressor, KNeighborsRegressor])
@pytest.mark.parametrize("whole", [True, False], ids=["integers", "reals"])
def test_rows_in_one_direction_with_a_training_row(model: Any, whole: bool) -> None:
    """1 - x.y of rows of length 1 is 0, or 1e-16: a weight that counts alone, or among others."""
    points = np.random.default_rng(7).normal(4, 3, (200, 3))
    points = np.round(points).astype(int) if whole else points
    points = points[np.abs(points).sum(axis=1) > 0]
    how = {"algorithm": "brute", "weights": "distance", "metric": "cosine"}
    first = 0.1 if model is RadiusNeighborsRegressor else 6
    fitted = model(first, **how).fit(points, np.arange(len(points)) * 1.0)
    rows = np.concatenate([points, points[:50] * 3, points[:50] / 7]).astype(np.float64)
    want = fitted.predict(rows)
    for backend in ("native", "reference", "torch", "onnxruntime"):
        got = sqlml.compile(fitted, backend=backend).predict(rows)
        np.testing.assert_allclose(got, want, rtol=1e-9, err_msg=backend)


@needs_fused_blas
@pytest.mark.parametrize("metric", ["euclidean", "minkowski", "l2", "sqeuclidean", "manhattan"])
@pytest.mark.parametrize("centre", [0.0, 1e3])
@pytest.mark.parametrize("model", [RadiusNeighborsRegressor, KNeighborsRegressor])
def test_a_training_rows_distance_to_itself_is_rounded_as_the_source_rounds_it(
    metric: str, centre: float, model: Any
) -> None:
    """Not 0 but 1e-7, say, by which weights="distance" divides."""
    points = np.random.default_rng(3).normal(centre, 3, (200, 4))
    how = {"algorithm": "brute", "weights": "distance", "metric": metric}
    first = 3.0 if model is RadiusNeighborsRegressor else 5
    fitted = model(first, **how).fit(points, np.arange(200.0))
    rows = np.concatenate([points[:80], points[:40] + 0.25])
    want = fitted.predict(rows)
    for backend in ("native", "reference", "torch", "onnxruntime"):
        got = sqlml.compile(fitted, backend=backend).predict(rows)
        np.testing.assert_allclose(got, want, rtol=1e-11, err_msg=backend)


@pytest.mark.parametrize("search", ["brute", "ball_tree"])
@pytest.mark.parametrize(
    "model",
    [
        KNeighborsRegressor(4, weights="distance"),
        RadiusNeighborsRegressor(1.5, weights="distance"),
        LocalOutlierFactor(novelty=True),
    ],
    ids=lambda model: type(model).__name__,
)
def test_mahalanobis(search: str, model: Any) -> None:
    rng = np.random.default_rng(4)
    points = rng.normal(size=(150, 3)) @ rng.normal(size=(3, 3))
    inverse = np.linalg.inv(np.cov(points.T))
    model.set_params(algorithm=search, metric="mahalanobis", metric_params={"VI": inverse})
    assert_same(model.fit(points, np.arange(150.0)), np.concatenate([points, points + 0.1]))


def test_a_mahalanobis_search_that_raises_in_the_source_is_refused() -> None:
    points = np.random.default_rng(5).normal(size=(30, 2))
    for given in ({"V": np.cov(points.T)}, None):
        model = KNeighborsClassifier(3, algorithm="brute", metric="mahalanobis")
        model.set_params(metric_params=given).fit(points, points[:, 0] > 0)
        with pytest.raises(UnsupportedModelError, match="metric_params={'VI'"):
            import_model(model)


def test_a_density_by_mahalanobis_distances() -> None:
    points = np.random.default_rng(6).normal(size=(60, 2))
    how = {"metric": "mahalanobis", "metric_params": {"V": np.cov(points.T)}}
    model = KernelDensity(algorithm="ball_tree", rtol=0, **how).fit(points)
    made = sqlml.compile(model).score_samples(points)
    np.testing.assert_allclose(made, model.score_samples(points), rtol=1e-9)
