"""Macros with which clients without sqlml score: `predict('churn', t)`.

::

    predict(sqlml_model, sqlml_row)      in schema sqlml, and in main unless the name is taken
      CASE WHEN sqlml_model IS NULL THEN NULL ELSE sqlml.choose_<digest>(...) END
    sqlml.choose_<digest>(struct_extract({'churn': NULL::BOOLEAN[1], ...}, m), r, m)
    sqlml.choose_<digest>(n BOOLEAN[1], r, m) AS CASE ... sqlml.run_<digest>(client(), r, m) END,
                         (n BOOLEAN[2], r, m) AS ...
    sqlml.run_<digest>(k INTEGER, r, m)  one model's expression, with r's fields as its columns
                      (k VARCHAR, r, m)  the same for clients that run models without Python

The engine binds every branch of a CASE, but only the overload of a macro that fits the types of the
arguments. The model's name is therefore turned into a type, the length of an array. The overloads
form a tree: above 16 models, a macro chooses by a hexadecimal digit of md5(lower(m)), and its
overloads call macros that choose by the next digit or by name. A call takes 1.8 ms with 10,000
models (7.2 s with one flat macro), and a changed model only rebuilds the macros on its path.

A session registers a function `client` that returns an INTEGER. Without Python, the runtime does,
and its `client` returns a VARCHAR. Each finds its own overload of `run_<digest>`. (Macros that an
earlier version of sqlml wrote are called `score_<digest>`, and need a session.)

A `<digest>` identifies a macro's content, so macros of the same name are equal in all databases.
`CASE WHEN m IS NULL` is folded away. It stops the engine from looking up functions while it creates
the macro, because an imported copy of a database does not have these functions yet. If the user has
dropped or replaced a bare macro, sqlml does not create it again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlml.catalog.catalog_connection import Connection, find_unstamped_models, write_stamp
from sqlml.catalog.model import is_name
from sqlml.catalog.tables import CHOOSERS, MACRO_TABLES, STORED_PREFIX
from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import builtin, fold_in_sql
from sqlml.types import fold

MACRO_KINDS: Mapping[str, Mapping[str, str]] = {
    "predict": {"label": ""},
    "predict_proba": {"proba": "", "class": ", class"},
    "predict_score": {"score": ""},
    "transform": {"transform": ""},
    "predict_interval": {"interval": "", "interval_at": ", coverage"},
    "predict_set": {"set": "", "set_at": ", coverage"},
}
"""Maps macros to the kinds of their overloads, with the SQL of further parameters for each kind."""

CLIENT = f"{STORED_PREFIX}client"
"""The function by whose type macros tell who calls them: an INTEGER means a session, and a VARCHAR
the runtime in a client without Python (`runtime.c`)."""

OWN_MACRO_PATTERN = r"sqlml\.choose_[0-9a-f]{24}\("
"""A pattern, for Python and the engine, that matches the definitions of sqlml's bare macros."""

_MODEL_PARAMETER, _ROW_PARAMETER = "sqlml_model", "sqlml_row"
"""Parameters of the macros that users call. They identify the macros of sqlml."""

_EXTRA_PARAMETERS = {kind: extra for kinds in MACRO_KINDS.values() for kind, extra in kinds.items()}

