"""What a text of SQL calls by bare names, as DuckDB itself reads the text.

Such a name means a macro of the database, if it has one: in a stranger's file that is their code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import duckdb

_NOTHING = re.compile(
    r"(?:BEGIN|COMMIT|ROLLBACK|SET|RESET|DROP|LOAD|"
    r"CREATE (?:OR REPLACE )?(?:TABLE|TYPE|SCHEMA|TEMP TABLE)"
    r"(?! [^(]* AS SELECT))\b",
    re.IGNORECASE,
)
"""Statements of ours that call nothing."""

_FORMS: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (r"(?:SELECT|FROM|WITH|VALUES)\b.*", lambda m: m[0]),
    (r"EXPLAIN (?:ANALYZE |\(FORMAT json\) )?(.*)", lambda m: m[1]),
    (r"(?:INSERT INTO|INSERT OR REPLACE INTO) \S+ (.*)", lambda m: m[1]),
    (r"DELETE FROM (.*)", lambda m: f"SELECT 1 FROM {m[1]}"),
    (r"UPDATE (\S+) SET (.*?) WHERE (.*)", lambda m: f"SELECT {m[2]} FROM {m[1]} WHERE {m[3]}"),
    (
        r"CREATE (?:OR REPLACE )?(?:VIEW|TABLE|TEMP TABLE) .*? AS\s+((?:SELECT|FROM)\b.*)",
        lambda m: m[1],
    ),
    (r"COPY \((.*)\) TO .*", lambda m: m[1]),
)
"""A statement -> a query with all that it calls; DuckDB serialises no others."""

_BRACKETS = {"ARRAY_EXTRACT", "ARRAY_SLICE", "STRUCT_EXTRACT", "ARRAY_CONSTRUCTOR", "ARROW"}
"""Operators for which the engine looks up a function by its bare name."""


def bare_names(sql: str, strict: bool = True) -> set[str]:
    """The functions, operators and brackets that a statement calls by bare names.

    And those of the engine's own that are macros, which themselves call others by bare names.
    `sqlml.f` is a macro of ours.

    Args:
        strict: fail on a text that cannot be read.
    """
    text = " ".join(sql.split()).rstrip("; ")
    macros = re.match(r"CREATE (?:OR REPLACE )?MACRO (?:IF NOT EXISTS )?", text)
    if macros:
        return set().union(*(_called(f"SELECT {body}") for body in _bodies(sql)))
    if _NOTHING.match(text):
        return set()
    for form, query in _FORMS:
        found = re.fullmatch(form, sql.strip().rstrip("; "), re.DOTALL | re.IGNORECASE)
        if found is not None:
            try:
                return _called(query(found))
            except ValueError:
                if strict:
                    raise
                return set()
    if strict:
        raise ValueError(f"a statement of another form: {sql}")
    return set()


@cache
def _engine() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


@cache
def own_macros() -> frozenset[str]:
    """Macros of the engine's own."""
    ask = "SELECT function_name FROM duckdb_functions() WHERE schema_name = 'main' "
    ask += "AND function_type LIKE '%macro'"
    return frozenset(str(name) for (name,) in _engine().execute(ask).fetchall())


def _bodies(sql: str) -> list[str]:
    """The bodies of the macros of CREATE MACRO, which is run in a database of its own."""
    name = re.sub(r"^(\s*CREATE (?:OR REPLACE )?MACRO (?:IF NOT EXISTS )?)[^(]*\(", r"\1made(", sql)
    with duckdb.connect() as con:
        con.execute("CREATE SCHEMA sqlml")
        con.execute(re.sub(r"IF NOT EXISTS ", "", name))
        ask = "SELECT macro_definition FROM duckdb_functions() WHERE function_name = 'made'"
        return [str(body) for (body,) in con.execute(ask).fetchall()]


def _called(query: str) -> set[str]:
    ask = "SELECT json_serialize_sql(?)"
    ((text,),) = _engine().execute(ask, [query]).fetchall()
    tree = json.loads(text)
    if tree["error"]:
        raise ValueError(f"{tree['error_message']}: {query}")
    return set(_bare(tree))


def _bare(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for part in node:
            yield from _bare(part)
    if not isinstance(node, dict):
        return
    name = node.get("function_name")
    if name is not None:
        place = node.get("catalog"), node.get("schema")
        if place != ("system", "main") and place != ("", "sqlml"):
            yield str(name)
        elif name in own_macros():
            yield f"system.main.{name}, a macro"
    if node.get("class") == "OPERATOR" and node.get("type") in _BRACKETS:
        yield str(node["type"])
    for part in node.values():
        yield from _bare(part)
