"""`rebuild`: the macros of a database, made from what its models compute.

Mostly a model or two are stale. Then only the macros that choose among models with the same first
digits (`name_tree.py`) are rebuilt; the rest is read from the catalog.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlml.catalog.connection import Connection
from sqlml.catalog.plain_macros.name_tree import MOST, Chooser, choosers, digits, is_ours
from sqlml.catalog.tables import CHOOSERS
from sqlml.dialects import DUCKDB

FUNCTIONS: Mapping[str, Mapping[str, str]] = {
    "predict": {"label": ""},
    "predict_proba": {"proba": "", "class": ", class"},
    "predict_score": {"score": ""},
    "transform": {"transform": ""},
}
"""Macro -> what it computes with which parameters after the model and the row."""

OURS = r"sqlml\.choose_[0-9a-f]{24}\("
"""A pattern (of Python and of the engine) that is in the definition of each of our macros."""

_MODEL, _ROW = "sqlml_model", "sqlml_row"
"""Parameters of the macros that users call, by which they are known to be ours."""

_EXTRA = {kind: extra for kinds in FUNCTIONS.values() for kind, extra in kinds.items()}


def rebuild(connection: Connection, schema: str, database: str) -> None:
    """Make the macros of a database as its models are now: two transactions that do so conflict.

    Args:
        schema: the catalog's schema, qualified and quoted.
        database: the database's name.
    """
    tables = connection.tables(schema)
    if "catalog_calls" not in tables:
        return
    kinds = connection.read(
        f"SELECT kind, system.main.count(*) FROM {schema}.catalog_calls GROUP BY kind"
    )
    counts = {str(kind): int(count) for kind, count in kinds if kind in _EXTRA}
    known: set[str] = set()
    if "catalog_choosers" in tables:
        rows = connection.read(f"SELECT DISTINCT kind FROM {schema}.catalog_choosers")
        known = {str(kind) for (kind,) in rows}
    if known == set(counts) and known:
        _rebuild_stale(connection, schema, database, counts)
    else:
        _rebuild_all(connection, schema, database, counts)
    connection.write(f"DELETE FROM {schema}.catalog_stale")


def _rebuild_stale(
    connection: Connection, schema: str, database: str, counts: Mapping[str, int]
) -> None:
    stale = connection.read(f"SELECT key, macro FROM {schema}.catalog_stale")
    if not stale:
        return
    first = sorted({digits(str(key))[0] for key, _ in stale})
    roots = {}
    unneeded = {str(macro) for _, macro in stale if macro is not None}
    for kind, count in counts.items():
        stored = connection.read(
            f"SELECT prefix, macro, names, by_digit FROM {schema}.catalog_choosers WHERE kind = ? "
            "AND (system.main.length(prefix) <= 1 OR "
            f"system.main.list_contains(?::VARCHAR[], {_first('prefix')}))",
            [kind, first],
        )
        beside: dict[str, str] = {}
        if count > MOST and len(stored) > 1 and all(is_ours(macro) for _, macro, *_ in stored):
            there = [Chooser(p, m, tuple(map(str, n)), d, _EXTRA[kind]) for p, m, n, d in stored]
            beside = {
                c.prefix: c.call() for c in there if len(c.prefix) == 1 and c.prefix not in first
            }
        models = _models(connection, schema, kind, first if beside else None)
        before = {p: str(macro) for p, macro, *_ in stored if p not in beside}
        parts = choosers(models, _EXTRA[kind], known=beside)
        roots.update({kind: parts[-1]} if parts else {})
        unneeded |= set(before.values()) - {part.macro for part in parts}
        connection.write(
            f"DELETE FROM {schema}.catalog_choosers "
            "WHERE system.main.list_contains(?::VARCHAR[], prefix) AND kind = ?",
            [list(before), kind],
        )
        _make_choosers(connection, schema, kind, parts, before.values())
    main = f"{DUCKDB.quote_name(database)}.main"
    for function in FUNCTIONS:
        _make(connection, schema, function, roots)
        if any(_ROW in p for p in connection.parameters(f"{main}.{function}", function)):
            _make(connection, main, function, roots)
    needed = connection.read(
        f"SELECT macro FROM {schema}.catalog_calls "
        "WHERE system.main.list_contains(?::VARCHAR[], macro)",
        [sorted(unneeded)],
    )
    _drop(connection, schema, unneeded - {str(macro) for (macro,) in needed})


def _rebuild_all(
    connection: Connection, schema: str, database: str, counts: Mapping[str, int]
) -> None:
    names = ", ".join(f"'{name}'" for name in FUNCTIONS)
    before = connection.read(
        f"SELECT database_name, schema_name, function_name, macro_definition "
        "FROM system.main.duckdb_functions() "
        f"WHERE function_name IN ({names}) OR schema_name = 'sqlml'"
    )
    own = {str(f) for d, s, f, _ in before if (d, s) == (database, "sqlml")}
    bare = {
        str(f)
        for d, s, f, definition in before
        if (d, s) == (database, "main") and re.search(OURS, str(definition))
    }
    taken = {str(f) for d, s, f, _ in before if s != "sqlml" and d in (database, "system", "temp")}
    free = bare | (set(FUNCTIONS) - taken - own)
    connection.write(CHOOSERS.format(schema=schema))
    connection.write(f"DELETE FROM {schema}.catalog_choosers")
    wanted: set[str] = set()
    roots = {}
    for kind in counts:
        models = _models(connection, schema, kind)
        parts = choosers(models, _EXTRA[kind])
        roots.update({kind: parts[-1]} if parts else {})
        wanted |= {*models.values(), *(part.macro for part in parts)}
        _make_choosers(connection, schema, kind, parts, own)
    for function, kinds in FUNCTIONS.items():
        for place in (
            schema,
            *([f"{DUCKDB.quote_name(database)}.main"] if function in free else []),
        ):
            if set(kinds) & set(roots):
                _make(connection, place, function, roots)
            elif function in own:
                connection.write(f"DROP MACRO IF EXISTS {place}.{function}")
    _drop(
        connection,
        schema,
        {name for name in own - wanted if name.startswith(("choose_", "score_"))},
    )


def _models(
    connection: Connection, schema: str, kind: str, first: Collection[str] | None = None
) -> dict[str, str]:
    """Key -> macro of the models that compute `kind`; those whose first digit is one of `first`."""
    where, values = "", [kind]
    if first is not None:
        where = f" AND system.main.list_contains(?::VARCHAR[], {_first('system.main.md5(key)')})"
        values.append(list(first))  # type: ignore[arg-type]
    rows = connection.read(
        f"SELECT key, macro FROM {schema}.catalog_calls WHERE kind = ?{where}", values
    )
    return {str(key): str(macro) for key, macro in rows if is_ours(macro)}


def _make_choosers(
    connection: Connection,
    schema: str,
    kind: str,
    parts: Sequence[Chooser],
    there: Collection[str],
) -> None:
    """Make the macros that are not `there`, and write all of them down."""
    for part in parts:
        if part.macro not in there:
            connection.write(f"CREATE OR REPLACE MACRO {schema}.{part.macro}{part.definition}")
    if not parts:
        return
    rows = [(part.prefix, part.macro, list(part.names), part.by_digit) for part in parts]
    prefixes, macros, names, digits_ = map(list, zip(*rows, strict=True))
    connection.write(
        f"INSERT INTO {schema}.catalog_choosers SELECT ?, system.main.unnest(?::VARCHAR[]), "
        "system.main.unnest(?::VARCHAR[]), system.main.unnest(?::VARCHAR[][]), "
        "system.main.unnest(?::BOOLEAN[])",
        [kind, prefixes, macros, names, digits_],
    )


def _first(text: str) -> str:
    """The first character of a text, as SQL."""
    return f"system.main.substr({text}, 1, 1)"


def _make(connection: Connection, place: str, function: str, roots: Mapping[str, Chooser]) -> None:
    """Make the macro that users call, with an overload for each kind that some model has."""
    overloads = [
        f"({_MODEL}, {_ROW}{extra}) AS CASE WHEN {_MODEL} IS NULL THEN NULL ELSE "
        f"{roots[kind].call(_ROW, _MODEL)} END"
        for kind, extra in FUNCTIONS[function].items()
        if kind in roots
    ]
    if overloads:
        made = ", ".join(overloads)
        connection.write(f"CREATE OR REPLACE MACRO {place}.{function}{made}")


def _drop(connection: Connection, schema: str, macros: Iterable[str]) -> None:
    for name in sorted(filter(is_ours, macros)):
        connection.write(f"DROP MACRO IF EXISTS {schema}.{name}")
