"""`parse`: a text as Statements; what is not about models is a Query."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from sqlglot.tokenizer_core import Token, TokenType

from sqlml.errors import ParseError
from sqlml.parsing.dialect import DIALECTS
from sqlml.parsing.model_statements import ModelStatements
from sqlml.parsing.statements import Explain, Query, Statement
from sqlml.parsing.tokens import raw_tokens


def parse(sql: str, dialect: str = "duckdb") -> tuple[Statement, ...]:
    """The statements of `sql`, in order; those that do not concern models are Query.

    There are none in a text of only comments, and none in a Spark script in BEGIN and END.

    Between them, the Queries of DuckDB hold every character of the text, semicolons and comments
    included; those of Spark, which takes one statement at a time, hold only the statement.

    Raises:
        ParseError: a statement about models breaks the grammar (the error shows the place), or the
            text has no tokens.
    """
    pieces = _pieces(sql, dialect)
    reader = cast(ModelStatements, DIALECTS[dialect].parser())
    found = [reader.model_statement(piece, sql) for piece in pieces]
    if dialect == "spark" or not pieces:
        return tuple(found)
    starts = [0, *(piece[0].start for piece in pieces[1:]), len(sql)]
    texts = [sql[start:end] for start, end in zip(starts, starts[1:], strict=False)]
    return tuple(
        replace(one, sql=text) if isinstance(one, Query | Explain) else one
        for one, text in zip(found, texts, strict=True)
    )


def cut(sql: str, dialect: str = "duckdb") -> list[str]:
    """The statements of a text, without their semicolons.

    >>> cut("SELECT ';'; SELECT 2")
    ["SELECT ';'", 'SELECT 2']

    Raises:
        ParseError: the text has no tokens.
    """
    pieces = _pieces(sql, dialect)
    return [sql[piece[0].start : piece[-1].end + 1] for piece in pieces]


def is_several(sql: str) -> bool:
    """Whether a text of DuckDB has several statements, or may have if they cannot be separated.

    >>> is_several("SELECT ';' ;"), is_several("SELECT 1; SELECT 'x")
    (False, True)
    """
    try:
        return len(_pieces(sql, "duckdb")) > 1
    except ParseError:
        return ";" in sql


def _pieces(sql: str, dialect: str) -> list[list[Token]]:
    """The tokens between semicolons; none for a script of Spark in BEGIN and END."""
    tokens = raw_tokens(sql, dialect)
    if dialect == "spark" and tokens and tokens[0].text.upper() == "BEGIN":
        return []
    pieces: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            pieces.append([])
        else:
            pieces[-1].append(token)
    return [piece for piece in pieces if piece]
