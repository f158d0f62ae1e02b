"""`closest`: the name that a misspelt one most likely means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_NEAR = 0.6
"""How like one another two names are at least (difflib's ratio, from 0 to 1)."""


def closest(name: str, have: Iterable[str], near: float = _NEAR) -> str | None:
    """The one of `have` that is most like `name`; None where none is as like it as `near`.

    >>> closest("tenur", ["plan", "tenure"]), closest("x", ["plan", "tenure"])
    ('tenure', None)
    """
    return next(iter(difflib.get_close_matches(name, list(have), 1, near)), None)
