"""A model that WHERE and SELECT ask for is evaluated once, in FROM, and nobody sees that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import sqlml

ROWS = 5_000
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.normal(size=(ROWS, 3)).round(1), columns=["a", "b", "c"])
LABELS = np.array(["low", "mid", "high"])[(FRAME.a > 0).astype(int) + (FRAME.b > 0.5)]
MODEL = RandomForestClassifier(10, max_depth=5, random_state=0).fit(FRAME, LABELS)
HIGH = MODEL.predict_proba(FRAME)[:, list(MODEL.classes_).index("high")]
LABEL = MODEL.predict(FRAME)
SURE = "predict_proba('m', *, class := 'high') > 0.6"
P = "predict_proba('m', *, class := 'high')"


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlml.Session]:
    scored = FRAME.assign(id=np.arange(ROWS), high=HIGH, label=LABEL)
    with sqlml.connect() as session:
        session.register("scored", scored)
        session.register("frame", scored.drop(columns=["high", "label"]))
        session.execute("CREATE TABLE s AS FROM scored; CREATE TABLE t AS FROM frame")
        session.execute('CREATE TABLE "Odd name" AS FROM frame; CREATE VIEW v AS FROM t')
        file = tmp_path_factory.mktemp("files") / "t.parquet"
        session.execute(f"COPY t TO '{file}'")
        session.execute(f"SET VARIABLE file = '{file}'")
        session.create_model("m", MODEL, verify=False)
        yield session


def same(con: Any, query: str, expected: str, names: bool = True) -> list[tuple[Any, ...]]:
    """The rows of `query`, equal to those of `expected`, which reads the library's scores."""
    found = con.execute(query)
    columns, rows = [d[:2] for d in found.description], found.fetchall()
    wanted = con.connection.execute(expected)
    if names:
        assert columns == [d[:2] for d in wanted.description]
    assert rows == wanted.fetchall()
    assert rows
    return list(rows)


def is_once(con: Any, query: str) -> bool:
    plan = con.plan(query)
    assert plan is not None
    return all(c.spec.once and not c.spec.remembers_rows for c in plan.calls)


ONCE = [
    (
        f"SELECT id, predict('m', *) AS y FROM t WHERE {SURE} ORDER BY id",
        "SELECT id, label AS y FROM s WHERE high > 0.6 ORDER BY id",
    ),
    (
        f"SELECT *, {P} AS p FROM t WHERE {SURE} AND id % 2 = 0 ORDER BY p, id LIMIT 20",
        "SELECT a, b, c, id, high AS p FROM s WHERE high > 0.6 AND id % 2 = 0 ORDER BY p, id "
        "LIMIT 20",
    ),
    (
        f"SELECT t.* EXCLUDE (b, c), {P} AS p FROM t WHERE {SURE} ORDER BY ALL",
        "SELECT a, id, high AS p FROM s WHERE high > 0.6 ORDER BY ALL",
    ),
    (
        f"SELECT DISTINCT ON (a) * REPLACE (-b AS b), predict('m', *) AS y FROM t WHERE {SURE} "
        "ORDER BY a, id",
        "SELECT DISTINCT ON (a) a, -b AS b, c, id, label AS y FROM s WHERE high > 0.6 "
        "ORDER BY a, id",
    ),
    (
        f"SELECT predict('m', *) AS y, count(*), sum(a * 2) AS s FROM t x WHERE {SURE} "
        "GROUP BY ALL HAVING count(*) > 1 ORDER BY y",
        "SELECT label AS y, count(*), sum(a * 2) AS s FROM s WHERE high > 0.6 GROUP BY ALL "
        "HAVING count(*) > 1 ORDER BY y",
    ),
    (
        f"WITH w AS (SELECT * FROM t WHERE a > 0) SELECT w.id, {P} AS p FROM w WHERE {SURE} "
        "QUALIFY row_number() OVER (PARTITION BY round(a) ORDER BY w.id) = 1 ORDER BY 1",
        "SELECT id, high AS p FROM s WHERE a > 0 AND high > 0.6 "
        "QUALIFY row_number() OVER (PARTITION BY round(a) ORDER BY id) = 1 ORDER BY 1",
    ),
    (
        f'FROM "Odd name" SELECT "Odd name".id, {P} AS p WHERE {SURE} ORDER BY 1',
        "SELECT id, high AS p FROM s WHERE high > 0.6 ORDER BY 1",
    ),
    (
        f"SELECT main.t.id, {P} AS p FROM memory.main.t AS t WHERE {SURE} ORDER BY 1".replace(
            "main.t.id", "t.id"
        ),
        "SELECT id, high AS p FROM s WHERE high > 0.6 ORDER BY 1",
    ),
    (
        f"SELECT id, {P} AS p FROM (SELECT * FROM t UNION ALL SELECT * FROM t WHERE id < 9) u "
        f"WHERE {SURE} ORDER BY ALL",
        "SELECT id, high AS p FROM (FROM s UNION ALL FROM s WHERE id < 9) WHERE high > 0.6 "
        "ORDER BY ALL",
    ),
    (
        f"SELECT id, (SELECT count(*) FROM s WHERE s.id < t.id) AS n, {P} AS p FROM t "
        f"WHERE {SURE} AND EXISTS (SELECT 1 FROM s WHERE s.id = t.id AND s.a > 1) ORDER BY id",
        "SELECT id, id AS n, high AS p FROM s WHERE high > 0.6 AND a > 1 ORDER BY id",
    ),
    (
        f"SELECT id, {P} AS p FROM read_parquet(getvariable('file')) f WHERE {SURE} ORDER BY id",
        "SELECT id, high AS p FROM s WHERE high > 0.6 ORDER BY id",
    ),
    (
        "SELECT q.id, q.p * 2 AS d FROM (SELECT id, "
        f"{P} AS p FROM v WHERE {SURE}) q JOIN s ON s.id = q.id ORDER BY 1",
        "SELECT id, high * 2 AS d FROM s WHERE high > 0.6 ORDER BY 1",
    ),
]


