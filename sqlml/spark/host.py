"""`SparkHost`: a session's files, wherever Hadoop's file systems reach, and its rows."""

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
from sqlml.planner.syntax.text import text_of
from sqlml.regular_files import check_regular
from sqlml.spark.files import Files, files_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# `with_literals`: a statement with its parameters' values in it, as Spark itself binds them.


def with_literals(sql: str, values: Any) -> str:
    """`sql` with literals in place of its parameters: `?` of a sequence, `:name` of a mapping.

    >>> with_literals("SELECT 'a?', :b", {"b": 1.5}), with_literals("SELECT ?", ["it's"])
    ("SELECT 'a?', 1.5D", "SELECT 'it\\\\'s'")

    Raises:
        ConfigError: a value is missing, or has no literal.
    """
    if not values and not text_of(sql, SPARK.name).concerns_models:
        return sql  # Spark says what is missing
    named = isinstance(values, Mapping)
    edits = []
    position = 0
    for token in tokenize(sql, SPARK.name):
        if token.kind != "param":
            continue
        if values and named == (token.text == "?"):
            raise ConfigError("? parameters take a list of values, :name parameters a dict")
        if token.text != "?":
            name = token.text[1:]
            if name not in (values or {}):
                raise ConfigError(f"no value is given for parameter :{name}")
            edits.append((token, values[name]))
        elif position >= len(values or ()):
            raise ConfigError(f"more parameters than values; values given: {position}")
        else:
            edits.append((token, values[position]))
            position += 1
    for token, value in reversed(edits):
        made = literal(value)  # in brackets where a sign before it would make a comment of it
        made = f"({made})" if made.startswith("-") else made
        sql = sql[: token.start] + made + sql[token.end :]
    return sql


def literal(value: Any) -> str:
    """A value as a literal of Spark SQL.

    >>> literal(None), literal(True), literal(2**40), literal(float("nan"))
    ('NULL', 'true', '1099511627776L', "'NaN'::DOUBLE")

    Raises:
        ConfigError: it has no literal.
    """
    if hasattr(value, "dtype") and getattr(value, "shape", None) == ():
        value = value.item()  # of numpy
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

        return f"timestamp_micros({TimestampType().toInternal(value)})"  # Python's zone, not SQL's
    if isinstance(value, datetime.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, Sequence):
        return SPARK.array([literal(v) for v in value])
    raise ConfigError(
        f"a {type(value).__name__} cannot be a parameter; pass a number, text, date or list"
    )


class SparkHost:
    """A SparkSession's files and rows (`Host`).

    A path without a scheme is one of the driver's machine.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read_file(self, path: str) -> list[tuple[str, int]]:
        """Name and size of the file that `path` means; none if it does not exist."""
        files, name = self._place(path)
        size = files.size(name)
        return [] if size is None else [(path, size)]

    def file_content(self, path: str) -> bytes:
        """The bytes of one file.

        Raises:
            ArtifactError: it is not there any more.
        """
        files, name = self._place(path)
        content = files.read(name)
        if content is None:
            raise ArtifactError(f"file {path!r} no longer exists")
        return content

    def write_file(self, path: str, content: bytes) -> None:
        """Write one file, replacing an existing one.

        Raises:
            ArtifactError: the path holds something other than a regular file.
        """
        check_regular(path)  # which the next lines would replace
        files, name = self._place(path)
        if not files.add(name, content):
            files.remove(name)
            files.add(name, content)

    def _place(self, path: str) -> tuple[Files, str]:
        folder, name = os.path.split(path)
        return files_of(folder or ".", self._spark), name

    def columns(self, query: str) -> list[str]:
        """The names of a query's columns."""
        return list(self._spark.sql(query).columns)

    def function_type(self, name: str) -> str | None:
        """None: nobody asks, since Spark calls functions of Python for every row."""
        return None

    def view(self, table: str) -> str | None:
        """None: nobody asks, since nothing in a query is saved in Spark."""
        return None

    def read(self, query: str, parameters: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
        """The rows of a query of ours."""
        return [tuple(row) for row in self._spark.sql(query, list(parameters) or None).collect()]

    def with_values(self, query: str, values: Any) -> str:
        """The query with values in place of its parameters: `?` or `:name`."""
        return with_literals(query, values)

    def fetch_frame(self, query: str) -> Any:
        """The rows of a query as a pandas frame.

        Raises:
            ParseError: not a query.
        """
        from pyspark.errors import ParseException

        try:
            return self._spark.sql(f"SELECT * FROM (\n{query}\n)").toPandas()
        except ParseException as error:
            raise ParseError(str(error).split("\n")[0]) from None
