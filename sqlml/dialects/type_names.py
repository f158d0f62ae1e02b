"""The names of DuckDB's types, and the parts of nested types such as `MAP(VARCHAR, DOUBLE)`."""

from __future__ import annotations

import re
from typing import NamedTuple

NUMBERS = re.compile(
    r"U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)|BIGNUM|VARINT|FLOAT|DOUBLE|BOOLEAN"
    r"|DECIMAL\(\d+, ?\d+\)"
)
STRINGS = re.compile(r"(VARCHAR( COLLATE \w+)?|ENUM\(.*\)|UUID)", re.DOTALL)
DATETIMES = re.compile(r"DATE|TIMESTAMP(_S|_MS|_NS)?")
"""Dates and timestamps without a time zone."""
UNTYPED = ('"NULL"', "NULL", "UNKNOWN")


class Field(NamedTuple):
    """A field of a struct."""

    name: str
    type: str


_LIST = re.compile(r"(.*)\[\d*\]", re.DOTALL)


def element(type_name: str) -> str | None:
    """Return the element type of a list or array type, or None for other types.

    >>> element("VARCHAR[]"), element("INTEGER[3]"), element("VARCHAR")
    ('VARCHAR', 'INTEGER', None)
    """
    match = _LIST.fullmatch(type_name)
    return None if match is None else match.group(1)


def map_types(type_name: str) -> tuple[str, str] | None:
    """Return the key type and the value type of a map type, or None for other types.

    >>> map_types("MAP(VARCHAR, DECIMAL(9,2))")
    ('VARCHAR', 'DECIMAL(9,2)')
    """
    if not type_name.startswith("MAP(") or not type_name.endswith(")"):
        return None
    types = _split_at_commas(type_name[len("MAP(") : -1])
    return (types[0], types[1]) if len(types) == 2 else None


def pair_types(type_name: str) -> tuple[str, str] | None:
    """Return both types of a struct or tuple type with two fields, or None for other types.

    >>> pair_types("STRUCT(k VARCHAR, v INTEGER)"), pair_types("TUPLE(VARCHAR, INTEGER)")
    (('VARCHAR', 'INTEGER'), ('VARCHAR', 'INTEGER'))
    """
    if type_name.startswith("TUPLE(") and type_name.endswith(")"):
        types = _split_at_commas(type_name[len("TUPLE(") : -1])
    else:
        # Before DuckDB 2.0, fields of row(...) have types but no names.
        types = [field.type or field.name for field in struct_fields(type_name) or ()]
    return (types[0], types[1]) if len(types) == 2 else None


def struct_fields(type_name: str) -> tuple[Field, ...] | None:
    """Return the fields of a struct type, or None for other types.

    >>> struct_fields('STRUCT(a INTEGER, b DECIMAL(9,2))')
    (Field(name='a', type='INTEGER'), Field(name='b', type='DECIMAL(9,2)'))
    """
    if not type_name.startswith("STRUCT(") or not type_name.endswith(")"):
        return None
    fields = []
    for field_sql in _split_at_commas(type_name[len("STRUCT(") : -1]):
        if field_sql.startswith('"'):
            end = 1
            while field_sql[end] != '"' or field_sql[end : end + 2] == '""':
                end += 2 if field_sql[end : end + 2] == '""' else 1
            name, sql_type = field_sql[1:end].replace('""', '"'), field_sql[end + 1 :]
        else:
            name, _, sql_type = field_sql.partition(" ")
        fields.append(Field(name, sql_type.strip()))
    return tuple(fields)


def _split_at_commas(body: str) -> list[str]:
    """Split `body` at commas outside brackets and quotes."""
    segments = []
    depth = start = 0
    quote = ""
    for index, character in enumerate(body + ","):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and depth == 0:
            segments.append(body[start:index].strip())
            start = index + 1
    return segments
