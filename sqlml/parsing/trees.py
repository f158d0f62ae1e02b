"""`trees`: the statements of a text as sqlglot's trees."""

from __future__ import annotations

import re

from sqlglot import exp
from sqlglot.errors import ParseError as GlotError

from sqlml.errors import ParseError
from sqlml.parsing.dialect import DIALECTS
from sqlml.parsing.tokens import raw_tokens

_INCOMPLETE = re.compile(r"Required keyword: '\w+' missing for <class '[^']*'>")
"""How sqlglot says that a clause or an operator has no operand."""

_TOKEN = re.compile(r"<Token .*?text: (.*?), line.*?>", re.DOTALL)


def trees(sql: str, dialect: str = "duckdb") -> list[exp.Expr]:
    """The statements of a text, each node with its place in it (`places.span`).

    Args:
        dialect: the name of a `Dialect`.

    Raises:
        ParseError: sqlglot cannot read it; the error shows the place.
        RecursionError: it is nested too deeply (`recursion_limit.deeply`).
    """
    tokens = raw_tokens(sql, dialect)
    try:
        found = DIALECTS[dialect].parser().parse(tokens, sql)
    except GlotError as error:
        told = error.errors[0] if error.errors else {}
        description = _TOKEN.sub(r"'\1'", str(told.get("description") or error))
        description = _INCOMPLETE.sub("an expression is missing", description)
        raise ParseError(description, sql, _offset(sql, told)) from None
    return [tree for tree in found if tree is not None]


def _offset(sql: str, told: dict[str, object]) -> int | None:
    before = told.get("start_context")
    return len(before) if isinstance(before, str) and sql.startswith(before) else None
