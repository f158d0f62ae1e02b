"""EXPORT MODEL .. (DIALECT spark), run by Spark without sqlml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sqlml
from tests.databases.families import FAMILIES, NAMES, boosted, model, rows


@pytest.mark.by_day(6)
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
    table = frame.astype(object).where(frame.notna(), None).assign(id=np.arange(len(frame)))
    kinds = ", ".join(f"`{n}` {'STRING' if n == 'kind' else 'DOUBLE'}" for n in columns)
    spark.createDataFrame(table, f"{kinds}, id BIGINT").createOrReplaceTempView("exported")
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
