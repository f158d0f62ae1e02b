"""Macros that choose among many models, on a plain DuckDB connection."""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb
import pytest

from sqlml.catalog.catalog_connection import Connection
from sqlml.catalog.scoring_macros import (
    CLIENT,
    MAX_OVERLOADS,
    Macros,
    ModelCall,
    build_choosers,
    hash_key,
)
from sqlml.catalog.tables import TABLES

pytestmark = pytest.mark.version

HOSTILE = [
    "über",
    "it's",
    'a"b',
    "a\nb",
    "ß",
    "имя",
    "x; drop table t; --",
    "' || 'x",
    "{}",
    "%s",
    " ",
]


class PlainDatabase:
    """A database with macros for models that add a number of their own."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        connection.create_function(CLIENT, lambda: 0, [], "INTEGER")
        catalog = Connection(connection)
        for statement in TABLES:
            catalog.write(statement.format(schema="sqlml"))
        self._macros = Macros(catalog)
        self._schema = catalog.schema(None)
        self._connection = connection
        self.models: dict[str, int] = {}

    def put(self, key: str, offset: int, later: bool = False) -> None:
        calls = [ModelCall("label", f"r.a + {offset}", f"'runtime ' || r.a + {offset}")]
        if offset % 3 == 0:
            calls.append(ModelCall("score", f"'{offset}' || r.a", "NULL"))
        self._macros.update(self._schema, None, key, calls, str(offset).encode(), later)
        self.models[key] = offset

    def drop(self, key: str, later: bool = False) -> None:
        self._macros.update(self._schema, None, key, [], None, later)
        del self.models[key]

    def refresh(self) -> None:
        self._macros.refresh()

    def ask(self, function: str, key: str) -> object:
        name = key.replace("'", "''")
        return self._connection.sql(f"SELECT {function}('{name}', {{'a': 1000}})").fetchall()[0][0]

    def names(self, begin: str) -> set[str]:
        rows = self._connection.sql(
            "SELECT function_name FROM duckdb_functions() WHERE schema_name = 'sqlml' "
            f"AND starts_with(function_name, '{begin}')"
        )
        return {name for (name,) in rows.fetchall()}

    def check(self) -> None:
        """Check that all models are found and that no macro is unused."""
        for key, number in self.models.items():
            assert self.ask("predict", key) == 1000 + number
            assert self.ask("predict", key.upper() if key.isascii() else key) == 1000 + number
            if number % 3 == 0:
                assert self.ask("predict_score", key) == f"{number}1000"
        with pytest.raises(duckdb.BinderException):
            self.ask("predict", "nobody")
        stored = self._connection.sql("SELECT kind, macro FROM sqlml.catalog_choosers").fetchall()
        assert {macro for _, macro in stored} == self.names("choose_")
        calls = self._connection.sql("SELECT kind, key, macro FROM sqlml.catalog_calls").fetchall()
        assert {macro for _, _, macro in calls} == self.names("run_")
        compiled = self._connection.sql("SELECT key, content FROM sqlml.catalog_compiled")
        assert {k: int(content) for k, content in compiled.fetchall()} == self.models
        for kind in ("label", "score"):
            models = {key: macro for k, key, macro in calls if k == kind}
            whole = {part.macro for part in build_choosers(models, "")}
            assert whole == {macro for k, macro in stored if k == kind}


@pytest.fixture
def macros() -> Iterator[PlainDatabase]:
    with duckdb.connect() as connection:
        yield PlainDatabase(connection)


def test_few_models_are_told_apart_by_their_names() -> None:
    (only,) = build_choosers({f"m{i}": f"score_{i}" for i in range(MAX_OVERLOADS)}, "")
    assert only.prefix == "" and not only.by_digit
    assert only.definition.count("BOOLEAN[") == MAX_OVERLOADS


def test_no_macro_of_many_has_many_overloads() -> None:
    models = {f"m{i}": f"score_{i}" for i in range(2000)}
    parts = build_choosers(models, ", class")
    assert parts[-1].prefix == "" and parts[-1].by_digit
    assert max(part.definition.count("(n BOOLEAN[") for part in parts) == MAX_OVERLOADS
    assert len({part.macro for part in parts}) == len(parts)
    leaves = [part for part in parts if not part.by_digit]
    assert sum(part.definition.count("(n BOOLEAN[") for part in leaves) == 2000
    assert all(hash_key(key)[:1] for key in models)


def test_a_changed_part_gives_the_same_tree() -> None:
    models = {f"m{i}": f"score_{i}" for i in range(300)}
    whole = build_choosers(models, "")
    beside = {p.prefix: p.build_call() for p in whole if len(p.prefix) == 1 and p.prefix != "7"}
    part = build_choosers(
        {k: v for k, v in models.items() if hash_key(k)[0] == "7"}, "", existing=beside
    )
    assert part == [p for p in whole if p.prefix[:1] in ("", "7")]


@pytest.mark.nightly
@pytest.mark.parametrize("steps", [50, 500])
def test_macros_follow_models_that_come_and_go(macros: PlainDatabase, steps: int) -> None:
    rng = random.Random(0)
    keys = [*HOSTILE, *(f"model_{i}" for i in range(60))]
    for step in range(steps):
        key = rng.choice(keys)
        if key in macros.models and rng.random() < 0.4 and len(macros.models) > 1:
            macros.drop(key)
        else:
            macros.put(key, rng.randrange(1000))
        if step % 10 == 0:
            macros.check()
    macros.check()
    for key in list(macros.models)[1:]:
        macros.drop(key)
    macros.check()


def test_many_changes_at_once_reach_the_macros_together(macros: PlainDatabase) -> None:
    for i in range(100):
        macros.put(f"m{i}", i, later=True)
    assert macros.names("choose_") == set()
    macros.refresh()
    macros.check()
    for i in range(90):
        macros.drop(f"m{i}", later=True)
    macros.put("m95", 7, later=True)
    assert macros.ask("predict", "m95") == 1095  # as it was, until they are rebuilt
    macros.refresh()
    macros.check()


def test_what_its_owner_took_stays_taken(macros: PlainDatabase) -> None:
    for i in range(40):
        macros.put(f"m{i}", 3 * i)
    plain = macros._connection.cursor()
    plain.execute("CREATE OR REPLACE MACRO predict(a, b) AS 'mine'; DROP MACRO predict_score")
    macros.put("m1", 5)
    assert plain.sql("SELECT predict(1, 2), sqlml.predict('m1', {'a': 1})").fetchall() == [
        ("mine", 6)
    ]
    with pytest.raises(duckdb.CatalogException):
        plain.sql("SELECT main.predict_score('m2', {'a': 1})")
    assert plain.sql("SELECT sqlml.predict_score('m2', {'a': 1})").fetchall() == [("61",)]
