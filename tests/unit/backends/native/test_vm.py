"""Models in one go: the machine, its kernels for scalers, and matrices that are scored in place."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression, PoissonRegressor, SGDClassifier
from sklearn.mixture import GaussianMixture
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVC, SVR, LinearSVC, OneClassSVM

import sqlml
from sqlml.backends.native.backend import NativeBackend
from sqlml.backends.native.vm.assemble import assemble
from sqlml.backends.native.vm.assembler import MOST_ROWS
from sqlml.backends.native.vm.whole_output import COPIED_ROWS, VmFiller
from sqlml.errors import MissingValueError
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from sqlml.ir.program import Program
from sqlml.planner.program.prepare_program import prepare_output
from sqlml.scorer.scoring_paths import MAX_PART_ROWS as BLOCK
from sqlml.types import DType

WIDTH = 9
MODELS: dict[str, tuple[Any, str]] = {
    "logistic": (LogisticRegression(), "predict_proba"),
    "two classes": (make_pipeline(StandardScaler(), LogisticRegression()), "predict"),
    "hinge": (SGDClassifier(random_state=0), "decision_function"),
    "linear": (LinearSVC(random_state=0), "predict"),
    "poisson": (PoissonRegressor(), "predict"),
    "support vectors": (SVC(random_state=0), "predict"),
    "votes": (SVC(random_state=0), "decision_function"),
    "polynomial kernel": (SVC(kernel="poly", random_state=0), "decision_function"),
    "sigmoid kernel": (SVC(kernel="sigmoid", random_state=0), "decision_function"),
    "regression": (SVR(), "predict"),
    "novelty": (OneClassSVM(), "score_samples"),
    "bernoulli": (BernoulliNB(), "predict_proba"),
    "gaussian": (GaussianNB(), "predict_proba"),
    "mixture": (GaussianMixture(2, random_state=0, covariance_type="diag"), "predict_proba"),
    "relu": (MLPClassifier((13,), random_state=0, max_iter=20), "predict_proba"),
    "tanh": (
        MLPRegressor(hidden_layer_sizes=(5, 4), activation="tanh", random_state=0, max_iter=20),
        "predict",
    ),
    "logistic units": (
        MLPClassifier((5,), activation="logistic", random_state=0, max_iter=20),
        "predict",
    ),
    "binarizer": (Binarizer(threshold=1.0), "transform"),
    "largest": (MaxAbsScaler(), "transform"),
    "range": (MinMaxScaler(), "transform"),
    "cut": (MinMaxScaler(clip=True), "transform"),
    "robust": (RobustScaler(), "transform"),
    "standard": (StandardScaler(), "transform"),
    "mean alone": (StandardScaler(with_std=False), "transform"),
    "l1": (Normalizer("l1"), "transform"),
    "l2": (Normalizer(), "transform"),
    "max": (Normalizer("max"), "transform"),
    "polynomial": (PolynomialFeatures(3, interaction_only=True), "transform"),
}


def rows(count: int, dtype: str, seed: int = 1) -> np.ndarray:
    x, _ = load_iris(return_X_y=True)
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(count, WIDTH - 4))
    return np.hstack([x[rng.integers(0, len(x), count)], noise]).astype(dtype)


def fitted(name: str) -> Any:
    model, _ = MODELS[name]
    _, y = load_iris(return_X_y=True)
    y = (y > 0).astype(int) if name == "two classes" else y
    rng = np.random.default_rng(0)
    x = np.hstack([load_iris().data, rng.normal(size=(150, WIDTH - 4))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(x, y)


def same(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape
    if want.dtype.kind in "fc":
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
    else:
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.by_day(2)
@pytest.mark.parametrize("name", list(MODELS))
def test_the_same_numbers_as_the_source_in_any_batch(name: str) -> None:
    model, method = fitted(name), MODELS[name][1]
    scorer = sqlml.compile(model, threads=2)
    for dtype in ("float32", "float64"):
        x = rows(BLOCK + MOST_ROWS + 17, dtype)
        want = getattr(model, method)(x.astype(np.float64))
        ours = getattr(scorer, method)
        whole = ours(x)
        same(whole, want)
        assert scorer._matrix_scorers, "it is scored in place"
        for start, stop in [(0, 0), (5, 6), (3, 40), (100, 100 + MOST_ROWS + 1)]:
            np.testing.assert_array_equal(ours(x[start:stop]), whole[start:stop])
        np.testing.assert_array_equal(
            ours(np.asfortranarray(x[: COPIED_ROWS + 5])), whole[: COPIED_ROWS + 5]
        )
        np.testing.assert_array_equal(ours(x[::3]), whole[::3])
        x.setflags(write=False)
        np.testing.assert_array_equal(ours(x[:9]), whole[:9])


@pytest.mark.parametrize("name", ["logistic", "support vectors", "binarizer", "l2", "standard"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_the_source_refuses_is_refused_wherever_it_stands(
    name: str, bad: float, dtype: str
) -> None:
    scorer, method = sqlml.compile(fitted(name), threads=2), MODELS[name][1]
    for count, row in [(1, 0), (300, 299), (BLOCK + 3, BLOCK + 1)]:
        x = rows(count, dtype)
        x[row, 7] = bad
        if name == "standard" and np.isnan(bad):
            made = getattr(scorer, method)(x)
            assert np.isnan(made[row, 7]) and np.isnan(made).sum() == 1
        else:
            with pytest.raises(MissingValueError, match="x7"):
                getattr(scorer, method)(x)


def test_rows_of_which_the_model_reads_some_columns() -> None:
    x = rows(500, "float64")
    model = make_pipeline(StandardScaler(), LogisticRegression())
    model.fit(x, x[:, 2] > 3)
    model[-1].coef_[:, [0, 4, 8]] = 0.0
    scorer = sqlml.compile(model)
    same(scorer.predict_proba(x), model.predict_proba(x))
    x[3, 4] = np.nan  # the model never looks at it
    assert np.isfinite(scorer.predict_proba(x)).all()


@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 9, 15, 16, 17, 127, 130, 300])
def test_sums_are_those_of_numpy_to_the_bit(width: int) -> None:
    b = Builder()
    program = b.build({"transform": b.op("sum", b.input("x", "float64", width), axis=1)})
    x = np.random.default_rng(width).normal(size=(33, width)) * 10.0 ** np.arange(33)[:, None]
    fused = VmFiller.of(program, "transform")
    assert fused is not None
    got = NativeBackend().compile(program).run({"x": x})["transform"]
    np.testing.assert_array_equal(got, reference.run(program, {"x": x})["transform"])


@pytest.mark.parametrize("op", ["exp", "expm1", "log", "log1p", "tanh", "sigmoid"])
def test_functions_are_within_two_units_in_the_last_place(op: str) -> None:
    b = Builder()
    program = b.build({"transform": b.op(op, b.input("x", "float64", 1))})
    rng = np.random.default_rng(0)
    size = 10.0 ** rng.uniform(-300, 3, 4000)
    special = [0.0, -0.0, 1.0, -1.0, 0.625, -745.2, 709.7, 709.8, 5e-324, 1e308, np.inf, -np.inf]
    x = np.concatenate([size, -size, rng.uniform(-3, 3, 4000), special, [np.nan]])[:, None]
    want = reference.run(program, {"x": x})["transform"]
    got = NativeBackend().compile(program).run({"x": x})["transform"]
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    with np.errstate(all="ignore"):
        apart = np.abs(got - want)[finite] / np.spacing(np.abs(want[finite]))
    assert apart.max() <= 2


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@pytest.mark.parametrize("width", [1, 3, 7, 8, 9, 20, 128, 129])
def test_lengths_of_rows_are_those_of_the_source(norm: str, width: int) -> None:
    rng = np.random.default_rng(width)
    x = rng.normal(size=(70, width)) * 10.0 ** rng.integers(-170, 170, (70, 1))
    x[3], x[4] = 0.0, 1e-17
    x[5, 0], x[6, -1] = -1e200, 1e308
    model = Normalizer(norm).fit(x)
    scorer = sqlml.compile(model)
    for rows_ in (x, np.clip(x, -1e30, 1e30).astype(np.float32)):
        got = scorer.transform(rows_)
        layout = "f32" if rows_.dtype == np.float32 else "f64"
        core = prepare_output(scorer.program, "transform", None, layout).split.core
        np.testing.assert_array_equal(got, reference.run(core, {"x": rows_})["transform"])
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(got, model.transform(rows_.astype(float)), rtol=1e-14)


def test_registers_are_used_again() -> None:
    b = Builder()
    value = b.input("x", "float64", 4)
    for _ in range(50):
        value = b.op("add", b.op("exp", value), b.constant(np.ones(1)))
    code = assemble(b.build({"transform": value}), "transform")
    assert code is not None
    assert code.shape[2] <= 4 + 1 + 4 + 2, "inputs, the constant, results and what is in between"
    assert len(code.code) < 4 * 100, "neighbours are one instruction"


def program_of(model: Any, output: str) -> Program:
    return prepare_output(sqlml.compile(model).program, output).split.core


def test_what_is_no_model_for_it_runs_step_by_step() -> None:
    b = Builder()
    x = b.input("x", "float32", 3)
    program = b.build({"transform": b.op("sin", x)})
    assert VmFiller.of(program, "transform") is None
    assert VmFiller.of(program_of(fitted("l2"), "transform"), "transform") is not None
    got = NativeBackend().compile(program).run({"x": np.zeros((2, 3))})["transform"]
    np.testing.assert_array_equal(got, np.zeros((2, 3), np.float32))


def test_float32_is_rounded_float64() -> None:
    b = Builder()
    x = b.input("x", "float32", 11)
    weights = np.random.default_rng(0).normal(size=(11, 5)).astype(np.float32)
    score = b.op("linear", x, weights=weights, bias=np.ones(5, np.float32))
    shares = b.op("softmax", score, sum_dtype="float32")
    total = b.op("sum", b.op("square", x), axis=1)
    signs = b.op("sign", b.op("tanh", score))
    integers = b.cast(b.op("cast", b.op("mul", score, signs), dtype="int32"), "float32")
    program = b.build({"transform": b.op("concat", shares, total, signs, integers)})
    filler = VmFiller.of(program, "transform")
    assert filler is not None
    block = np.random.default_rng(1).normal(size=(200, 11)).astype(np.float32)
    block[0], block[1, 0], block[2] = 0.0, np.nan, 3e9
    out = np.empty((200, 16), np.float32)
    assert filler.fill(block, out) == -1
    with np.errstate(all="ignore"):
        want = reference.run(program, {"x": block})["transform"]
    np.testing.assert_allclose(out, want, rtol=1e-5)
    np.testing.assert_array_equal(out[:, 5], want[:, 5])  # Sums are rounded one by one.


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 32, 41, 128, 200])
@pytest.mark.parametrize("results", [1, 3, 4, 7, 9, 16])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_columns_have_one_order(rows: int, results: int, dtype: DType) -> None:
    """A result depends neither on the position of its row nor on the number of results."""
    rng = np.random.default_rng(rows)
    block = rng.normal(size=(rows, 13)).astype(dtype)
    numbers = rng.normal(size=(13, results)).astype(dtype)
    for op, attrs in (
        ("linear", {"weights": numbers, "bias": np.arange(results).astype(dtype)}),
        ("pairwise", {"points": numbers.T, "metric": "sqeuclidean"}),
    ):
        b = Builder()
        program = b.build({"transform": b.op(op, b.input("x", dtype, 13), **attrs)})
        filler, out = VmFiller.of(program, "transform"), np.empty((rows, results), dtype)
        assert filler is not None and filler.fill(block, out) == -1
        want = np.zeros((rows, results), dtype)
        for column, weights in zip(block.T[:, :, None], numbers, strict=True):
            gap = column - weights
            want = want + (column * weights if op == "linear" else gap * gap)
        np.testing.assert_array_equal(out, want + attrs.get("bias", np.zeros(1, dtype)))


def test_large_integers_of_a_table_are_not_rounded() -> None:
    b = Builder()
    index = b.op("argmax", b.input("x", "float64", 2), axis=1)
    table = b.constant(np.array([1, (1 << 53) + 1]))
    program = b.build({"transform": b.op("take", table, index)})
    assert VmFiller.of(program, "transform") is None


@pytest.mark.parametrize("factor", [-(2**52), 2**60])
def test_integers_are_added_and_multiplied_without_rounding(factor: int) -> None:
    b = Builder()
    is_positive = b.op("gt", b.input("x", "float64", 3), b.constant(np.zeros(1)))
    product = b.op("mul", b.cast(is_positive, "int64"), b.constant(np.array([factor])))
    program = b.build({"transform": b.op("add", product, b.constant(np.array([1])))})
    filler = VmFiller.of(program, "transform")
    assert filler is not None
    block = np.random.default_rng(0).normal(size=(40, 3))
    want = np.where(block > 0, factor + 1, 1)
    out = np.empty((40, 3), np.int64)
    is_exact = filler.fill(block, out) == -1
    assert is_exact == (factor < 0)
    np.testing.assert_array_equal(out if is_exact else want, want)
    got = NativeBackend().compile(program).run({"x": block})["transform"]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("results", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("op", ["linear", "pairwise"])
def test_results_that_nobody_reads_take_no_place_from_others(op: str, results: int) -> None:
    numbers = np.random.default_rng(results).normal(size=(4, results))
    block = np.random.default_rng(0).normal(size=(9, 4))
    for chosen in range(results):
        b = Builder()
        x = b.input("x", "float64", 4)
        if op == "linear":
            made = b.op("linear", x, weights=numbers, bias=np.ones(results))
        else:
            made = b.op("pairwise", x, points=numbers.T, metric="sqeuclidean")
        one = b.op("select", made, indices=np.array([chosen]))
        program = b.build({"transform": b.op("sqrt", b.op("abs", one))})
        filler = VmFiller.of(program, "transform")
        assert filler is not None
        out = np.empty((9, 1))
        assert filler.fill(block, out) == -1
        want = reference.run(program, {"x": block})["transform"]
        np.testing.assert_allclose(out, want, rtol=1e-13)


@pytest.mark.parametrize("outputs", [2, 9, 40])
@pytest.mark.parametrize("width", [1, 3, 40, 700])
def test_weights_of_one_hot_columns_are_looked_up(width: int, outputs: int) -> None:
    rng = np.random.default_rng(width)
    b = Builder()
    x = b.input("x", "float64", 3)
    code = b.op("cast", b.op("select", x, indices=np.array([1])), dtype="int64")
    hot = b.op("one_hot", code, width=width, dtype="float64")
    others = b.op("select", x, indices=np.array([0, 2]))
    columns = b.op("concat", others, b.op("select", hot, indices=rng.permutation(width)))
    weights = rng.normal(size=(width + 2, outputs))
    layer = b.op("linear", columns, weights=weights, bias=rng.normal(size=outputs))
    program = b.build({"transform": layer})
    block = rng.normal(size=(90, 3))
    block[:, 1] = rng.integers(-3, width + 3, 90) + rng.choice([0.0, 0.25, -0.75], 90)
    block[:3, 1] = np.nan, np.inf, 1e300
    same_as_reference(program, block)


@pytest.mark.parametrize("rows", [1, 7, 8, 33, 300])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_several_tables_are_added(rows: int, dtype: DType) -> None:
    rng = np.random.default_rng(rows)
    b = Builder()
    x = b.input("x", "float64", 4)
    columns = [b.op("cast", b.op("select", x, indices=np.array([3])), dtype=dtype)]
    for k, count in enumerate((3, 1, 50)):
        code = b.op("cast", b.op("select", x, indices=np.array([k])), dtype="int64")
        columns.append(b.op("one_hot", code, width=count, dtype=dtype))
    weights = rng.normal(size=(55, 21)).astype(dtype)
    bias = rng.normal(size=21).astype(dtype)
    layer = b.op("linear", b.op("concat", *columns), weights=weights, bias=bias)
    program = b.build({"transform": layer})
    block = rng.integers(-1, 60, size=(rows, 4)).astype(np.float64)
    same_as_reference(program, block, 1e-13 if dtype == "float64" else 1e-5)


def test_a_table_that_several_columns_read_is_stored_once() -> None:
    table = np.random.default_rng(0).normal(size=(500, 8))
    b = Builder()
    x = b.input("x", "float64", 2)
    columns = (b.op("select", x, indices=np.array([k])) for k in (0, 1))
    codes = [b.op("cast", column, dtype="int64") for column in columns]
    taken = [b.op("take", b.constant(table), code) for code in codes]
    flat = [b.op("reshape", rows_, shape=(8,)) for rows_ in taken]
    code = assemble(b.build({"transform": b.op("concat", *flat)}), "transform")
    assert code is not None and table.size < code.numbers.size < table.size + 100


def test_one_hot_columns_of_two_widths_of_one_code() -> None:
    b = Builder()
    x = b.input("x", "float64", 1)
    code = b.op("cast", x, dtype="int64")
    hot = [b.op("one_hot", code, width=width, dtype="float64") for width in (3, 5)]
    layer = b.op("linear", b.op("concat", *hot), weights=np.eye(8), bias=np.zeros(8))
    same_as_reference(b.build({"transform": layer}), np.arange(-1.0, 7.0).reshape(-1, 1))


def test_rows_of_wide_tables_are_read_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(5, 20)), rng.normal(size=(5, 4))
    first[:, ::3] = -0.0
    first[1, 1], second[2, 3] = np.nan, -np.inf
    b = Builder()
    x = b.input("x", "float64", 2)
    columns = (b.op("select", x, indices=np.array([k])) for k in (0, 1))
    one, other = (b.op("cast", column, dtype="int64") for column in columns)
    pairs = ((first, one), (second, one), (second, other))
    taken = [b.op("take", b.constant(table), place) for table, place in pairs]
    flat = [b.op("reshape", rows_, shape=rows_.type.shape[2:]) for rows_ in taken]
    program = b.build({"transform": b.op("concat", *flat)})
    filler = VmFiller.of(program, "transform")
    assert filler is not None
    block = rng.integers(0, 5, size=(43, 2)).astype(np.float64)
    rows_of = block.astype(np.int64)
    want = np.hstack([first[rows_of[:, 0]], second[rows_of[:, 0]], second[rows_of[:, 1]]])
    out = np.empty(want.shape)
    assert filler.fill(block, out) == -1
    np.testing.assert_array_equal(out.view(np.int64), want.view(np.int64))


def same_as_reference(program: Program, block: np.ndarray, tolerance: float = 1e-13) -> None:
    filler = VmFiller.of(program, "transform")
    assert filler is not None
    with np.errstate(all="ignore"):
        want = reference.run(program, {"x": block})["transform"]
    out = np.empty(want.shape, want.dtype)
    assert filler.fill(block, out) == -1
    np.testing.assert_allclose(out, want, rtol=tolerance, atol=tolerance)


def test_one_hot_columns_that_more_than_weights_read() -> None:
    b = Builder()
    code = b.op("cast", b.input("x", "float64", 1), dtype="int64")
    hot = b.op("one_hot", code, width=9, dtype="float64")
    centred = b.op("sub", hot, b.constant(np.linspace(0.0, 1.0, 9)))
    program = b.build({"transform": b.op("concat", hot, centred)})
    same_as_reference(program, np.arange(-3.0, 12.0).reshape(-1, 1))


def test_rows_of_a_table_at_whole_numbers() -> None:
    b = Builder()
    x = b.input("x", "float64", 2)
    place = b.op("cast", b.op("select", x, indices=np.array([0])), dtype="int64")
    zero, last = b.constant(np.zeros(1, np.int64)), b.constant(np.array([4]))
    inside = b.op("minimum", b.op("maximum", place, zero), last)
    rows_ = b.op("take", b.constant(np.arange(10.0).reshape(5, 2)), inside)
    one = b.op("take", b.constant(np.array([3.0, 1.0, 4.0, 1.0, 5.0])), inside)
    total = b.op("concat", one, b.op("reshape", rows_, shape=(2,)))
    program = b.build({"transform": total})
    block = np.array([[-1e30, 0], [-1.5, 0], [0.9, 0], [2.0, 0], [3.999, 0], [9e18, 0], [1e30, 0]])
    same_as_reference(program, block)


def test_codes_below_zero_are_refused() -> None:
    b = Builder()
    code = b.op("cast", b.input("x", "float64", 1), dtype="int64")
    known = b.op("require_known", code, feature="city", step="OneHotEncoder")
    hot = b.op("one_hot", known, width=3, dtype="float64")
    made = b.op("linear", hot, weights=np.ones((3, 1)), bias=np.zeros(1))
    filler = VmFiller.of(b.build({"transform": made}), "transform")
    assert filler is not None
    for code_, refused in ((-0.5, False), (-1.0, True), (np.nan, True), (7.0, False)):
        assert (filler.fill(np.array([[code_]]), np.empty((1, 1))) >= 0) == refused, code_


@pytest.mark.parametrize("seed", range(60))
def test_models_at_random(seed: int) -> None:
    """Values of which some columns are read, some twice, and some by nobody."""
    rng = np.random.default_rng(seed)
    b = Builder()
    x = b.input("x", "float64", 5)
    values = [b.op("require_finite", x, features=tuple("abcde"), allow_nan=False, step="s")]
    for _ in range(rng.integers(4, 14)):
        a = values[rng.integers(len(values))]
        width = a.type.width
        match rng.choice(["linear", "distance", "select", "sum", "one", "two", "concat"]):
            case "linear":
                weights = rng.normal(size=(width, rng.integers(1, 6)))
                made = b.op("linear", a, weights=weights, bias=rng.normal(size=weights.shape[1]))
            case "distance":
                points = rng.normal(size=(rng.integers(1, 6), width))
                made = b.op("pairwise", a, points=points, metric="sqeuclidean")
            case "select":
                chosen = rng.integers(0, width, rng.integers(1, width + 1))
                made = b.op("select", a, indices=chosen.astype(np.int64))
            case "sum":
                made = b.op(str(rng.choice(["sum", "max", "min"])), a, axis=1)
            case "one":
                made = b.op(str(rng.choice(["neg", "abs", "square", "sigmoid", "tanh"])), a)
            case "two":
                others = [v for v in values if v.type.width == width]
                made = b.op(
                    str(rng.choice(["add", "sub", "mul", "maximum", "minimum"])),
                    a,
                    others[rng.integers(len(others))],
                )
            case _:
                made = b.op("concat", a, values[rng.integers(len(values))])
        values.append(b.op("tanh", made))  # so that numbers stay small
    program = b.build({"transform": b.op("concat", *values[-2:])})
    filler = VmFiller.of(program, "transform")
    assert filler is not None
    block = rng.normal(size=(70, 5))
    want = reference.run(program, {"x": block})["transform"]
    out = np.empty(want.shape)
    assert filler.fill(block, out) == -1
    np.testing.assert_allclose(out, want, rtol=1e-11, atol=1e-13)


def test_what_takes_too_many_registers_runs_step_by_step() -> None:
    """Between what a kernel holds in registers and what it never tries."""
    x = np.random.default_rng(0).normal(size=(40, 1700))
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, x[:, 0] > 0)
    scorer = sqlml.compile(model)
    np.testing.assert_array_equal(scorer.predict(x), model.predict(x))
    same(scorer.predict_proba(x), model.predict_proba(x))
