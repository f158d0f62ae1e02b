"""What the planner lets FROM make: a model that WHERE asks too, and the packed numbers of a row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from sqlml import errors
from tests.spark.conftest import FEATURES, NUMBERS

YES = "predict_proba('churn', *, class := 'yes')"


@pytest.fixture
def want(frame: pd.DataFrame, churn: Any) -> pd.DataFrame:
    """The rows of the table with what the model says of them."""
    yes, label = churn.predict_proba(frame[FEATURES])[:, 1], churn.predict(frame[FEATURES])
    return frame.assign(yes=yes, label=label)


SHAPES = [
    f"SELECT t.id, {YES} FROM customers t",
    f"SELECT id, {YES} FROM (SELECT * FROM customers) AS `a b`",
    f"SELECT id, {YES} FROM customers SORT BY id",
    f"SELECT max(id), {YES} FROM customers GROUP BY {', '.join(FEATURES)}",
    f"SELECT id, max({YES}) FROM customers GROUP BY id",
    f"SELECT id, max({YES}) FROM customers GROUP BY ALL",
    f"SELECT id, max({YES}) OVER (PARTITION BY id) FROM customers",
    f"SELECT DISTINCT id, {YES} FROM customers",
    f"SELECT id, {YES} FROM customers JOIN (SELECT id AS other FROM customers) ON id = other",
    f"SELECT id, {YES} FROM customers LATERAL VIEW explode(array(1)) e AS one",
    "SELECT id, (SELECT max(predict_proba('churn', c.*, class := 'yes')) FROM customers c "
    "WHERE c.id = t.id) FROM customers t",
    f"SELECT id, p FROM (SELECT *, {YES} AS p FROM customers WHERE {YES} >= 0 AND age IS NOT "
    "NULL) AS inside",
    "SELECT id, predict_proba('churn', * EXCEPT (plan), plan := plan, class := 'yes') "
    f"FROM customers WHERE {YES} >= 0 AND id >= 0",
    f"SELECT x.id, {YES.replace('*', 'x.*')} FROM customers x WHERE struct(x.*).age > -1e9 "
    f"AND {YES.replace('*', 'x.*')} >= 0",
    f"WITH c AS (SELECT id, {YES} AS p FROM customers) SELECT * FROM c UNION SELECT * FROM c",
    f"FROM customers SELECT id, {YES}",
]


def ids(con: Any, query: str) -> list[int]:
    return sorted(row[0] for row in con.sql(query).collect())


def test_filters_go_below_a_shared_evaluation(con: Any, want: pd.DataFrame) -> None:
    query = (
        f"SELECT id, predict('churn', *) FROM customers WHERE age BETWEEN 30 AND 50 AND {YES} > 0.7"
        " AND (plan = 'pro' OR unused > 0) AND id IN (SELECT id FROM customers WHERE income > 5)"
    )
    own = con.explain(query)
    assert re.search(r"PushedFilters: \[.*GreaterThanOrEqual\(age,30.0\)", own), own
    kept = want[want.age.between(30, 50) & (want.yes > 0.7) & (want.income > 5)]
    kept = kept[(kept.plan == "pro") | (kept.unused > 0)]
    assert ids(con, query) == kept.id.tolist() and len(kept) > 50


def test_a_filter_that_is_random_is_asked_once(con: Any, want: pd.DataFrame) -> None:
    query = f"SELECT id, predict('churn', *) FROM customers WHERE rand(3) < 0.5 AND {YES} > 0.5"
    found = ids(con, query)
    assert set(found) <= set(want.id[want.yes > 0.5])
    assert len(found) == pytest.approx((want.yes > 0.5).sum() / 2, rel=0.15)


def test_partitions_are_pruned(con: Any, want: pd.DataFrame, tmp_path: Path) -> None:
    folder = str(tmp_path / "parts")
    con.table("customers").write.partitionBy("plan").parquet(folder)
    con.read.parquet(folder).createOrReplaceTempView("parts")
    query = f"SELECT id, predict('churn', *) FROM parts WHERE plan = 'pro' AND {YES} > 0.6"
    assert re.search(r"PartitionFilters: \[.*plan.* = pro", con.explain(query))
    assert ids(con, query) == want.id[(want.plan == "pro") & (want.yes > 0.6)].tolist()


def test_a_row_is_packed_below_the_function(con: Any) -> None:
    """So that Spark copies it as one column, and nothing of what the function alone reads."""
    own = con.explain(f"SELECT id, {YES} FROM customers WHERE unused > 0")
    (inputs,) = re.findall(r"ArrowEvalPython\nInput \[2\]: \[(.*)\]", own)
    assert re.fullmatch(r"id#\d+L, sqlml_row_\w+#\d+", inputs), inputs
    assert "GreaterThan(unused,0.0)" in own


@pytest.mark.by_day(4)
@pytest.mark.parametrize("query", SHAPES)
def test_queries_of_every_shape(con: Any, query: str, want: pd.DataFrame) -> None:
    """All give each id once with the model's probability, whether FROM can make the row or not."""
    found = sorted((row[0], row[1]) for row in con.sql(query).collect())
    assert [row[0] for row in found] == want.id.tolist()
    np.testing.assert_array_equal([row[1] for row in found], want.yes)


