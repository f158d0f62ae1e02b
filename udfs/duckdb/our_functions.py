"""`OurFunctions`: which functions of ours the views and macros of the databases call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlml.catalog.connection import Connection
from sqlml.errors import CatalogError
from sqlml.planner.program.function_names import parse_name
from sqlml.udfs.duckdb.functions_by_name import (
    ANY,
    OLD_ANY,
    any_function,
    is_signature,
)
from sqlml.udfs.engine_function import EngineFunction


class OurFunctions:
    """What one connection sees of ours in its databases."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def attached(self) -> list[str]:
        """Names of all attached databases."""
        ask = "SELECT database_name FROM system.main.duckdb_databases() ORDER BY ALL"
        return [str(name) for (name,) in self._connection.read(ask)]

    def catalogs(self) -> list[str]:
        """Names of the attached databases that have a schema `sqlml`."""
        ask = "SELECT database_name FROM system.main.duckdb_schemas() WHERE schema_name = 'sqlml'"
        return [str(name) for (name,) in self._connection.read(ask)]

    def texts(self) -> list[str]:
        """Texts of the users' views and macros that call functions of ours."""
        return [
            str(text)
            for (text,) in self._connection.read(
                "SELECT sql FROM system.main.duckdb_views() "
                "WHERE NOT internal AND system.main.contains(sql, 'sqlml_') "
                "UNION ALL SELECT macro_definition FROM system.main.duckdb_functions() "
                "WHERE NOT internal AND system.main.contains(macro_definition, 'sqlml_') "
                "AND NOT (schema_name = 'sqlml' "
                "AND system.main.starts_with(function_name, 'score_'))"
            )
        ]

    def of_plain_macros(self) -> list[EngineFunction]:
        """The functions that our own macros call, each to be compiled when it is first used."""
        schemas = map(self._connection.schema, self.catalogs())
        return of_calls(row for schema in schemas for row in self._called(schema))

    def _called(self, schema: str) -> list[tuple[Any, ...]]:
        try:
            if "catalog_calls" not in self._connection.tables(schema):
                return []
            return self._connection.read(
                f"SELECT DISTINCT function, arguments, result FROM {schema}.catalog_calls "
                "WHERE function IS NOT NULL"
            )
        except CatalogError:  # not ours, or damaged: whoever asks for its models is told
            return []


def of_calls(calls: Iterable[tuple[Any, Any, Any]]) -> list[EngineFunction]:
    """The functions that macros of ours call: their names, types of arguments, and of results."""
    made = (_called_function(*call) for call in calls if call[0] is not None)
    return list({function.name: function for function in made if function is not None}.values())


def _called_function(name: Any, arguments: Any, result: Any) -> EngineFunction | None:
    """The function that a row of the catalog's calls names; None if the row is damaged."""
    kinds = tuple(map(str, arguments or ()))
    prefix = next((p for p in (ANY, OLD_ANY) if str(name).startswith(p)), None)
    if prefix is not None:
        made = any_function(kinds[1:], str(result), prefix)
        return made if made is not None and made.name == name else None
    spec = parse_name(str(name))
    if spec is None or spec.name != name or not is_signature(kinds, str(result)):
        return None
    return EngineFunction(spec.name, None, kinds, str(result))
