"""Prediction intervals and sets in Spark SQL, beside those that DuckDB computes."""

from __future__ import annotations

import math
from typing import Any

import pytest

import sqlml
from sqlml.errors import BindError, ConfigError
from tests.e2e.test_conformal import (
    CALIBRATION,
    CLASSIFIER,
    FRESH,
    REGRESSOR,
    calibrate,
    fetch,
    fill,
)


@pytest.fixture
def models(con: Any, spark: Any) -> Any:
    """The models and tables of `fill` in Spark, calibrated there."""
    con.create_model("conformal_m", REGRESSOR)
    con.create_model("conformal_k", CLASSIFIER)
    for name, rows in (("calibration", CALIBRATION), ("fresh", FRESH)):
        rows = rows.assign(number=range(len(rows)))
        spark.createDataFrame(rows).createOrReplaceTempView(f"conformal_{name}")
    return con


@pytest.mark.parametrize("options", ["label = 'y'", "label = 'y', by = 'region'"])
def test_intervals_are_those_of_duckdb(models: Any, options: str) -> None:
    models.sql(
        "ALTER MODEL conformal_m CALIBRATE USING (SELECT * FROM conformal_calibration) "
        f"OPTIONS ({options})"
    )
    rows = models.sql(
        "SELECT predict_interval('conformal_m', *, coverage := 0.8) AS i FROM conformal_fresh "
        "ORDER BY number"
    ).collect()
    with sqlml.connect() as other:
        fill(other)
        calibrate(other, options)
        expected = fetch(
            other, "SELECT predict_interval('m', *, coverage := 0.8) FROM fresh ORDER BY rowid"
        )
    for row, (interval,) in zip(rows, expected, strict=True):
        assert row.i.lower == pytest.approx(interval["lower"])
        assert row.i.upper == pytest.approx(interval["upper"])


def test_sets_are_those_of_duckdb(models: Any) -> None:
    models.sql(
        "ALTER MODEL conformal_k CALIBRATE USING (SELECT * FROM conformal_calibration) "
        "OPTIONS (label = 'k')"
    )
    rows = models.sql(
        "SELECT predict_set('conformal_k', *) AS s FROM conformal_fresh ORDER BY number"
    ).collect()
    with sqlml.connect() as other:
        fill(other)
        calibrate(other, "label = 'k'", "k")
        expected = fetch(other, "SELECT predict_set('k', *) FROM fresh ORDER BY rowid")
    assert [(row.s,) for row in rows] == expected


def test_a_coverage_per_row_and_an_evaluation(models: Any) -> None:
    models.sql(
        "ALTER MODEL conformal_m CALIBRATE USING (SELECT * FROM conformal_calibration) "
        "OPTIONS (label = 'y', by = 'region')"
    )
    ((width,), (unbounded,)) = models.sql(
        "SELECT i.upper - i.lower FROM (SELECT predict_interval('conformal_m', a := 0, b := 0, "
        "region := r, coverage := c) AS i FROM VALUES ('north', 0.5), ('mars', 0.5) AS t(r, c))"
    ).collect()
    assert 0 < width < math.inf and unbounded == math.inf
    (evaluated,) = models.sql(
        "SELECT coverage, mean_width FROM ml_evaluate(MODEL conformal_m, TABLE conformal_fresh, "
        "label := 'y', coverage := 0.8)"
    ).collect()
    assert 0.7 < evaluated.coverage < 0.92
    with pytest.raises(BindError, match="coverage 0.9999 needs 9,999 calibration rows"):
        models.sql(
            "SELECT predict_interval('conformal_m', *, coverage := 0.9999) FROM conformal_fresh"
        )


def test_training_in_spark_keeps_no_rows(models: Any) -> None:
    with pytest.raises(ConfigError, match="option calibration is not available in Spark"):
        models.sql(
            "CREATE MODEL never OPTIONS (model_type = 'linear_reg', label = 'y', calibration = "
            "'split') AS SELECT a, b, y FROM conformal_calibration"
        )