def test_what_an_outer_query_gives_is_not_packed_in_from(con: Any, want: pd.DataFrame) -> None:
    query = (
        "SELECT id, (SELECT max(predict_proba('churn', t.age, c.income, t.plan, class := 'yes')) "
        "FROM customers c WHERE c.id = t.id) FROM customers t WHERE id < 50 ORDER BY id"
    )
    np.testing.assert_array_equal([row[1] for row in con.sql(query).collect()], want.yes[:50])


def test_hidden_columns_stay_in_sight(con: Any, want: pd.DataFrame, tmp_path: Path) -> None:
    """A subquery would hide them; so FROM stays as it is."""
    folder = str(tmp_path / "table")
    con.table("customers").write.parquet(folder)
    source = f"parquet.`{folder}` WHERE {YES} > 0.5 AND id > 0"
    query = f"SELECT id, {YES}, _metadata.file_name FROM {source}"
    assert ids(con, query) == want.id[(want.yes > 0.5) & (want.id > 0)].tolist()


def test_a_window_sees_what_where_keeps(con: Any, frame: pd.DataFrame, churn: Any) -> None:
    """In FROM it would see all rows."""
    query = (
        "SELECT id, predict_proba('churn', *, age := max(age) OVER (PARTITION BY plan), class := "
        "'yes') AS p FROM customers WHERE id < 50 ORDER BY id"
    )
    kept = frame[:50].assign(age=frame[:50].groupby("plan").age.transform("max"))
    want = churn.predict_proba(kept[FEATURES])[:, 1]
    np.testing.assert_array_equal([row.p for row in con.sql(query).collect()], want)


@pytest.mark.nightly
def test_order_by_means_select_items(con: Any, frame: pd.DataFrame, churn: Any) -> None:
    """As everywhere in Spark; a star means the columns of FROM, or is refused."""
    column = churn.predict_proba(frame[FEATURES])[:, 1]
    item = churn.predict_proba(frame[FEATURES].assign(age=-frame.age))[:, 1]
    call = "predict_proba('churn', {}, class := 'yes')"
    asked = "SELECT id, -age AS age FROM customers{} WHERE {} >= 0 ORDER BY {}, id"
    for arguments, want in (
        ("age, income, plan", item),
        ("customers.age, income, plan", column),
        ("*", column),
        ("*, age := age", item),
    ):
        for first in (call.format(arguments), "id"):
            found = con.sql(asked.format("", first, call.format(arguments))).collect()
            assert [row.id for row in found] == np.lexsort([frame.id, want]).tolist()
    joined = " JOIN (SELECT id AS other FROM customers) ON id = other"
    found = con.sql(asked.format(joined, "id", call.format("customers.*"))).collect()
    assert [row.id for row in found] == np.lexsort([frame.id, column]).tolist()
    with pytest.raises(errors.BindError, match="hidden here by the select item"):
        con.sql(asked.format(joined, "id", call.format("*")))


def test_stars_show_no_more(con: Any, frame: pd.DataFrame) -> None:
    for query, columns in (
        (f"SELECT *, {YES} AS y FROM customers", [*frame.columns, "y"]),
        (f"SELECT c.*, {YES} AS y FROM customers c", [*frame.columns, "y"]),
        (
            f"SELECT * EXCEPT (age), {YES} AS y FROM customers WHERE {YES} > 0 AND id > 3",
            [*[c for c in frame.columns if c != "age"], "y"],
        ),
        (f"SELECT {YES} > 0.5 FROM customers", [f"{YES} > 0.5"]),
    ):
        found = con.sql(query)
        assert len(found.columns) == len(columns) and found.columns[:-1] == columns[:-1]
        assert len(found.limit(3).collect()) == 3


@pytest.mark.nightly
def test_rows_that_a_filter_keeps_away_are_not_packed(con: Any, frame: pd.DataFrame) -> None:
    """A category that the model does not know fails the query, unless WHERE leaves its row out."""
    known = frame[frame.plan != "pro"]
    encode = make_column_transformer((OneHotEncoder(), ["plan"]), ("passthrough", NUMBERS))
    forest = RandomForestRegressor(30, max_depth=6, random_state=0)
    con.create_model("strict", make_pipeline(encode, forest).fit(known[FEATURES], known.unused))
    asked = "SELECT id, predict('strict', *) FROM customers"
    with pytest.raises(Exception, match="plan"):
        con.sql(asked).collect()
    assert ids(con, f"{asked} WHERE plan <> 'pro'") == known.id.tolist()
    both = f"{asked} WHERE plan <> 'pro' AND predict('strict', *) > -100"
    assert ids(con, both) == known.id.tolist()


def test_a_qualified_column_of_an_expression_beside_a_function(
    con: Any, spark: Any, want: pd.DataFrame, value: Any
) -> None:
    """FROM cannot make a row for one where the other names the table with its database."""
    spark.sql("CREATE DATABASE IF NOT EXISTS apart")
    spark.table("customers").write.mode("overwrite").saveAsTable("apart.people")
    try:
        found = con.sql(
            "SELECT id, predict('churn', *) AS label, predict('value', apart.people.*) AS a, "
            "predict('value', age := apart.people.age, income := people.income) AS b "
            "FROM apart.people ORDER BY id"
        ).collect()
    finally:
        spark.sql("DROP DATABASE apart CASCADE")
    assert [row.label for row in found] == want.label.tolist()
    numbers = value.predict(want[NUMBERS])
    np.testing.assert_allclose([row.a for row in found], numbers, rtol=1e-9)
    np.testing.assert_allclose([row.b for row in found], numbers, rtol=1e-9)
