"""`deeply`: work on a text that is nested more deeply than Python's limit of calls allows."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from sqlglot.tokenizer_core import TokenType

from sqlml.errors import ParseError
from sqlml.parsing.tokens import raw_tokens

T = TypeVar("T")

DEEPEST = 1600
"""Nested brackets: an engine takes 1,000."""

_FRAMES = 120
"""Calls of Python for one bracket, at most."""

_FRAMES_OF_A_TERM = 8

_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END})

_lock = threading.Lock()


def deeply(sql: str, dialect: str, work: Callable[[], T]) -> T:
    """Run `work`, which recurses over a text.

    The limit is raised only for this call: much in Python, such as json, relies on it to stop in
    time.

    Raises:
        ParseError: the text is nested too deeply.
    """
    try:
        return work()
    except RecursionError:
        depth = _depth(sql, dialect)
    if depth > DEEPEST:
        raise ParseError(f"nested too deeply: {depth} nested brackets")
    with _lock:
        before = sys.getrecursionlimit()
        terms = len(raw_tokens(sql, dialect))  # those of a sum are in each other, too
        sys.setrecursionlimit(before + _FRAMES * (depth + 10) + _FRAMES_OF_A_TERM * terms)
        try:
            return work()
        except RecursionError:
            raise ParseError("nested too deeply") from None
        finally:
            sys.setrecursionlimit(before)


def _depth(sql: str, dialect: str) -> int:
    """The most brackets in each other."""
    depth = most = 0
    for token in raw_tokens(sql, dialect):
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        most = max(most, depth)
    return most
