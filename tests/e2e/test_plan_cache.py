"""A plan is used again only while all that it rests on is as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeRegressor

import sqlml
from sqlml.errors import (
    BindError,
    ColumnOrderError,
    ConfigError,
    MissingColumnError,
    UnknownModelError,
)

pytestmark = pytest.mark.version

QUERY = "SELECT predict('m', *) FROM t ORDER BY a"
ROWS = np.array([[0.1, 1.0], [0.4, 2.0], [0.7, 3.0], [1.1, 4.0]])


def tree(*values: float) -> DecisionTreeRegressor:
    return DecisionTreeRegressor(random_state=0).fit(ROWS, np.array(values))


@pytest.fixture
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect(":memory:") as session:
        session.execute("CREATE TABLE t (a FLOAT, b FLOAT)")
        session.executemany("INSERT INTO t VALUES (?, ?)", ROWS.tolist())
        session.create_model("m", tree(1.0, 2.0, 3.0, 4.0), inputs=["a", "b"], verify=False)
        yield session


def scores(session: Any, query: str = QUERY, parameters: Any = None) -> list[Any]:
    return [row[0] for row in session.execute(query, parameters).fetchall()]


def test_the_same_query_is_planned_once(con: sqlml.Session) -> None:
    first = con.plan(QUERY)
    assert scores(con) == [1.0, 2.0, 3.0, 4.0]
    assert con.plan(QUERY) is first
    assert con.plan(QUERY + " ") is not first


def test_an_unread_result_holds_no_older_model_in_sight(con: sqlml.Session) -> None:
    assert scores(con) == [1.0, 2.0, 3.0, 4.0]
    with con.cursor() as other:
        for values in ([5.0, 6.0, 7.0, 8.0], [9.0, 10.0, 11.0, 12.0]):
            con.execute("SELECT range FROM range(100000)").fetchone()
            other.create_model("m", tree(*values), inputs=["a", "b"], or_replace=True)
            assert scores(con) == values
        con.execute("SELECT range FROM range(100000)").fetchone()
        other.create_model("n", tree(*values), inputs=["a", "b"])
        assert scores(con, QUERY.replace("'m'", "'n'")) == values
        other.execute("ALTER TABLE t ADD COLUMN c INTEGER DEFAULT 5")
        con.execute("BEGIN")
        assert scores(con) == values
        con.execute("SELECT range FROM range(100000)").fetchone()
        other.create_model("m", tree(1.0, 1.0, 1.0, 1.0), inputs=["a", "b"], or_replace=True)
        assert scores(con) == values  # one transaction sees one state
        con.execute("COMMIT")
        assert scores(con) == [1.0] * 4


def test_another_connection_may_change_the_type_of_a_column(con: sqlml.Session) -> None:
    first = con.plan(QUERY)
    assert first is not None and first.calls[0].spec.layout == "f32"
    con.connection.cursor().execute("ALTER TABLE t ALTER a TYPE DOUBLE")
    second = con.plan(QUERY)
    assert second is not None and second.calls[0].spec.layout == "f64"
    con.connection.cursor().execute("ALTER TABLE t RENAME b TO c")
    with pytest.raises(MissingColumnError, match="b"):
        con.execute(QUERY)
    con.connection.cursor().execute("ALTER TABLE t RENAME c TO b")
    assert scores(con) == [1.0, 2.0, 3.0, 4.0]


def test_a_replaced_model_is_the_one_that_scores(con: sqlml.Session) -> None:
    assert scores(con) == [1.0, 2.0, 3.0, 4.0]
    other = con.cursor()
    other.create_model("m", tree(5.0, 6.0, 7.0, 8.0), inputs=["a", "b"], or_replace=True)
    assert scores(con) == [5.0, 6.0, 7.0, 8.0]
    assert scores(con, QUERY.replace("'m'", "'m/1'")) == [1.0, 2.0, 3.0, 4.0]
    assert scores(con, QUERY.replace("'m'", "'m@first'")) == [1.0, 2.0, 3.0, 4.0]


def test_a_model_of_a_rolled_back_transaction_is_forgotten(con: sqlml.Session) -> None:
    assert scores(con) == [1.0, 2.0, 3.0, 4.0]
    con.execute("BEGIN")
    con.create_model("m", tree(5.0, 6.0, 7.0, 8.0), inputs=["a", "b"], or_replace=True)
    assert scores(con) == [5.0, 6.0, 7.0, 8.0]
    assert scores(con.cursor()) == [1.0, 2.0, 3.0, 4.0]
    con.execute("ROLLBACK")
    assert scores(con) == [1.0, 2.0, 3.0, 4.0]


def test_a_dropped_model_is_unknown_until_there_is_one_again(con: sqlml.Session) -> None:
    assert scores(con) == [1.0, 2.0, 3.0, 4.0]
    con.cursor().execute("DROP MODEL m")
    for _ in range(2):
        with pytest.raises(UnknownModelError, match="m"):
            con.execute(QUERY)
    con.create_model("m", tree(5.0, 6.0, 7.0, 8.0), inputs=["a", "b"])
    assert scores(con) == [5.0, 6.0, 7.0, 8.0]
    con.connection.execute("DROP SCHEMA sqlml CASCADE")
    with pytest.raises(UnknownModelError):
        con.execute(QUERY)


def test_the_same_model_over_other_columns_is_another(con: sqlml.Session) -> None:
    query = "SELECT predict('m', a, b) FROM t ORDER BY a"
    assert scores(con, query) == [1.0, 2.0, 3.0, 4.0]
    con.execute("DROP MODEL m")
    con.create_model("m", tree(1.0, 2.0, 3.0, 4.0), inputs=["b", "a"])
    for _ in range(2):
        with pytest.raises(ColumnOrderError):
            con.execute(query)


def test_equal_parameters_of_other_types_are_others(con: sqlml.Session) -> None:
    model = LogisticRegression().fit(ROWS, [0, 0, 1, 1])
    con.create_model("two", model, inputs=["a", "b"])
    query = "SELECT round(predict_proba('two', *, class := ?), 6) FROM t ORDER BY a"
    want = np.round(model.predict_proba(ROWS), 6)
    for _ in range(2):
        assert scores(con, query, [1]) == pytest.approx(want[:, 1])
        assert scores(con, query, [0]) == pytest.approx(want[:, 0])
        assert scores(con, query, ["1"]) == pytest.approx(want[:, 1])
        assert scores(con, query, [1.0]) == pytest.approx(want[:, 1])
        with pytest.raises(BindError, match="no class 2"):
            con.execute(query, [2])


def test_the_model_may_be_a_parameter(con: sqlml.Session) -> None:
    con.create_model("n", tree(5.0, 6.0, 7.0, 8.0), inputs=["a", "b"])
    query = "SELECT predict($which, *) FROM t WHERE a > $least ORDER BY a"
    for _ in range(2):
        assert scores(con, query, {"which": "m", "least": 0.5}) == [3.0, 4.0]
        assert scores(con, query, {"which": "n", "least": 0.5}) == [7.0, 8.0]
        assert scores(con, query, {"which": "n", "least": 0.2}) == [6.0, 7.0, 8.0]


def test_a_name_may_mean_another_frame(con: sqlml.Session) -> None:
    query = "SELECT predict('m', *) FROM frame ORDER BY a"
    want = [(1.0,), (2.0,), (3.0,), (4.0,)]
    frame = pd.DataFrame(ROWS.astype(np.float32), columns=["a", "b"])
    assert con.execute(query).fetchall() == want
    frame = pd.DataFrame(ROWS, columns=["a", "B"])[["B", "a"]]
    assert con.execute(query).fetchall() == want
    frame = frame.drop(columns="B")
    with pytest.raises(MissingColumnError, match="b"):
        con.execute(query)
    del frame


def test_a_view_may_be_made_anew_under_the_same_name(con: sqlml.Session) -> None:
    con.execute("CREATE VIEW v AS SELECT a, b FROM t")
    query = "SELECT predict('m', *) FROM v ORDER BY a"
    assert scores(con, query) == [1.0, 2.0, 3.0, 4.0]
    con.execute("CREATE OR REPLACE VIEW v AS SELECT 5 - b AS b, 1.2 - a AS a FROM t")
    want = tree(1.0, 2.0, 3.0, 4.0).predict([1.2, 5.0] - ROWS[::-1])
    assert scores(con, query) == want.tolist()


def test_a_plan_of_a_parameter_without_a_plain_value_is_not_kept(con: sqlml.Session) -> None:
    query = "SELECT predict('m', *) FROM t WHERE list_contains(?, b) ORDER BY a"
    assert scores(con, query, [[1.0, 3.0]]) == [1.0, 3.0]
    assert scores(con, query, [[2.0]]) == [2.0]


def test_two_open_transactions_make_different_models(con: sqlml.Session) -> None:
    first, second = con.cursor(), con.cursor()
    for other in (first, second):
        other.execute("BEGIN")
    first.create_model("one", tree(1.0, 1.0, 1.0, 1.0), inputs=["a", "b"])
    second.create_model("two", tree(2.0, 2.0, 2.0, 2.0), inputs=["a", "b"])
    for other in (first, second):
        other.execute("COMMIT")
    assert scores(con, QUERY.replace("'m'", "'one'")) == [1.0] * 4
    assert scores(con, QUERY.replace("'m'", "'two'")) == [2.0] * 4


@pytest.mark.parametrize("name", ["M", 'says "hi"', "größe", "select"])
def test_a_change_is_seen_whatever_the_model_is_called(con: sqlml.Session, name: str) -> None:
    query = f"SELECT predict('{name}', *) FROM t ORDER BY a"
    for value in (5.0, 6.0):
        con.create_model(name, tree(*[value] * 4), inputs=["a", "b"], or_replace=True)
        assert scores(con, query) == scores(con, query) == [value] * 4
        assert con.plan(query) is con.plan(query)
    con.execute(f'DROP MODEL "{name.replace(chr(34), 2 * chr(34))}"')
    with pytest.raises(UnknownModelError):
        con.execute(query)


def test_a_catalog_without_stamps_is_read_instead(con: sqlml.Session) -> None:
    con.connection.execute("DROP TYPE IF EXISTS sqlml.stamp_m")  # 1.5 has none
    first = con.plan(QUERY)
    assert con.plan(QUERY) is first
    con.connection.execute('UPDATE sqlml.catalog_versions SET options = \'{"backend":"numpy"}\'')
    with pytest.raises(ConfigError):
        con.plan(QUERY)
    con.create_model("m", tree(5.0, 6.0, 7.0, 8.0), inputs=["a", "b"], or_replace=True)
    assert scores(con) == [5.0, 6.0, 7.0, 8.0]
