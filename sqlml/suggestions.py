"""`closest`: the name that a misspelt one most likely means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_NEAR = 0.6
"""Least similarity of two names (difflib's ratio, from 0 to 1)."""


def closest(name: str, have: Iterable[str], near: float = _NEAR) -> str | None:
    """The element of `have` most similar to `name`; None if none is as similar as `near`.

    >>> closest("tenur", ["plan", "tenure"]), closest("x", ["plan", "tenure"])
    ('tenure', None)
    """
    return next(iter(difflib.get_close_matches(name, list(have), 1, near)), None)
