"""The row of a table as an argument, `predict('m', t)`: the same as `t.*`, and as cheap."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeRegressor

import sqlml

FEATURES = ["a", "b", "my c"]


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    x = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)), columns=FEATURES)
    with sqlml.connect() as con:
        con.create_model("m", DecisionTreeRegressor(max_depth=8).fit(x, x.a + x.b * x["my c"]))
        con.register("made", x)
        con.execute("CREATE TABLE t AS SELECT row_number() OVER () AS id, * FROM made")
        con.execute('CREATE TABLE "My T" AS FROM t')
        con.execute("CREATE TABLE structs AS SELECT id, t AS s, t AS t FROM t")
        con.execute("CREATE VIEW seen AS FROM t")
        yield con


AS_COLUMNS = [
    "SELECT id, predict('m', {t}) FROM t",
    "SELECT T.id, predict('m', {T}) FROM t",
    "SELECT id, predict('m', {x}) FROM t AS x",
    "SELECT id, predict('m', {x}) FROM seen x",
    "SELECT id, predict('m', {x}) FROM (FROM t WHERE a > 0) x",
    "SELECT id, predict('m', {My}) FROM \"My T\"",
    "SELECT x.id, predict('m', {y}) FROM t x LEFT JOIN t y ON y.id = x.id + 190",
    "SELECT id, predict('m', {x}) FROM t x JOIN t y USING (id)",
    "WITH c AS (FROM t) SELECT id, predict('m', {c}) FROM c",
    "SELECT id, predict('m', {t}) FROM t WHERE predict('m', {t}) > 0 ORDER BY predict('m', {t})",
    "SELECT predict('m', {t}), count(*) FROM t GROUP BY predict('m', {t})",
    "SELECT predict('m', {t}), count(*) FROM t GROUP BY ALL",
    "SELECT predict('m', {x}), x.id FROM t x GROUP BY predict('m', {x}), x.id",
    "SELECT (SELECT predict('m', {x})), x.id FROM t x GROUP BY predict('m', {x}), x.id",
    "SELECT x.id, (SELECT min(y.a) FROM t y WHERE y.a > predict('m', {x})) FROM t x "
    "GROUP BY predict('m', {x}), x.id",
    "SELECT max(predict('m', {t})) FROM t",
    "SELECT id, (SELECT predict('m', {t})) FROM t",
    "SELECT id, p FROM t, LATERAL (SELECT predict('m', {t}) AS p)",
    "SELECT id, predict('m', {x}) FROM t AS x(id, a, b, \"my c\")",
    "SELECT x.id, predict('m', {x}), predict('m', {y}) FROM t x ASOF JOIN t y ON x.id >= y.id",
    "SELECT id FROM t x WHERE EXISTS (SELECT 1 FROM t y WHERE predict('m', {x}) < y.a)",
    "SELECT id FROM t x QUALIFY row_number() OVER (ORDER BY predict('m', {x}), id) < 9",
]
AS_STRUCTS = [
    "SELECT id, predict('m', {s}) FROM structs",
    "SELECT id, predict('m', {t}) FROM structs",
    "SELECT x.id, predict('m', {x}) FROM (SELECT id, s AS x FROM structs) x",
    "SELECT predict('m', {t}) FROM (SELECT t AS s FROM t) t(t)",
    "SELECT x.id, predict('m', {t}) FROM structs x, (FROM t LIMIT 1) y",
]


def written(query: str, form: str) -> str:
    names = {"t", "T", "x", "y", "c", "s", "structs"}
    return query.format(My=form.format('"My T"'), **{name: form.format(name) for name in names})


@pytest.mark.parametrize("query", AS_COLUMNS)
def test_a_row_is_its_columns(con: sqlml.Session, query: str) -> None:
    row, star = written(query, "{}"), written(query, "{}.*")
    assert sorted(map(str, con.execute(row).fetchall())) == sorted(
        map(str, con.execute(star).fetchall())
    )
    plan = con.plan(row)
    assert plan is not None and "struct_extract" not in plan.sql


@pytest.mark.parametrize("query", AS_STRUCTS)
def test_a_column_that_is_a_struct(con: sqlml.Session, query: str) -> None:
    plan = con.plan(written(query, "{}"))
    assert plan is not None and "struct_extract" in plan.sql
    made = con.execute(written(query, "{}")).fetchall()
    by_field = "a := {0}['a'], b := {0}['b'], \"my c\" := {0}['my c']"
    assert sorted(made) == sorted(con.execute(written(query, by_field)).fetchall())


def test_a_column_and_a_table_of_one_name(con: sqlml.Session) -> None:
    """The engine takes the column, though the table has the same columns as the struct."""
    others = "(SELECT t FROM structs WHERE id = 2)"
    query = f"SELECT predict('m', {{t}}) FROM (FROM t WHERE id = 1) t, {others}"
    want = con.execute("SELECT predict('m', *) FROM t WHERE id = 2").fetchall()
    assert con.execute(written(query, "{}")).fetchall() == want


def test_rows_grouped_by_themselves(con: sqlml.Session) -> None:
    query = "SELECT predict('m', t) AS p, count(*) FROM t GROUP BY t ORDER BY p"
    want = con.execute("SELECT predict('m', *) AS p, 1 FROM t ORDER BY p").fetchall()
    assert con.execute(query).fetchall() == want


def test_changed_rows(con: sqlml.Session) -> None:
    con.execute("CREATE OR REPLACE TABLE scored AS SELECT *, 0.0::DOUBLE AS p FROM t")
    con.execute("UPDATE scored SET p = predict('m', scored)")
    want = con.execute("SELECT predict('m', *) FROM t ORDER BY id").fetchall()
    assert con.execute("SELECT p FROM scored ORDER BY id").fetchall() == want
    query = "DELETE FROM scored WHERE predict('m', scored) > 0 RETURNING predict('m', scored)"
    assert sorted(con.execute(query).fetchall()) == sorted(row for row in want if row[0] > 0)


def test_a_view_of_rows(con: sqlml.Session) -> None:
    con.execute("CREATE OR REPLACE VIEW scores AS SELECT id, predict('m', t) AS p FROM t")
    want = con.execute("SELECT id, predict('m', *) FROM t").fetchall()
    assert sorted(con.execute("FROM scores").fetchall()) == sorted(want)


def test_what_goes_to_the_engine_is_as_long_as_that_of_a_star(con: sqlml.Session) -> None:
    columns = [f"x{i}" for i in range(300)]
    x = pd.DataFrame(np.eye(300), columns=columns)
    con.create_model("wide", DecisionTreeRegressor(max_depth=None).fit(x, np.arange(300)))
    con.execute(f"CREATE TABLE wide AS SELECT {', '.join(f'1.0::DOUBLE AS {c}' for c in columns)}")
    row, star = (
        con.plan(f"SELECT predict('wide', {r}) AS p FROM wide") for r in ("wide", "wide.*")
    )
    assert row is not None and star is not None and row.sql == star.sql
