"""How many features and outputs a model file may claim, before memory is taken for them."""

from __future__ import annotations

from typing import Any

from sqlml.errors import ArtifactError

MAX_FEATURES = 1_000_000
MAX_OUTPUTS = 100_000
"""Most classes, targets, or trees per iteration."""


def bounded(given: Any, most: int, library: str, things: str) -> int:
    """The number, maybe as text, of `things` that a file of `library` says it has.

    >>> bounded("3", MAX_OUTPUTS, "XGBoost", "classes")
    3

    Raises:
        ArtifactError: negative, or more than `most`.
        ValueError, TypeError: not an integer.
    """
    if isinstance(given, str) and not given.isascii() or "_" in str(given):
        raise ValueError(f"{given!r} is not a number")
    number = int(given)
    if not 0 <= number <= most:
        raise ArtifactError(f"the {library} model claims {number} {things}; the limit is {most}")
    return number
