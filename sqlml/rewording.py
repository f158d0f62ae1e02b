"""Errors of the engine about a rewritten query, with their place in the text that a user wrote."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from sqlml.errors import SqlmlError, excerpt
from sqlml.parsing.tokens import tokenize

_PLACE = re.compile(r"\n\nLINE (\d+): (.*)\n( *)\^[~^]*", re.DOTALL)
_MOST = 4_000_000
"""Pairs of tokens that are compared at most: an error is no reason to wait."""


@contextmanager
def reworded_errors(rewritten: str, written: str) -> Iterator[None]:
    """Raise `reworded` errors in place of the engine's."""
    try:
        yield
    except duckdb.Error as error:
        if rewritten == written:
            raise
        raise reworded(error, rewritten, written) from None


def reworded(error: duckdb.Error, rewritten: str, written: str) -> duckdb.Error:
    """The engine's error, showing the place in `written` that the one in `rewritten` comes from.

    It is left as it is where no place can be told.
    """
    found = _PLACE.search(str(error))
    offset = None if found is None else _offset(rewritten, *found.groups())
    place = None if offset is None else place_in(rewritten, written, offset)
    if found is None or place is None:
        return error
    text = str(error)
    shown = f"\n\n{excerpt(written, place)}"
    return type(error)(text[: found.start()] + shown + text[found.end() :])


def _offset(text: str, line: str, shown: str, blanks: str) -> int | None:
    """The character of `text` under the caret of the engine's excerpt; None: it is not found."""
    lines = text.split("\n")
    number = int(line) - 1
    if number >= len(lines):
        return None
    cut = shown.startswith("...")
    part = shown[3:] if cut else shown
    part = part[:-3] if part.endswith("...") else part
    at = lines[number].find(part) if part else -1
    if at < 0 or lines[number].count(part) > 1:
        return None
    caret = len(blanks) - len(f"LINE {line}: ") - 3 * cut
    return sum(len(before) + 1 for before in lines[:number]) + at + caret


def place_in(rewritten: str, written: str, offset: int, dialect: str = "duckdb") -> int | None:
    """The character of `written` that `rewritten[offset]` was, or that stood where it is."""
    try:
        ours, theirs = tokenize(rewritten, dialect), tokenize(written, dialect)
    except SqlmlError:
        return None
    if len(ours) * len(theirs) > _MOST:
        return None
    at = next((i for i, token in enumerate(ours) if offset < token.end), None)
    if at is None:
        return None
    a = [rewritten[t.start : t.end] for t in ours]
    b = [written[t.start : t.end] for t in theirs]
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    for _, i, end, j, stop in matcher.get_opcodes():
        if i <= at < end:
            same = a[i:end] == b[j:stop]
            token = min(j + (at - i if same else 0), len(theirs) - 1)
            return theirs[token].start + (max(0, offset - ours[at].start) if same else 0)
    return None
