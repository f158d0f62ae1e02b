"""B-splines of columns: `bspline` (`ir/operators/piecewise.py`), number by number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import kinds_of, reads, specialise, writes
from sqlml.types import Array


def bspline(knots: Array, degree: int) -> Callable[[Array], Array]:
    """x (n, k) float64 -> (n, k * functions): all basis functions of each column, side by side."""
    each = knots.shape[1] - degree - 1
    room = writes(np.float64, 1)
    signature = (reads(np.float64, 2), *kinds_of(knots), room, room, writes(np.float64, 3))
    kernel = specialise(_bspline, signature)

    def compute(x: Array) -> Array:
        made = np.zeros((x.shape[0], x.shape[1], each))
        h, before = np.empty((2, degree + 1))
        kernel(x, knots, h, before, made)
        return made.reshape(x.shape[0], x.shape[1] * each)

    return compute


def _bspline(x: Any, knots: Any, h: Any, before: Any, made: Any) -> None:
    """`h` and `before` are room for the degree + 1 functions that are not zero at a number."""
    degree, each = h.size - 1, made.shape[2]
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            value = x[r, c]
            if value != value:
                for k in range(each):
                    made[r, c, k] = np.nan
                continue
            span = degree
            while span + 1 < each and knots[c, span + 1] <= value:
                span += 1
            h[0] = 1.0
            for j in range(1, degree + 1):
                for n in range(j):
                    before[n] = h[n]
                h[0] = 0.0
                for n in range(1, j + 1):
                    high, low = knots[c, span + n], knots[c, span + n - j]
                    width = high - low
                    if width == 0.0:
                        h[n] = 0.0
                    else:
                        share = before[n - 1] / width
                        h[n - 1] += share * (high - value)
                        h[n] = share * (value - low)
            for k in range(degree + 1):
                made[r, c, span - degree + k] = h[k]
