"""Numbers of CatBoost's JSON document, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError
from sqlml.types import Array

MOST_WHOLE = 1 << 53
"""CatBoost misreads larger numbers without a decimal point."""
_HASH = 0xFFFFFFFF


def floats(given: Sequence[Any]) -> Array:
    """Numbers of a list, float64 (n,).

    Raises:
        ArtifactError: something in it is none, or an integer that CatBoost would misread.
    """
    values = np.array(given)
    mixed = isinstance(given, list) and bool in set(map(type, given))
    if values.ndim != 1 or values.dtype.kind not in "iuf" or mixed:
        raise ArtifactError("entries of the CatBoost model are not numbers")
    large = values.size and isinstance(given, list) and np.abs(values).max() > MOST_WHOLE
    if large and any(type(v) is int and abs(v) > MOST_WHOLE for v in given):
        raise ArtifactError("an integer of the CatBoost model does not fit a float64")
    return values.astype(np.float64)


def count(value: Any) -> int:
    """A whole number of 0 or more.

    Raises:
        ArtifactError: it is none.
    """
    if type(value) is not int or value < 0:
        raise ArtifactError(f"a number of the CatBoost model is {value!r}")
    return value


def hash32(value: Any) -> int:
    """A 32-bit hash, which the document writes with and without sign.

    Raises:
        ArtifactError: it is none.
    """
    if type(value) is not int or not -(1 << 31) <= value <= _HASH:
        raise ArtifactError(f"a hash of the CatBoost model is {value!r}")
    return value & _HASH
