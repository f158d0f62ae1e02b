"""MissingIndicator, KNNImputer and IterativeImputer: refusals, ties and empty columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, MissingIndicator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline

from sqlml.errors import (
    MissingValueError,
    ProgramError,
    UnknownCategoryError,
    UnsupportedModelError,
)
from sqlml.importers.registry import import_model
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from tests.support.sklearn_checks import assert_both_raise, assert_same


def table(rows: int = 40, seed: int = 0, gone: float = 0.2) -> pd.DataFrame:
    """Small whole numbers with gaps: many rows are equally far apart."""
    rng = np.random.default_rng(seed)
    made = rng.integers(0, 4, (rows, 4)).astype(float)
    made[rng.random(made.shape) < gone] = np.nan
    return pd.DataFrame(made, columns=list("abcd"))


def test_a_value_missing_in_a_new_column_raises() -> None:
    frame = table()
    frame["d"] = 1.0
    model = MissingIndicator().fit(frame)
    assert_same(model, frame, exact=True)
    frame.loc[0, "d"] = np.nan
    assert_both_raise(model, frame, UnknownCategoryError, "'d'.*MissingIndicator")
    assert_same(MissingIndicator(error_on_new=False).fit(frame[["a", "b"]]), frame[["a", "b"]])


def test_strings_may_be_missing() -> None:
    words = pd.DataFrame({"a": ["x", "?", "y"], "b": ["?", "z", "x"]}, dtype=object)
    assert_same(MissingIndicator(missing_values="?").fit(words), words, exact=True)
    nulls = words.replace({"?": None})
    assert_same(MissingIndicator(missing_values=None).fit(nulls), nulls, exact=True)


def test_an_indicator_of_nothing_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="returns no columns"):
        import_model(MissingIndicator().fit(table(gone=0)))


@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_equally_near_rows_are_chosen_as_numpy_does(weights: str, order: Any) -> None:
    frame = table(60)
    for neighbours in (1, 2, 5):
        model = KNNImputer(n_neighbors=neighbours, weights=weights)
        model.fit(np.array(frame.to_numpy(), order=order))
        assert_same(model, np.array(table(70, 1, 0.4).to_numpy(), order=order), exact=True)


def test_a_row_without_any_value_gets_the_means() -> None:
    frame = table()
    later = pd.DataFrame(np.full((2, 4), np.nan), columns=frame.columns)
    assert_same(KNNImputer().fit(frame), later)
    assert_same(KNNImputer(weights="distance").fit(frame), later)


@pytest.mark.parametrize("keep", [False, True])
def test_columns_that_were_empty_in_training(keep: bool) -> None:
    empty = table().assign(b=np.nan)
    later = table(seed=5)
    for imputer in (
        KNNImputer(keep_empty_features=keep, add_indicator=True),
        IterativeImputer(
            LinearRegression(), max_iter=2, keep_empty_features=keep, add_indicator=True
        ),
    ):
        # arrays, since scikit-learn writes into a frame's own memory, which pandas 3 forbids
        assert_same(imputer.fit(empty.to_numpy().copy()), later.to_numpy().copy())


def test_a_knn_imputer_of_nothing_is_refused() -> None:
    frame = pd.DataFrame({"a": [np.nan, np.nan]})
    with pytest.raises(UnsupportedModelError, match="drops every column"):
        import_model(KNNImputer().fit(frame))


@pytest.mark.parametrize(
    "model",
    [
        KNNImputer(weights=lambda d: 1 / (1 + d)),
        KNNImputer(metric=lambda x, y, missing_values=np.nan: 1.0),
    ],
    ids=["weights", "metric"],
)
def test_python_functions_in_a_knn_imputer_are_refused(model: KNNImputer) -> None:
    with pytest.raises(UnsupportedModelError, match="Python function"):
        import_model(model.fit(table()))


def test_infinity_raises() -> None:
    frame = table()
    models = [KNNImputer().fit(frame), IterativeImputer(LinearRegression(), max_iter=1).fit(frame)]
    frame.loc[2, "c"] = np.inf
    for model in models:
        assert_both_raise(model, frame, MissingValueError, "'c' has infinity")


def test_posterior_samples_are_refused() -> None:
    model = IterativeImputer(sample_posterior=True, max_iter=1, random_state=0).fit(table())
    with pytest.raises(UnsupportedModelError, match="random numbers"):
        import_model(model)


def test_a_classifier_as_regressor_is_refused() -> None:
    model = IterativeImputer(LogisticRegression(), max_iter=1).fit(table())
    with pytest.raises(UnsupportedModelError, match="not a regressor"):
        import_model(model)


def test_a_single_column_and_no_round_give_the_initial_fills() -> None:
    one = table()[["a"]]
    assert_same(IterativeImputer().fit(one), one, exact=True)
    assert_same(IterativeImputer(max_iter=0).fit(table()), table(), exact=True)


def test_a_pipeline_inside_the_iterative_imputer() -> None:
    from sklearn.preprocessing import StandardScaler

    model = IterativeImputer(
        make_pipeline(StandardScaler(), LinearRegression()), max_iter=3, min_value=0.5
    )
    assert_same(model.fit(table()), table(seed=8))


def test_a_row_has_the_same_fills_in_every_batch() -> None:
    program = import_model(KNNImputer(n_neighbors=3).fit(table(90))).program
    later = table(150, 2, 0.3)
    inputs = {name: later[name].to_numpy() for name in later}
    whole = reference.run(program, inputs)["transform"]
    for start in (0, 1, 70, 149):
        part = {name: column[start : start + 3] for name, column in inputs.items()}
        some = reference.run(program, part)["transform"]
        np.testing.assert_array_equal(some, whole[start : start + 3])


HOSTILE: list[tuple[str, dict[str, Any]]] = [
    ("knn_impute", {"rows": np.zeros((0, 2))}),
    ("knn_impute", {"rows": np.zeros((3, 5))}),
    ("knn_impute", {"rows": np.array([[np.inf, 0]])}),
    ("knn_impute", {"neighbours": 0}),
    ("knn_impute", {"order": "K"}),
    ("knn_impute", {"weights": "best"}),
    ("search_sorted", {"edges": np.array([2.0, 1.0])}),
    ("search_sorted", {"edges": np.array([np.nan, 1.0])}),
    ("search_sorted", {"offsets": np.array([0, 5, 2])}),
    ("search_sorted", {"offsets": np.array([0, 1, 9])}),
    ("search_sorted", {"side": "middle"}),
    ("interpolate", {"offsets": np.array([0, 0, 2])}),
    ("interpolate", {"values": np.zeros(3)}),
    ("bspline", {"knots": np.zeros((2, 3))}),
    ("bspline", {"knots": np.array([[0, 1, 2, np.inf]] * 2)}),
    ("bspline", {"knots": np.array([[3.0, 1, 2, 3]] * 2)}),
    ("bspline", {"degree": -1}),
    ("bspline", {"degree": 10**9}),
]


@pytest.mark.parametrize(("op", "wrong"), HOSTILE, ids=lambda v: str(v)[:40])
def test_attributes_that_would_reach_outside_are_refused(op: str, wrong: dict[str, Any]) -> None:
    points = {"edges": np.zeros(2), "offsets": np.array([0, 1, 2]), "side": "left"}
    if op == "search_sorted" and "edges" in wrong:
        points["offsets"] = np.array([0, 2, 2])
    right: dict[str, dict[str, Any]] = {
        "knn_impute": {
            "rows": np.zeros((3, 2)),
            "neighbours": 1,
            "weights": "uniform",
            "order": "F",
        },
        "search_sorted": points,
        "interpolate": {
            "points": np.zeros(2),
            "values": np.zeros(2),
            "offsets": np.array([0, 1, 2]),
        },
        "bspline": {"knots": np.array([[0.0, 1, 2, 3]] * 2), "degree": 1},
    }
    b = Builder()
    x = b.input("x", "float64", 2)
    b.op(op, x, **right[op])
    with pytest.raises(ProgramError):
        b.op(op, x, **{**right[op], **wrong})
