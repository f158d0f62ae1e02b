"""EXPORT MODEL .. (DIALECT spark), run by Spark without sqlml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sqlml
from tests.databases.families import FAMILIES, NAMES, boosted, model, moments, of_dates, rows


def load(spark: Any, frame: Any) -> None:
    """The view `exported` of a frame, with the number of each row as `id`."""
    table = frame.astype(object).where(frame.notna(), None).assign(id=np.arange(len(frame)))
    kinds = ", ".join(f"`{n}` {'STRING' if n == 'kind' else 'DOUBLE'}" for n in frame)
    spark.createDataFrame(table, f"{kinds}, id BIGINT").createOrReplaceTempView("exported")


@pytest.mark.by_day(12)
@pytest.mark.parametrize("name", ["xgboost", *FAMILIES])
def test_a_model_answers_as_its_library(spark: Any, tmp_path: Path, name: str) -> None:
    fitted = boosted("binary:logistic") if name == "xgboost" else model(name)
    columns, refuses = (NAMES, False) if name == "xgboost" else FAMILIES[name][2:]
    frame = rows(10_000)[columns].head(2000)
    frame = frame.dropna(ignore_index=True) if refuses else frame
    with sqlml.connect() as con:
        con.create_model("m", fitted, verify=False)
        con.execute(
            f"EXPORT MODEL m TO '{tmp_path}/m.sql' (DIALECT spark, TABLE exported, COLUMNS (id))"
        )
    load(spark, frame)
    query = (tmp_path / "m.sql").read_text(encoding="utf-8").rstrip().rstrip(";")
    got = spark.sql(query).toPandas().sort_values("id")
    spark.catalog.dropTempView("exported")
    labels = fitted.predict(frame)
    if labels.dtype.kind == "f":
        np.testing.assert_allclose(got["predicted_label"].astype(float), labels, rtol=1e-12)
    else:
        assert got["predicted_label"].tolist() == labels.tolist()
    if name == "xgboost":
        margin = fitted.predict(frame, output_margin=True)
        np.testing.assert_array_equal(got["score"].astype(float), margin.astype(float))


def test_dates_are_read_to_the_microsecond(spark: Any) -> None:
    frame, fitted = moments(2000).dropna(ignore_index=True), of_dates()
    query = sqlml.compile(fitted).to_sql("spark", table="exported", columns=["id"])
    table = frame.assign(id=np.arange(len(frame)))
    spark.createDataFrame(table, "at TIMESTAMP_NTZ, id BIGINT").createOrReplaceTempView("exported")
    got = spark.sql(query.rstrip().rstrip(";")).toPandas().sort_values("id")["predicted_label"]
    spark.catalog.dropTempView("exported")
    np.testing.assert_allclose(got.astype(float), fitted.predict(frame), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["one-hot", pytest.param("boosting", marks=pytest.mark.nightly)])
def test_functions_answer_as_the_library(spark: Any, name: str) -> None:
    fitted, columns = model(name), FAMILIES[name][2]
    frame = rows(10_000)[columns].head(200).dropna(ignore_index=True)
    statements = sqlml.compile(fitted, inputs=columns).to_sql("spark", name="exported_m")
    for statement in statements.split(";\n\n"):
        spark.sql(statement.strip().rstrip(";"))
    load(spark, frame)
    called = ", ".join(f"`{column}`" for column in columns)
    asked = (
        f"exported_m({called}) AS label, `exported_m_probability_{fitted.classes_[0]}`({called})"
    )
    got = spark.sql(f"SELECT id, {asked} AS p FROM exported").toPandas().sort_values("id")
    for output in fitted.classes_:
        spark.sql(f"DROP FUNCTION `exported_m_probability_{output}`")
    spark.sql("DROP FUNCTION exported_m")
    spark.catalog.dropTempView("exported")
    assert got["label"].tolist() == fitted.predict(frame).tolist()
    np.testing.assert_allclose(got["p"], fitted.predict_proba(frame)[:, 0], rtol=1e-11)
