"""Names of types as DuckDB spells them, and nested ones taken apart: `MAP(VARCHAR, DOUBLE)`."""

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


def element(kind: str) -> str | None:
    """The type of a list's or array's elements; None for another type.

    >>> element("VARCHAR[]"), element("INTEGER[3]"), element("VARCHAR")
    ('VARCHAR', 'INTEGER', None)
    """
    found = _LIST.fullmatch(kind)
    return None if found is None else found.group(1)


def map_types(kind: str) -> tuple[str, str] | None:
    """The types of a map's keys and values; None for another type.

    >>> map_types("MAP(VARCHAR, DECIMAL(9,2))")
    ('VARCHAR', 'DECIMAL(9,2)')
    """
    if not kind.startswith("MAP(") or not kind.endswith(")"):
        return None
    parts = _parts(kind[len("MAP(") : -1])
    return (parts[0], parts[1]) if len(parts) == 2 else None


def pair_types(kind: str) -> tuple[str, str] | None:
    """The types of the two fields of a struct or tuple; None for another type.

    >>> pair_types("STRUCT(k VARCHAR, v INTEGER)"), pair_types("TUPLE(VARCHAR, INTEGER)")
    (('VARCHAR', 'INTEGER'), ('VARCHAR', 'INTEGER'))
    """
    if kind.startswith("TUPLE(") and kind.endswith(")"):
        types = _parts(kind[len("TUPLE(") : -1])
    else:
        # A field without a name, as row(..) makes before 2.0, is only its type.
        types = [f.type or f.name for f in struct_fields(kind) or ()]
    return (types[0], types[1]) if len(types) == 2 else None


def struct_fields(kind: str) -> tuple[Field, ...] | None:
    """The fields of a type `STRUCT(a INTEGER, "b c" VARCHAR)`; None for another type.

    >>> struct_fields('STRUCT(a INTEGER, b DECIMAL(9,2))')
    (Field(name='a', type='INTEGER'), Field(name='b', type='DECIMAL(9,2)'))
    """
    if not kind.startswith("STRUCT(") or not kind.endswith(")"):
        return None
    fields = []
    for field in _parts(kind[len("STRUCT(") : -1]):
        if field.startswith('"'):
            end = 1
            while field[end] != '"' or field[end : end + 2] == '""':
                end += 2 if field[end : end + 2] == '""' else 1
            name, rest = field[1:end].replace('""', '"'), field[end + 1 :]
        else:
            name, _, rest = field.partition(" ")
        fields.append(Field(name, rest.strip()))
    return tuple(fields)


def _parts(body: str) -> list[str]:
    """What the commas outside of brackets and quotes separate."""
    parts, depth, begin, quoted = [], 0, 0, ""
    for i, c in enumerate(body + ","):
        if quoted:
            quoted = "" if c == quoted else quoted
        elif c in "\"'":
            quoted = c
        elif c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(body[begin:i].strip())
            begin = i + 1
    return parts
