"""`rebuild`: the macros of a database, made from what its models compute.

Mostly a model or two are stale. Then only the macros that choose among models with the same first
digits (`name_tree.py`) are rebuilt; the rest is read from the catalog.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlml.catalog.connection import Connection
from sqlml.catalog.model import is_name
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

    The tables must have been looked at in this transaction (`Connection.tables`).

    Args:
        schema: the catalog's schema, qualified and quoted.
        database: the database's name.
    """
    connection.write(CHOOSERS.format(schema=schema))
    kinds = connection.read(
        f"SELECT kind, system.main.count(*) FROM {schema}.catalog_calls GROUP BY kind"
    )
    counts = {str(kind): int(count) for kind, count in kinds if kind in _EXTRA}
    rows = connection.read(f"SELECT DISTINCT kind FROM {schema}.catalog_choosers")
    known = {str(kind) for (kind,) in rows}
    stale = connection.read(f"SELECT key, macro FROM {schema}.catalog_stale")
    if not stale and known == set(counts):
        return
    first = sorted({digits(str(key))[0] for key, _ in stale})
    unneeded = {str(macro) for _, macro in stale if macro is not None}
    roots = {}
    for kind in sorted({*counts, *known}):
        there = _stored(connection, schema, kind, first) if kind in known else []
        parts, before = _rebuild_kind(connection, schema, kind, counts.get(kind, 0), first, there)
        roots.update({kind: parts[-1]} if parts else {})
        unneeded |= before - {part.macro for part in parts}
    for function, of_kinds in FUNCTIONS.items():
        if set(of_kinds) & {*counts, *known}:
            _make(connection, schema, function, roots)
            main = f"{DUCKDB.quote_name(database)}.main"
            if _takes_ours(connection, main, function, is_new=not set(of_kinds) & known):
                _make(connection, main, function, roots)
    _drop_unneeded(connection, schema, unneeded)
    connection.write(f"DELETE FROM {schema}.catalog_stale")


def _stored(connection: Connection, schema: str, kind: str, first: Sequence[str]) -> list[Chooser]:
    """The macros that choose among models of a kind: the upper ones, and those whose first digit
    is one of `first`."""
    rows = connection.read(
        f"SELECT prefix, macro, names, by_digit FROM {schema}.catalog_choosers WHERE kind = ? "
        "AND (system.main.length(prefix) <= 1 OR "
        f"system.main.list_contains(?::VARCHAR[], {_first('prefix')}))",
        [kind, first],
    )
    extra = _EXTRA.get(kind, "")
    return [Chooser(p, str(m), tuple(map(str, n)), d, extra) for p, m, n, d in rows]


def _rebuild_kind(
    connection: Connection,
    schema: str,
    kind: str,
    count: int,
    first: Sequence[str],
    there: Sequence[Chooser],
) -> tuple[list[Chooser], set[str]]:
    """Make the macros that choose among the `count` models of a kind.

    Args:
        first: the first digits of the models that may be stale.
        there: the macros as they are (`_stored`).

    Returns:
        The macros, the last above all others; and the names of those that were in their places.
    """
    beside: dict[str, str] = {}
    if (
        count > MOST
        and len(there) > 1
        and all(is_ours(c.macro) and all(map(is_name, c.names)) for c in there)
    ):
        beside = {c.prefix: c.call() for c in there if len(c.prefix) == 1 and c.prefix not in first}
    models = _models(connection, schema, kind, first if beside else None)
    before = {c.prefix: c.macro for c in there if c.prefix not in beside}
    parts = choosers(models, _EXTRA.get(kind, ""), known=beside)
    if before:
        connection.write(
            f"DELETE FROM {schema}.catalog_choosers "
            "WHERE system.main.list_contains(?::VARCHAR[], prefix) AND kind = ?",
            [list(before), kind],
        )
    _make_choosers(connection, schema, kind, parts, before.values())
    return parts, set(before.values())


def _takes_ours(connection: Connection, main: str, function: str, is_new: bool) -> bool:
    """Whether the bare macro is ours to make: it is ours already, or new and its name is free."""
    there = connection.parameters(f"{main}.{function}", function)
    if there is not None:
        return any(_ROW in parameters for parameters in there)
    others = (f"{place}.main.{function}" for place in ("system", "temp"))
    return is_new and all(connection.parameters(other, function) is None for other in others)


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
    return {str(key): str(macro) for key, macro in rows if is_ours(macro) and is_name(str(key))}


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
    """Make the macro that users call, with an overload for each kind that some model has; drop it
    where no model has one."""
    overloads = [
        f"({_MODEL}, {_ROW}{extra}) AS CASE WHEN {_MODEL} IS NULL THEN NULL ELSE "
        f"{roots[kind].call(_ROW, _MODEL)} END"
        for kind, extra in FUNCTIONS[function].items()
        if kind in roots
    ]
    if overloads:
        made = ", ".join(overloads)
        connection.write(f"CREATE OR REPLACE MACRO {place}.{function}{made}")
    else:
        connection.write(f"DROP MACRO IF EXISTS {place}.{function}")


def _drop_unneeded(connection: Connection, schema: str, macros: Collection[str]) -> None:
    """Drop those of the macros that no model calls."""
    if not macros:
        return
    needed = connection.read(
        f"SELECT macro FROM {schema}.catalog_calls "
        "WHERE system.main.list_contains(?::VARCHAR[], macro)",
        [sorted(macros)],
    )
    for name in sorted(filter(is_ours, set(macros) - {str(macro) for (macro,) in needed})):
        connection.write(f"DROP MACRO IF EXISTS {schema}.{name}")
