"""Functions of one model each, in queries of the SparkSession itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from skl2onnx import to_onnx
from sklearn.linear_model import LinearRegression, LogisticRegression

import sqlml
from tests.spark.conftest import FEATURES, NUMBERS


def test_plain_queries_call_a_function_for_each_model(
    con: Any, spark: Any, frame: pd.DataFrame, churn: Any, value: Any
) -> None:
    found = spark.sql(
        "SELECT predict_churn(age, income, plan) AS a, predict_churn(plan => plan, age => age, "
        "income => income) AS b, predict_proba_churn(age, income, plan)['yes'] AS p, "
        "predict_value(age, income) AS v FROM customers ORDER BY id"
    ).collect()
    label = list(churn.predict(frame[FEATURES]))
    assert [row.a for row in found] == [row.b for row in found] == label
    want = churn.predict_proba(frame[FEATURES])[:, 1]
    np.testing.assert_allclose([row.p for row in found], want, rtol=1e-12)
    np.testing.assert_allclose([r.v for r in found], value.predict(frame[NUMBERS]), rtol=1e-9)


def test_spark_sees_through_them(con: Any, spark: Any) -> None:
    plan = spark.sql(
        "EXPLAIN FORMATTED SELECT predict_churn(age, income, plan), "
        "upper(predict_churn(age, income, plan)) FROM customers"
    ).collect()[0][0]
    assert "ReadSchema: struct<age:double,income:double,plan:string>" in plan
    (evaluated,) = re.findall(r"Arguments: \[(sqlml_.*)\], \[pythonUDF", plan)
    assert evaluated.count("sqlml_") == 1


def test_they_follow_the_model(con: Any, spark: Any, tmp_path: Path) -> None:
    def answer(name: str) -> float:
        return float(spark.sql(f"SELECT predict_{name}(1, 0)").collect()[0][0])

    assert answer("value") == pytest.approx(2.0)
    other = LinearRegression().fit([[0.0, 0.0], [1.0, 0.0]], [0.0, 5.0])
    con.create_model("value", other, inputs=NUMBERS, or_replace=True)
    assert answer("value") == pytest.approx(5.0)
    con.sql("ALTER MODEL value SET DEFAULT_VERSION = 1")
    assert answer("value") == pytest.approx(2.0)
    con.sql("ALTER MODEL value RENAME TO worth")
    assert answer("worth") == pytest.approx(2.0)
    assert not spark.catalog.functionExists("predict_value")
    con.sql("DROP MODEL worth")
    assert not spark.catalog.functionExists("predict_worth")
    assert not spark.catalog.functionExists("predict_proba_value")
    with sqlml.attach(spark, catalog=tmp_path / "models"):
        assert spark.catalog.functionExists("predict_proba_churn")


def test_a_name_that_two_models_mean_has_no_function(con: Any, spark: Any, value: Any) -> None:
    """predict_proba of churn, or predict of proba_churn."""
    name = "predict_proba_churn"
    assert spark.catalog.functionExists(name)
    con.create_model("proba_churn", value, verify=False)
    assert not spark.catalog.functionExists(name)
    assert spark.catalog.functionExists("predict_churn")
    con.sql("DROP MODEL proba_churn")
    assert spark.catalog.functionExists(name)
    con.create_model("proba_churn", value, verify=False)
    con.sql("DROP MODEL churn")
    assert spark.sql(f"SELECT {name}(1, 0)").collect()[0][0] == pytest.approx(2.0)


def test_functions_of_others_stay(con: Any, spark: Any, value: Any, tmp_path: Path) -> None:
    """The user's own, and those of an open session on another directory."""
    spark.udf.register("predict_mine", lambda a, b: "mine")
    with pytest.warns(UserWarning, match=r"predict_mine\(\.\.\.\) is not available"):
        con.create_model("mine", value, verify=False)
    assert con.sql("SELECT predict('mine', 1, 0), predict_mine(1, 0)").collect()[0][1] == "mine"
    con.sql("DROP MODEL mine")
    assert spark.catalog.functionExists("predict_mine")
    spark.sql("DROP TEMPORARY FUNCTION predict_mine")

    other = LinearRegression().fit([[0.0, 0.0], [1.0, 0.0]], [0.0, 100.0])
    with sqlml.attach(spark, catalog=tmp_path / "others") as second:
        with pytest.warns(UserWarning, match="predict_value"):
            second.create_model("value", other, inputs=NUMBERS, verify=False)
        assert con.sql("SELECT predict_value(1, 0)").collect()[0][0] == pytest.approx(2.0)
        second.sql("DROP MODEL value")
        assert con.sql("SELECT predict_value(1, 0)").collect()[0][0] == pytest.approx(2.0)
        con.close()
        second.create_model("value", other, inputs=NUMBERS, verify=False)
        assert spark.sql("SELECT predict_value(1, 0)").collect()[0][0] == pytest.approx(100.0)
        second.sql("DROP MODEL value")


def test_an_onnx_file_keeps_its_labels_and_numbers_its_columns(
    con: Any, spark: Any, frame: pd.DataFrame, tmp_path: Path
) -> None:
    x = frame[NUMBERS].to_numpy(np.float32)
    model = LogisticRegression().fit(x, np.where(frame.age > frame.age.median(), 7, -2))
    path = tmp_path / "model.onnx"
    path.write_bytes(to_onnx(model, x[:1]).SerializeToString())
    con.sql(f"CREATE MODEL graph FROM '{path}'")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    labels, maps = session.run(None, {"X": x})
    found = con.sql(
        "SELECT predict('graph', age, income) AS label, predict_proba('graph', age, income) AS p, "
        "predict_proba('graph', age, income, class => 7) AS one FROM customers ORDER BY id"
    ).collect()
    assert [row.label for row in found] == labels.tolist()
    assert {tuple(row.p) for row in found} == {(-2, 7)}
    np.testing.assert_allclose([row.one for row in found], [m[7] for m in maps], atol=1e-6)
