"""`pieces`: a text cut into statements and dot commands, as the shell reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from sqlglot.tokenizer_core import TokenType

from sqlml.errors import ParseError
from sqlml.parsing.cut_statements import pieces_of
from sqlml.parsing.tokens import raw_tokens

FIRST, NEXT = "sqlml> ", "   ..> "
"""What stands before the first line of a statement, and before the others."""

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
"""A line; `splitlines` would also cut names and values at other characters, such as a form feed."""

WORDS = frozenset({"exit", "quit", "help"})
"""What people type to leave or to find out; no statement of SQL."""


class Piece(NamedTuple):
    """A statement without its semicolons, or a dot command; `line` counts from 1."""

    text: str
    line: int


def pieces(text: str) -> Iterator[Piece]:
    """Statements, and dot commands, each a line of its own.

    >>> [tuple(piece) for piece in pieces("SELECT 1;\\n.mode csv\\nSELECT\\n.5")]
    [('SELECT 1', 1), ('.mode csv', 2), ('SELECT\\n.5', 3)]

    Raises:
        ParseError: what follows the last semicolon has no tokens.
    """
    waiting, first = "", 1
    for number, line in enumerate(_LINE.findall(text), 1):
        if not waiting.strip() and is_command(line):
            yield Piece(line.strip(), number)
            waiting = ""
            continue
        if not waiting:
            first = number
        waiting += line
        if ";" in line and is_complete(waiting):
            yield from _statements(waiting, first)
            waiting = ""
    if waiting.strip():
        yield from _statements(waiting, first)


def _statements(text: str, first: int) -> Iterator[Piece]:
    """The statements of a text that begins in line `first`."""
    for piece in pieces_of(text, "duckdb"):
        start = piece.tokens[0].start
        yield Piece(text[start : piece.tokens[-1].end + 1], first + text.count("\n", 0, start))


def is_command(line: str) -> bool:
    """Whether a line that begins a statement is a dot command, one of psql's, or a word for one."""
    return line.startswith((".", "\\")) or line.strip().rstrip(";").lower() in WORDS


def is_complete(text: str) -> bool:
    """Whether a statement ends here: its last token is a semicolon, outside of quotes.

    >>> is_complete("SELECT 1;  -- done"), is_complete("SELECT ';"), is_complete("SELECT 1")
    (True, False, False)
    """
    try:
        tokens = raw_tokens(text, "duckdb")
    except ParseError:
        return False
    return bool(tokens) and tokens[-1].token_type == TokenType.SEMICOLON
