"""Register the functions that plans, views and macros call, before they are called.

A view contains rewritten SQL and outlives the process that created the view. Functions of views are
registered when a database is opened, attached or imported, or when the engine does not find one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import chain
from typing import Any, TypeVar

import duckdb

from sqlml.catalog.catalog_connection import Connection
from sqlml.catalog.lookup import Catalog
from sqlml.catalog.scoring_macros import CLIENT, ModelCall
from sqlml.dialects.duckdb import builtin
from sqlml.errors import SqlmlError, UnknownModelError
from sqlml.host import Host
from sqlml.ir import store
from sqlml.ir.program import Program
from sqlml.parsing.parse import has_several_statements
from sqlml.planner.plan.plan import Plan
from sqlml.planner.program.function_spec import (
    REFUSED_TEXT,
    find_refused_text_names,
    parse_function_name,
)
from sqlml.planner.syntax.statement_text import classify_text
from sqlml.udfs.duckdb.engine import DuckDBEngine
from sqlml.udfs.duckdb.functions_by_name import (
    SqlmlFunctions,
    make_client_function,
    make_functions_of_calls,
)
from sqlml.udfs.engine_function import EngineFunction, register_functions
from sqlml.udfs.make_function import find_refused_text_functions, make_engine_function

T = TypeVar("T")


class RegisteredFunctions:
    """Registers and renames the engine functions of sqlml for one connection."""

    def __init__(self, engine: DuckDBEngine, catalog: Catalog, host: Host) -> None:
        self._engine = engine
        self._catalog = catalog
        self._host = host
        self._sqlml_functions = SqlmlFunctions(engine.connection)

    def register(self, plan: Plan) -> str:
        names = register_functions(self._engine, plan, self.find_program)
        return self.rename_calls(plan.sql, names)

    def rename_calls(self, sql: str, names: Mapping[str, str]) -> str:
        """Rename calls in `sql` (`names` maps old names to new names), and register helpers."""
        for name, new_name in {**names, **self._register_refused_texts(sql)}.items():
            if new_name != name:
                sql = sql.replace(f"{name}(", f"{new_name}(")
        return sql

    def find_program(self, digest: str) -> Program:
        """Return the Program with this hash from the first database with an undamaged copy."""
        errors: list[SqlmlError] = []
        for database in chain([None], self._sqlml_functions.list_catalogs()):
            try:
                return self._catalog.program(digest, database)
            except SqlmlError as error:
                errors.append(error)
        raise next((e for e in errors if not isinstance(e, UnknownModelError)), errors[-1])

    def run_registering(self, function: Callable[[], T], statement: Any = None) -> T:
        """Run `function` and return the result, registering sqlml functions that are missing.

        Calls in views are discovered only when a query fails. So register the missing functions,
        then run `function` again. `statement` is the SQL that `function` runs; it may import a
        database.
        """
        registered_names: set[str] = set()
        while True:
            try:
                return function()
            except duckdb.CatalogException as error:
                message = str(error)
                spec = parse_function_name(message)
                missing_names = find_refused_text_names(message) if spec is None else {spec.name}
                missing_names |= {CLIENT} if CLIENT in message else set()
                sql = statement if isinstance(statement, str) else ""
                if missing_names <= registered_names or has_several_statements(sql):
                    raise  # Earlier statements have run, and must not run twice.
                registered_names |= missing_names
                if CLIENT in message:
                    self._engine.registry.add(make_client_function())
                if spec is None:
                    self._register_refused_texts(message)
                    continue
                connection = self._engine.connection
                program = find_exported_program(connection, self._host, sql, spec.program_hash)
                self._engine.register(spec, program or self.find_program(spec.program_hash))

    def register_stored(self) -> object:
        """Register all functions that views and macros call; return all databases and views."""
        definitions = self._sqlml_functions.list_definitions()
        self._register_called_in(definitions)
        self.register_for_macros()
        return self._sqlml_functions.list_databases(), definitions

    def register_for_macros(self) -> None:
        """Register the functions that scoring macros call, for connections without a session."""
        self._register(self._sqlml_functions.list_macro_functions())

    def register_for_calls(self, calls: Sequence[ModelCall]) -> None:
        self._register(make_functions_of_calls((c.function, c.arguments, c.result) for c in calls))

    def register_for_views(self) -> None:
        self._register_called_in(self._sqlml_functions.list_definitions())

    def _register(self, functions: Sequence[EngineFunction]) -> None:
        helpers = find_refused_text_functions(REFUSED_TEXT if functions else "")
        client = [make_client_function()] if functions else []
        for function in (*functions, *helpers, *client):
            self._engine.registry.add(function)

    def _register_called_in(self, definitions: Sequence[str]) -> None:
        for sql in definitions:
            self._register_refused_texts(sql)
            remaining_sql = sql
            while (spec := parse_function_name(remaining_sql)) is not None:
                remaining_sql = remaining_sql.partition(spec.name)[2]
                with suppress(SqlmlError):  # If the model is missing, reading the view fails.
                    program = self.find_program(spec.program_hash)
                    self._engine.make_callable(make_engine_function(spec, program, on_use=True))

    def _register_refused_texts(self, sql: str) -> dict[str, str]:
        """Register the helper functions that `sql` calls; map their names to registered names."""
        return {
            f.name: self._engine.find_registered(f.name) or self._engine.make_callable(f)
            for f in find_refused_text_functions(sql)
        }


class NewViewWatcher:
    """Registers the functions of views that ATTACH or IMPORT add on one connection.

    The functions must be registered before anyone reads the views. New views are inspected on
    another connection, so that no open result is closed, and profile, log and memory limit do not
    change. If an open transaction hides the views from other connections, `unseen` becomes true.
    Then the user's connection is inspected before the next statement.
    """

    def __init__(
        self,
        functions: RegisteredFunctions,
        open_other_connection: Callable[[], AbstractContextManager[RegisteredFunctions]],
    ) -> None:
        self._functions = functions
        self._open_other_connection = open_other_connection
        self.unseen: bool = False

    def watch(self, query: Any) -> AbstractContextManager[None]:
        """Return a context manager that registers the functions of views added by `query`."""
        return self._watch() if classify_text(query).may_add_models else nullcontext()

    @contextmanager
    def _watch(self) -> Iterator[None]:
        known_views = self._inspect()
        yield
        self.unseen = self._inspect() == known_views

    def register_unseen(self) -> None:
        """Register the functions of views that the user's own transaction has added."""
        if self.unseen:
            self.unseen = False
            with suppress(duckdb.Error, SqlmlError):
                self._functions.register_stored()

    def _inspect(self) -> object:
        with suppress(duckdb.Error, SqlmlError), self._open_other_connection() as functions:
            return functions.register_stored()
        return None


