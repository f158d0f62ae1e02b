"""The engine tries filters above an outer join on a row of NULLs, which no query asks for.

A model that refuses NULL must not hear of that row. Each row of the query itself is still refused.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import sqlml
from sqlml.errors import MissingValueError

pytestmark = pytest.mark.version

# What a filter may make of a label, which is 0 for the row that there is.
TESTS = (
    "{} = 0",
    "0 = {}",
    "{} < 3",
    "{} IN (0, 5)",
    "{} BETWEEN 0 AND 5",
    "{} IS NOT NULL",
    "NOT ({} = 5)",
    "{0} = 0 OR {0} = 5",
    "CASE WHEN {} = 0 THEN true ELSE false END",
    "CASE {} WHEN 0 THEN true ELSE false END",
    "CASE WHEN {0} IS NULL THEN false ELSE {0} = 0 END",
    "CASE WHEN m.a IS NOT NULL AND m.b IS NOT NULL THEN {} = 0 END",
    "if({} = 0, true, false)",
    "coalesce({}, 0) = 0",
    "nullif({}, 3) = 0",
    "TRY({}) = 0",
    "TRY({} = 0)",
    "{} IN (SELECT 0 FROM r)",
    "EXISTS (SELECT 1 FROM r WHERE {} = 0)",
    "list_transform([1], lambda x: x + {})[1] = 1",
)
JOINS = (
    "r LEFT JOIN m USING (id)",
    "m RIGHT JOIN r USING (id)",
    "r FULL JOIN m USING (id)",
)
CALL = "predict('{model}', a := m.a, b := m.b)"


@pytest.fixture(scope="module")
def con():
    rows = pd.DataFrame({"a": np.arange(50.0), "b": np.arange(50.0)[::-1] / 2})
    labels = (rows.a > 25).astype(int)
    con = sqlml.connect()
    con.create_model("inline", LogisticRegression().fit(rows, labels), verify=False)
    con.create_model("function", KNeighborsClassifier().fit(rows, labels), verify=False)
    con.create_model(
        "lenient", KNeighborsClassifier().fit(rows, labels), on_null="null", verify=False
    )
    con.execute("CREATE TABLE r AS SELECT 1 AS id")
    con.execute("CREATE TABLE m AS SELECT 1 AS id, 2.0::DOUBLE AS a, 1.5::DOUBLE AS b")
    con.execute("CREATE VIEW joined AS FROM r LEFT JOIN m USING (id)")
    for model in ("inline", "function"):
        scored = f"SELECT m.*, {CALL.format(model=model)} AS p FROM {JOINS[0]}"
        con.execute(f"CREATE VIEW {model}_scores AS {scored}")
    return con


@pytest.mark.by_day(9)
@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("model", ["inline", "function", "lenient"])
def test_a_filter_above_an_outer_join(con, model, test):
    call = CALL.format(model=model)
    for join in JOINS:
        query = f"SELECT m.id FROM {join} WHERE {test.format(call)}"
        assert con.execute(query).fetchall() == [(1,)], query
    query = f"SELECT id FROM joined AS m WHERE {test.format(call)}"
    assert con.execute(query).fetchall() == [(1,)]


@pytest.mark.by_day(3)
@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("model", ["inline", "function"])
def test_a_filter_on_a_column_of_predictions(con, model, test):
    call, test = CALL.format(model=model), test.format("p")
    made = f"SELECT m.*, {call} AS p FROM {JOINS[0]}"
    for query in (
        f"SELECT id FROM ({made}) AS m WHERE {test}",
        f"WITH m AS ({made}) SELECT id FROM m WHERE {test}",
        f"SELECT id FROM {model}_scores AS m WHERE {test}",
    ):
        assert con.execute(query).fetchall() == [(1,)], query


@pytest.mark.parametrize("model", ["inline", "function"])
def test_windows_beside_such_a_filter(con, model):
    call = CALL.format(model=model)
    query = (
        f"SELECT {call} AS p, row_number() OVER (ORDER BY p, {call}) FROM {JOINS[0]} "
        f"WHERE CASE WHEN {call} = 0 THEN true END QUALIFY row_number() OVER (PARTITION BY p) = 1"
    )
    assert con.execute(query).fetchall() == [(0, 1)]


@pytest.mark.parametrize("model", ["inline", "function"])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT {} AS p FROM r WHERE p = 1",
        "SELECT {0} AS p, row_number() OVER (ORDER BY {0}) AS n FROM r WHERE p = 1",
        "SELECT (SELECT max(id) + {} FROM r) AS p FROM r WHERE p = 2",
    ],
)
def test_a_subquery_whose_item_is_named_elsewhere(con, model, query):
    """The engine takes nothing volatile there, however deep in the item the call stands."""
    call = CALL.format(model=model)
    found = con.execute(query.format(f"(SELECT count(*) FROM m WHERE {call} = 0)")).fetchall()
    assert len(found) == 1


@pytest.mark.parametrize("model", ["inline", "function"])
@pytest.mark.parametrize("test", ["{} = 0", "CASE WHEN {} = 0 THEN true END"])
def test_a_row_of_nulls_that_the_query_asks_for_is_refused(con, model, test):
    call = CALL.format(model=model)
    query = f"SELECT m.id FROM (SELECT 9 AS id) r LEFT JOIN m USING (id) WHERE {test.format(call)}"
    with pytest.raises(MissingValueError, match="column 'a'"):
        con.execute(query).fetchall()


def test_the_filters_rows_are_remembered_for_the_select_list(con):
    """WHERE calls a volatile function here, and SELECT one that is not, for its windows."""
    call = CALL.format(model="function")
    con.execute(
        "CREATE OR REPLACE TABLE many AS SELECT i AS id, (i % 40)::DOUBLE AS a, 1.0::DOUBLE AS b "
        "FROM range(5000) t(i)"
    )
    query = (
        f"SELECT {call} AS p, rank() OVER (ORDER BY p) FROM many AS m LEFT JOIN r USING (id) "
        f"WHERE {call} = 0"
    )
    measured = con.plan(query, analyze=True).analysis.functions.values()
    assert sum(m.again for m in measured) > 0
