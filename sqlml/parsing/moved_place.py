"""`place_in`: the place in a user's text that a place in the rewritten one comes from."""

from __future__ import annotations

import difflib

from sqlml.errors import SqlmlError
from sqlml.parsing.tokens import tokenize

_MOST = 4_000_000
"""Most pairs of tokens to compare, so that an error is not slow."""


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
