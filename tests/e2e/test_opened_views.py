"""Joins and functions in views ask a small model first, where the view can be written out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression

import sqlml
from sqlml.catalog.model import parse_reference
from sqlml.importers.registry import import_model
from sqlml.planner.rewrites import apply_rules
from sqlml.session.session import Session
from sqlml.statements.learn_small_models import check_unique_keys, fetch_learning_rows
from tests.support.cascaded import forest_behind_a_line, put_filter_before

MOST = "WITH most AS (SELECT k, max(f) AS f FROM artists GROUP BY k)"
OF_MOST = "predict('m', x := s.x, f := most.f, approximate := true)"
CALL = "predict('m', x := q.x, f := q.f, approximate := true)"


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("views")
    with sqlml.connect() as made:
        matrix = forest_behind_a_line(made, unique_keys=("key",))
        number = RandomForestRegressor(3, random_state=0).fit(matrix, matrix.sum(axis=1))
        made.create_model("r", number, inputs=["x", "f"])
        small = import_model(LinearRegression().fit(matrix[:, :1], matrix[:, 0]), ["x"]).program
        put_filter_before(made, "r", small, output="label", column=0, chosen="")
        made.create_function("slow", lambda v: v * 1.0, ["DOUBLE"], "DOUBLE")
        made.execute(
            "CREATE TABLE songs AS SELECT i AS id, (i * 7) % 40 AS k, sin(i * 1.7) * 2 AS x "
            "FROM range(200) r(i)"
        )
        made.execute("CREATE TABLE artists (k BIGINT PRIMARY KEY, f DOUBLE)")
        made.execute("INSERT INTO artists SELECT i, sin(i * 0.9) * 2 FROM range(38) r(i)")
        made.execute(f"COPY (SELECT k AS key, f FROM artists) TO '{folder}/a.parquet'")
        made.execute(f"ATTACH '{folder}/other.duckdb' AS other")
        for name, query in VIEWS.items():
            made.execute(f"CREATE VIEW {name} AS {query.format(folder=folder)}")
        made.execute("CREATE TABLE other.songs AS SELECT * REPLACE (x / 2 AS x) FROM main.songs")
        made.execute("CREATE TABLE other.artists (k BIGINT PRIMARY KEY, f DOUBLE)")
        made.execute("INSERT INTO other.artists SELECT k, -f FROM main.artists")
        made.execute("USE other")
        made.execute(f"CREATE VIEW other.elsewhere AS {VIEWS['joined']}")
        made.execute("USE memory")
        made.execute("CREATE MACRO halved(v) AS v / 2")
        made.execute("CREATE VIEW by_macro AS SELECT id, x, slow(halved(k)) AS f FROM songs")
        made.execute("CREATE VIEW renamed(id, x, f) AS SELECT id, x, slow(k) FROM songs")
        made.execute("CREATE TEMP VIEW passing AS SELECT * FROM joined WHERE id > 20")
        yield made


VIEWS = {
    "joined": "SELECT s.id, s.x, a.f FROM songs s LEFT JOIN artists a ON s.k = a.k",
    "used": "SELECT id, x, f FROM songs LEFT JOIN artists USING (k)",
    "called": "SELECT id, x, slow(k) AS f FROM songs",
    "of_a_view": "SELECT id + 1 AS id, x, f FROM joined",
    "with_a_cte": "WITH w AS (SELECT * FROM songs) SELECT id, x, slow(k / 3) AS f FROM w",
    "grouped": "SELECT s.id, s.x, g.f FROM songs s LEFT JOIN (SELECT k, max(f) AS f FROM artists "
    "GROUP BY k) g ON s.k = g.k",
    "of_a_file": "SELECT s.id, s.x, a.f FROM songs s LEFT JOIN '{folder}/a.parquet' a "
    "ON s.k = a.key",
    "by_a_function": "SELECT s.id, s.x, a.f FROM songs s "
    "LEFT JOIN read_parquet('{folder}/a.parquet') a ON s.k = a.key",
}
OPENED = {
    **{name: f"SELECT q.id, {CALL} FROM {name} q" for name in (*VIEWS, "passing")},
    "no alias": "SELECT id, predict('m', x := joined.x, f := joined.f, approximate := true) "
    "FROM joined",
    "of a schema": f"SELECT q.id, {CALL} FROM memory.main.joined AS q WHERE q.id % 2 = 0",
    "a star": "SELECT predict('m', *, approximate := true), * EXCLUDE (f) FROM called",
    "a subquery": f"SELECT q.id, {CALL} FROM (SELECT * FROM of_a_view) q ORDER BY 1",
    "a table": f"CREATE OR REPLACE TEMP TABLE made AS SELECT q.id, {CALL} AS p FROM called q",
    "elsewhere": f"SELECT q.id, {CALL} FROM other.elsewhere q",
    "a joined CTE": f"{MOST} SELECT s.id, {OF_MOST} FROM songs s LEFT JOIN most ON s.k = most.k",
    "a joined CTE of another name": f"{MOST} SELECT s.id, {OF_MOST} FROM songs s LEFT JOIN most AS "
    "most USING (k) WHERE s.id > 5",
    "two joined CTEs": "WITH a AS (SELECT k, max(f) AS f FROM artists GROUP BY k), most AS (SELECT "
    "s.k AS key, max(a.f) AS f FROM songs s LEFT JOIN a ON s.k = a.k GROUP BY s.k) "
    f"SELECT s.id, {OF_MOST} FROM songs s LEFT JOIN most ON s.k = most.key",
}
LEFT = {
    "a macro": f"SELECT q.id, {CALL} FROM by_macro q",
    "names of its own": f"SELECT q.id, {CALL} FROM renamed q",
    "a CTE of its name": f"WITH called AS (SELECT id, x, k AS f FROM songs) SELECT q.id, {CALL} "
    "FROM called q",
    "a CTE that is read twice": f"{MOST} SELECT s.id, {OF_MOST} FROM songs s LEFT JOIN most ON "
    "s.k = most.k WHERE s.k IN (SELECT k FROM most)",
    "a materialized CTE": f"{MOST.replace('AS (', 'AS MATERIALIZED (')} SELECT s.id, {OF_MOST} "
    "FROM songs s LEFT JOIN most ON s.k = most.k",
    "a CTE before a table of its name": f"{MOST}, artists AS (SELECT k, -1.0 AS f FROM songs) "
    f"SELECT s.id, {OF_MOST} FROM songs s LEFT JOIN most ON s.k = most.k",
    "what else reads it": f"SELECT q.id, q.f, {CALL} FROM called q",
}


def answered(con: Session, sql: str) -> list[Any]:
    rows = con.execute(sql).fetchall()
    return sorted(map(repr, con.execute("FROM made").fetchall() if "CREATE" in sql else rows))


def without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_rules, "expand_views", lambda draft: draft)


@pytest.mark.by_day(2)
@pytest.mark.parametrize("name", [*OPENED, *LEFT])
def test_views_are_answered_as_views(
    con: Session, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = {**OPENED, **LEFT}[name]
    made, planned = answered(con, sql), con.plan(sql).calls
    assert any(call.idle_parts for call in planned) == (name in OPENED), con.plan(sql).sql
    without(monkeypatch)
    assert answered(con, f"{sql} -- without") == made
    assert not any(call.idle_parts for call in con.plan(f"{sql} -- again").calls)


def test_the_best_rows_of_a_view(con: Session) -> None:
    order = "ORDER BY predict('r', x := q.x, f := q.f, approximate := true) DESC LIMIT 3"
    query = f"SELECT q.id FROM joined q {order}"
    assert con.plan(query).calls[0].filtered is not None
    assert len(con.execute(query).fetchall()) == 3


def test_another_view_of_the_name_is_another_plan(con: Session) -> None:
    query = f"SELECT q.id, {CALL} FROM changing q"
    con.execute("CREATE VIEW changing AS SELECT id, x, slow(k) AS f FROM songs")
    first = con.execute(query).fetchall()
    con.execute("CREATE OR REPLACE VIEW changing AS SELECT id, x, slow(-k) AS f FROM songs")
    second = con.execute(query).fetchall()
    assert first != second
    assert second == con.execute(query.replace("changing q", "(FROM changing) q")).fetchall()


def test_a_temporary_table_comes_before_the_one_of_the_view(con: Session) -> None:
    con.execute("CREATE TABLE base AS SELECT * FROM songs")
    con.execute("CREATE VIEW above AS SELECT id, x, slow(k) AS f FROM base")
    con.execute("CREATE VIEW above_main AS SELECT id, x, slow(k) AS f FROM main.base")
    for view in ("above", "above_main"):
        assert len(con.execute(f"SELECT q.id, {CALL} FROM {view} q").fetchall()) == 200
    con.execute("CREATE TEMP TABLE base AS SELECT * FROM songs WHERE id < 50")
    for view in ("above", "above_main"):
        query = f"SELECT q.id, {CALL} FROM {view} q"
        rows = con.execute(f"SELECT count(*) FROM {view}").fetchall()
        assert [(len(con.execute(query).fetchall()),)] == rows
    con.execute("DROP TABLE temp.base")


def test_views_that_read_others_twice_do_not_grow_without_end(con: Session) -> None:
    con.execute("CREATE VIEW twice0 AS SELECT id, x, slow(k) AS f FROM songs")
    for n in range(8):
        con.execute(
            f"CREATE VIEW twice{n + 1} AS SELECT a.id, a.x, b.f FROM twice{n} a "
            f"LEFT JOIN twice{n} b ON a.id = b.id"
        )
    assert "FROM twice8 q" in con.plan(f"SELECT q.id, {CALL} FROM twice8 q").sql


def test_a_view_that_scores_stays_as_it_is(con: Session) -> None:
    con.execute("CREATE VIEW scored AS SELECT id, x, predict('m', x, x) AS f FROM songs")
    query = f"SELECT q.id, {CALL} FROM scored q"
    assert "FROM scored q" in con.plan(query).sql
    assert len(con.execute(query).fetchall()) == 200


def test_what_a_view_joins_is_a_group_to_learn_from(con: Session) -> None:
    models, model = con._models, con._models.catalog.get(parse_reference("m"))
    learned = fetch_learning_rows(models, model, "SELECT x, f FROM of_a_view", "ADD CASCADE")
    assert dict(learned.sources.sources_of) == {"f": frozenset({"join a"})}
    assert check_unique_keys(models, {"unique_keys": "k"}, learned.expanded_query) == ("k",)
    learned = fetch_learning_rows(models, model, "FROM called", "ADD CASCADE")
    assert dict(learned.sources.sources_of) == {"f": frozenset({"slow(k)"})}
