"""Values of Python as SQL literals."""

from __future__ import annotations

import numpy as np

from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import BackendError

TYPES = {
    "float64": "DOUBLE",
    "float32": "FLOAT",
    "int64": "BIGINT",
    "int32": "INTEGER",
    "int16": "SMALLINT",
    "int8": "TINYINT",
    "bool": "BOOLEAN",
}
"""The engine's type of each dtype that is printed."""


def number(value: float, dtype: str = "float64", dialect: Dialect = DUCKDB) -> str:
    """A number as a literal of its own value and type: a bare 0.1 would be a DECIMAL.

    >>> number(0.1), number(0.1, "float32"), number(3, "int64"), number(True, "bool")
    ("'0.1'::DOUBLE", "'0.1'::FLOAT", "'3'::BIGINT", "'true'::BOOLEAN")
    """
    if dtype == "bool":
        return f"'{str(bool(value)).lower()}'::BOOLEAN"
    if dtype.startswith("int"):
        return f"'{int(value)}'::{TYPES[dtype]}"
    if value != value and dialect.missing_is_null:
        return dialect.missing(TYPES[dtype])
    if dtype == "float32" and not dialect.has_float32:
        value, dtype = float(np.float32(value)), "float64"
    text = str(np.float32(value)) if dtype == "float32" else repr(float(value))
    return f"'{text}'::{TYPES[dtype]}"


def string_literal(text: str, dialect: Dialect = DUCKDB) -> str:
    """A text as a SQL literal.

    >>> string_literal("it's")
    "'it''s'"

    Raises:
        BackendError: it holds a NUL character, which SQL text cannot.
    """
    if "\0" in text:
        raise BackendError(
            f"the category {text!r} contains a NUL character, which SQL cannot represent"
        )
    return dialect.text(text)
