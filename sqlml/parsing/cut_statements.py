"""A text cut into its statements, at semicolons that are tokens."""

from __future__ import annotations

from dataclasses import dataclass

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
