"""Steps of a user's own, by the SQL that says what they do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import sqlml
from sqlml import errors
from sqlml.importers.expressions import sql_steps as registered
from sqlml.importers.expressions.sql_steps import compile_expressions
from sqlml.importers.frame import Frame
from sqlml.ir import reference
from sqlml.ir.builder import Builder

RANDOM = np.random.default_rng(0)
ROWS = pd.DataFrame(
    {
        "debt": RANDOM.normal(size=200) * 10 + 40,
        "income": RANDOM.random(200) * 100 + 1,
        "region": RANDOM.choice(["north", "south", "east"], 200),
        "signup": pd.Timestamp("2020-01-01")
        + pd.to_timedelta(RANDOM.integers(0, 10**9, 200), unit="s"),
    }
)
Y = (ROWS["debt"] > ROWS["income"]).astype(int)
NAMES = list(ROWS)


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(registered, "_STEPS", {})


class Own(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A step without a memory of its columns, as most people write them."""

    def fit(self, X: Any, y: Any = None) -> Own:
        return self


class Ratio(Own):
    def transform(self, X: Any) -> Any:
        return (X["debt"] / X["income"]).to_frame("ratio")


class Centred(Own):
    def fit(self, X: Any, y: Any = None) -> Centred:
        self.n_features_in_ = X.shape[1]
        self.mean_ = np.asarray(X, float).mean(axis=0)
        return self

    def transform(self, X: Any) -> Any:
        return np.asarray(X, float) - self.mean_

    def to_sql(self, columns: Sequence[str]) -> Mapping[str, str]:
        return {c: f"{c} - {m}" for c, m in zip(columns, self.mean_, strict=True)}


class Local(Own):
    """Texts and dates."""

    def transform(self, X: Any) -> Any:
        north = X["region"].isin(["north", "north-east"])
        return np.column_stack([north, X["signup"].dt.month, X["signup"].dt.hour]).astype(float)


def same(model: Any, rows: pd.DataFrame = ROWS, **options: Any) -> None:
    scorer = sqlml.compile(model, **options)
    np.testing.assert_allclose(scorer.predict_proba(rows), model.predict_proba(rows), rtol=1e-12)


def test_one_expression_for_a_class() -> None:
    sqlml.register_step(Ratio, sql="debt / income")
    same(make_pipeline(Ratio(), LogisticRegression()).fit(ROWS, Y), inputs=NAMES)


def test_a_template_for_a_function() -> None:
    def capped(X: Any) -> Any:
        return np.clip(X, -1, 1)

    sqlml.register_step(
        capped, sql="CASE WHEN {column} < -1 THEN -1 WHEN {column} > 1 THEN 1 ELSE {column} END"
    )
    steps = StandardScaler(), FunctionTransformer(capped), LogisticRegression()
    numbers = ROWS[["debt", "income"]]
    same(make_pipeline(*steps).fit(numbers, Y), numbers)


def test_the_method_to_sql_behind_another_step() -> None:
    odd = ROWS[["debt", "income"]].set_axis(['a "b"', "select"], axis=1)
    same(make_pipeline(Centred(), LogisticRegression()).fit(odd, Y), odd, inputs=list(odd))
    same(make_pipeline(StandardScaler(), Centred(), LogisticRegression()).fit(odd, Y), odd)


def test_texts_and_dates_beside_other_steps() -> None:
    sqlml.register_step(
        Local,
        sql={
            "north": "coalesce(region IN ('north', 'north-east'), FALSE)",
            "month": "month(signup)",
            "hour": "extract(hour FROM signup)",
        },
    )
    columns = ColumnTransformer(
        [("l", Local(), ["region", "signup"]), ("s", StandardScaler(), ["debt"])]
    )
    same(make_pipeline(columns, LogisticRegression(max_iter=500)).fit(ROWS, Y))


