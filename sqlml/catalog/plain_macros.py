"""Macros that choose a model by its name, as a tree: pure functions.

The engine binds every branch of a CASE, even if it needs columns that the table lacks, and gives
all of them one type. Of the overloads of a macro it binds only the one that the arguments' types
choose, so the model's name becomes a type, the length of an array::

    sqlml.choose_<digest>(struct_extract({'churn': NULL::BOOLEAN[1], ..}, m), r, m)
    sqlml.choose_<digest>(n BOOLEAN[1], r, m) AS CASE .. sqlml.score_<digest>(r, m) END,
                         (n BOOLEAN[2], r, m) AS ..

A macro of ten thousand overloads takes seconds to make. So where there are many models they are
dealt out by the hexadecimal digits of the md5 of m in lower case, and an overload of a macro above
calls one below. When a model changes, the macros on the way to it are rebuilt, sixteen overloads
each.

A `<digest>` is of the macro's own content: a macro of that name in another database, which the
engine may find first, does the same. `CASE WHEN m IS NULL` is folded away. It stops the engine from
looking for functions while it creates the macro, when a copy of the database that is being imported
has none of them yet.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sqlml.catalog.connection import Connection, unstamped, write_stamps
from sqlml.catalog.model import is_name
from sqlml.catalog.tables import CHOOSERS, MACRO_TABLES
from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import builtin, folded
from sqlml.types import fold

MOST = 16
"""Models that one macro tells apart by their names."""

_DIGITS = "0123456789abcdef"
_MACRO = re.compile(r"(?:choose|score)_[0-9a-f]{24}")
_NOBODY = (
    f"{builtin('struct_extract')}("
    f'{builtin("struct_pack")}("SHOW MODELS tells which there are" := NULL), m)'
)
"""The error for digits that no model has; it names the model, as for any unknown name."""


@dataclass(frozen=True, slots=True)
class Chooser:
    """A macro of the tree.

    prefix: the digits that lead to it. macro: its name. names: those that it tells apart, of models
    or (`by_digit`) digits. extra: see `choosers`. definition: what follows the name in CREATE
    MACRO; None if the macro exists already.
    """

    prefix: str
    macro: str
    names: tuple[str, ...]
    by_digit: bool
    extra: str
    definition: str = ""

    def call(self, row: str = "r", model: str = "m") -> str:
        """The expression that computes the model of that name of the row."""
        own = model  # the engine finds a struct's field as it finds any name
        if self.by_digit:
            place = len(self.prefix) + 1
            own = f"{builtin('substr')}({builtin('md5')}({folded(model)}), {place}, 1)"
        numbers = ", ".join(
            f"{DUCKDB.quote_name(name)} := NULL::BOOLEAN[{place}]"
            for place, name in enumerate(self.names, 1)
        )
        number = f"{builtin('struct_extract')}({builtin('struct_pack')}({numbers}), "
        number += f"{own})"
        return f"sqlml.{self.macro}({number}, {row}, {model}{self.extra})"


def digits(key: str) -> str:
    """The digits by which the engine finds a model.

    >>> digits("churn")[:4]
    '92e5'
    """
    return hashlib.md5(key.encode(), usedforsecurity=False).hexdigest()


def choosers(
    models: Mapping[str, str], extra: str, known: Mapping[str, str] | None = None
) -> list[Chooser]:
    """The macros of a tree; the last is the one above all others.

    Args:
        models: key -> the macro that computes the model; all of them, but for `known`.
        extra: what follows after r and m in parameters and calls: "" or ", class".
        known: digit -> the call of a chooser by the first digit that is there already.
    """
    found = [(digits(key), key, macro) for key, macro in sorted(models.items())]
    return _choosers(found, extra, "", known or {})


def _choosers(
    models: list[tuple[str, str, str]], extra: str, prefix: str, known: Mapping[str, str]
) -> list[Chooser]:
    """The macros below `prefix` that choose among models: digits, key and macro of each."""
    if not models and not known:
        return []
    made: list[Chooser] = []
    by_digit = len(models) > MOST or bool(known)
    if by_digit:
        choices = {}
        below: dict[str, list[tuple[str, str, str]]] = {digit: [] for digit in _DIGITS}
        for model in models:
            below[model[0][len(prefix)]].append(model)
        for digit, part in below.items():
            parts = _choosers(part, extra, prefix + digit, {})
            made += parts
            choices[digit] = parts[-1].call() if parts else known.get(digit, _NOBODY)
    else:
        choices = {key: f"sqlml.{macro}(r, m{extra})" for _, key, macro in models}
    definition = ", ".join(
        f"(n BOOLEAN[{place}], r, m{extra}) AS CASE WHEN m IS NULL THEN NULL ELSE {call} END"
        for place, call in enumerate(choices.values(), 1)
    )
    macro = f"choose_{digest(prefix, *choices, definition)}"
    return [*made, Chooser(prefix, macro, tuple(choices), by_digit, extra, definition)]


def is_ours(macro: object) -> bool:
    """Whether a name is one of those that we give to macros: rows may hold anything.

    >>> is_ours("score_" + "0" * 24), is_ours("score_x(); DROP TABLE t; --")
    (True, False)
    """
    return isinstance(macro, str) and _MACRO.fullmatch(macro) is not None


def digest(*content: str) -> str:
    """24 hexadecimal digits of what a macro is."""
    return hashlib.sha256("\0".join(content).encode()).hexdigest()[:24]


# `rebuild`: the macros of a database, made from what its models compute.
#
# Mostly a model or two are stale. Then only the macros that choose among models with the same
# first digits (`plain_macros.py`) are rebuilt; the rest is read from the catalog.


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


# Macros with which an unmodified client of the database scores: `predict('churn', t)`.
#
# ::
#
#     predict(sqlml_model, sqlml_row)      in schema sqlml, and in main unless the name is taken
#       CASE WHEN sqlml_model IS NULL THEN NULL ELSE sqlml.choose_<digest>(..) END
#     sqlml.choose_<digest>(n, r, m)       the model of that name (`plain_macros.py`)
#     sqlml.score_<digest>(r, m)           one model's call, with r's fields as its columns
#
# What a model computes is written down in the transaction that changes the model, beside its name
# as one whose macros are stale; these are made in the same transaction, or after it where it is
# the user's own. A bare macro that its owner dropped, or replaced by a function of theirs, stays
# so.


_TYPED = (1, 4)
"""The storage version of the engine that first keeps the types of a macro's parameters."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """What one model computes of the row `r`, as SQL, and the engine function in it.

    `kind` is one of those in `FUNCTIONS`; a "class" has the parameter `class`. `function` is None
    if `body` calls none. `helpers` are macros that `body` calls as `sqlml.<name>`: their names,
    made by `helper`, and what follows the name in CREATE MACRO.
    """

    kind: str
    body: str
    function: str | None = None
    arguments: tuple[str, ...] = ()
    result: str = ""
    helpers: tuple[tuple[str, str], ...] = ()


def helper(name: str, definition: str) -> tuple[str, str]:
    """A macro for bodies; its name is `name` and a digest of what it does."""
    return f"{name}_{digest(definition)}", definition


class Macros:
    """Keeps the macros of the databases that one connection sees."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._outdated: dict[str, str] = {}

    def keep(
        self,
        schema: str,
        database: str | None,
        key: str,
        calls: Sequence[ModelCall],
        shared: bool,
    ) -> None:
        """Make `calls` what the macros compute for the model `key`; none: forget the model.

        In a transaction that is the user's own (`shared`) the macros wait for its end, since two
        transactions that change one macro conflict.

        Args:
            schema: the catalog's schema, qualified and quoted.
            database: the database's name; None: the current one.
        """
        name = self._database(database)
        if not _keep(self._connection, schema, name, key, calls):
            return
        if shared:
            self._outdated[name] = schema
        else:
            rebuild(self._connection, schema, name)

    @property
    def outdated(self) -> bool:
        """Whether macros wait for the end of the user's transaction."""
        return bool(self._outdated)

    def refresh(self) -> None:
        """Make the macros that wait for the end of the user's transaction, if it has ended."""
        if not self._outdated or self._connection.in_transaction():
            return
        for database, schema in list(self._outdated.items()):
            if self._connection.has_database(database):
                self._connection.atomic(partial(self._rebuild, schema, database))
            del self._outdated[database]

    def catch_up(self) -> None:
        """Make the macros that a process left stale which ended before it came to them.

        And the stamps of models that an older sqlml made.
        """
        schema = self._connection.schema(None)
        tables = self._connection.tables(schema)
        if "catalog_models" in tables and (keys := unstamped(self._connection, schema)):
            self._connection.atomic(partial(write_stamps, self._connection, schema, keys))
        if "catalog_stale" not in tables:
            return
        if self._connection.read(f"SELECT 1 FROM {schema}.catalog_stale LIMIT 1"):
            self._connection.atomic(partial(self._rebuild, schema, self._database(None)))

    def _rebuild(self, schema: str, database: str) -> None:
        """Make the macros of a database, on tables that are as sqlml makes them."""
        if "catalog_calls" in self._connection.tables(schema):
            rebuild(self._connection, schema, database)

    def make_room(self, name: str) -> None:
        """Drop our bare macro `name`: the user is about to make a function of that name."""
        name = fold(name)
        if name not in FUNCTIONS:
            return
        database = self._database(None)
        found = self._connection.read(
            "SELECT 1 FROM system.main.duckdb_functions() WHERE database_name = ? "
            "AND schema_name = 'main' AND function_name = ? "
            "AND system.main.regexp_matches(coalesce(macro_definition, ''), ?)",
            [database, name, OURS],
        )
        if found:
            self._connection.write(
                f"DROP MACRO IF EXISTS {DUCKDB.quote_name(database)}.main.{name}"
            )

    def _database(self, name: str | None) -> str:
        """The name of a database (None: the current one) as the engine writes it."""
        rows = self._connection.read(
            "SELECT database_name FROM system.main.duckdb_databases() WHERE "
            f"{folded('database_name')} = {folded('coalesce(?, system.main.current_database())')}",
            [name],
        )
        return str(rows[0][0])


