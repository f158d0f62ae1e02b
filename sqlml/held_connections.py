"""`held_by`: the DuckDB connection inside what other tools hand out."""

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
"""The classes that hold a connection, and the attribute that has it, or another holder."""


def held_by(holder: Any) -> Any:
    """What is inside a holder of a connection; another object is what it is.

    The class is known by its name, so that none of these tools is imported.
    """
    while True:
        kind = type(holder)
        attribute = INSIDE.get(f"{kind.__module__}.{kind.__qualname__}")
        if attribute is None:
            return holder
        holder = getattr(holder, attribute)
