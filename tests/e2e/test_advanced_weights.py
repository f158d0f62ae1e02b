"""Standard errors and p-values of linear models, compared with statsmodels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import sqlml
from sqlml.errors import SqlmlError

RNG = np.random.default_rng(2)
ROWS = pd.DataFrame(RNG.normal(size=(250, 2)) * [1, 40] + [3, 100], columns=["a", "b"])
ROWS["s"] = np.array(["north", "south", "west"])[RNG.integers(0, 3, 250)]
ROWS["w"] = RNG.integers(0, 4, 250)
ROWS["z"] = ROWS["a"] - ROWS["b"] / 30 + (ROWS["s"] == "west") + RNG.normal(size=250)
ROWS["y"] = np.where(ROWS["z"] + RNG.normal(size=250) > 0, "yes", "no")
DESIGN = sm.add_constant(
    np.column_stack((ROWS[["a", "b"]], ROWS["s"] == "south", ROWS["s"] == "west")).astype(float)
)


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as session:
        session.register("pandas_rows", ROWS)
        session.execute("CREATE TABLE t AS SELECT row_number() OVER () AS id, * FROM pandas_rows")
        yield session


def train(con: sqlml.Session, kind: str, columns: str, options: str = "") -> list[tuple[Any, ...]]:
    con.execute(
        f"CREATE OR REPLACE MODEL m OPTIONS (model_type = '{kind}', calculate_p_values = true, "
        f"split = 'none'{options}) AS SELECT {columns} FROM t"
    )
    return con.execute("FROM ML.ADVANCED_WEIGHTS(MODEL m)").fetchall()


def check(rows: list[tuple[Any, ...]], result: Any, rtol: float = 1e-8) -> None:
    values = np.array([row[2:] for row in rows])
    np.testing.assert_allclose(values[:, 0], result.params, rtol=rtol)
    np.testing.assert_allclose(values[:, 1], result.bse, rtol=rtol)
    np.testing.assert_allclose(values[:, 2], result.pvalues, rtol=1e-6)


@pytest.mark.parametrize("standardize", ["true", "false"])
def test_linear_regression(con: sqlml.Session, standardize: str) -> None:
    options = f", label = 'z', standardize_features = {standardize}"
    rows = train(con, "linear_reg", "a, b, s, z", options)
    check(rows, sm.OLS(ROWS["z"], DESIGN).fit())
    inputs = [("__INTERCEPT__", None), ("a", None), ("b", None), ("s", "south"), ("s", "west")]
    assert [row[:2] for row in rows] == inputs


def test_weighted_rows(con: sqlml.Session) -> None:
    """As in statsmodels without them, rows with a weight of 0 do not count."""
    rows = train(con, "linear_reg", "a, b, s, z, w", ", label = 'z', weight = 'w'")
    seen = ROWS["w"].to_numpy() > 0
    check(rows, sm.WLS(ROWS["z"][seen], DESIGN[seen], weights=ROWS["w"][seen]).fit())


def test_logistic_regression(con: sqlml.Session) -> None:
    rows = train(con, "logistic_reg", "a, b, s, y", ", label = 'y'")
    result = sm.Logit(ROWS["y"] == "yes", DESIGN).fit(disp=False, method="newton", tol=1e-14)
    check(rows, result, rtol=1e-6)
    probability = con.execute("SELECT predict_proba('m', *)['yes'] FROM t ORDER BY id").fetchall()
    np.testing.assert_allclose(np.ravel(probability), result.predict(DESIGN), rtol=1e-6)


def test_standardized_weights(con: sqlml.Session) -> None:
    train(con, "linear_reg", "a, b, z", ", label = 'z'")
    sql = "SELECT * FROM ML.ADVANCED_WEIGHTS(MODEL m, STRUCT(true AS standardize))"
    X = ROWS[["a", "b"]].to_numpy()
    standardized = sm.add_constant((X - X.mean(axis=0)) / X.std(axis=0))
    check(con.execute(sql).fetchall(), sm.OLS(ROWS["z"], standardized).fit())
    weights = con.execute("SELECT weight FROM ml_weights(MODEL m)").fetchall()
    assert [(row[2],) for row in con.execute(sql).fetchall()] == weights


@pytest.mark.parametrize(
    ("kind", "columns", "options", "message"),
    [
        ("linear_reg", "a, 2 * a AS c, z", "label = 'z'", "linearly dependent"),
        ("linear_reg", "a, z", "label = 'z', l2_reg = 1", "l2_reg cannot be combined"),
        ("linear_reg", "a, s, z", "label = 'z', encoding = 'one_hot'", "needs category_encoding"),
        ("linear_reg", "a, nullif(s, 'west') AS s, z", "label = 'z'", "'s' has NULLs"),
        ("logistic_reg", "a, s", "label = 's'", "needs a label of two classes"),
        ("logistic_reg", "a, a > 3 AS y", "label = 'y'", "separate the classes"),
        ("boosted_tree_regressor", "a, z", "label = 'z'", "only linear models have it"),
    ],
)
def test_errors(con: sqlml.Session, kind: str, columns: str, options: str, message: str) -> None:
    with pytest.raises(SqlmlError, match=message):
        train(con, kind, columns, f", {options}")


def test_models_without_standard_errors(con: sqlml.Session) -> None:
    con.execute(
        "CREATE MODEL plain OPTIONS (model_type = 'linear_reg', label = 'z') AS SELECT a, z FROM t"
    )
    with pytest.raises(SqlmlError, match="calculate_p_values = true"):
        con.execute("FROM ml_advanced_weights(MODEL plain)")


def test_categories_that_are_left_out(con: sqlml.Session) -> None:
    """The first category is left out, and categories that training did not see count as it."""
    con.execute(
        "CREATE MODEL dummies OPTIONS (model_type = 'linear_reg', label = 'z', "
        "category_encoding_method = 'DUMMY_ENCODING') AS SELECT s, z FROM t"
    )
    weights = con.execute("SELECT category FROM ml_weights(MODEL dummies)").fetchall()
    assert weights == [(None,), ("south",), ("west",)]
    sql = "SELECT predict('dummies', s := 'east') = predict('dummies', s := 'north')"
    assert con.execute(sql).fetchone() == (True,)
