"""Register the functions that plans, views and macros call, before they are called.

A view holds rewritten SQL and outlives the process that made it. Its functions are registered when
a database is opened, attached or imported, or when the engine misses one.
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
from sqlml.catalog.scoring_macros import ModelCall
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
from sqlml.udfs.duckdb.functions_by_name import SqlmlFunctions, make_functions_of_calls
from sqlml.udfs.engine_function import EngineFunction, register_functions
from sqlml.udfs.make_function import find_refused_text_functions, make_engine_function

T = TypeVar("T")


class RegisteredFunctions:
    """Registers and renames the engine functions of sqlml for one connection."""

    def __init__(self, engine: DuckDBEngine, catalog: Catalog, host: Host) -> None:
        self._engine = engine
        self._catalog = catalog
        self._host = host
        self._ours = SqlmlFunctions(engine.connection)

    def register(self, plan: Plan) -> str:
        names = register_functions(self._engine, plan, self.find_program)
        return self.rename_calls(plan.sql, names)

    def rename_calls(self, sql: str, names: Mapping[str, str]) -> str:
        """Rename calls in `sql` by `names`, old -> new, and register its `refused_text` helpers."""
        for name, new_name in {**names, **self._register_refused_texts(sql)}.items():
            if new_name != name:
                sql = sql.replace(f"{name}(", f"{new_name}(")
        return sql

    def find_program(self, digest: str) -> Program:
        """Return the Program with this hash from the first database that has an undamaged copy."""
        failures: list[SqlmlError] = []
        for database in chain([None], self._ours.list_catalogs()):
            try:
                return self._catalog.program(digest, database)
            except SqlmlError as error:
                failures.append(error)
        raise next((f for f in failures if not isinstance(f, UnknownModelError)), failures[-1])

    def retry(self, function: Callable[[], T], statement: Any = None) -> T:
        """Run `function` and return its result, registering sqlml functions that the engine lacks.

        If a view calls such functions, they are registered, and `function` runs again. `statement`
        is the SQL that `function` runs, which may import a database.
        """
        registered: set[str] = set()
        while True:
            try:
                return function()
            except duckdb.CatalogException as error:
                spec = parse_function_name(str(error))
                names = {spec.name} if spec is not None else find_refused_text_names(str(error))
                text = statement if isinstance(statement, str) else ""
                if names <= registered or has_several_statements(text):
                    raise  # Earlier statements have run, and would run again.
                registered |= names
                if spec is None:
                    self._register_refused_texts(str(error))
                    continue
                connection = self._engine.connection
                program = find_exported_program(connection, self._host, text, spec.program_hash)
                self._engine.register(spec, program or self.find_program(spec.program_hash))

    def register_stored(self) -> object:
        """Register all functions that views and macros call; return all databases and views."""
        texts = self._ours.list_definitions()
        self._register_called_in(texts)
        self.register_for_macros()
        return self._ours.list_databases(), texts

    def register_for_macros(self) -> None:
        """Register the functions that scoring macros call, for connections without a session."""
        self._register(self._ours.list_macro_functions())

    def register_for_calls(self, calls: Sequence[ModelCall]) -> None:
        self._register(make_functions_of_calls((c.function, c.arguments, c.result) for c in calls))

    def register_for_views(self) -> None:
        """Register the functions that views call, before the views are read."""
        self._register_called_in(self._ours.list_definitions())

    def _register(self, functions: Sequence[EngineFunction]) -> None:
        refused = find_refused_text_functions(REFUSED_TEXT if functions else "")
        for function in (*functions, *refused):
            self._engine.registry.add(function)

    def _register_called_in(self, texts: Sequence[str]) -> None:
        for text in texts:
            self._register_refused_texts(text)
            remaining_text = text
            while (spec := parse_function_name(remaining_text)) is not None:
                remaining_text = remaining_text[remaining_text.index(spec.name) + len(spec.name) :]
                with suppress(SqlmlError):  # If the model is gone, reading the view reports it.
                    program = self.find_program(spec.program_hash)
                    self._engine.make_callable(make_engine_function(spec, program, on_use=True))

    def _register_refused_texts(self, sql: str) -> dict[str, str]:
        """Register the functions that `sql` calls to report a string that a model rejects.

        Return a map from each function's name in `sql` to the name under which it was registered.
        """
        return {
            f.name: self._engine.find_registered(f.name) or self._engine.make_callable(f)
            for f in find_refused_text_functions(sql)
        }


class NewViewWatcher:
    """A watcher for views that call models and are added by ATTACH or IMPORT on one connection.

    The functions of such views must be registered before anyone reads the views. New views are
    inspected on a separate connection, so that no open result is closed, and profile, log and
    memory limit do not change. But a transaction hides its changes from other connections until it
    ends. Then `unseen` is true, and the user's connection is inspected before the next statement.
    """

    def __init__(
        self,
        functions: RegisteredFunctions,
        open_beside: Callable[[], AbstractContextManager[RegisteredFunctions]],
    ) -> None:
        self._functions = functions
        self._open_beside = open_beside
        self.unseen: bool = False

    def watch(self, query: Any) -> AbstractContextManager[None]:
        """Return a context in which to run `query`; it registers the functions of new views."""
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
        with suppress(duckdb.Error, SqlmlError), self._open_beside() as functions:
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
"""Options of COPY that EXPORT DATABASE may write for a CSV file -> options of read_csv."""


def find_exported_program(
    connection: Connection, host: Host, statement: str, digest: str
) -> Program | None:
    """Find a Program, by a prefix of its hash, in the folder that a statement will import.

    If the folder lacks the Program, or the statement does not import, None is returned.

    IMPORT DATABASE creates the views before it loads the tables, and a view that calls a model
    needs its function. The engine reads the folder under its own access settings, and runs nothing.
    """
    folder = classify_text(statement).imported_folder
    if folder is None:
        return None
    try:
        copy_match = _COPY.search(host.file_content(os.path.join(folder, "load.sql")).decode())
        if copy_match is None:
            return None
        # The folder may have been moved since, so only the name counts, as for DuckDB.
        path = os.path.join(folder, os.path.basename(_unquote(copy_match[1])))
        return _read_exported_program(connection, path, copy_match[2], digest)
    except (UnicodeDecodeError, duckdb.Error, SqlmlError):
        return None  # IMPORT will report what is wrong with the folder.


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
