"""Option `unique_keys`: joins of files and tables that declare no key ask the small model first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression

import sqlml
from sqlml.errors import ConfigError
from sqlml.importers.registry import import_model
from sqlml.planner.rewrites import apply_rules
from sqlml.session.session import Session
from tests.support.cascaded import forest_behind_a_line, put_filter_before

CALL = "predict('m', x := s.x, f := a.f, approximate := true)"
JOINED = {
    "a table": "artists a ON s.k = a.k",
    "a file": "'{folder}/artists.parquet' a ON s.k = a.k",
    "a file by its function": "read_parquet(['{folder}/artists.parquet']) AS a USING (k)",
    "another database": "other.artists AS a ON a.k = s.k",
    "texts": "artists a ON s.town = a.town",
    "two columns": "artists a ON a.k = s.k AND s.town = a.town",
    "an expression": "artists a ON s.k::DOUBLE = a.k",
    "texts beside numbers": "padded a ON s.k = a.k",
}
GATED = [name for name in JOINED if name not in ("an expression", "texts beside numbers")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def con(folder: Path) -> Iterator[Session]:
    with sqlml.connect() as made:
        forest_behind_a_line(made, unique_keys=("K", "town"))
        made.execute(
            "CREATE TABLE songs AS SELECT i AS id, (i * 7) % 40 AS k, sin(i * 1.7) * 2 AS x, "
            "'t' || (i % 40) AS town FROM range(200) r(i)"
        )
        made.execute(
            "CREATE TABLE artists AS SELECT i AS k, sin(i * 0.9) * 2 AS f, 't' || i AS town "
            "FROM range(38) r(i) UNION ALL SELECT NULL, i, NULL FROM range(3) r(i)"
        )
        made.execute(  # unique as texts, but not as the numbers that they are compared as
            "CREATE TABLE padded AS SELECT z || k AS k, f FROM artists, (VALUES (''), ('0')) v(z)"
        )
        made.execute(f"COPY artists TO '{folder}/artists.parquet'")
        made.execute(f"ATTACH '{folder}/other.duckdb' AS other")
        made.execute("CREATE TABLE other.artists AS FROM artists")
        yield made


@pytest.mark.parametrize("name", JOINED)
def test_joins_by_such_keys_ask_first(
    con: Session, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = f"SELECT s.id, {CALL} FROM songs s LEFT JOIN {JOINED[name].format(folder=folder)}"
    made = sorted(con.execute(sql).fetchall())
    assert bool(con.plan(sql).calls[0].idle_parts) == (name in GATED)
    monkeypatch.setattr(
        apply_rules, "RULES", [r for r in apply_rules.RULES if r.__name__ != "gated_sources"]
    )
    assert sorted(con.execute(f"{sql} -- without").fetchall()) == made


def test_the_best_rows_by_such_keys(con: Session) -> None:
    x = np.random.default_rng(1).normal(size=(300, 2))
    full = RandomForestRegressor(3, random_state=0).fit(x, x.sum(axis=1))
    con.create_model("r", full, inputs=["x", "f"])
    small = import_model(LinearRegression().fit(x[:, :1], x[:, 0]), ["x"]).program
    put_filter_before(con, "r", small, output="label", column=0, chosen="")
    order_by = "ORDER BY predict('r', x := s.x, f := a.f, approximate := true) DESC LIMIT 3"
    query = f"SELECT s.id FROM songs s LEFT JOIN artists a ON s.k = a.k {order_by}"
    (planned,) = con.plan(query).calls
    assert (
        planned.filtered is None
        and "option unique_keys of ADD TOP_K FILTER" in planned.exact_reason
    )
    con.execute("ALTER MODEL r DROP TOP_K FILTER")
    known = {"output": "label", "column": 0, "chosen": "", "unique_keys": ("k",)}
    put_filter_before(con, "r", small, **known)
    assert con.plan(query).calls[0].filtered is not None
    assert len(con.execute(query).fetchall()) == 3


def test_keys_go_where_the_model_goes(con: Session, folder: Path) -> None:
    con.execute(f"EXPORT MODEL m TO '{folder}/m.sqlml' FORMAT SQLML")
    con.execute(f"CREATE MODEL moved FROM '{folder}/m.sqlml' FORMAT SQLML")
    ((_, text),) = con.execute("SHOW CREATE MODEL moved").fetchall()
    assert "unique_keys = ['K', 'town']" in text
    assert ("cascade: unique keys", "K; town") in con.execute("DESCRIBE MODEL moved").fetchall()


@pytest.mark.parametrize(
    "keys, message",
    [
        ("3", "takes columns, such as"),
        ("['']", "takes columns, such as"),
        ("['k', 'nothing']", "no LEFT JOIN of a table by 'nothing'"),
        ("'k, town'", "no LEFT JOIN of a table by 'k, town'"),
        ("['f']", "main.artists has f = .* several times"),
    ],
)
def test_keys_that_are_none(con: Session, keys: str, message: str) -> None:
    con.execute("UPDATE artists SET f = 2.5 WHERE k IN (3, 4)")
    query = (
        "SELECT s.x, a.f, s.id % 2 AS y FROM songs s LEFT JOIN artists b ON s.k = b.k "
        "LEFT JOIN main.artists a ON s.x = a.f"
    )
    options = f"label = 'y', unique_keys = {keys}"
    with pytest.raises(ConfigError, match=message):
        con.execute(f"ALTER MODEL m ADD CASCADE USING ({query}) OPTIONS ({options})")
