"""`pieces`: a text cut into statements and dot commands, as the shell reads them."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot.tokenizer_core import TokenType

from sqlml.errors import ParseError
from sqlml.parsing.cut_statements import cut
from sqlml.parsing.tokens import raw_tokens

FIRST, NEXT = "sqlml> ", "   ..> "
"""What stands before the first line of a statement, and before the others."""

WORDS = frozenset({"exit", "quit", "help"})
"""What people type to leave or to find out; no statement of SQL."""


def pieces(text: str) -> Iterator[str]:
    """Statements without their semicolons, and dot commands, each a line of its own.

    >>> list(pieces("SELECT 1;\\n.mode csv\\nSELECT\\n.5"))
    ['SELECT 1', '.mode csv', 'SELECT\\n.5']

    Raises:
        ParseError: what follows the last semicolon has no tokens.
    """
    waiting = ""
    for line in text.splitlines(keepends=True):
        if not waiting.strip() and is_command(line):
            yield line.strip()
            waiting = ""
            continue
        waiting += line
        if ";" in line and is_complete(waiting):
            yield from cut(waiting)
            waiting = ""
    if waiting.strip():
        yield from cut(waiting)


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
