"""In Spark, too, each row may be scored by the model that it names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.errors import PySparkException
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from sqlml.errors import BindError
from tests.spark.conftest import FEATURES, NUMBERS

NAMED = """(SELECT *, CASE id % 4 WHEN 0 THEN 'churn' WHEN 1 THEN 'tree/1' WHEN 2 THEN 'line' END
AS m FROM customers) AS t"""


@pytest.fixture
def named(con: Any, frame: pd.DataFrame) -> dict[int, Any]:
    """The models of rows by the remainder of their number."""
    label = np.where(frame.age > 40, "yes", "it's no")
    tree = DecisionTreeClassifier(max_depth=3).fit(frame[["income", "age"]], label)
    other = np.where(frame.age > 40, "yes", "maybe")
    line = LogisticRegression().fit(frame[NUMBERS], other)
    con.create_model("tree", tree, verify=False)
    con.create_model("line", line, verify=False)
    return {1: (tree, ["income", "age"]), 2: (line, NUMBERS)}


def test_each_row_has_what_its_model_says(
    con: Any, frame: pd.DataFrame, churn: Any, named: dict[int, Any]
) -> None:
    found = con.sql(
        f"SELECT id, predict(m, *) AS y, predict_proba(m, *, class := 'yes') AS p FROM {NAMED}"
    ).toPandas()
    found = found.sort_values("id", ignore_index=True)
    for k, (model, columns) in {**named, 0: (churn, FEATURES)}.items():
        rows = (frame.id % 4 == k).to_numpy()
        x = frame.loc[rows, columns]
        assert list(found.y[rows]) == list(model.predict(x))
        yes = list(model.classes_).index("yes")
        np.testing.assert_allclose(found.p[rows], model.predict_proba(x)[:, yes], rtol=1e-12)
    assert found.y[frame.id % 4 == 3].isna().all()
    table = con.sql(f"SELECT id, predicted_label FROM ml_predict(MODEL (m), (FROM {NAMED}))")
    assert list(table.toPandas().sort_values("id").predicted_label.fillna("")) == list(
        found.y.fillna("")
    )
    assert "models            3 that the rows name: churn, line, tree/1" in con.explain(
        f"SELECT predict(m, *) FROM {NAMED}"
    )


@pytest.mark.nightly
def test_unknown_names_and_rows_that_are_refused(con: Any, named: dict[int, Any]) -> None:
    rows = "(SELECT *, CASE WHEN id < 5 THEN 'trei' ELSE 'tree' END AS m FROM customers) AS t"
    with pytest.raises(PySparkException, match="unknown model .trei.; did you mean .tree."):
        con.sql(f"SELECT predict(m, *) FROM {rows}").collect()
    query = f"SELECT predict(m, *, unknown_model := 'null') AS y FROM {rows} WHERE id < 9"
    made = [row.y for row in con.sql(query).collect()]
    assert made.count(None) == 5 and len(made) == 9
    kept = con.sql(f"SELECT predict(m, *) AS y FROM {rows} WHERE id BETWEEN 5 AND 7").collect()
    assert {row.y for row in kept} <= {"yes", "it's no"}
    with pytest.raises(BindError, match="rand.. may give another name"):
        con.sql("SELECT predict(CASE WHEN rand() > 1 THEN 'tree' END, *) FROM customers")
