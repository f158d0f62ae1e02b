"""A text cut into its statements, at semicolons that are tokens."""

from __future__ import annotations

from sqlglot.tokenizer_core import Token, TokenType

from sqlml.errors import ParseError
from sqlml.parsing.tokens import raw_tokens


def cut(sql: str, dialect: str = "duckdb") -> list[str]:
    """The statements of a text, without their semicolons.

    >>> cut("SELECT ';'; SELECT 2")
    ["SELECT ';'", 'SELECT 2']

    Raises:
        ParseError: the text has no tokens.
    """
    pieces = pieces_of(sql, dialect)
    return [sql[piece[0].start : piece[-1].end + 1] for piece in pieces]


def is_several(sql: str) -> bool:
    """Whether a text of DuckDB has several statements, or may have if they cannot be separated.

    >>> is_several("SELECT ';' ;"), is_several("SELECT 1; SELECT 'x")
    (False, True)
    """
    try:
        return len(pieces_of(sql, "duckdb")) > 1
    except ParseError:
        return ";" in sql


def pieces_of(sql: str, dialect: str) -> list[list[Token]]:
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
