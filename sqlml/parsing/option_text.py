"""`option_text`: the value of an option as a statement has it."""

from __future__ import annotations

from typing import Any

from sqlml.dialects import DUCKDB, Dialect
from sqlml.parsing.statements import Call


def option_text(value: Any, dialect: Dialect = DUCKDB) -> str:
    """The value of an option as the statement has it.

    >>> option_text((("yes", 2.0), True)), option_text(Call("hparam_range", (1, 2)))
    ("[['yes', 2.0], true]", 'hparam_range(1, 2)')
    """
    if isinstance(value, Call):
        return f"{value.name}({', '.join(option_text(v, dialect) for v in value.arguments)})"
    if isinstance(value, tuple | list):
        return f"[{', '.join(option_text(v, dialect) for v in value)}]"
    if isinstance(value, str):
        return dialect.quote_string(value)
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "true", False: "false"}[value]
    return repr(value)