@pytest.mark.parametrize(("query", "expected"), ONCE)
def test_one_evaluation_gives_the_same(con: sqlml.Session, query: str, expected: str) -> None:
    same(con, query, expected)
    assert is_once(con, query)


def test_two_models_share_one_from(con: sqlml.Session) -> None:
    con.create_model("n", MODEL, or_replace=True)
    other = SURE.replace("'m'", "'n'")
    query = (
        f"SELECT *, predict('m', *) AS y, predict('n', a := b, b := a, c := c) AS z FROM t "
        f"WHERE {SURE} AND predict('n', a := b, b := a, c := c) <> 'mid' AND {other} ORDER BY id"
    )
    turned = MODEL.predict(FRAME[["b", "a", "c"]].set_axis(["a", "b", "c"], axis=1))
    rows = con.execute(query).fetchall()
    kept = np.flatnonzero((HIGH > 0.6) & (turned != "mid"))
    assert [r[3:] for r in rows] == [(i, LABEL[i], turned[i]) for i in kept]
    assert [d[0] for d in con.description] == ["a", "b", "c", "id", "y", "z"]
    plan = con.plan(query)
    assert plan is not None
    assert sum(c.shared is not None and c.shared.in_from for c in plan.calls) == 4


NOT_ONCE = [
    # the whole row would have a field more
    f"SELECT t, {P} AS p FROM t WHERE {SURE}",
    f"SELECT md5(t::VARCHAR) AS h, {P} AS p FROM t WHERE {SURE}",
    f"SELECT to_json(t) AS h, {P} AS p FROM t WHERE {SURE}",
    # a column that only a table itself has
    f"SELECT rowid, {P} AS p FROM t WHERE {SURE}",
    # a name that only the table's own place gives
    f"SELECT main.t.id, {P} AS p FROM main.t WHERE {SURE}",
    # stars in other dress
    f"SELECT COLUMNS('[ab]'), {P} AS p FROM t WHERE {SURE}",
    f"SELECT * LIKE '%a%', {P} AS p FROM t WHERE {SURE}",
    # several sources
    f"SELECT t.id, {P.replace('*', 't.*')} AS p FROM t, s WHERE t.id = s.id AND "
    f"{SURE.replace('*', 't.*')}",
]


def test_rows_that_a_condition_keeps_from_the_model(con: sqlml.Session) -> None:
    model = LogisticRegression().fit(FRAME, LABELS)  # takes no NULL
    con.create_model("strict", model, or_replace=True)
    con.execute(
        "CREATE OR REPLACE TABLE holes AS SELECT * REPLACE (if(id % 3 = 0, NULL, a) AS a) FROM t"
    )
    high = model.predict_proba(FRAME)[:, list(model.classes_).index("high")]
    p = P.replace("'m'", "'strict'")
    shown = f"CASE WHEN a IS NOT NULL THEN {p} END AS p"
    third = np.arange(ROWS) % 3 == 0
    for condition, kept in (
        (f"a IS NULL OR {p} > 0.6", third | (high > 0.6)),
        (f"CASE WHEN a IS NULL THEN true ELSE {p} > 0.6 END", third | (high > 0.6)),
        (f"a IS NOT NULL AND {p} > 0.6", ~third & (high > 0.6)),
        (
            f"{p} > 0.6 AND (b > 0 OR c > 0) AND a IS NOT NULL",
            ~third & (high > 0.6) & ((FRAME.b > 0) | (FRAME.c > 0)),
        ),
    ):
        query = f"SELECT id, {shown} FROM holes WHERE {condition} ORDER BY id"
        rows = con.execute(query).fetchall()
        assert [r[0] for r in rows] == np.flatnonzero(kept).tolist()
        scores = np.array([r[1] for r in rows], float)  # None is NaN
        np.testing.assert_allclose(scores, np.where(third, np.nan, high)[kept], rtol=1e-9)
        assert is_once(con, query) is ("OR" not in condition[:20] and "CASE" not in condition)


