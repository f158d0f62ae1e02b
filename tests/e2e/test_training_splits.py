"""Rows that repeat: each side of a split has them as the whole has, whatever trains on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import sqlml

ROWS = 6_000
TABLE = f"""
    CREATE TABLE repeated AS SELECT
        (hash(i, 1) % 4)::INTEGER AS a,
        ['x', 'y', 'z'][(hash(i, 2) % 3)::INTEGER + 1] AS b,
        hash(i, 3) % 100 < 20 + 20 * (hash(i, 1) % 4) AS y,
        (20 + 20 * a + hash(i, 3) % 3)::DOUBLE AS z
    FROM range({ROWS}) t(i)
"""


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with sqlml.connect() as made:
        made.execute(TABLE)
        yield made


@pytest.mark.parametrize(
    "options",
    [
        "model_type = 'boosted_tree_classifier', library = 'xgboost', n_estimators = 20",
        "model_type = 'boosted_tree_classifier', library = 'xgboost', n_estimators = 20, "
        "out_of_core = true, split = 'random'",
        "model_type = 'boosted_tree_classifier', library = 'lightgbm', n_estimators = 20",
        "model_type = 'boosted_tree_classifier', library = 'lightgbm', n_estimators = 20, "
        "out_of_core = true",
        "model_type = 'boosted_tree_classifier', library = 'catboost', iterations = 20",
        "model_type = 'random_forest_classifier', n_estimators = 5",
        "model_type = 'logistic_reg'",
        "model_type = 'logistic_reg', out_of_core = true",
        "model_type = 'boosted_tree_classifier', n_estimators = 5, num_trials = 2, "
        "max_depth = hparam_range(2, 4)",
    ],
)
def test_a_model_of_rows_that_repeat_is_as_good_on_those_held_out(con: Any, options: str) -> None:
    query = "SELECT a, b, y FROM repeated"
    told = dict(
        con.execute(
            f"CREATE OR REPLACE MODEL m OPTIONS ({options}, label = 'y') AS {query}"
        ).fetchall()
    )
    held_out = int(told["held_out"].replace(",", ""))
    assert 0.19 * ROWS < held_out < 0.21 * ROWS
    assert float(told["roc_auc"]) > 0.7
    # The engine finds the same rows, so that it measures the same.
    columns = con.execute("FROM ml_evaluate(MODEL m)").description
    row = con.execute("FROM ml_evaluate(MODEL m)").fetchone()
    again = dict(zip((c[0] for c in columns), row, strict=True))
    assert again["rows"] == held_out
    assert again["roc_auc"] == pytest.approx(float(told["roc_auc"]), rel=1e-4)


def test_rows_in_another_order_are_held_out_alike(con: Any) -> None:
    def measure(query: str) -> Any:
        options = "model_type = 'linear_reg', label = 'z'"
        con.execute(f"CREATE OR REPLACE MODEL m OPTIONS ({options}) AS {query}")
        columns = "rows, mean_absolute_error, r2_score"
        return con.execute(f"SELECT {columns} FROM ml_evaluate(MODEL m)").fetchone()

    query = "SELECT a, b, z FROM repeated"
    first = measure(query)
    assert measure(f"{query} ORDER BY hash(a, b, z, 5)") == pytest.approx(first, rel=1e-9)


def test_promotion_compares_on_held_out_rows_of_all_kinds(con: Any) -> None:
    options = "model_type = 'boosted_tree_classifier', n_estimators = 1, max_depth = 1"
    query = "SELECT a, b, y FROM repeated"
    con.execute(
        f"CREATE OR REPLACE MODEL m OPTIONS ({options}, label = 'y') AS {query} WHERE a < 2"
    )
    retrain = f"ALTER MODEL m RETRAIN AS {query} PROMOTE IF roc_auc"
    first = dict(con.execute(f"{retrain} > 0.7").fetchall())["promoted"]
    again = dict(con.execute(f"{retrain} > CURRENT").fetchall())["promoted"]
    assert first.startswith("yes: roc_auc 0.7")
    # The same rows are held out again, and the same model is no better on them.
    value = first.split()[2]
    assert again == f"no: roc_auc {value} is not > {value}"


def test_preprocessors_look_at_the_rows_that_are_fitted_to(con: Any) -> None:
    con.execute(
        "CREATE OR REPLACE MODEL m TRANSFORM (ml_max_abs_scaler(a) OVER () AS a, b, y) "
        "OPTIONS (model_type = 'logistic_reg', label = 'y') AS SELECT a, b, y FROM repeated"
    )
    con.execute(
        "CREATE OR REPLACE MODEL n OPTIONS (model_type = 'logistic_reg', label = 'y') "
        "AS SELECT a, b, y FROM repeated"
    )
    m, n = (
        con.execute(f"SELECT rows, roc_auc FROM ml_evaluate(MODEL {k})").fetchone() for k in "mn"
    )
    assert m == pytest.approx(n, rel=1e-6)


def test_an_estimator_of_pythons_is_measured_on_rows_of_all_kinds(con: Any) -> None:
    from sklearn.tree import DecisionTreeClassifier

    query = "SELECT a, y FROM repeated"
    con.train("m", DecisionTreeClassifier(max_depth=3), query, label="y", or_replace=True)
    rows, auc = con.execute("SELECT rows, roc_auc FROM ml_evaluate(MODEL m)").fetchone()
    assert 0.19 * ROWS < rows < 0.21 * ROWS and auc > 0.7
