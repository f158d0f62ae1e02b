"""Suggestions for misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MIN_SIMILARITY = 0.6
"""Minimum similarity (difflib's ratio, from 0 to 1) of a suggested name."""


def closest(name: str, names: Iterable[str], min_similarity: float = _MIN_SIMILARITY) -> str | None:
    """Return the name most similar to `name`, or None if none reaches `min_similarity`.

    >>> closest("tenur", ["plan", "tenure"]), closest("x", ["plan", "tenure"])
    ('tenure', None)
    """
    return next(iter(difflib.get_close_matches(name, list(names), 1, min_similarity)), None)
