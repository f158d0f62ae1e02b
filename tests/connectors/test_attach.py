"""`attach` takes what other tools hold, and is on their connection, not on another one."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from sklearn.linear_model import LogisticRegression

import sqlml


def asked(held: Any) -> Any:
    """A model that is called in the transaction in which its table was made."""
    session = sqlml.attach(held)
    session.execute("CREATE TEMP TABLE customers AS SELECT 1.0 AS visits")
    session.create_model("churn", LogisticRegression().fit([[0.0], [1]], [0, 1]), inputs=["visits"])
    return session.execute("SELECT predict('churn', *) FROM customers").fetchall()


def test_sqlalchemy() -> None:
    sa = pytest.importorskip("sqlalchemy")
    pytest.importorskip("duckdb_engine")
    with sa.create_engine("duckdb:///:memory:").connect() as connection:
        assert asked(connection) == [(1,)]
        assert connection.execute(sa.text("FROM customers")).fetchall() == [(1,)]
    raw = sa.create_engine("duckdb:///:memory:").raw_connection()
    assert asked(raw) == [(1,)]
    with sa.create_engine("sqlml:///:memory:").connect() as connection:
        assert sqlml.attach(connection) is sqlml.attach(connection.connection)


def test_ibis() -> None:
    ibis = pytest.importorskip("ibis")
    backend = ibis.duckdb.connect()
    assert asked(backend) == [(1,)]
    assert backend.table("customers").execute().to_dict("list") == {"visits": [1]}
    session = sqlml.attach(backend)
    session.sql("SELECT predict('churn', *) AS p, visits FROM customers").create_view("scored")
    scored = backend.table("scored")
    assert scored.filter(scored.p == 1).count().execute() == 1


def test_a_session_and_other_objects() -> None:
    with sqlml.connect() as session:
        assert sqlml.attach(session) is session
    with pytest.raises(TypeError, match="not str; open one with duckdb.connect"):
        sqlml.attach("shop.duckdb")


def test_a_relation_is_one_of_duckdbs() -> None:
    with sqlml.connect() as session:
        assert asked(session) == [(1,)]
        relation = session.sql("SELECT predict('churn', *) AS p FROM customers")
        assert isinstance(relation, duckdb.DuckDBPyRelation)
        assert isinstance(relation.limit(1), duckdb.DuckDBPyRelation)
        session.register("scored", relation)
        assert session.execute("FROM scored").fetchall() == [(1,)]
