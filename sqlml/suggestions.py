"""Suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MIN_SIMILARITY = 0.6
"""Similarity of two names (difflib's ratio, from 0 to 1) above which one is suggested."""


def closest(name: str, have: Iterable[str], near: float = _MIN_SIMILARITY) -> str | None:
    """Return the element of `have` most similar to `name`; None if its similarity is below `near`.

    >>> closest("tenur", ["plan", "tenure"]), closest("x", ["plan", "tenure"])
    ('tenure', None)
    """
    return next(iter(difflib.get_close_matches(name, list(have), 1, near)), None)
