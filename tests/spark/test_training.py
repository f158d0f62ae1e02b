"""Training in Spark: in the executors by XGBoost, and in the driver by all else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sqlml
from sqlml import errors
from sqlml.spark import trainers

TABLE = """
    CREATE OR REPLACE TEMP VIEW trained AS SELECT id % 17 AS a,
        cast(if(id % 9 = 0, NULL, pmod(hash(id), 100)) AS double) AS x,
        element_at(array('u', 'v', 'w', NULL), cast(pmod(hash(id, 1), 4) + 1 AS int)) AS c,
        id % 2 = 0 AS flag, cast(id % 7 AS decimal(9, 2)) AS d, date '2024-01-01' AS day,
        pmod(hash(id, 2), 5) = 0 AS held,
        if(pmod(hash(id), 100) + if(pmod(hash(id, 1), 4) = 0, 30, 0) + id % 17 > 70, 'yes', 'no')
            AS y
    FROM range(3000)
"""
SPLIT = "label = 'y', split = 'custom', split_column = 'held'"


@pytest.fixture
def con(con: Any) -> Any:
    con.sql(TABLE)
    return con


def told(con: Any, options: str, query: str = "SELECT * FROM trained") -> list[tuple[str, str]]:
    """What CREATE MODEL m says."""
    made = con.sql(f"CREATE OR REPLACE MODEL m OPTIONS ({options}) AS {query}")
    return [tuple(row) for row in made.collect()]


@pytest.mark.nightly
def test_xgboost_trains_in_the_executors_as_by_hand(con: Any) -> None:
    from pyspark.sql import functions as f
    from xgboost.spark import SparkXGBClassifier

    options = "model_type = 'boosted_tree_classifier', n_estimators = 8, max_depth = 3"
    found = told(con, f"{options}, {SPLIT}, class_weights = [('yes', 2.0)], num_workers = 2")
    assert ("notice", "column 'day' is left out: models do not learn from DATE in Spark") in found
    nan = f.lit(float("nan"))
    code = {"u": 0.0, "v": 1.0, "w": 2.0}
    known = [f.when(f.col("c") == name, value) for name, value in code.items()]
    numbers = [f.coalesce(f.col(n).cast("double"), nan).alias(n) for n in ("a", "x", "d")]
    frame = con.spark.table("trained").select(
        *numbers,
        f.col("flag").cast("int").cast("double").alias("flag"),
        f.coalesce(*known, nan).alias("c"),
        "held",
        (f.col("y") == "yes").cast("double").alias("y"),
        f.when((f.col("y") == "yes") & ~f.col("held"), 2.0).otherwise(1.0).alias("weight"),
    )
    hand = SparkXGBClassifier(
        features_col=["a", "x", "flag", "d", "c"],
        feature_types=["q", "q", "q", "q", "c"],
        **{"label_col": "y", "weight_col": "weight", "validation_indicator_col": "held"},
        **{"n_estimators": 8, "max_depth": 3, "early_stopping_rounds": 10, "random_state": 0},
        **{"num_workers": 2, "tree_method": "hist", "verbose": False},
    ).fit(frame)
    booster = con.estimator("m").classifier_.named_steps["model"].get_booster()
    wanted = hand.get_booster()
    wanted.feature_names = None
    assert booster.get_dump() == wanted.get_dump()
    ours = con.sql("SELECT predict_proba('m', *)['yes'] AS p FROM trained").toPandas()["p"]
    theirs = hand.transform(frame).select("probability").toPandas()["probability"]
    assert np.allclose(ours, [p[1] for p in theirs], atol=1e-7)
    rounds = con.sql("SELECT loss, eval_loss FROM ml_training_info(MODEL m)").collect()
    history = hand.training_summary
    assert [r[0] for r in rounds] == history.train_objective_history["logloss"]
    assert [r[1] for r in rounds] == history.validation_objective_history["logloss"]
    assert con.sql("SELECT accuracy FROM ml_evaluate(MODEL m)").collect()[0][0] > 0.9


@pytest.mark.nightly
def test_a_regression_splits_by_a_hash_or_a_sequence_and_is_retrained(con: Any) -> None:
    options = "model_type = 'boosted_tree_regressor', label = 'z', n_estimators = 5"
    query = "SELECT a, x, c, a * 2.0 + coalesce(x, 9) AS z, a AS at FROM trained"
    found = dict(told(con, f"{options}, split = 'seq', split_column = 'at'", query))
    assert int(found["rows"].replace(",", "")) + int(found["held_out"]) == 3000
    assert 300 < int(found["held_out"]) < 700 and "mean_absolute_error" in found
    made = con.sql("SHOW CREATE MODEL m").collect()[0][-1]
    assert "num_workers = " in made
    con.sql(made.replace("MODEL m", "MODEL again").replace("`m`", "`again`"))
    same = "SELECT predict('m', *) = predict('again', *) AS e FROM trained"
    assert {row[0] for row in con.sql(same).collect()} == {True}
    retrained = con.sql("ALTER MODEL m RETRAIN PROMOTE IF r2_score >= CURRENT").collect()
    assert dict(map(tuple, retrained))["promoted"].startswith("yes")
    found = dict(told(con, options, "SELECT a, x, z FROM (" + query + ")"))
    assert 400 < int(found["held_out"]) < 800


@pytest.mark.nightly
def test_other_libraries_train_in_the_driver_as_in_duckdb(con: Any) -> None:
    rows = con.spark.sql("SELECT a, x, c, flag, d, held, y FROM trained").toArrow()
    with sqlml.connect() as own:
        own.register("trained", rows)
        for options in (
            "model_type = 'logistic_reg'",
            "model_type = 'boosted_tree_classifier', library = 'lightgbm', n_estimators = 5",
        ):
            found = told(con, f"{options}, {SPLIT}")
            query = "SELECT a, x, c, flag, d, held, y FROM trained"
            own.execute(f"CREATE OR REPLACE MODEL m OPTIONS ({options}, {SPLIT}) AS {query}")
            scored = "SELECT predict_proba('m', *)['yes'] AS p FROM trained"
            ours = con.sql(scored).toPandas()["p"]
            assert np.allclose(ours, own.execute(scored).df()["p"], rtol=1e-12)
            assert any("column 'day' is left out" in text for _, text in found)


@pytest.mark.nightly
def test_all_models_hold_out_the_same_rows_of_a_query(con: Any) -> None:
    from sklearn.linear_model import LogisticRegression

    con.sql(
        "CREATE OR REPLACE TEMP VIEW repeated AS SELECT a % 3 AS a, flag, map('k', a) AS other, "
        "if(pmod(hash(id), 10) < 3 + a % 3 * 2, 'yes', 'no') AS y FROM (SELECT *, "
        "row_number() OVER (ORDER BY a, x, c, day) AS id FROM trained)"
    )
    query = "SELECT * FROM repeated"
    sides = set()
    for options in (
        "model_type = 'boosted_tree_classifier', n_estimators = 3",
        "model_type = 'boosted_tree_classifier', library = 'lightgbm', n_estimators = 3",
        "model_type = 'logistic_reg', split = 'random'",
    ):
        found = dict(told(con, f"{options}, label = 'y'", query))
        sides.add((found["rows"], found["held_out"]))
        assert float(found["roc_auc"]) > 0.6
        split = con.sql("DESCRIBE MODEL m").filter("property = 'split'").collect()
        assert "sqlml" not in str(split)
    con.train(
        "m", LogisticRegression(), "SELECT a, flag, y FROM repeated", label="y", or_replace=True
    )
    ((rows, held_out),) = sides
    assert int(rows.replace(",", "")) + int(held_out) == 3000
    assert 0.19 * 3000 < int(held_out) < 0.21 * 3000


def test_an_estimator_of_pythons_trains_in_the_driver(con: Any) -> None:
    from sklearn.tree import DecisionTreeRegressor

    query = (
        "SELECT a, coalesce(x, 0) AS x, a * 2 + coalesce(x, 1) AS z FROM trained WHERE a > :least"
    )
    con.train("m", DecisionTreeRegressor(max_depth=4), query, label="z", parameters={"least": 3})
    assert len(con.sql("SELECT predict('m', *) FROM trained").collect()) == 3000


@pytest.mark.by_day(6)
@pytest.mark.parametrize(
    "statement, says",
    [
        (
            "CREATE MODEL n TRANSFORM (a, x + 1 AS x1) OPTIONS (model_type = 'logistic_reg', "
            "label = 'y') AS SELECT * FROM trained",
            "TRANSFORM uses DuckDB's functions",
        ),
        (
            "CREATE MODEL n OPTIONS (model_type = 'kmeans') AS SELECT a, x FROM trained",
            "KMeans trains in the driver, which fetches at most 100 rows",
        ),
        (
            f"CREATE MODEL n OPTIONS (model_type = 'boosted_tree_classifier', {SPLIT}) AS "
            "SELECT a, held, 'yes' AS y FROM trained",
            "'yes' in all rows: a classifier needs",
        ),
        (
            "CREATE MODEL n OPTIONS (model_type = 'boosted_tree_regressor', label = 'y') AS "
            "SELECT a, double('Infinity') AS x, a AS y FROM trained",
            "column 'x' has infinite values",
        ),
        (
            "CREATE MODEL n OPTIONS (model_type = 'boosted_tree_regressor', label = 'y') AS "
            "SELECT a, a, x AS y FROM trained",
            "several columns 'a'",
        ),
        (
            "CREATE MODEL n OPTIONS (model_type = 'boosted_tree_regressor', label = 'y') AS "
            "SELECT a, y FROM trained",
            "models predict numbers, and column 'y' has type VARCHAR",
        ),
        (
            "CREATE MODEL n OPTIONS (model_type = 'kmeans', num_workers = 2) AS SELECT a, x "
            "FROM trained",
            "option num_workers is only for boosted trees by xgboost",
        ),
        (
            "CREATE MODEL n OPTIONS (model_type = 'boosted_tree_classifier', label = 'y', "
            "tweedie_variance_power = 7, objective = 'nothing') AS SELECT a, y FROM trained",
            "XGBClassifier cannot be trained",
        ),
    ],
)
def test_what_spark_cannot_train_is_one_clear_error(
    con: Any, monkeypatch: pytest.MonkeyPatch, statement: str, says: str
) -> None:
    monkeypatch.setattr(trainers, "MAX_FETCHED_ROWS", 100)
    with pytest.raises(errors.SqlmlError, match=says):
        con.sql(statement)
    assert {row.name for row in con.sql("SHOW MODELS").collect()} == {"churn", "value"}


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    "options",
    [
        pytest.param("model_type = 'boosted_tree_classifier'", marks=pytest.mark.nightly),
        "model_type = 'logistic_reg'",
    ],
)
def test_rows_are_compared_with_those_of_the_training(con: Any, options: str) -> None:
    told(con, f"{options}, label = 'y', max_iterations = 3", "SELECT a, x, c, flag, y FROM trained")
    form = "SELECT input, value, is_anomaly FROM ml_validate_data_skew(MODEL m, {})"
    same = {row.input: row for row in con.sql(form.format("TABLE trained")).collect()}
    assert set(same) == {"a", "x", "c", "flag"}
    assert all(row.value < 1e-3 and not row.is_anomaly for row in same.values())
    other = con.sql(form.format("(SELECT a, x, 'u' AS c, flag FROM trained)")).collect()
    assert [row.input for row in other if row.is_anomaly] == ["c"]


@pytest.mark.by_day(2)
@pytest.mark.parametrize("cv", ["cv = 3", "cv = 3, cv_by = 'a'"])
def test_folds_are_measured_in_the_driver(con: Any, cv: str) -> None:
    options = f"model_type = 'boosted_tree_classifier', label = 'y', n_estimators = 3, {cv}"
    pairs = dict(told(con, options, "SELECT a, x, c, y FROM trained"))
    metrics = con.sql("SELECT * FROM ml_cross_validation(MODEL m)").collect()
    assert sum(row.rows for row in metrics) == 3000
    accuracy = np.mean([row.accuracy for row in metrics])
    assert float(pairs["accuracy"]) == pytest.approx(accuracy, rel=1e-4)
    with pytest.raises(errors.SqlmlError, match="ml_cross_predict works in DuckDB"):
        con.sql("SELECT * FROM ml_cross_predict(MODEL m)")