_MIN_STORAGE_VERSION = (1, 4)
"""The first storage version that keeps the types of a macro's parameters."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """The SQL `body` that computes an output of a model for the row `r`.

    `kind` is the kind of an overload in `MACRO_KINDS`. The body may call the engine function
    `function`, with the types `arguments` and `result`, and the macros `helpers` of `make_helper`.
    `client_body` computes the same in a client that runs models without Python.
    """

    kind: str
    body: str
    client_body: str
    function: str | None = None
    arguments: tuple[str, ...] = ()
    result: str = ""
    helpers: tuple[tuple[str, str], ...] = ()


def make_helper(name: str, definition: str) -> tuple[str, str]:
    """Return a unique name for a helper macro, and the definition of the macro."""
    return f"{name}_{hash_content(definition)}", definition


class Macros:
    """The scoring macros in the databases that one connection sees."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._outdated_schemas: dict[str, str] = {}

    def update(
        self,
        schema: str,
        database: str | None,
        key: str,
        calls: Sequence[ModelCall],
        compiled: str | None,
        shared: bool,
    ) -> None:
        """Make the macros compute `calls` for the model `key`, or remove a model without calls.

        `compiled` is the model's data for clients without Python. If the user opened the
        transaction (`shared`), the macros are rebuilt after its end, because two transactions that
        change the same macro conflict.
        """
        name, can_store = self.read_database(database)
        if not can_store or not self._store_calls(schema, key, calls, compiled):
            return
        if shared:
            self._outdated_schemas[name] = schema
        else:
            self._rebuild_macros(schema, name)

    @property
    def has_outdated(self) -> bool:
        return bool(self._outdated_schemas)

    def refresh(self) -> None:
        """Rebuild the outdated macros if the user's transaction has ended."""
        if not self._outdated_schemas or self._connection.in_transaction():
            return
        for database, schema in list(self._outdated_schemas.items()):
            if self._connection.has_database(database):
                self._connection.run_atomically(partial(self._rebuild_if_stored, schema, database))
            del self._outdated_schemas[database]

    def refresh_stale_macros(self) -> None:
        """Rebuild macros that another process left outdated, and stamp models without a stamp."""
        schema = self._connection.schema(None)
        tables = self._connection.list_tables(schema)
        if "catalog_models" in tables and (keys := find_unstamped_models(self._connection, schema)):

            def write_stamps() -> None:
                for key in keys:
                    write_stamp(self._connection, schema, key)

            self._connection.run_atomically(write_stamps)
        if "catalog_stale" not in tables:
            return
        if self._connection.read(f"SELECT 1 FROM {schema}.catalog_stale LIMIT 1"):
            database, _ = self.read_database(None)
            self._connection.run_atomically(partial(self._rebuild_if_stored, schema, database))

    def _rebuild_if_stored(self, schema: str, database: str) -> None:
        if "catalog_calls" in self._connection.list_tables(schema):
            self._rebuild_macros(schema, database)

    def drop_bare_macro(self, name: str) -> None:
        """Drop sqlml's macro `name` in schema main, before the user creates a function `name`."""
        name = fold(name)
        if name not in MACRO_KINDS:
            return
        database, _ = self.read_database(None)
        own_macro = self._connection.read(
            "SELECT 1 FROM system.main.duckdb_functions() WHERE database_name = ? "
            "AND schema_name = 'main' AND function_name = ? "
            "AND system.main.regexp_matches(coalesce(macro_definition, ''), ?)",
            [database, name, OWN_MACRO_PATTERN],
        )
        if own_macro:
            main_schema = f"{DUCKDB.quote_name(database)}.main"
            self._connection.write(f"DROP MACRO IF EXISTS {main_schema}.{name}")

    def read_database(self, name: str | None) -> tuple[str, bool]:
        """Return the exact name of a database, and whether its file can store typed macros."""
        ((exact_name, in_memory, tags),) = self._connection.read(
            "SELECT database_name, path IS NULL, tags::VARCHAR FROM system.main.duckdb_databases() "
            f"WHERE {fold_in_sql('database_name')} = "
            f"{fold_in_sql('coalesce(?, system.main.current_database())')}",
            [name],
        )
        match = re.search(r"v(\d+)\.(\d+)", str(tags))
        version = None if match is None else (int(match[1]), int(match[2]))
        is_new = bool(in_memory) if version is None else version >= _MIN_STORAGE_VERSION
        # In a database `sqlml`, the name of the schema sqlml would be ambiguous.
        return str(exact_name), is_new and fold(str(exact_name)) != "sqlml"

    def _store_calls(
        self, schema: str, key: str, calls: Sequence[ModelCall], compiled: str | None
    ) -> bool:
        """Store `calls` for the model `key`; return whether the macros must be rebuilt."""
        if not calls and "catalog_calls" not in self._connection.list_tables(schema):
            return False
        self._connection.create_tables(schema, MACRO_TABLES)
        rows_of_model = f"FROM {schema}.catalog_calls WHERE key = ?"
        macros_of_model = f"SELECT ?, NULL UNION SELECT key, macro {rows_of_model}"
        self._connection.write(f"INSERT INTO {schema}.catalog_stale {macros_of_model}", [key, key])
        self._connection.write(f"DELETE {rows_of_model}", [key])
        self._connection.write(f"DELETE FROM {schema}.catalog_compiled WHERE key = ?", [key])
        if compiled is not None:
            values = f"INSERT INTO {schema}.catalog_compiled VALUES (?, ?)"
            self._connection.write(values, [key, compiled])
        for name, definition in {helper for call in calls for helper in call.helpers}:
            self._connection.write(f"CREATE MACRO IF NOT EXISTS {schema}.{name}{definition}")
        rows = []
        for call in calls:
            macro = f"run_{hash_content(call.kind, key, call.body, call.client_body)}"
            extra_parameter = _EXTRA_PARAMETERS[call.kind]
            overloads = ", ".join(
                f"(k {client_type}, r, m{extra_parameter}) AS "
                f"CASE WHEN m IS NULL THEN NULL ELSE {body} END"
                for client_type, body in (("INTEGER", call.body), ("VARCHAR", call.client_body))
            )
            self._connection.write(f"CREATE MACRO IF NOT EXISTS {schema}.{macro}{overloads}")
            rows.append((key, call.kind, macro, call.function, list(call.arguments), call.result))
        types = "VARCHAR VARCHAR VARCHAR VARCHAR VARCHAR[] VARCHAR"
        self._insert_rows(f"{schema}.catalog_calls", types, rows)
        return True

    def _insert_rows(self, table: str, types: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            columns = [list(values) for values in zip(*rows, strict=True)]
            select = ", ".join(f"system.main.unnest(?::{t}[])" for t in types.split())
            self._connection.write(f"INSERT INTO {table} SELECT {select}", columns)

    def _rebuild_macros(self, schema: str, database: str) -> None:
        """Rebuild the macros of the changed models in a database.

        Only the subtrees below the first digits of these models are rebuilt. The other macros are
        read from the catalog. Two transactions that rebuild macros conflict.
        """
        self._connection.create_tables(schema, [CHOOSERS])
        kind_rows = self._connection.read(
            f"SELECT kind, system.main.count(*) FROM {schema}.catalog_calls GROUP BY kind"
        )
        model_counts = {str(kind): int(n) for kind, n in kind_rows if kind in _EXTRA_PARAMETERS}
        stale_rows = self._connection.read(f"SELECT key, macro FROM {schema}.catalog_stale")
        first_digits = sorted({hash_key(str(key))[0] for key, _ in stale_rows})
        stored = self._read_choosers(schema, first_digits)
        if not stale_rows and stored.keys() == model_counts.keys():
            return
        kinds = sorted(model_counts.keys() | stored.keys())
        unchanged = {
            kind: _find_unchanged_calls(stored.get(kind, ()), first_digits)
            if model_counts.get(kind, 0) > MAX_OVERLOADS
            else {}
            for kind in kinds
        }
        models = self._read_model_macros(schema, [kind for kind in kinds if not unchanged[kind]])
        models |= self._read_model_macros(schema, list(filter(unchanged.get, kinds)), first_digits)
        choosers = {
            kind: build_choosers(models[kind], _EXTRA_PARAMETERS.get(kind, ""), unchanged[kind])
            for kind in kinds
        }
        replaced = {
            kind: [chooser for chooser in old if chooser.prefix not in unchanged[kind]]
            for kind, old in stored.items()
        }
        unneeded = {str(macro) for _, macro in stale_rows if macro is not None}
        unneeded |= self._replace_choosers(schema, replaced, choosers)
        roots = {kind: new_choosers[-1] for kind, new_choosers in choosers.items() if new_choosers}
        main_schema = f"{DUCKDB.quote_name(database)}.main"
        for function, kinds_of_function in MACRO_KINDS.items():
            if not kinds_of_function.keys().isdisjoint(kinds):
                self._write_user_macro(schema, function, roots)
                is_new = kinds_of_function.keys().isdisjoint(stored)
                if self._may_replace_bare_macro(main_schema, function, is_new):
                    self._write_user_macro(main_schema, function, roots)
        self._drop_unused(schema, unneeded)
        self._connection.write(f"DELETE FROM {schema}.catalog_stale")

    def _read_choosers(self, schema: str, first_digits: Sequence[str]) -> dict[str, list[Chooser]]:
        """Map kinds to their stored macros at the top of the tree and below `first_digits`."""
        rows = self._connection.read(
            f"SELECT kind, prefix, macro, names, by_digit FROM {schema}.catalog_choosers WHERE "
            "system.main.length(prefix) <= 1 OR "
            f"system.main.list_contains(?::VARCHAR[], {_first_digit_sql('prefix')})",
            [first_digits],
        )
        choosers: dict[str, list[Chooser]] = {}
        for kind, prefix, macro, names, by_digit in rows:
            extra = _EXTRA_PARAMETERS.get(str(kind), "")
            chooser = Chooser(prefix, str(macro), tuple(map(str, names)), by_digit, extra)
            choosers.setdefault(str(kind), []).append(chooser)
        return choosers

    def _replace_choosers(
        self,
        schema: str,
        replaced: Mapping[str, Sequence[Chooser]],
        choosers: Mapping[str, Sequence[Chooser]],
    ) -> set[str]:
        """Replace macros of each kind; return the names of macros that are no longer used."""
        old_macros = {chooser.macro for old in replaced.values() for chooser in old}
        if old_macros:
            self._connection.write(
                f"DELETE FROM {schema}.catalog_choosers WHERE system.main.list_contains("
                "?::VARCHAR[], system.main.concat(kind, ' ', prefix))",
                [[f"{kind} {chooser.prefix}" for kind, old in replaced.items() for chooser in old]],
            )
        new_choosers = [(kind, chooser) for kind, new in choosers.items() for chooser in new]
        for _, chooser in new_choosers:
            if chooser.macro not in old_macros:
                macro = f"{schema}.{chooser.macro}{chooser.definition}"
                self._connection.write(f"CREATE OR REPLACE MACRO {macro}")
        rows = [(k, c.prefix, c.macro, list(c.names), c.by_digit) for k, c in new_choosers]
        types = "VARCHAR VARCHAR VARCHAR VARCHAR[] BOOLEAN"
        self._insert_rows(f"{schema}.catalog_choosers", types, rows)
        return old_macros - {chooser.macro for _, chooser in new_choosers}

    def _may_replace_bare_macro(self, main_schema: str, function: str, is_new: bool) -> bool:
        """Return whether sqlml made the macro in schema main, or its name is free if `is_new`."""
        parameter_lists = self._connection.list_parameters(f"{main_schema}.{function}", function)
        if parameter_lists is not None:
            return any(_ROW_PARAMETER in parameters for parameters in parameter_lists)
        others = (f"{database}.main.{function}" for database in ("system", "temp"))
        return is_new and all(self._connection.list_parameters(n, function) is None for n in others)

    def _read_model_macros(
        self, schema: str, kinds: Sequence[str], first_digits: Collection[str] | None = None
    ) -> dict[str, dict[str, str]]:
        """Map kinds to the macros of the models below `first_digits`, or of all models, by key."""
        models: dict[str, dict[str, str]] = {kind: {} for kind in kinds}
        is_listed = "system.main.list_contains(?::VARCHAR[], kind)"
        query = f"SELECT kind, key, macro FROM {schema}.catalog_calls WHERE {is_listed}"
        parameters = [list(kinds)]
        if first_digits is not None:
            digit = _first_digit_sql("system.main.md5(key)")
            query += f" AND system.main.list_contains(?::VARCHAR[], {digit})"
            parameters.append(list(first_digits))
        for kind, key, macro in self._connection.read(query, parameters) if kinds else ():
            if is_own_macro(macro) and is_name(str(key)):
                models[kind][str(key)] = str(macro)
        return models

    def _write_user_macro(self, schema: str, function: str, roots: Mapping[str, Chooser]) -> None:
        overloads = [
            f"({_MODEL_PARAMETER}, {_ROW_PARAMETER}{extra}) AS CASE WHEN {_MODEL_PARAMETER} IS "
            f"NULL THEN NULL ELSE {roots[kind].build_call(_ROW_PARAMETER, _MODEL_PARAMETER)} END"
            for kind, extra in MACRO_KINDS[function].items()
            if kind in roots
        ]
        if overloads:
            definition = f"{schema}.{function}{', '.join(overloads)}"
            self._connection.write(f"CREATE OR REPLACE MACRO {definition}")
        else:
            self._connection.write(f"DROP MACRO IF EXISTS {schema}.{function}")

    def _drop_unused(self, schema: str, macros: Collection[str]) -> None:
        if not macros:
            return
        needed = self._connection.read(
            f"SELECT macro FROM {schema}.catalog_calls "
            "WHERE system.main.list_contains(?::VARCHAR[], macro)",
            [sorted(macros)],
        )
        for name in sorted(filter(is_own_macro, set(macros) - {str(macro) for (macro,) in needed})):
            self._connection.write(f"DROP MACRO IF EXISTS {schema}.{name}")


def _first_digit_sql(text: str) -> str:
    return f"system.main.substr({text}, 1, 1)"


def _find_unchanged_calls(
    stored: Sequence[Chooser], first_digits: Collection[str]
) -> dict[str, str]:
    """Map first digits to calls of stored macros, except for `first_digits` and unsafe names."""
    if not all(is_own_macro(c.macro) and all(map(is_name, c.names)) for c in stored):
        return {}
    subtrees = [c for c in stored if len(c.prefix) == 1 and c.prefix not in first_digits]
    return {subtree.prefix: subtree.build_call() for subtree in subtrees}


MAX_OVERLOADS = 16
"""Maximum number of models among which one macro chooses by name."""

_NO_MODEL = (
    f"{builtin('struct_extract')}("
    f'{builtin("struct_pack")}("SHOW MODELS tells which there are" := NULL), m)'
)
"""The body for digits without a model. The engine raises an error with the model's name."""


@dataclass(frozen=True, slots=True)
class Chooser:
    """A macro that chooses among the models whose hashed keys begin with `prefix`.

    The macro has one overload for each of `names`: the names of models, or the next digits if
    `by_digit` is set. `definition` is the SQL after the name in CREATE MACRO, or "" for an existing
    macro. `extra` is SQL for parameters after r and m: "" or ", class".
    """

    prefix: str
    macro: str
    names: tuple[str, ...]
    by_digit: bool
    extra: str
    definition: str = ""

    def build_call(self, row: str = "r", model: str = "m") -> str:
        """Return SQL that calls the macro; `row` and `model` are SQL for the row and the name."""
        key = model  # `struct_extract` ignores case, like all names of the engine.
        if self.by_digit:
            position = len(self.prefix) + 1
            key = f"{builtin('substr')}({builtin('md5')}({fold_in_sql(model)}), {position}, 1)"
        fields = ", ".join(
            f"{DUCKDB.quote_name(name)} := NULL::BOOLEAN[{length}]"
            for length, name in enumerate(self.names, 1)
        )
        array = f"{builtin('struct_extract')}({builtin('struct_pack')}({fields}), {key})"
        return f"sqlml.{self.macro}({array}, {row}, {model}{self.extra})"


def build_choosers(
    models: Mapping[str, str], extra: str, existing: Mapping[str, str] | None = None
) -> list[Chooser]:
    """Build the macros of the tree that chooses among `models`, with the root last.

    `models` maps keys to macro names. `existing` maps first digits to calls of unchanged subtrees,
    whose models are not in `models`. `extra` is SQL for parameters after r and m: "" or ", class".
    """
    models_by_digits = [(hash_key(key), key, macro) for key, macro in sorted(models.items())]
    return _build_subtree(models_by_digits, extra, "", existing or {})


def _build_subtree(
    models: list[tuple[str, str, str]], extra: str, prefix: str, existing: Mapping[str, str]
) -> list[Chooser]:
    """Build the macros below `prefix`, with the root last; `models` are (digits, key, macro)."""
    if not models and not existing:
        return []
    choosers: list[Chooser] = []
    by_digit = len(models) > MAX_OVERLOADS or bool(existing)
    if by_digit:
        calls = {}
        for digit in "0123456789abcdef":
            models_below = [model for model in models if model[0][len(prefix)] == digit]
            subtree = _build_subtree(models_below, extra, prefix + digit, {})
            choosers += subtree
            calls[digit] = subtree[-1].build_call() if subtree else existing.get(digit, _NO_MODEL)
    else:
        calls = {key: _call_model_macro(macro, extra) for _, key, macro in models}
    definition = ", ".join(
        f"(n BOOLEAN[{length}], r, m{extra}) AS CASE WHEN m IS NULL THEN NULL ELSE {call} END"
        for length, call in enumerate(calls.values(), 1)
    )
    macro = f"choose_{hash_content(prefix, *calls, definition)}"
    return [*choosers, Chooser(prefix, macro, tuple(calls), by_digit, extra, definition)]


def _call_model_macro(macro: str, extra: str) -> str:
    client = f"{builtin(CLIENT)}(), " if macro.startswith("run_") else ""
    return f"sqlml.{macro}({client}r, m{extra})"


def hash_key(key: str) -> str:
    """Return the hexadecimal digits with which the tree of macros finds the model `key`.

    >>> hash_key("churn")[:4]
    '92e5'
    """
    return hashlib.md5(key.encode(), usedforsecurity=False).hexdigest()


_OWN_MACRO_NAME = re.compile(r"(?:choose|run|score)_[0-9a-f]{24}")


def is_own_macro(macro: object) -> bool:
    """Return whether `macro`, read from a possibly forged catalog, is a name that sqlml makes.

    >>> is_own_macro("run_" + "0" * 24), is_own_macro("run_x(); DROP TABLE t; --")
    (True, False)
    """
    return isinstance(macro, str) and _OWN_MACRO_NAME.fullmatch(macro) is not None


def hash_content(*content: str) -> str:
    """Return 24 hexadecimal digits that identify the content of a macro."""
    return hashlib.sha256("\0".join(content).encode()).hexdigest()[:24]