def _keep(
    connection: Connection, schema: str, database: str, key: str, calls: Sequence[ModelCall]
) -> bool:
    """Write down `calls` as what the model `key` of a database computes; none: forget it.

    Args:
        schema: the catalog's schema, qualified and quoted.
        database: the database's name.

    Returns:
        Whether `rebuild` has something to do.
    """
    if not calls and "catalog_calls" not in connection.tables(schema):
        return False
    if not _takes_types(connection, database):
        return False
    for statement in MACRO_TABLES:
        connection.write(statement.format(schema=schema))
    own = f"FROM {schema}.catalog_calls WHERE key = ?"
    stale = f"INSERT INTO {schema}.catalog_stale SELECT ?, NULL UNION SELECT key, macro {own}"
    connection.write(stale, [key, key])
    connection.write(f"DELETE {own}", [key])
    for name, definition in {h for call in calls for h in call.helpers}:
        connection.write(f"CREATE MACRO IF NOT EXISTS {schema}.{name}{definition}")
    for call in calls:
        macro = f"score_{digest(call.kind, key, call.body)}"
        extra = ", class" if call.kind == "class" else ""
        connection.write(
            f"CREATE MACRO IF NOT EXISTS {schema}.{macro}(r, m{extra}) AS "
            f"CASE WHEN m IS NULL THEN NULL ELSE {call.body} END"
        )
        connection.write(
            f"INSERT INTO {schema}.catalog_calls VALUES (?, ?, ?, ?, ?, ?)",
            [key, call.kind, macro, call.function, list(call.arguments), call.result],
        )
    return True


def _takes_types(connection: Connection, database: str) -> bool:
    """Whether macros of a database may have typed parameters, and the name sqlml means a schema."""
    if fold(database) == "sqlml":
        return False
    rows = connection.read(
        "SELECT path IS NULL, tags::VARCHAR FROM system.main.duckdb_databases() "
        "WHERE database_name = ?",
        [database],
    )
    for in_memory, tags in rows:
        found = re.search(r"v(\d+)\.(\d+)", str(tags))
        return bool(in_memory) if found is None else (int(found[1]), int(found[2])) >= _TYPED
    return False
