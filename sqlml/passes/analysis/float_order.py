"""Searches over the floats in their order: where a condition turns from true to false, or back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sqlml.types import Array

_BITS = {"float64": np.int64, "float32": np.int32}

POINTS = 257
"""Floats that a round of the search looks at, in equal steps over what is left."""

NEAR = 256
"""Floats on each side of the found one that must agree with it."""


def last_true(
    holds: Callable[[Array], Array], count: int, dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """For `count` conditions at once: the largest float for which each holds, and the next one.

    Args:
        holds: values (count,) of `dtype` -> bool (count,); entry i true up to some value and
            false above it. It is asked about both infinities too.
        dtype: float64 or float32.

    Returns:
        (last, following), (count,) each; NaN if a condition holds for no value, or for all.

    >>> last, following = last_true(lambda x: x * 2 <= 1.0, 1, np.dtype("float64"))
    >>> last.tolist(), bool(following[0] > 0.5)
    ([0.5], True)
    """
    most = int(np.array(np.inf, dtype).view(_BITS[dtype.name]))
    low = np.full(count, -most - 1, np.int64)  # one below -inf: holds by agreement
    high = np.full(count, most + 1, np.int64)
    for _ in range(66):
        # The mean without overflow; it is `low` once the two are neighbours.
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        true = holds(_floats(np.clip(middle, -most, most), dtype)) | (middle == low)
        low, high = np.where(true, middle, low), np.where(true, high, middle)
    none, every = low == -most - 1, high == most + 1
    last = np.where(none, np.nan, _floats(np.where(none, 0, low), dtype))
    following = np.where(every, np.nan, _floats(np.where(every, 0, high), dtype))
    return last.astype(dtype), following.astype(dtype)


def turn(holds: Callable[[Array], Array], dtype: np.dtype[Any]) -> tuple[float, float, bool] | None:
    """The neighbours between which `holds` changes, and whether it holds above them.

    None if it does not change, or, as far as this looks, more than once.

    Args:
        holds: values (m,) of `dtype` -> bool (m,). It is asked about both infinities too.
        dtype: float64 or float32.

    >>> turn(lambda x: x * 2 > 1.0, np.dtype("float32"))
    (0.5, 0.5000000596046448, True)
    """
    most = int(np.array(np.inf, dtype).view(_BITS[dtype.name]))
    low, high = -most, most

    def at(places: Array) -> Array:
        return holds(_floats(places, dtype))

    above = bool(at(np.array([high]))[0])
    if bool(at(np.array([low]))[0]) == above:
        return None
    while high - low > 1:
        step = max(1, (high - low) // (POINTS - 1))
        places = np.array([*range(low, high, step), high])
        answers = at(places) == above
        first = int(answers.argmax())
        if not answers[first:].all():
            return None  # it steps back
        low, high = int(places[first - 1]), int(places[first])
    near = np.arange(max(-most, low - NEAR), min(most, high + NEAR) + 1)
    if not ((at(near) == above) == (near >= high)).all():
        return None
    last, following = _floats(np.array([low, high]), dtype).tolist()
    return last, following, above


def _floats(places: Array, dtype: np.dtype[Any]) -> Array:
    """Floats from their places in the order, 0 being zero."""
    size = np.abs(places).astype(_BITS[dtype.name]).view(dtype)
    return np.where(places < 0, -size, size).astype(dtype)
