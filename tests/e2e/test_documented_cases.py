"""What docs/score.md and docs/export.md say of outer joins, dumps and copies of databases."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression

import sqlml
from sqlml.errors import MissingValueError


def test_rows_without_a_match_are_scored_from_nulls() -> None:
    x = np.arange(100.0).reshape(-1, 1)
    trees = HistGradientBoostingRegressor(max_iter=3).fit(x, x.ravel())
    with sqlml.connect() as con:
        con.create_model("trees", trees, inputs=["a"])
        con.create_model("line", LinearRegression().fit(x, x.ravel()), inputs=["a"])
        con.execute("CREATE TABLE l AS SELECT i AS id FROM range(3) r(i)")
        con.execute("CREATE TABLE f AS SELECT 1 AS id, 50.0 AS a")
        joined = "FROM l LEFT JOIN f USING (id) ORDER BY l.id"
        rows = con.execute(f"SELECT predict('trees', f.*) {joined}").fetchall()
        expected = trees.predict([[np.nan], [50.0], [np.nan]])
        assert [row[0] for row in rows] == expected.tolist()
        matched = (
            f"SELECT CASE WHEN f.id IS NOT NULL THEN predict('line', f.*) END IS NULL {joined}"
        )
        assert con.execute(matched).fetchall() == [(True,), (False,), (True,)]
        with pytest.raises(MissingValueError):
            con.execute(f"SELECT predict('line', f.*) {joined}").fetchall()


def test_dumps_and_copies_of_databases_with_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0])
    with sqlml.connect("shop.duckdb") as con:
        con.create_model("m", line, inputs=["a"])
        con.execute(
            "CREATE TABLE t AS SELECT 1.0 AS a; CREATE VIEW v AS SELECT predict('m', *) FROM t"
        )
        con.execute("EXPORT DATABASE 'dump'")
    with duckdb.connect() as plain, pytest.raises(duckdb.Error, match="sqlml_open_a_session_first"):
        plain.execute("IMPORT DATABASE 'dump'")
    older = {"storage_compatibility_version": "v1.4.0"}
    with sqlml.connect("older.duckdb", config=older) as con:
        con.execute("IMPORT DATABASE 'dump'")
        assert len(con.execute("FROM v").fetchall()) == 1
        tags = (
            "SELECT tags['storage_version'] FROM duckdb_databases() WHERE database_name = 'older'"
        )
        assert "1.4" in str(con.execute(tags).fetchall())
    with sqlml.connect("other.duckdb") as con:
        con.create_model("mine", line, inputs=["a"])
        con.execute("ATTACH 'shop.duckdb' AS shop")
        for statement in ("IMPORT DATABASE 'dump'", "COPY FROM DATABASE shop TO other"):
            with pytest.raises(duckdb.CatalogException, match="already exists"):
                con.execute(statement)
        tables = "SELECT count(*) FROM duckdb_tables() WHERE schema_name = 'main'"
        assert con.execute(f"{tables} AND database_name = 'other'").fetchall() == [(0,)]
        con.execute("EXPORT MODEL shop.m TO 'm.sqlml'")
        con.execute("CREATE MODEL m FROM 'm.sqlml'")
        assert [row[0] for row in con.execute("SHOW MODELS").fetchall()] == ["m", "mine"]
