"""`Kind`: whether the values of a column are counted as numbers or as names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sqlml.dialects import Dialect
from sqlml.dialects.type_names import NUMBERS, STRINGS

Kind = Literal["number", "name", "time", "other"]

_TIMES = re.compile(r"DATE|TIME.*")


@dataclass(frozen=True, slots=True)
class DataColumn:
    """A column of a table: its name, its type in the engine, and what its values are."""

    name: str
    type: str
    kind: Kind


def data_columns(columns: Mapping[str, str]) -> list[DataColumn]:
    """The columns of a table, of name -> type."""
    return [DataColumn(name, kind, _kind(kind)) for name, kind in columns.items()]


def _kind(kind: str) -> Kind:
    if kind == "BOOLEAN" or STRINGS.fullmatch(kind):
        return "name"
    if NUMBERS.fullmatch(kind):
        return "number"
    return "time" if _TIMES.fullmatch(kind) else "other"


def listed(items: list[str], kind: str, dialect: Dialect) -> str:
    """A list of expressions, all cast to a type; a list of nothing has that type, too."""
    spelled = dialect.type(kind)
    cast = [f"CAST({item} AS {spelled})" for item in items] or [f"CAST(NULL AS {spelled})"]
    return dialect.array(cast)
