"""Metrics as aggregates in Spark SQL, beside scikit-learn."""

from __future__ import annotations

from typing import Any

import pytest

from sqlml.planner.syntax.arguments import METRICS
from tests.e2e.test_metric_aggregates import CURVES, REGRESSION, ROWS, arguments, close, compute


@pytest.fixture
def scored(con: Any, spark: Any) -> Any:
    spark.createDataFrame(ROWS).createOrReplaceTempView("scored_rows")
    return con


def test_groups_have_the_metrics_of_the_library(scored: Any) -> None:
    calls = [f"{name}({arguments(name)})" for name in METRICS]
    calls += [f"{call} FILTER (WHERE w > :bound)" for call in calls]
    sql = f"SELECT g, {', '.join(calls)} FROM scored_rows GROUP BY g"
    for row in scored.sql(sql, {"bound": 1.5}).collect():
        group = ROWS[row.g == ROWS.g]
        expected = [compute(n, rows) for rows in (group, group[group.w > 1.5]) for n in METRICS]
        assert list(row)[1:] == close(expected)


def test_weights_windows_and_classes(scored: Any) -> None:
    calls = [f"{name}({arguments(name)}, weight => w)" for name in METRICS]
    row = scored.sql(f"SELECT {', '.join(calls)} FROM scored_rows").collect()[0]
    assert list(row) == close([compute(name, ROWS, sample_weight=ROWS.w) for name in METRICS])
    names = [name for name in METRICS if name not in CURVES]
    calls = [f"{name}({arguments(name)}) OVER (PARTITION BY g)" for name in names]
    row = scored.sql(f"SELECT g, {', '.join(calls)} FROM scored_rows LIMIT 1").collect()[0]
    assert list(row)[1:] == close([compute(name, ROWS[row.g == ROWS.g]) for name in names])
    names = [name for name in METRICS if name not in REGRESSION]
    calls = [f"{name}(answer, p, class => 'yes')" for name in names]
    row = scored.sql(f"SELECT {', '.join(calls)} FROM scored_rows").collect()[0]
    assert list(row) == close([compute(name, ROWS) for name in names])


def test_one_class_and_positional_parameters(scored: Any) -> None:
    sql = "SELECT roc_auc(true, p), average_precision(false, p), mae(v, NULL) FROM scored_rows"
    assert list(scored.sql(sql).collect()[0]) == [None, 0, None]
    found = scored.sql("SELECT mae(v, ?) FILTER (WHERE w > ?) FROM scored_rows", [1.0, 1.5])
    assert found.collect()[0][0] == close((ROWS.v[ROWS.w > 1.5] - 1).mean())
