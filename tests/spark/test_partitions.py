"""Models with PARTITION BY in Spark SQL, beside those of DuckDB."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pyspark.errors.exceptions.captured import SparkRuntimeException

import sqlml
from tests.e2e.test_partitions import VISITS, fetch

QUERY = "SELECT id, shop, floor, hour, payment, size FROM {} ORDER BY id"


def test_partitions_score_as_in_duckdb(con: Any, spark: Any) -> None:
    with sqlml.connect() as other:
        other.execute(VISITS)
        rows = other.sql(QUERY.format("visits")).df()
        spark.createDataFrame(rows).createOrReplaceTempView("visits")
        statement = (
            "CREATE OR REPLACE MODEL shops PARTITION BY shop, floor OPTIONS (model_type = "
            "'boosted_tree_classifier', label = 'size', max_iterations = 3, split = 'none', "
            "unseen_partition = '{}') AS SELECT shop, floor, hour, payment, size FROM visits"
        )
        probabilities = "predict_proba('shops', *, class := 'odd')"
        for policy in ("null", "error"):
            other.execute(statement.format(policy))
            con.sql(statement.format(policy))
            expected = fetch(other, f"SELECT predict('shops', *), {probabilities} FROM visits")
            scored = con.sql(f"SELECT predict('shops', *) AS k, {probabilities} AS p FROM visits")
            for row, (label, probability) in zip(scored.collect(), expected, strict=True):
                assert row.k == label
                assert math.isclose(row.p, probability, rel_tol=1e-6)
            unseen = con.sql(
                f"SELECT predict('shops', *) AS k, {probabilities} AS p FROM "
                "(SELECT 'new' AS shop, floor, hour, payment FROM visits LIMIT 1)"
            )
            if policy == "null":
                assert [tuple(row) for row in unseen.collect()] == [(None, None)]
                assert con.sql("FROM ml_partitions(MODEL shops)").count() == 6
            else:
                with pytest.raises(SparkRuntimeException, match="no model was trained for some"):
                    unseen.collect()
        con.sql("ALTER MODEL shops RETRAIN PARTITION (shop = 'north', floor = 1)")
        con.sql("ALTER MODEL shops DROP PARTITION (floor = 0)")
        assert con.sql("SELECT * FROM ml_partitions(MODEL shops)").count() == 3