def test_inside_a_search() -> None:
    sqlml.register_step(Ratio, sql="debt / income")
    search = GridSearchCV(
        make_pipeline(Ratio(), LogisticRegression()), {"logisticregression__C": [0.1, 1]}, cv=2
    )
    same(search.fit(ROWS, Y), inputs=NAMES)


def test_the_first_step_takes_what_inputs_name() -> None:
    sqlml.register_step(Ratio, sql="debt / income")
    with pytest.raises(errors.ConfigError, match="records none; name those that feed it"):
        sqlml.compile(make_pipeline(Ratio(), LogisticRegression()).fit(ROWS, Y))


def test_sql_that_computes_something_else_is_found() -> None:
    sqlml.register_step(Ratio, sql="debt / (income + 0.001)")
    model = make_pipeline(Ratio(), LogisticRegression()).fit(ROWS, Y)
    with pytest.raises(errors.UnsupportedModelError, match="where its transform gives .*income = "):
        sqlml.compile(model, inputs=NAMES)
    sqlml.register_step(Ratio, sql="debt / (income + 0.001)", verify=False)
    sqlml.compile(model, inputs=NAMES)
    with (
        sqlml.connect() as con,
        pytest.raises(errors.VerificationError, match="predicts differently"),
    ):
        con.create_model("m", model, inputs=NAMES)  # the whole model is compared as well


def test_what_null_means_is_compared() -> None:
    def known(X: Any) -> Any:
        return np.asarray(X, float) > 0

    sqlml.register_step(known, sql="{column} > 0")
    model = make_pipeline(FunctionTransformer(known), LogisticRegression())
    with pytest.raises(errors.UnsupportedModelError, match="gives NULL where .* gives 0.0"):
        sqlml.compile(model.fit(ROWS[["debt"]], Y))
    sqlml.register_step(known, sql="coalesce({column} > 0, FALSE)")
    same(model, ROWS[["debt"]])


def test_another_number_of_columns_is_found() -> None:
    sqlml.register_step(Ratio, sql={"a": "debt", "b": "debt / income"})
    with pytest.raises(errors.UnsupportedModelError, match=r"returns 2 columns, .* \(64, 1\)"):
        sqlml.compile(make_pipeline(Ratio(), LogisticRegression()).fit(ROWS, Y), inputs=NAMES)


def test_a_step_that_fails_on_made_up_rows_needs_verify_false() -> None:
    class Strict(Ratio):
        def transform(self, X: Any) -> Any:
            assert X["debt"].between(38, 42).all()
            return super().transform(X)

    rows = ROWS.assign(debt=40.0 + ROWS["income"] % 1)
    model = make_pipeline(Strict(), LogisticRegression()).fit(rows, Y)
    sqlml.register_step(Strict, sql="debt / income")
    with pytest.raises(errors.UnsupportedModelError, match="verify=False to trust the SQL"):
        sqlml.compile(model, inputs=NAMES)
    sqlml.register_step(Strict, sql="debt / income", verify=False)
    same(model, rows, inputs=NAMES)


