"""`ml_evaluate` and the curves in Spark: the numbers that they have in DuckDB."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

import sqlml
from sqlml import errors

SMALL: dict[str, Any] = {"n_estimators": 5, "max_depth": 3, "random_state": 0}
DAILY = (
    "ml_evaluate(MODEL answers, TABLE shop, label := 'answer', by := 'region', class := 'no')",
    "ml_evaluate(MODEL grades, TABLE shop, label := 'grade', per_class := true)",
)
NIGHTLY = (
    "ml_evaluate(MODEL answers, TABLE shop, label := 'answer', weight := 'worth')",
    "ml_evaluate(MODEL prices, TABLE shop, label := 'price', by := 'region')",
    "ml_evaluate(MODEL both, TABLE shop, label := ARRAY('price', 'a'))",
    "ml_evaluate(MODEL groups, TABLE shop, label := 'grade')",
    "ml_confusion_matrix(MODEL grades, TABLE shop, label := 'grade')",
    "ml_roc_curve(MODEL answers, (SELECT * FROM shop WHERE a > 0), label := 'answer')",
    "ml_pr_curve(MODEL grades, TABLE shop, label := 'grade', class := 5, points := 7)",
    "ml_calibration_curve(MODEL answers, TABLE shop, label := 'answer', quantiles := true)",
    "ml_lift(MODEL answers, TABLE shop, label := 'answer', bins := 5)",
)


def _rows() -> pd.DataFrame:
    draw = np.random.default_rng(2)
    made = pd.DataFrame(draw.normal(size=(300, 3)).round(1), columns=["a", "b", "c"])
    made["answer"] = np.where(made.a + draw.normal(size=300) > 0, "yes", "no")
    made["grade"] = (made.b + draw.normal(size=300)).clip(-1, 1).round().astype(int) + 5
    made["price"] = made.a * 2 + draw.normal(size=300)
    made["worth"] = draw.random(300)
    made["region"] = draw.choice(["north", "south"], 300)
    return made


@pytest.fixture(scope="module")
def sessions(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    rows = _rows()
    X = rows[["a", "b", "c"]]
    models = {
        "answers": RandomForestClassifier(**SMALL).fit(X, rows.answer),
        "grades": RandomForestClassifier(**SMALL).fit(X, rows.grade),
        "prices": RandomForestRegressor(**SMALL).fit(X, rows.price),
        "both": RandomForestRegressor(**SMALL).fit(X, rows[["price", "a"]]),
        "groups": KMeans(3, random_state=0).fit(X),
    }
    there = sqlml.attach(spark, catalog=tmp_path_factory.mktemp("evaluated"))
    with sqlml.connect() as here:
        here.register("frame", rows)
        here.execute("CREATE TABLE shop AS FROM frame")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            spark.createDataFrame(rows).createOrReplaceTempView("shop")
        for name, model in models.items():
            here.create_model(name, model, verify=False)
            there.create_model(name, model, verify=False)
        yield there, here
    there.close()


@pytest.mark.by_day(3)
@pytest.mark.parametrize(
    "form", [*DAILY, *(pytest.param(form, marks=pytest.mark.nightly) for form in NIGHTLY)]
)
def test_the_numbers_are_those_of_duckdb(sessions: Any, form: str) -> None:
    there, here = sessions
    wanted = here.sql(f"FROM {form}").df()
    found = there.sql(f"SELECT * FROM {form}").toPandas()
    assert list(found.columns) == list(wanted.columns)
    texts = [name for name in wanted.columns if pd.api.types.is_string_dtype(wanted[name])]
    keys = texts or list(wanted.columns)
    found, wanted = (d.sort_values(keys, ignore_index=True) for d in (found, wanted))
    for name in wanted.columns:
        if name in texts:
            assert found[name].tolist() == wanted[name].tolist()
        else:
            told = (d[name].to_numpy(float, na_value=np.nan) for d in (found, wanted))
            np.testing.assert_allclose(*told, rtol=1e-12, err_msg=name)


def test_errors(sessions: Any, tmp_path: Path) -> None:
    there, _ = sessions
    with pytest.raises(errors.BindError, match="no column 'nope'"):
        there.sql("SELECT * FROM ml_evaluate(MODEL answers, TABLE shop, label := 'nope')")
    with pytest.raises(Exception, match="is not a class of model 'answers'"):
        there.sql(
            "SELECT * FROM ml_evaluate(MODEL answers, TABLE shop, label := 'region')"
        ).collect()
    with pytest.raises(errors.BindError, match="unknown function ML.FORECAST"):
        there.sql("SELECT * FROM ML.FORECAST(MODEL answers)")


@pytest.mark.nightly
def test_tables_are_described_and_compared(sessions: Any) -> None:
    there, here = sessions
    form = "ml_validate_data_drift(TABLE shop, (SELECT * FROM shop WHERE a > 0))"
    wanted = {row[0]: row for row in here.sql(f"FROM {form}").fetchall()}
    for row in there.sql(f"SELECT * FROM {form}").collect():
        for found, known in zip(row, wanted[row.input], strict=True):
            assert found == (known if isinstance(known, str | None) else pytest.approx(known))
    form = "ml_describe_data(TABLE shop, top_k := 2)"
    wanted = {row[0]: row for row in here.sql(f"FROM {form}").fetchall()}
    rows = {row.name: row for row in there.sql(f"SELECT * FROM {form}").collect()}
    assert rows["a"].mean == pytest.approx(wanted["a"][7]) and rows["a"].num_nulls == 0
    assert [tuple(value) for value in rows["answer"].top_values] == [
        tuple(value.values()) for value in wanted["answer"][-1]
    ]


def test_predictions_in_columns(con: Any) -> None:
    """The classes are read when the query is planned."""
    con.sql(
        "SELECT *, predict('churn', *) AS hat, predict_proba('churn', *) AS ps FROM customers"
    ).createOrReplaceTempView("scored_customers")
    columns = "prediction := 'hat', probability := 'ps'"
    labelled = "(SELECT *, CASE WHEN age > 45 THEN 'yes' ELSE 'it\\'s no' END AS y FROM {})"
    (expected,) = con.sql(
        f"FROM ml_evaluate(MODEL churn, {labelled.format('customers')}, label := 'y')"
    ).collect()
    (got,) = con.sql(
        f"FROM ml_evaluate({labelled.format('scored_customers')}, label := 'y', {columns})"
    ).collect()
    assert got.asDict() == pytest.approx(expected.asDict())
