"""predict_leaf and trees := n in Spark SQL, and the leaves of models of pyspark.ml."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

import sqlml
from sqlml.errors import BindError, MissingOutputError
from tests.e2e.test_leaves_and_stages import BOOSTED, COLUMNS, FOREST, ROWS


@pytest.fixture
def models(con: Any, spark: Any) -> Any:
    con.create_model("boosted", BOOSTED)
    con.create_model("forest", FOREST)
    rows = ROWS[COLUMNS].astype(object).where(ROWS[COLUMNS].notna(), None)
    spark.createDataFrame(rows.assign(number=range(len(rows)))).createOrReplaceTempView("leaf_rows")
    return con


def test_spark_returns_what_the_libraries_return(models: Any) -> None:
    rows = models.sql("""
        SELECT predict_leaf('boosted', *) AS leaves,
            predict_leaf('forest', *, trees := 2) AS first_leaves,
            predict_score('boosted', *, trees := 2) AS scores
        FROM leaf_rows ORDER BY number
    """)
    assert dict(rows.dtypes)["leaves"] == "array<int>"
    leaves, first_leaves, scores = zip(*rows.collect(), strict=True)
    np.testing.assert_array_equal(leaves, BOOSTED.apply(ROWS[COLUMNS]))
    np.testing.assert_array_equal(first_leaves, FOREST.apply(ROWS[COLUMNS])[:, :2])
    margin = BOOSTED.predict(ROWS[COLUMNS], output_margin=True, iteration_range=(0, 2))
    np.testing.assert_array_equal(scores, margin)
    groups = models.sql(
        "SELECT leaf, count(*) FROM (SELECT predict_leaf('forest', *)[0] AS leaf FROM leaf_rows) "
        "GROUP BY leaf ORDER BY leaf"
    ).collect()
    expected = np.unique(FOREST.apply(ROWS[COLUMNS])[:, 0], return_counts=True)
    assert [tuple(row) for row in groups] == list(
        zip(*map(np.ndarray.tolist, expected), strict=True)
    )


def test_spark_refuses_what_has_no_leaves_or_stages(models: Any) -> None:
    with pytest.raises(MissingOutputError, match="not a single ensemble of trees"):
        models.create_model("line", LinearRegression().fit(ROWS[["b"]], ROWS.y))
        models.sql("SELECT predict_leaf('line', *) FROM leaf_rows")
    with pytest.raises(BindError, match="it has 5 trees"):
        models.sql("SELECT predict('forest', *, trees := 9) FROM leaf_rows")


def test_models_of_pyspark_have_the_indices_of_their_leaf_column(spark: Any) -> None:
    from pyspark.ml import Pipeline
    from pyspark.ml.classification import RandomForestClassifier
    from pyspark.ml.feature import VectorAssembler
    from pyspark.ml.regression import GBTRegressor

    complete = ROWS[[*COLUMNS, "k", "y"]].fillna(0.5)
    rows = spark.createDataFrame(complete.assign(k=complete.k.astype(float))).coalesce(1)
    assembler = VectorAssembler(inputCols=COLUMNS, outputCol="x")
    for estimator in (
        RandomForestClassifier(numTrees=3, maxDepth=4, featuresCol="x", labelCol="k", seed=0),
        GBTRegressor(maxIter=3, maxDepth=3, featuresCol="x", labelCol="y", seed=0),
    ):
        model = Pipeline(stages=[assembler, estimator.setLeafCol("leaves")]).fit(rows)
        expected = [row.leaves.toArray() for row in model.transform(rows).collect()]
        leaves = sqlml.compile(model).predict_leaf(pd.DataFrame(complete[COLUMNS]))
        np.testing.assert_array_equal(leaves, expected)
