"""`installed`: whether a library is there, without importing it."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec


@cache
def installed(library: str) -> bool:
    """Whether `library` can be found; not so where its finder fails."""
    try:
        return find_spec(library) is not None
    except (ImportError, ValueError):
        return False
