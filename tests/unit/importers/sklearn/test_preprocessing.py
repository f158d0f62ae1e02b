"""Transformers: what they refuse, ends and ties built by hand, and selections pushed below them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    LabelBinarizer,
    LabelEncoder,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    SplineTransformer,
    TargetEncoder,
)

from sqlml.errors import MissingValueError, UnknownCategoryError, UnsupportedModelError
from sqlml.importers.registry import import_model
from sqlml.ir import reference
from sqlml.passes.selection import push_selection
from tests.support.sklearn_checks import assert_both_raise, assert_same, scored


def table(rows: int = 60, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    made = rng.normal(size=(rows, 4)) * [1, 10, 0.1, 3]
    return pd.DataFrame(made.round(3), columns=list("abcd"))


def test_a_bin_begins_at_its_edge() -> None:
    frame = table()
    model = KBinsDiscretizer(4, encode="ordinal", strategy="quantile").fit(frame)
    edges = np.stack(model.bin_edges_, axis=1)
    rows = np.concatenate([edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)])
    assert_same(model, pd.DataFrame(rows, columns=frame.columns), exact=True)


@pytest.mark.parametrize("output", ["uniform", "normal"])
def test_quantiles_their_neighbours_and_numbers_beyond_them(output: str) -> None:
    frame = table().round(0)  # most quantiles are there several times
    model = QuantileTransformer(n_quantiles=30, output_distribution=output).fit(frame)
    q = model.quantiles_
    near = [q, np.nextafter(q, -np.inf), np.nextafter(q, np.inf), q - 1e-8, q + 1e-8, q * 50]
    rows = np.concatenate([*near, np.full((1, 4), np.nan)])
    assert_same(model, pd.DataFrame(rows, columns=frame.columns))


def test_quantiles_of_a_sparse_matrix_are_refused() -> None:
    frame = table().assign(e=["x", "y"] * 30)
    codes = ColumnTransformer([("e", OneHotEncoder(), ["e"])], sparse_threshold=1)
    model = make_pipeline(codes, QuantileTransformer(n_quantiles=5)).fit(frame)
    with pytest.raises(UnsupportedModelError, match="QuantileTransformer of a sparse matrix"):
        import_model(model)


@pytest.mark.parametrize("power", [0.0, 1e-17, 0.5, 1.0, 2.0, 2 + 1e-17, -3.5, 40.0])
@pytest.mark.parametrize("method", ["yeo-johnson", "box-cox"])
def test_powers_at_which_the_formula_changes(method: Any, power: float) -> None:
    frame = table().abs() + 0.01
    model = PowerTransformer(method, standardize=False).fit(frame)
    model.lambdas_ = np.array([power, 0.3, 2 - power, power])
    rows = frame if method == "box-cox" else pd.concat([frame, -frame, frame * 0])
    assert_same(model, rows.reset_index(drop=True))


def test_box_cox_takes_no_zero() -> None:
    frame = table().abs() + 0.5
    model = PowerTransformer("box-cox").fit(frame)
    for bad in (0.0, -1.0):
        frame.loc[3, "b"] = bad
        assert_both_raise(model, frame, MissingValueError, "'b'.*box-cox")


def test_a_power_that_overflows_raises_in_the_scaler() -> None:
    frame = table()
    model = PowerTransformer().fit(frame)
    model.lambdas_ = np.full(4, 30.0)
    frame.loc[0, "c"] = 1e30
    assert_both_raise(model, frame, MissingValueError, "'c' has infinity.*StandardScaler")


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_rows_of_zeros_dense_and_sparse(norm: Any) -> None:
    frame = pd.DataFrame({"a": [0.0, 1e-17, 3.0, -4.0], "b": [0.0, 0.0, 4.0, 0.0]})
    assert_same(Normalizer(norm).fit(frame), frame)
    sparse = ColumnTransformer(
        [("codes", OneHotEncoder(), ["a"]), ("b", "passthrough", ["b"])], sparse_threshold=1
    )
    assert_same(make_pipeline(sparse, Normalizer(norm)).fit(frame), frame)
    tiny = ColumnTransformer(
        [("codes", OneHotEncoder(), ["e"]), ("a", "passthrough", ["a"])],
        sparse_threshold=1,
        transformer_weights={"codes": 1e-18},
    )
    assert_same(make_pipeline(tiny, Normalizer(norm)).fit(frame.assign(e="x")), frame.assign(e="x"))


def test_a_sparse_matrix_stays_exact_in_polynomials() -> None:
    frame = table().assign(e=["x", "y", "z"] * 20)
    codes = ColumnTransformer(
        [("e", OneHotEncoder(), ["e"]), ("a", "passthrough", ["a"])], sparse_threshold=1
    )
    for degree in (2, 4):
        assert_same(make_pipeline(codes, PolynomialFeatures(degree)).fit(frame), frame)


@pytest.mark.parametrize("extrapolation", ["constant", "linear", "continue", "periodic"])
@pytest.mark.parametrize("degree", [0, 1, 3])
def test_knots_and_numbers_far_outside(extrapolation: Any, degree: int) -> None:
    frame = table()
    model = SplineTransformer(6, degree=degree, extrapolation=extrapolation).fit(frame)
    knots = np.stack([s.t for s in model.bsplines_], axis=1)
    rows = np.concatenate([knots, np.nextafter(knots, -np.inf), np.nextafter(knots, np.inf)])
    if extrapolation == "constant" and degree == 0:
        assert_both_raise(model, frame + 100, MissingValueError, "degree=0")
        rows = rows[(rows <= knots.max(axis=0)).all(axis=1)]
    assert_same(model, pd.DataFrame(rows, columns=frame.columns))


def test_a_spline_refuses_what_lies_beyond_its_knots() -> None:
    frame = table()
    model = SplineTransformer(extrapolation="error").fit(frame)
    assert_same(model, frame, exact=True)
    frame.loc[5, "d"] = 99.0
    assert_both_raise(model, frame, MissingValueError, "'d'.*extrapolation='error'")


def test_nan_becomes_zeros_where_the_spline_says_so() -> None:
    frame = table()
    frame.loc[::5, "b"] = np.nan
    model = SplineTransformer(handle_missing="zeros", extrapolation="linear").fit(frame)
    assert_same(model, frame)


def test_a_spline_of_a_constant_column_is_refused() -> None:
    model = SplineTransformer().fit(table().assign(b=1.0))
    with pytest.raises(UnsupportedModelError, match="VarianceThreshold"):
        import_model(model)


@pytest.mark.parametrize("strings", ["str", "object"])
def test_target_means_of_missing_unknown_and_rare_categories(strings: str) -> None:
    rng = np.random.default_rng(3)
    words = np.array(["a", "b", "c", None], object)
    frame = pd.DataFrame({"w": pd.Series(rng.choice(words, 80), dtype=strings)})
    for target in (rng.normal(size=80), rng.integers(0, 2, 80), rng.integers(0, 3, 80)):
        model = TargetEncoder().fit(frame, target)
        later = pd.DataFrame({"w": pd.Series(["c", "zz", None, "a"], dtype=strings)})
        assert_same(model, later, exact=True)
    never = TargetEncoder().fit(frame.dropna(), rng.normal(size=frame.dropna().shape[0]))
    assert_same(never, later, exact=True)


def test_labels_are_cast_to_the_dtype_of_the_classes() -> None:
    encoder = LabelEncoder().fit([3, 5, 7])
    got = scored(import_model(encoder), np.array([[3.7], [5.0], [-0.0 + 7.9]]))["transform"]
    np.testing.assert_array_equal(got[:, 0], encoder.transform(np.array([3.7, 5.0, 7.9])))
    truth = LabelEncoder().fit([True, False])
    got = scored(import_model(truth), np.array([[1.0], [0.0], [5.0]]))["transform"]
    np.testing.assert_array_equal(got[:, 0], truth.transform(np.array([1.0, 0.0, 5.0])))


def test_a_missing_label_has_a_code_where_it_was_seen() -> None:
    words = LabelEncoder().fit(np.array(["b", "a", None], object))
    imported = import_model(words)
    column = {"x0": np.array(["a", None, "b"], object)}
    assert reference.run(imported.program, column)["transform"].ravel().tolist() == [0, 2, 1]
    numbers = LabelEncoder().fit(np.array([1.5, np.nan]))
    assert scored(import_model(numbers), np.array([[np.nan], [1.5]]))["transform"][0, 0] == 1


@pytest.mark.parametrize("classes", [["a", "b"], [1, 2]], ids=str)
def test_unknown_labels_raise(classes: list[Any]) -> None:
    imported = import_model(LabelEncoder().fit(classes))
    with pytest.raises(UnknownCategoryError, match="LabelEncoder"):
        reference.run(
            imported.program,
            {
                "x0": np.array([type(classes[0])(7)] * 2, object)
                if isinstance(classes[0], str)
                else np.array([7.0])
            },
        )


def test_unknown_labels_are_nowhere_and_null_raises() -> None:
    model = LabelBinarizer(neg_label=-3, pos_label=2).fit(["a", "b", "c"])
    program = import_model(model).program
    got = reference.run(program, {"x0": np.array(["b", "zz"], object)})["transform"]
    np.testing.assert_array_equal(got, model.transform(["b", "zz"]))
    with pytest.raises(UnknownCategoryError, match="NULL"):
        reference.run(program, {"x0": np.array(["b", None], object)})
    one = LabelBinarizer().fit(["a", "a"])
    got = reference.run(import_model(one).program, {"x0": np.array(["a"], object)})["transform"]
    np.testing.assert_array_equal(got, one.transform(["a"]))


def test_a_matrix_of_labels_is_refused() -> None:
    model = LabelBinarizer().fit(np.array([[1, 0], [1, 1]]))
    with pytest.raises(UnsupportedModelError, match="0/1 matrix"):
        import_model(model)


def twice(x: Any) -> Any:
    return x * 2


class Log1p:
    """A callable that only calls itself log1p."""

    __name__ = "log1p"
    __hash__ = None

    def __call__(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (FunctionTransformer(twice), "Python function twice"),
        (FunctionTransformer(lambda x: np.log1p(x)), "Python function <lambda>"),
        (FunctionTransformer(Log1p()), "Python function log1p"),
        (FunctionTransformer(np.clip, kw_args={"a_min": 0}), "Python function clip"),
        (FunctionTransformer(np.round, kw_args={"decimals": 2}), "kw_args"),
        (FunctionTransformer(np.cumsum), "Python function cumsum"),
    ],
    ids=["function", "lambda", "object", "clip", "round", "cumsum"],
)
def test_functions_that_are_not_numpys_own_are_refused(model: Any, reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        import_model(make_pipeline(Binarizer(), model).fit(table()))


def test_functions_of_a_sparse_matrix_are_refused() -> None:
    frame = pd.DataFrame({"e": ["x", "y"] * 4})
    model = make_pipeline(OneHotEncoder(), FunctionTransformer(np.sqrt)).fit(frame)
    with pytest.raises(UnsupportedModelError, match="sparse"):
        import_model(model)
    assert_same(make_pipeline(OneHotEncoder(), FunctionTransformer()).fit(frame), frame)


def test_domains_of_functions_give_nan_and_infinity() -> None:
    frame = pd.DataFrame({"a": [-2.0, -1.0, 0.0, 1.0, 2.0, np.nan, np.inf, -np.inf]})
    for function in (
        np.log,
        np.sqrt,
        np.arcsin,
        np.arctanh,
        np.reciprocal,
        np.log1p,
        np.nan_to_num,
    ):
        model = FunctionTransformer(function).fit(frame)
        assert_same(make_pipeline(FunctionTransformer(), model).fit(frame), frame)


def correlation(x: Any, y: Any) -> Any:
    return np.nan_to_num(np.abs(np.corrcoef(x.T, y)[-1, :-1]))


@pytest.mark.parametrize(
    "transformer",
    [
        PowerTransformer(),
        QuantileTransformer(n_quantiles=9, output_distribution="normal"),
        KBinsDiscretizer(3, encode="ordinal"),
        Binarizer(),
        FunctionTransformer(np.arctan),
        SplineTransformer(4),
        SplineTransformer(4, extrapolation="periodic"),
        PolynomialFeatures(2, interaction_only=True, include_bias=False),
    ],
    ids=lambda t: f"{type(t).__name__} {getattr(t, 'extrapolation', '')}",
)
def test_selections_go_down_to_the_columns(transformer: Any) -> None:
    frame = table()
    y = frame["c"] * 3 + np.random.default_rng(5).normal(size=60) * 0.01
    model = make_pipeline(transformer, SelectKBest(correlation, k=1))
    imported = assert_same(model.fit(frame, y), frame)
    pushed = push_selection(imported.program)
    assert len(pushed.inputs) <= 2 < len(imported.program.inputs)
    inputs = {name: frame[name].to_numpy() for name in frame}
    np.testing.assert_array_equal(
        reference.run(pushed, inputs)["transform"],
        reference.run(imported.program, inputs)["transform"],
    )


def test_a_normalizer_stops_a_selection() -> None:
    frame = table()
    model = make_pipeline(Normalizer(), VarianceThreshold(0.05), LinearRegression())
    imported = assert_same(model.fit(frame, frame["a"]), frame)
    assert len(push_selection(imported.program).inputs) == 4