@pytest.mark.parametrize("query", NOT_ONCE)
def test_where_it_could_be_seen_from_stays(con: sqlml.Session, query: str) -> None:
    assert not is_once(con, query)
    plain = query.replace(SURE.replace("*", "t.*"), "TRUE").replace(SURE, "TRUE")
    everything = con.execute(f"SELECT * FROM ({plain}) ORDER BY ALL").fetchall()
    kept = [row for row in everything if row[-1] > 0.6]
    assert con.execute(f"SELECT * FROM ({query}) ORDER BY ALL").fetchall() == kept
    assert kept


def test_filters_still_reach_the_scan(con: sqlml.Session) -> None:
    query = f"SELECT id, {P} AS p FROM t WHERE {SURE} AND id BETWEEN 100 AND 200"
    text = con.explain(query)
    scan = text[text.index("Seq Scan") if "Seq Scan" in text else text.index("SEQ_SCAN") :]
    assert "id" in scan and "100" in scan
    assert "one evaluation of proba0 for 2 calls, made in FROM for WHERE" in text


def test_parameters(con: sqlml.Session) -> None:
    query = f"SELECT id, {P} AS p FROM t WHERE {P} > ? AND id < ? ORDER BY id"
    rows = con.execute(query, [0.6, 1000]).fetchall()
    kept = np.flatnonzero(HIGH[:1000] > 0.6)
    assert rows == [(i, HIGH[i]) for i in kept]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE OR REPLACE TABLE made AS {query}",
        "CREATE OR REPLACE TEMP TABLE made AS ({query})",
        "CREATE OR REPLACE VIEW made AS {query}",
        "CREATE OR REPLACE TABLE made (a DOUBLE, b DOUBLE, c DOUBLE, id BIGINT, p DOUBLE); "
        "INSERT INTO made (a, b, c, id, p) {query}",
        "CREATE OR REPLACE TABLE made (p DOUBLE, a DOUBLE, b DOUBLE, c DOUBLE, id BIGINT); "
        "INSERT INTO made BY NAME WITH w AS (FROM t) {query}",
    ],
)
def test_statements_that_write(con: sqlml.Session, statement: str) -> None:
    for (kind,) in con.connection.execute(
        "SELECT 'TABLE' FROM duckdb_tables() WHERE table_name = 'made' UNION ALL "
        "SELECT 'VIEW' FROM duckdb_views() WHERE view_name = 'made'"
    ).fetchall():
        con.connection.execute(f"DROP {kind} made")
    query = f"SELECT *, {P} AS p FROM t WHERE {SURE}"
    made = statement.format(query=query)
    assert is_once(con, made.split("; ")[-1])
    con.execute(made)
    same(con, "SELECT id, p FROM made ORDER BY id", "SELECT id, high AS p FROM s WHERE high > 0.6")


def test_a_view_over_a_query_that_evaluates_once(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    with sqlml.connect(file) as con:
        con.register("frame", FRAME.assign(id=np.arange(ROWS)))
        con.execute("CREATE TABLE t AS FROM frame")
        con.create_model("m", MODEL)
        con.execute(f"CREATE VIEW w AS SELECT *, {P} AS p FROM t WHERE {SURE}")
    with sqlml.connect(file, read_only=True) as con:
        assert con.execute("SELECT id, p FROM w ORDER BY id").fetchall() == [
            (i, HIGH[i]) for i in np.flatnonzero(HIGH > 0.6)
        ]
        assert [d[0] for d in con.execute("FROM w").description] == ["a", "b", "c", "id", "p"]


@pytest.mark.parametrize(
    ("source", "rows"),
    [
        (f"(SELECT * FROM t WHERE {P} > 0.3)", "s WHERE high > 0.3"),
        (
            f"(SELECT a, b, c, id FROM t WHERE round(abs({P}), 3) > 0.3)",
            "s WHERE round(high, 3) > 0.3",
        ),
        (
            f"(WITH n AS (SELECT *, abs({P}) AS p FROM t) FROM n WHERE p > 0.3)",
            "s WHERE high > 0.3",
        ),
        (
            f"(SELECT y.* FROM t y JOIN (SELECT id AS i FROM t WHERE {P} > 0.3) z ON y.id = z.i)",
            "s WHERE high > 0.3",
        ),
    ],
)
@pytest.mark.parametrize("wrapped", ["max({})", "max(abs(({})))", "sum(abs({}) + 0)"])
def test_once_over_a_source_with_calls_of_its_own(
    con: sqlml.Session, source: str, rows: str, wrapped: str
) -> None:
    """What FROM holds is written first, however deep in brackets the calls above it stand."""
    p = P.replace("*", "x.*", 1)
    query = f"SELECT round({wrapped.format(p)}, 9) AS m FROM {source} x WHERE {p} > 0.6"
    assert is_once(con, query.replace(source, "t"))
    same(con, query, f"SELECT round({wrapped.format('high')}, 9) AS m FROM {rows} AND high > 0.6")
