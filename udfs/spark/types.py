"""Spark's types by the names that the planner knows, which are DuckDB's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlml.dialects import DUCKDB
from sqlml.planner.binding.probe_queries import Column

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_NAMES = {
    "boolean": "BOOLEAN",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
    "void": '"NULL"',
}
"""Spark's own names (`DataType.typeName`) -> the planner's."""

_RESULTS = {"INTEGER": "int", "DOUBLE": "double"}


def columns_of(schema: StructType) -> tuple[Column, ...]:
    """The columns of a DataFrame; a collated string says so, since it compares otherwise."""
    return tuple(
        Column(f.name, type_name(f.dataType) + _collation(f.dataType)) for f in schema.fields
    )


def _collation(kind: DataType) -> str:
    name = getattr(kind, "collation", "UTF8_BINARY")
    return "" if name == "UTF8_BINARY" else f" COLLATE {name}"


def type_name(kind: DataType) -> str:
    """The planner's name of a type."""
    from pyspark.sql import types

    if isinstance(kind, types.ArrayType):
        return f"{type_name(kind.elementType)}[]"
    if isinstance(kind, types.MapType):
        return f"MAP({type_name(kind.keyType)}, {type_name(kind.valueType)})"
    if isinstance(kind, types.StructType):
        fields = [f"{DUCKDB.quote_name(f.name)} {type_name(f.dataType)}" for f in kind.fields]
        return f"STRUCT({', '.join(fields)})"
    if isinstance(kind, types.DecimalType):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if isinstance(kind, types.CharType | types.VarcharType):
        return "VARCHAR"
    name: Any = kind.typeName()
    return _NAMES.get(name, kind.simpleString().upper())


def result_type(name: str) -> str:
    """The type that a function of ours returns, as Spark writes it: a value, or an error.

    >>> result_type("DOUBLE[][]")
    'struct<value: array<array<double>>, error: string>'
    """
    return f"struct<value: {_value_type(name)}, error: string>"


def _value_type(name: str) -> str:
    return f"array<{_value_type(name[:-2])}>" if name.endswith("[]") else _RESULTS[name]
