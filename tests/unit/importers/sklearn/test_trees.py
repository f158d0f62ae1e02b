"""Trees and forests: bit for bit on thresholds, their neighbours, NaN and infinity."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)

from sqlml.errors import MissingValueError
from sqlml.importers.registry import import_model
from sqlml.importers.sklearn.ensemble.decision_trees import round_down_to_float32
from tests.support.oracles import classes, ensembles, mixed_frame, special_rows, threshold_rows
from tests.support.sklearn_checks import assert_both_raise, assert_same, count_calls, scored

CLASSIFIERS: list[Any] = [
    DecisionTreeClassifier(max_depth=5),
    DecisionTreeClassifier(criterion="log_loss", splitter="random", class_weight="balanced"),
    ExtraTreeClassifier(max_depth=6, random_state=0),
    RandomForestClassifier(12, random_state=0),
    ExtraTreesClassifier(12, max_depth=5, random_state=0),
]
REGRESSORS: list[Any] = [
    DecisionTreeRegressor(max_depth=5),
    DecisionTreeRegressor(criterion="absolute_error", max_leaf_nodes=9),
    DecisionTreeRegressor(criterion="poisson", max_depth=4, ccp_alpha=0.001),
    ExtraTreeRegressor(max_depth=6, random_state=0),
    RandomForestRegressor(12, random_state=0, max_samples=0.5),
    ExtraTreesRegressor(12, max_depth=5, random_state=0),
]
TREES = [*CLASSIFIERS, *REGRESSORS]


def data(nan: bool, rows: int = 150) -> np.ndarray[Any, Any]:
    """Continuous, decimal, whole, constant and binary columns."""
    rng = np.random.default_rng(0)
    x = np.column_stack(
        [
            rng.normal(size=rows),
            rng.integers(0, 30, rows) / 10,
            rng.integers(-5, 5, rows),
            np.full(rows, 3.3),
            rng.integers(0, 2, rows),
        ]
    )
    if nan:
        x[rng.random(x.shape) < 0.15] = np.nan
    return x


def fitted(model: Any, x: np.ndarray[Any, Any]) -> Any:
    target = np.nan_to_num(x)[:, 0] + np.nan_to_num(x)[:, 1] * (np.isnan(x[:, 2]) + 0.5)
    if hasattr(model, "predict_proba"):
        return model.fit(x, classes("string", np.clip(target * 2, 0, 3).astype(int)))
    return model.fit(x, np.abs(target))


def thresholds(model: Any) -> dict[int, np.ndarray[Any, Any]]:
    """The library's own float64 thresholds by feature."""
    trees = [t.tree_ for t in getattr(model, "estimators_", [model])]
    feature = np.concatenate([t.feature for t in trees])
    values = np.concatenate([t.threshold for t in trees])
    return {int(f): values[feature == f] for f in np.unique(feature) if f >= 0}


@pytest.mark.parametrize("model", TREES, ids=str)
@pytest.mark.parametrize("nan", [False, True], ids=["full", "with NaN"])
def test_thresholds_and_their_neighbours_bit_for_bit(model: Any, nan: bool) -> None:
    if model.criterion == "absolute_error" and nan:
        nan = False  # takes no NaN in training
    x = data(nan)
    fitted(model, x)
    imported = assert_same(model, x, exact=True)
    assert_same(model, threshold_rows(thresholds(model), x, limit=1200), exact=True)
    (trees,) = ensembles(imported.program)
    assert_same(model, threshold_rows(trees, x, limit=1200), exact=True)
    assert_same(model, x[:1], exact=True)
    assert scored(imported, x[:0])["label"].shape == (0, 1)


@pytest.mark.parametrize("model", TREES, ids=str)
def test_special_values(model: Any) -> None:
    fitted(model, data(False))
    assert_same(model, special_rows(5, nan=False, infinite=False, largest=3.4e38), exact=True)
    assert_both_raise(model, np.full((1, 5), np.inf), MissingValueError, "x0.*infinity")
    too_large = np.array([[0, 1e39, 0, 0, 0]])
    assert_both_raise(model, too_large, MissingValueError, "x1.*too large")
    row = np.full((1, 5), np.nan)
    trees = getattr(model, "estimators_", [model])
    if trees[0].__sklearn_tags__().input_tags.allow_nan:
        assert_same(model, row, exact=True)
    else:
        assert_both_raise(model, row, MissingValueError, "NULL or NaN")


@pytest.mark.parametrize("kind", ["int64", "bool", "float64"])
def test_labels_keep_their_type(kind: Literal["int64", "bool", "float64"]) -> None:
    x = data(False)
    model = RandomForestClassifier(5, random_state=0).fit(x, classes(kind, (x[:, 0] > 0) * 1))
    imported = assert_same(model, x, exact=True)
    assert [labels.kind for labels in imported.program.labels] == [kind]


def test_ties_between_classes_go_to_the_first() -> None:
    x = np.array([[0.0], [0.0], [1.0], [1.0]])
    model = DecisionTreeClassifier().fit(x, ["b", "a", "c", "b"])
    assert_same(model, np.array([[0.0], [0.5], [1.0]]), exact=True)


def test_a_tree_of_one_leaf_and_a_single_class() -> None:
    x = data(False)
    assert_same(DecisionTreeRegressor().fit(x, np.ones(len(x))), x, exact=True)
    assert_same(RandomForestClassifier(3).fit(x, np.full(len(x), "only")), x, exact=True)


def test_frames_with_integers_booleans_and_float32() -> None:
    frame = mixed_frame(120)[["age", "income", "ratio", "visits", "level", "active", "constant"]]
    model = RandomForestRegressor(8, random_state=0).fit(frame, np.arange(120.0) % 17)
    assert_same(model, frame, exact=True)


def test_monotone_constraints_and_missing_values_in_one_column_only() -> None:
    x = data(False)
    x[::7, 1] = np.nan
    y = (np.nan_to_num(x[:, 1]) + x[:, 0] > 1).astype(int)
    assert_same(DecisionTreeClassifier(max_depth=4).fit(x, y), x, exact=True)
    full = data(False)
    model = RandomForestClassifier(5, monotonic_cst=[1, 0, 0, 0, 0], random_state=0).fit(full, y)
    assert_same(model, full, exact=True)


@pytest.mark.parametrize(
    "threshold", [0.1, 0.5, 1e-46, -1e-46, 1e39, -1e39, np.inf, 16777217.0, 3.4028235677973366e38]
)
def test_float32_floor_is_the_largest_float32_not_above(threshold: float) -> None:
    floor = round_down_to_float32(np.array([threshold]))[0]
    assert floor.dtype == np.float32
    assert float(floor) <= threshold
    with np.errstate(over="ignore"):
        above = np.nextafter(floor, np.float32(np.inf))
    assert float(above) > threshold or floor == np.inf


def test_deep_trees_are_imported_by_arrays_and_not_by_nodes() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(800, 6)), rng.normal(size=800)
    model = ExtraTreesRegressor(500, max_depth=8, random_state=0).fit(x, y)
    nodes = sum(tree.tree_.node_count for tree in model.estimators_)
    assert count_calls(lambda: import_model(model)) < nodes // 3
