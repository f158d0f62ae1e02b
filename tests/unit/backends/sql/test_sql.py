"""Programs printed as SQL give in plain DuckDB what the reference gives, NULL and NaN included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import lightgbm
import numpy as np
import pytest
import xgboost
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge, SGDClassifier
from sklearn.naive_bayes import (
    BernoulliNB,
    CategoricalNB,
    ComplementNB,
    GaussianNB,
    MultinomialNB,
)
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    PowerTransformer,
    StandardScaler,
)
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from sqlml.backends.sql.printer import explain_unprintable, print_sql
from sqlml.errors import BackendError
from sqlml.importers.registry import import_model
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from sqlml.ir.program import Program
from sqlml.passes import run, select_outputs
from sqlml.passes.fold_into_trees import fold_casts_into_trees
from tests.support.random_trees import WIDTH, Recipe, grow, rows_for

NAMES = ("a", "b", "c", "d")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4))
TWO = (X[:, 0] * X[:, 1] > 0).astype(int)
THREE = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
VALUE = X @ [1.0, 2.0, 3.0, 4.0]
POSITIVE, COUNTS = np.abs(X), (np.abs(X) * 2).astype(int).clip(0, 3)
GAPS = X.copy()
GAPS[::3, 1], GAPS[1::5, 2] = np.nan, np.nan
QUIET = {"verbose": -1, "n_estimators": 5}

MODELS: dict[str, tuple[Callable[[], Any], np.ndarray]] = {
    "logistic": (lambda: LogisticRegression().fit(X, TWO), X),
    "logistic of three": (lambda: LogisticRegression().fit(X, THREE), X),
    "ridge": (lambda: make_pipeline(StandardScaler(), Ridge()).fit(X, VALUE), X),
    "imputed": (
        lambda: make_pipeline(SimpleImputer(), MinMaxScaler(), LogisticRegression()).fit(
            GAPS, THREE
        ),
        GAPS,
    ),
    "sgd": (lambda: SGDClassifier(loss="log_loss").fit(X, THREE), X),
    "poisson": (lambda: PoissonRegressor().fit(X, np.abs(VALUE)), X),
    "gaussian": (lambda: GaussianNB().fit(X, THREE), X),
    "bernoulli": (lambda: BernoulliNB().fit(X, THREE), X),
    "multinomial": (lambda: MultinomialNB().fit(POSITIVE, THREE), POSITIVE),
    "complement": (lambda: ComplementNB().fit(POSITIVE, THREE), POSITIVE),
    "categorical": (lambda: CategoricalNB().fit(COUNTS, THREE), COUNTS.astype(float)),
    "tree": (lambda: DecisionTreeClassifier(max_depth=4).fit(GAPS, THREE), GAPS),
    "tree of values": (lambda: DecisionTreeRegressor(max_depth=5).fit(X, VALUE), X),
    "forest": (lambda: RandomForestClassifier(5, max_depth=3).fit(X, THREE), GAPS),
    "forest of values": (lambda: RandomForestRegressor(5, max_depth=3).fit(GAPS, VALUE), GAPS),
    "boosting": (lambda: GradientBoostingClassifier(n_estimators=4).fit(X, THREE), X),
    "histograms": (lambda: HistGradientBoostingClassifier(max_iter=5).fit(GAPS, TWO), GAPS),
    "histograms of values": (
        lambda: HistGradientBoostingRegressor(max_iter=5).fit(GAPS, VALUE),
        GAPS,
    ),
    "adaboost": (lambda: AdaBoostClassifier(n_estimators=5).fit(X, THREE), X),
    "isolation": (lambda: IsolationForest(n_estimators=5, random_state=0).fit(X), X),
    "xgboost": (lambda: xgboost.XGBClassifier(n_estimators=5, max_depth=3).fit(GAPS, TWO), GAPS),
    "xgboost of three": (
        lambda: xgboost.XGBClassifier(n_estimators=5, max_depth=3).fit(GAPS, THREE),
        GAPS,
    ),
    "lightgbm": (lambda: lightgbm.LGBMClassifier(**QUIET).fit(GAPS, TWO), GAPS),
    "lightgbm of values": (lambda: lightgbm.LGBMRegressor(**QUIET).fit(GAPS, VALUE), GAPS),
    "network": (lambda: MLPClassifier((8,), max_iter=50).fit(X, THREE), X),
    "deep network": (
        lambda: MLPRegressor(hidden_layer_sizes=(6, 5), activation="tanh", max_iter=50).fit(
            X, VALUE
        ),
        X,
    ),
    "lda": (lambda: LinearDiscriminantAnalysis().fit(X, THREE), X),
    "qda": (lambda: QuadraticDiscriminantAnalysis().fit(X, THREE), X),
    "svc": (lambda: SVC().fit(X[:40], TWO[:40]), X),
    "centroids": (lambda: NearestCentroid().fit(X, THREE), X),
    "pca": (lambda: PCA(2).fit(X), X),
    "polynomial": (lambda: PolynomialFeatures().fit(X), X),
    "normalizer": (lambda: Normalizer().fit(X), X),
    "power": (lambda: PowerTransformer().fit(X), X),
    "bins": (lambda: KBinsDiscretizer(4, encode="ordinal").fit(X), X),
    "binarizer": (lambda: Binarizer().fit(X), X),
    "one hot": (
        lambda: make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression()).fit(
            COUNTS, THREE
        ),
        COUNTS.astype(float),
    ),
    "log1p": (lambda: FunctionTransformer(np.log1p).fit(POSITIVE), POSITIVE),
    "expm1": (lambda: FunctionTransformer(np.expm1).fit(X), X),
}


def in_plain_duckdb(
    program: Program, output: str, rows: np.ndarray, inputs: dict[str, list[str]] | None = None
) -> np.ndarray:
    """One output of all rows, computed by DuckDB alone; columns c0, c1, .. with NULL for NaN."""
    columns = [f"c{k}" for k in range(rows.shape[1])]
    if inputs is None:
        inputs = {name: [c] for name, c in zip(NAMES, columns, strict=True)}
        inputs = {name: inputs[name] for name in program.inputs}
    sql = print_sql(program, output, inputs)
    with duckdb.connect() as con:
        table = {c: rows[:, k] for k, c in enumerate(columns)}
        con.register("given", {**table, "i": np.arange(len(rows))})
        gaps = ", ".join(
            f"CASE WHEN isnan({c}) AND i % 2 = 0 THEN NULL ELSE {c} END AS {c}" for c in columns
        )
        found = con.execute(
            f"SELECT {sql} FROM (SELECT i, {gaps} FROM given) ORDER BY i"
        ).fetchall()
    return np.array([np.ravel(value) for (value,) in found], float)


@pytest.mark.by_day(4)
@pytest.mark.parametrize("name", list(MODELS))
def test_a_model_without_any_function(name: str) -> None:
    fit, rows = MODELS[name]
    program = import_model(fit(), list(NAMES)).program
    for output in program.outputs:
        part = fold_casts_into_trees(run(select_outputs(program, [output])))
        assert explain_unprintable(part) is None
        inputs = {n: rows[:, NAMES.index(n)] for n in part.inputs}
        want = reference.run(part, inputs, [output])[output]
        got = in_plain_duckdb(part, output, rows)
        exact = part.output_type(output).dtype == "int64"
        np.testing.assert_allclose(
            got, want.astype(float), rtol=0 if exact else 1e-6 if "xgb" in name else 1e-11
        )


NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 1e-20, 1e30, 88.7, np.nan, np.inf, -np.inf]
PAIRS = np.array([[a, b] for a in NUMBERS for b in NUMBERS])
UNARY = (
    *("exp log log1p expm1 sqrt sigmoid tanh trunc floor ceil rint neg abs square sign".split()),
    *("exp2", "cbrt"),
)
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


@pytest.mark.by_day(2)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("op", [*UNARY, *BINARY, *COMPARISONS, "isnan", "argmax", "max", "min"])
def test_every_operator_on_zeros_infinities_and_nan(op: str, dtype: str) -> None:
    b = Builder()
    x = b.op("cast", b.input("x", "float64", 2), dtype=dtype)
    one, two = (b.op("select", x, indices=np.array([k])) for k in (0, 1))
    if op in ("argmax", "max", "min"):
        made = b.op(op, x, axis=1)
    else:
        made = b.op(op, *([one] if op in (*UNARY, "isnan") else [one, two]))
    if made.type.dtype == "bool":
        made = b.op("cast", made, dtype="float64")
    program = b.build({"score": made})
    with np.errstate(all="ignore"):
        want = reference.run(program, {"x": PAIRS}, ["score"])["score"]
    got = in_plain_duckdb(program, "score", PAIRS, {"x": ["c0", "c1"]})
    np.testing.assert_allclose(got, want, rtol=1e-6 if dtype == "float32" else 1e-14, atol=1e-45)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.integers(0, 2**31),
    dtypes=st.sampled_from([("float32", "float32"), ("float32", "float64"), ("float64",) * 2]),
    compare=st.sampled_from(["lt", "le"]),
    values=st.integers(1, 2),
)
def test_random_trees_keep_every_bit(
    seed: int, dtypes: tuple[str, str], compare: str, values: int
) -> None:
    e = grow(Recipe(seed, 3, 4, *dtypes, values, values + 1, compare))
    b = Builder()
    x = b.op("cast", b.input("x", "float64", WIDTH), dtype=dtypes[0])
    program = fold_casts_into_trees(b.build({"score": b.op("tree_ensemble", x, **e.attrs())}))
    rows = rows_for(e, 60, seed).astype(np.float64)
    rows[::7, 1], rows[1::7, 2] = np.nan, 1e300
    with np.errstate(all="ignore"):
        want = reference.run(program, {"x": rows}, ["score"])["score"]
    inputs = {"x": [f"c{k}" for k in range(WIDTH)]}
    np.testing.assert_array_equal(in_plain_duckdb(program, "score", rows, inputs), want)


def test_rows_that_the_model_refuses_are_an_error() -> None:
    program = import_model(LogisticRegression().fit(X, TWO), list(NAMES)).program
    part = run(select_outputs(program, ["proba"]))
    for bad in (np.nan, np.inf):
        rows = X[:3].copy()
        rows[1, 2] = bad
        with pytest.raises(duckdb.Error, match=r"column 'c' .* LogisticRegression"):
            in_plain_duckdb(part, "proba", rows)


def test_what_has_no_sql_says_so() -> None:
    program = import_model(KNeighborsClassifier().fit(X, TWO), list(NAMES)).program
    assert explain_unprintable(program) == "no SQL for operator nearest"
    with pytest.raises(BackendError, match="nearest"):
        print_sql(program, "label", {n: [n] for n in NAMES})
    forest = import_model(RandomForestClassifier(200).fit(X, TWO), list(NAMES)).program
    with pytest.raises(BackendError, match="too large for a SQL expression"):
        print_sql(forest, "label", {n: [n] for n in NAMES})


def test_columns_may_be_called_as_our_own_names_are() -> None:
    program = run(
        select_outputs(import_model(GaussianNB().fit(X, THREE), list(NAMES)).program, ["proba"])
    )
    columns = ["sqlml", "v1", "sqlml1", '"SQLML2"']
    sql = print_sql(program, "proba", {n: [c] for n, c in zip(NAMES, columns, strict=True)})
    with duckdb.connect() as con:
        con.execute('CREATE TABLE t (sqlml DOUBLE, v1 DOUBLE, sqlml1 DOUBLE, "SQLML2" DOUBLE)')
        con.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", X[:20].tolist())
        got = np.array([v for (v,) in con.execute(f"SELECT {sql} FROM t").fetchall()])
    np.testing.assert_allclose(got, GaussianNB().fit(X, THREE).predict_proba(X[:20]), rtol=1e-9)