def test_a_subclass_is_another_step() -> None:
    class Other(Ratio):
        pass

    sqlml.register_step(Ratio, sql="debt / income")
    model = make_pipeline(Other(), LogisticRegression()).fit(ROWS, Y)
    with pytest.raises(errors.UnsupportedModelError, match=r"register_step\(Other, sql=\.\.\.\)"):
        sqlml.compile(model, inputs=NAMES)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("debt //", "not an SQL expression"),
        ("debt, income", "not one SQL expression but several"),
        ("debt; DROP TABLE t", "not an SQL expression"),
        ("debt FROM t", "not an SQL expression over one row"),
        ("debt + np.float64(1.5)", "the repr of a numpy number"),
    ],
)
def test_what_is_no_expression_is_refused_at_once(sql: str, message: str) -> None:
    with pytest.raises(errors.UnsupportedModelError, match=message):
        sqlml.register_step(Ratio, sql=sql)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("dept / income", "no column 'dept'; .* did you mean 'debt'"),
        ("debt // income", r"write trunc\(a / b\)"),
        ("lower(region)", "cannot call lower"),
        ("sum(debt)", "cannot call sum"),
        ("(SELECT 1)", "not supported"),
        ("debt || 'x'", "not supported"),
        ("power(debt)", "power takes 2 arguments, not 1"),
        ("1", "reads none of the columns"),
        ("'x'", "returns a string"),
        ("region < 'a'", "orders strings"),
        ("CASE WHEN region = 'a' THEN region + 1 END", "used both as strings and as numbers"),
        ("if(debt > 1, 'b', 'c')", "the string 'c' is used as a number"),
        ("CAST(debt AS VARCHAR)", "casts to DOUBLE"),
        ("signup > DATE 'soon'", "not a date"),
        ("date_part('fortnight', signup)", "unknown date part"),
        ("date_diff('week', signup, signup)", "date_diff counts"),
    ],
)
def test_what_has_no_operators_is_told(sql: str, message: str) -> None:
    sqlml.register_step(Ratio, sql=sql)
    model = make_pipeline(Ratio(), LogisticRegression()).fit(ROWS, Y)
    with pytest.raises(errors.UnsupportedModelError, match=message):
        sqlml.compile(model, inputs=NAMES)


@pytest.mark.parametrize("sql", [3, None, {}, {"a": 1}, {1: "debt"}])
def test_sql_is_a_text_a_dict_or_a_function(sql: Any) -> None:
    with pytest.raises(errors.ConfigError, match="sql must be an expression, a dict"):
        sqlml.register_step(Ratio, sql=sql)
    sqlml.register_step(Ratio, sql=lambda step, columns: sql)
    model = make_pipeline(Ratio(), LogisticRegression()).fit(ROWS, Y)
    with pytest.raises(errors.UnsupportedModelError, match="the SQL of Ratio: sql must be"):
        sqlml.compile(model, inputs=NAMES)


def test_a_misspelt_placeholder_is_told_at_once() -> None:
    with pytest.raises(errors.ConfigError, match="unknown placeholder {colum}"):
        sqlml.register_step(Ratio, sql="{colum} + 1")


def test_an_object_is_not_registered() -> None:
    with pytest.raises(errors.ConfigError, match=r"a class or a function, not a Ratio"):
        sqlml.register_step(Ratio(), sql="debt")


EXPRESSIONS = """
x + y * 2 - -x / 3
x % y
fmod(x, 3) + mod(-x, 3)
pow(x, 2) + y ^ 3 + power(2, x) + x ** 2
abs(x) + sign(y) + floor(x) + ceil(y) + ceiling(x) + trunc(y)
round(x) + round(y, 2) + round(100 * x, -1)
sqrt(x) + cbrt(y) + ln(x) + log(y) + log10(x) + log2(x) + log(2, x) + exp(y)
sin(x) + cos(y) + tan(x) + cot(y) + asin(x) + acos(x) + atan(y)
sinh(x) + cosh(y) + tanh(x) + asinh(y) + acosh(x) + atanh(x) + degrees(x) + radians(y) + pi()
greatest(x, y, 0.5) + least(x, y, 0.5)
coalesce(x, y, 7) + ifnull(x, 1) + coalesce(nullif(round(x), 1), 9)
CASE WHEN x > y THEN 1 WHEN x IS NULL THEN 2 WHEN NOT (y <= 0 OR x = y) THEN 3 ELSE 4 END
CASE round(x) WHEN 0 THEN 10 WHEN 1 THEN 11 END
if(x > 0, y, 0)
CASE WHEN x BETWEEN 0 AND y THEN 1 ELSE 0 END + CASE WHEN x NOT BETWEEN 0 AND 1 THEN 1 ELSE 0 END
x IN (1, 2, y)
round(x) IN (1, NULL)
round(x) NOT IN (1, 2)
x > 0 AND y > 0
x > 0 OR y > 0
NOT (x > 0 AND y > 0)
(x > 0) IS TRUE
(x > 0) IS NOT FALSE
(x > 0) IS NULL
(x > 0) IS NOT NULL
x IS DISTINCT FROM y
round(x) IS NOT DISTINCT FROM round(y)
x <> y
x != y AND x >= y
CAST(CAST(x AS FLOAT) AS DOUBLE) + CAST(y * 10 AS INTEGER) + CAST(x > 0 AS INTEGER)
CAST(x AS BOOLEAN)
t = 'a'
t <> 'a'
'a' = t
t IN ('a', 'b')
t NOT IN ('a', 'b')
t IN ('a', NULL)
CASE t WHEN 'a' THEN x WHEN 'b' THEN y END
t = 'a' AND t IS NOT NULL
CASE WHEN t = 'a' THEN 1 WHEN t IS NULL THEN 2 END
year(d) + month(d) * 100 + dayofweek(d) + week(d)
date_part('minute', d) + extract(second FROM d)
d > TIMESTAMP '2020-06-01 12:00:00'
d BETWEEN DATE '2020-03-01' AND DATE '2020-09-01'
d = DATE '2020-03-01'
date_diff('month', d, DATE '2021-01-01') + datediff('day', DATE '2019-01-01', d)
date_diff('hour', d, TIMESTAMP '2021-01-01 00:30:00') + date_diff('year', d, DATE '2021-01-01')
if(d IS NULL, 0, month(d))
""".strip().splitlines()