_TEXT = r"'((?:[^']|'')*)'"
_COPY = re.compile(
    rf"^COPY\s+\S*sqlml\S*\.\"?catalog_programs\"?\s+FROM\s+{_TEXT}(.*);\s*$",
    re.IGNORECASE | re.MULTILINE,
)
_OPTION = re.compile(rf"\b(\w+)\s+(?:{_TEXT}|(\w+))")

_CSV_OPTIONS = {
    **dict.fromkeys(("delimiter", "delim", "sep"), "delim"),
    **dict.fromkeys(("null", "nullstr"), "nullstr"),
    **{name: name for name in ("quote", "escape", "header")},
}
"""Maps options of COPY that EXPORT DATABASE may write for a CSV file to options of read_csv."""


def find_exported_program(
    connection: Connection, host: Host, statement: str, digest: str
) -> Program | None:
    """Return the Program whose hash begins with `digest` from the folder that a statement imports.

    Return None if the folder lacks the Program, or if the statement does not import a database.

    IMPORT DATABASE creates views before it loads tables, but a view that calls a model needs a
    function. The engine reads files of the folder under its access settings, and runs nothing.
    """
    folder = classify_text(statement).imported_folder
    if folder is None:
        return None
    try:
        copy_match = _COPY.search(host.file_content(os.path.join(folder, "load.sql")).decode())
        if copy_match is None:
            return None
        # Like DuckDB, use only the name of the file, because the folder may have been moved.
        path = os.path.join(folder, os.path.basename(_unquote(copy_match[1])))
        return _read_exported_program(connection, path, copy_match[2], digest)
    except (UnicodeDecodeError, duckdb.Error, SqlmlError):
        return None  # IMPORT reports the error.


def _read_exported_program(
    connection: Connection, path: str, copy_options: str, digest: str
) -> Program | None:
    options = {name.lower(): quoted or word for name, quoted, word in _OPTION.findall(copy_options)}
    params: list[object] = [path]
    if options.get("format", "csv").lower() == "csv":
        csv_texts = {name: quoted for name, quoted in options.items() if name in _CSV_OPTIONS}
        csv_options = {_CSV_OPTIONS[name]: _unquote(quoted) for name, quoted in csv_texts.items()}
        if "header" in csv_options:
            csv_options["header"] = str(csv_options["header"].lower() in ("1", "true"))
        assignments = "".join(f", {name} = ?" for name in csv_options)
        columns = "hash := 'VARCHAR', format := 'INTEGER', content := 'BLOB'"
        columns = f"{builtin('struct_pack')}({columns})"
        table = f"{builtin('read_csv')}(?, columns = {columns}, auto_detect = false{assignments})"
        params += csv_options.values()
    else:
        table = f"{builtin('read_parquet')}(?)"
    condition = f"{builtin('starts_with')}(hash, ?)"
    rows = connection.read(f"SELECT content FROM {table} WHERE {condition}", [*params, digest])
    for (content,) in rows:
        program = store.loads(bytes(content))
        if program.hash.startswith(digest):
            return program
    return None


def _unquote(text: str) -> str:
    return text.replace("''", "'")
