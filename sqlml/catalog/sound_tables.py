"""`sound_tables`: the tables of a catalog, which run nothing when they are read or written.

A database may come from a stranger. Instead of a table of ours it may hold a view, whose query the
engine would run, or a table with generated columns, defaults, checks or indexes of expressions, or
with triggers (DuckDB 2.0). Only tables that are as `tables.py` makes them are used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlml.catalog.tables import CHOOSERS, MACRO_TABLES, TABLES, TRAINING_TABLES
from sqlml.dialects.duckdb import folded
from sqlml.errors import CatalogError
from sqlml.types import fold

Read = Callable[[str, Sequence[Any]], Sequence[tuple[Any, ...]]]
"""Rows of a query with parameters."""

_OF = f"WHERE {folded('database_name')} = {folded('?')} AND {folded('schema_name')} = 'sqlml'"
_SCHEMA = f"SELECT 1 FROM system.main.duckdb_schemas() {_OF}"
_DEFINED = f"SELECT table_name, sql, index_count FROM system.main.duckdb_tables() {_OF}"
_TRIGGERS = f"SELECT table_name, trigger_name, -1 FROM system.main.duckdb_triggers() {_OF}"
_VIEWS = f"SELECT view_name FROM system.main.duckdb_views() {_OF}"

_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_KEY = re.compile(r",?\s*\bprimary key\b\s*(\([^)]*\))?")
_NAME = re.compile(r"exists \{schema\}\.(\w+)\s*(\(.*\))", re.DOTALL)


def sound_tables(read: Read, database: str, triggers: bool) -> frozenset[str]:
    """The names of those tables of ours that the schema `sqlml` of a database has.

    Args:
        read: asks the engine, in the user's transaction.
        database: the database's name.
        triggers: whether the engine knows triggers.

    Raises:
        CatalogError: one of them is not as sqlml makes it; what it is instead, and what to do.
    """
    if not read(_SCHEMA, [database]):
        return frozenset()  # a tenth of the time that a first look at its tables takes
    ask, values = _DEFINED, [database]
    if triggers:
        ask, values = f"{_DEFINED} UNION ALL {_TRIGGERS}", [database, database]
    found = [(fold(str(name)), str(text), count) for name, text, count in read(ask, values)]
    tables = {name: (text, count) for name, text, count in found if count >= 0 and name in _SHAPES}
    for name, (text, count) in tables.items():
        if _shape(text[text.find("(") :].removesuffix(";")) != _SHAPES[name]:
            raise _unsound(database, name, f"is {_short(text)}")
        if count != ("PRIMARY KEY" in text):
            raise _unsound(database, name, "has an index that sqlml did not make")
    for name, trigger, count in found:
        if count < 0 and name in _SHAPES:
            raise _unsound(database, name, f"has the trigger {trigger!r}")
    if len(tables) < len(_SHAPES):
        for (view,) in read(_VIEWS, [database]):
            if fold(str(view)) in _SHAPES:
                raise _unsound(database, str(view), "is a view")
    return frozenset(tables)


def _unsound(database: str, name: str, found: str) -> CatalogError:
    return CatalogError(
        f"the model catalog of database {database!r} has been altered and could run someone "
        f"else's SQL: sqlml.{name} {found}; inspect it with duckdb.connect and undo the change, "
        "or DROP SCHEMA sqlml CASCADE and create the models again"
    )


def _short(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:297]}..."


def _shape(columns: str) -> str:
    """Columns and types of a table as the engine or we write them.

    Keys and NOT NULL, which only refuse rows, are left out. The engine quotes a name that is a
    keyword, or not a word: one that is not ours keeps its quotes, whatever it holds.

    >>> _shape('("key" VARCHAR PRIMARY KEY, version INTEGER NOT NULL, PRIMARY KEY("key"))')
    '(key varchar,version integer)'
    >>> _shape('("key" VARCHAR, "primary key" INTEGER)')
    '(key varchar,"primary key" integer)'
    """
    plain = " ".join(_QUOTED.sub(_unquoted, fold(columns)).split())
    if '"' not in plain:
        plain = _KEY.sub("", plain).replace(" not null", "")
    return re.sub(r"\s*([(),])\s*", r"\1", plain)


def _unquoted(quoted: re.Match[str]) -> str:
    """A quoted name without its quotes, if it is one of ours."""
    return quoted[1] if quoted[1] in _OUR_WORDS else quoted[0]


def _shapes() -> Mapping[str, str]:
    made = {}
    for statement in _ALL:
        found = _NAME.search(" ".join(statement.split()).replace("EXISTS", "exists"))
        if found is not None:
            made[found[1]] = _shape(found[2])
    return MappingProxyType(made)


_ALL = (*TABLES, *TRAINING_TABLES, *MACRO_TABLES, CHOOSERS)

_OUR_WORDS = frozenset(re.findall(r"\w+", fold(" ".join(_ALL))))
_OUR_WORDS -= {"primary", "not", "null"}
"""Words of our own definitions, without the keywords that `_shape` leaves out."""

_SHAPES = _shapes()
"""Table -> its columns and types."""

OUR_TABLES = frozenset(_SHAPES)
"""The names of the tables of a catalog."""
