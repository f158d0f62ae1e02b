"""`parse`: a text as Statements; what is not about models is a Query."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import cast

from sqlglot import exp
from sqlglot.errors import ParseError as GlotError
from sqlglot.tokenizer_core import Token, TokenType

from sqlml.errors import ParseError
from sqlml.parsing.dialect import DIALECTS
from sqlml.parsing.model_statements import ModelStatements
from sqlml.parsing.statements import Explain, Query, Statement
from sqlml.parsing.tokens import raw_tokens

# A text cut into its statements, at semicolons that are tokens.


def cut(sql: str, dialect: str = "duckdb") -> list[str]:
    """The statements of a text, without their semicolons.

    >>> cut("SELECT ';'; SELECT 2")
    ["SELECT ';'", 'SELECT 2']

    Raises:
        ParseError: the text has no tokens.
    """
    return [sql[p.tokens[0].start : p.tokens[-1].end + 1] for p in pieces_of(sql, dialect)]


def is_several(sql: str) -> bool:
    """Whether a text of DuckDB has several statements, or may have if they cannot be separated.

    >>> is_several("SELECT ';' ;"), is_several("SELECT 1; SELECT 'x")
    (False, True)
    """
    try:
        return len(pieces_of(sql, "duckdb")) > 1
    except ParseError:
        return ";" in sql


@dataclass
class Piece:
    """The tokens of a statement, and where its semicolons end, if it has any."""

    tokens: list[Token]
    end: int


def pieces_of(sql: str, dialect: str) -> list[Piece]:
    """The statements between semicolons; none for a script of Spark in BEGIN and END."""
    tokens = raw_tokens(sql, dialect)
    if dialect == "spark" and tokens and tokens[0].text.upper() == "BEGIN":
        return []
    pieces: list[Piece] = []
    ended = True
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            ended = True
        elif ended:
            pieces.append(Piece([token], 0))
            ended = False
        else:
            pieces[-1].tokens.append(token)
        if pieces:
            pieces[-1].end = token.end + 1
    return pieces


# `trees`: the statements of a text as sqlglot's trees.


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


def parse(sql: str, dialect: str = "duckdb") -> tuple[Statement, ...]:
    """The statements of `sql`, in order; those that do not concern models are Query.

    There are none in a text of only comments, and none in a Spark script in BEGIN and END.

    Between them, the Queries of DuckDB hold every character of the text, comments included: each
    ends with its semicolons, where DuckDB cuts as well. Those of Spark, which takes one statement
    at a time, hold only the statement.

    Raises:
        ParseError: a statement about models breaks the grammar (the error shows the place), or the
            text has no tokens.
    """
    pieces = pieces_of(sql, dialect)
    reader = cast(ModelStatements, DIALECTS[dialect].parser())
    found = [reader.model_statement(piece.tokens, sql) for piece in pieces]
    if dialect == "spark" or not pieces:
        return tuple(found)
    cuts = [0, *(piece.end for piece in pieces[:-1]), len(sql)]
    texts = [sql[start:end] for start, end in pairwise(cuts)]
    return tuple(
        replace(one, sql=text) if isinstance(one, Query | Explain) else one
        for one, text in zip(found, texts, strict=True)
    )
