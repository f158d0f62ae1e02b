"""Create views that call models, so that clients without Python can read them.

A macro of the user calls functions of the session itself, since it would call macros of the catalog
before IMPORT DATABASE has created them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import duckdb

from sqlml.catalog.lookup import Catalog
from sqlml.catalog.scoring_macros import Macros
from sqlml.catalog.view_macros import (
    ViewMacro,
    drop_unused_macros,
    list_view_macros,
    store_view_macros,
    write_content,
)
from sqlml.dialects.duckdb import fold_in_sql
from sqlml.errors import SqlmlError, UnknownModelError
from sqlml.planner.model_sql.view_macros import (
    build_view_macro,
    call_view_macros,
    find_stored_functions,
)
from sqlml.planner.program.function_spec import parse_function_name
from sqlml.planner.syntax.named_queries import find_created_view
from sqlml.session.registered_functions import RegisteredFunctions
from sqlml.types import fold
from sqlml.udfs.batch_function import BatchFunction
from sqlml.udfs.duckdb.engine import DuckDBEngine
from sqlml.udfs.duckdb.functions_by_name import make_client_function
from sqlml.udfs.duckdb.native.compiled_models import compile_view_function
from sqlml.udfs.make_function import make_engine_function

T = TypeVar("T")

_ATTEMPTS = 5


class ClientViews:
    """Runs statements of one connection that create views."""

    def __init__(
        self,
        engine: DuckDBEngine,
        catalog: Catalog,
        macros: Macros,
        functions: RegisteredFunctions,
    ) -> None:
        self._engine = engine
        self._connection = engine.connection
        self._catalog = catalog
        self._macros = macros
        self._functions = functions

    def run(self, statement: str, sql: str, execute: Callable[[str], T]) -> T:
        """Run `execute` with `sql`, the planned form of the user's `statement`.

        If the statement creates a view in a database that has the models, `execute` gets SQL that
        calls them by macros of the catalog, which are stored first.
        """
        names = find_stored_functions(sql)
        database = self._find_database(statement) if names else None
        if database is None:
            return execute(sql)
        exact_name, can_store = self._macros.read_database(database)
        if not can_store or not self._engine.is_callable(make_client_function()):
            return execute(sql)
        schema = self._connection.schema(exact_name)
        if not self._connection.has_catalog(schema):
            return execute(sql)
        macros = [macro for name in names if (macro := self._build_macro(name, schema)) is not None]
        if len(macros) < len(names):
            return execute(sql)

        def store() -> None:
            store_view_macros(self._connection, schema, exact_name, macros)

        def drop() -> None:
            drop_unused_macros(self._connection, schema, exact_name)

        # The statement is not part of the transaction, so the connection keeps its result.
        attempts = 0
        while True:
            attempts += 1
            self._connection.run_atomically(store)
            try:
                return execute(call_view_macros(sql))
            except duckdb.Error as error:
                with suppress(duckdb.Error, SqlmlError):  # The user's transaction may have failed.
                    self._connection.run_atomically(drop)
                # Another connection may have dropped the macros, because no view called them yet.
                is_missing = any(f"{name} does not exist" in str(error) for name in names)
                if attempts == _ATTEMPTS or not is_missing:
                    raise

    def compile_again(self) -> None:
        """Compile the functions of the views of the current database again."""
        schema = self._connection.schema(None)
        contents: dict[str, str] = {}
        for name in list_view_macros(self._connection, schema):
            spec = parse_function_name(name)
            if spec is not None and spec.name == name:
                with suppress(UnknownModelError):  # The model was dropped.
                    program = self._catalog.programs.get(spec.program_hash, schema)
                    contents[name] = compile_view_function(program, spec)

        def write_contents() -> None:
            for name, content in contents.items():
                write_content(self._connection, schema, name, content)

        if contents:
            self._connection.run_atomically(write_contents)

    def _find_database(self, statement: str) -> str | None:
        """Return the database of the view that a statement creates, or None if it is read-only."""
        parts = find_created_view(statement)
        if parts is None:
            return None
        (current,) = self._connection.read("SELECT system.main.current_database()")[0]
        database = str(current) if len(parts) == 1 else parts[0]
        if len(parts) == 2:
            query = (
                "SELECT 1 FROM system.main.duckdb_schemas() WHERE database_name = ? "
                "AND system.main.lower(schema_name) = ?"
            )
            if self._connection.read(query, [current, fold(parts[0])]):
                database = str(current)
        query = (
            "SELECT 1 FROM system.main.duckdb_databases() "
            f"WHERE {fold_in_sql('database_name')} = ? AND NOT internal AND NOT readonly"
        )
        return database if self._connection.read(query, [fold(database)]) else None

    def _build_macro(self, name: str, schema: str) -> ViewMacro | None:
        """Build the macro for a function, or return None if the catalog lacks its Program."""
        spec = parse_function_name(name)
        assert spec is not None
        program = self._functions.find_program(spec.program_hash)
        if not self._catalog.programs.measure_stored_size(program.hash, schema):
            return None
        function = make_engine_function(spec, program, on_use=True)
        scorer: Any = function.function
        assert isinstance(scorer, BatchFunction)
        definition = build_view_macro(
            name, function.argument_types, function.result_type, scorer.texts, scorer.groups
        )
        return ViewMacro(name, definition, compile_view_function(program, spec))