def columns() -> Iterator[tuple[str, Any]]:
    """Numbers of both signs, whole and not, zeros, and missing values in all columns."""
    count = 400
    for name, seed in (("x", 1), ("y", 2)):
        random = np.random.default_rng(seed)
        numbers = np.concatenate(
            [random.normal(size=200), random.integers(-3, 4, 100), [0.5, -0.5, 2.5, -2.5] * 25]
        )
        yield name, np.where(random.random(count) < 0.1, np.nan, random.permutation(numbers))
    yield "t", np.random.default_rng(3).choice(np.array(["a", "b", "c", None], object), count)
    seconds = np.random.default_rng(4).integers(0, 366 * 86_400, count) * 1_000_000
    dates = (seconds + 1_577_836_800_000_000).astype("datetime64[us]")
    dates[:40] = np.datetime64("2020-03-01")
    gone = np.random.default_rng(5).random(count) < 0.1
    yield "d", np.where(gone, np.datetime64("NaT"), dates)


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    """What DuckDB makes of each expression, of rows with NULL and no NaN, as sqlml's have it."""
    rows = pd.DataFrame(dict(columns()))
    assert len(rows) == 400
    listed = ", ".join(f'CAST(({sql}) AS DOUBLE) AS "{k}"' for k, sql in enumerate(EXPRESSIONS))
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE t AS SELECT if(isnan(x), NULL, x) AS x, if(isnan(y), NULL, y) AS y, t, d "
            "FROM rows"
        )
        told = zip(*con.execute(f"SELECT {listed} FROM t").fetchall(), strict=True)
    return dict(zip(EXPRESSIONS, told, strict=True))


@pytest.mark.parametrize("sql", EXPRESSIONS)
def test_expressions_mean_what_they_mean_in_the_engine(sql: str, theirs: dict[str, Any]) -> None:
    inputs = dict(columns())
    micros = inputs["d"].astype(np.int64).astype(float)
    inputs["d"] = np.where(np.isnat(inputs["d"]), np.nan, micros)
    builder = Builder()
    (made,) = compile_expressions({"made": sql}, Frame.raw(builder, list(inputs)))
    program = builder.build({"made": made.matrix()})
    ours = reference.run(program, {n: inputs[n] for n in program.inputs})["made"][:, 0]
    want = np.array([np.nan if value is None else value for value in theirs[sql]])
    np.testing.assert_allclose(ours, want, rtol=1e-13)
