"""DuckDB connections inside the objects of other tools."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

INSIDE: Mapping[str, str] = MappingProxyType(
    {
        "duckdb_engine.ConnectionWrapper": "_ConnectionWrapper__c",
        "duckdb_engine.CursorWrapper": "_CursorWrapper__c",
        "sqlalchemy.engine.base.Connection": "connection",
        "sqlalchemy.pool.base._ConnectionFairy": "driver_connection",
        "ibis.backends.duckdb.Backend": "con",
        "dbt.adapters.duckdb.environments.RetryableCursor": "_cursor",
        "dbt.adapters.duckdb.environments.local.DuckDBConnectionWrapper": "_cursor",
        "dbt.adapters.duckdb.environments.local.DuckDBCursorWrapper": "_cursor",
    }
)
"""Class that wraps a connection -> the attribute with the connection or with another wrapper."""


def unwrap_connection(holder: Any) -> Any:
    """Unwrap the connection inside an object of another tool; return other objects unchanged.

    Classes are recognized by their names, so that no tool is imported.
    """
    while True:
        kind = type(holder)
        attribute = INSIDE.get(f"{kind.__module__}.{kind.__qualname__}")
        if attribute is None:
            return holder
        holder = getattr(holder, attribute)
