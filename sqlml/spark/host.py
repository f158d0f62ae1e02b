"""Access to the files and rows of a SparkSession, and literals of Spark SQL."""

from __future__ import annotations

import datetime
import decimal
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlml.dialects import SPARK
from sqlml.errors import ArtifactError, ConfigError, ParseError
from sqlml.parsing.tokens import tokenize
from sqlml.planner.syntax.statement_text import classify_text
from sqlml.regular_files import check_regular
from sqlml.spark.files import Files, open_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def bind_literals(sql: str, values: Any) -> str:
    """Replace the parameters of `sql` with literals of `values`.

    `values` is a sequence for `?` parameters, or a mapping for `:name` parameters.

    >>> bind_literals("SELECT 'a?', :b", {"b": 1.5}), bind_literals("SELECT ?", ["it's"])
    ("SELECT 'a?', 1.5D", "SELECT 'it\\\\'s'")
    """
    if not values and not classify_text(sql, SPARK.name).concerns_models:
        return sql  # Spark reports the missing values.
    is_named = isinstance(values, Mapping)
    edits = []
    value_index = 0
    for token in (token for token in tokenize(sql, SPARK.name) if token.kind == "param"):
        if values and is_named == (token.text == "?"):
            raise ConfigError("? parameters need a list of values, :name parameters a dict")
        if token.text != "?":
            name = token.text[1:]
            if name not in (values or {}):
                raise ConfigError(f"no value is given for parameter :{name}")
            edits.append((token, values[name]))
        elif value_index >= len(values or ()):
            raise ConfigError(f"more parameters than values; values given: {value_index}")
        else:
            edits.append((token, values[value_index]))
            value_index += 1
    for token, value in reversed(edits):
        literal_sql = literal(value)
        # Without parentheses, "x-?" with the value -1 would become "x--1", which is a comment.
        literal_sql = f"({literal_sql})" if literal_sql.startswith("-") else literal_sql
        sql = sql[: token.start] + literal_sql + sql[token.end :]
    return sql


def literal(value: Any) -> str:
    """Format a value as a literal of Spark SQL.

    >>> literal(None), literal(True), literal(2**40), literal(float("nan"))
    ('NULL', 'true', '1099511627776L', "'NaN'::DOUBLE")
    """
    if hasattr(value, "dtype") and getattr(value, "shape", None) == ():
        value = value.item()  # A numpy scalar.
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            return f"{value}BD"
        return str(value) if -(1 << 31) <= value < 1 << 31 else f"{value}L"
    if isinstance(value, float):
        if math.isfinite(value):
            return f"{value!r}D"
        return f"'{'NaN' if value != value else 'inf' if value > 0 else '-inf'}'::DOUBLE"
    if isinstance(value, str):
        return SPARK.text(value) if "${" in value else SPARK.quote_string(value)
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return f"{value:f}BD"
    if isinstance(value, datetime.datetime):
        from pyspark.sql.types import TimestampType

        # Like pyspark, use the time zone of Python instead of the session's time zone.
        return f"timestamp_micros({TimestampType().toInternal(value)})"
    if isinstance(value, datetime.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, Sequence):
        return SPARK.array([literal(element) for element in value])
    message = f"a {type(value).__name__} cannot be a parameter; pass a number, text, date or list"
    raise ConfigError(message)


class SparkHost:
    """Implements `Host` with a SparkSession; plain paths are files on the driver."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read_file(self, path: str) -> list[tuple[str, int]]:
        """Return a list with the path and the size in bytes, or an empty list if missing."""
        files, name = self._open_folder(path)
        size = files.size(name)
        return [] if size is None else [(path, size)]

    def file_content(self, path: str) -> bytes:
        files, name = self._open_folder(path)
        content = files.read(name)
        if content is None:
            raise ArtifactError(f"file {path!r} no longer exists")
        return content

    def write_file(self, path: str, content: bytes) -> None:
        """Write a file, replacing an existing regular file."""
        check_regular(path)  # Do not replace a pipe or device.
        files, name = self._open_folder(path)
        if not files.add(name, content):
            files.remove(name)
            files.add(name, content)

    def _open_folder(self, path: str) -> tuple[Files, str]:
        folder, name = os.path.split(path)
        return open_files(folder or ".", self._spark), name

    def columns(self, query: str) -> list[str]:
        return list(self._spark.sql(query).columns)

    def function_type(self, name: str) -> str | None:
        """Return None, because Spark calls Python functions for every row."""
        return None

    def view(self, table: str) -> str | None:
        """Return None, because the planner does not expand Spark's views."""
        return None

    def read(self, query: str, parameters: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
        return [tuple(row) for row in self._spark.sql(query, list(parameters) or None).collect()]

    def with_values(self, query: str, values: Any) -> str:
        return bind_literals(query, values)

    def fetch_frame(self, query: str) -> Any:
        from pyspark.errors import ParseException

        try:
            return self._spark.sql(f"SELECT * FROM (\n{query}\n)").toPandas()
        except ParseException as error:
            raise ParseError(str(error).split("\n")[0]) from None
