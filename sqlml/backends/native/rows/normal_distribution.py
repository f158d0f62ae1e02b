"""Compute `ndtr` and `ndtri`, as `ir/operators/elementwise.py` does: the normal distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import inlined_helper
from sqlml.backends.native.kernel_calls import RowKernel
from sqlml.backends.native.vm.register_machine import logarithm
from sqlml.ir.operators.elementwise import QUANTILE_COEFFICIENTS


def make_quantile_kernel(width: int, dtype: np.dtype[Any]) -> RowKernel:
    """Return a kernel that maps probabilities (n, width) of `dtype` to quantiles (n, width)."""
    constants = tuple(np.array(pair) for pair in QUANTILE_COEFFICIENTS)
    return RowKernel.of(_find_quantiles, dtype, constants, width, dtype)


def make_probability_kernel(width: int, dtype: np.dtype[Any]) -> RowKernel:
    """Return a kernel that maps quantiles (n, width) of `dtype` to probabilities (n, width)."""
    return RowKernel.of(_find_probabilities, dtype, (), width, dtype)


_SQRT_HALF = math.sqrt(0.5)


def _find_probabilities(x: Any, out: Any) -> None:
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            out[r, c] = 0.5 * math.erfc(-np.float64(x[r, c]) * _SQRT_HALF)


@inlined_helper
def _divide_polynomials(coefficients: Any, x: Any) -> Any:
    last = coefficients.shape[1] - 1
    numerator, denominator = coefficients[0, last], coefficients[1, last]
    for k in range(last - 1, -1, -1):
        numerator = coefficients[0, k] + numerator * x
        denominator = coefficients[1, k] + denominator * x
    return numerator / denominator


def _find_quantiles(x: Any, middle: Any, near_tail: Any, far_tail: Any, out: Any) -> None:
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            p = np.float64(x[r, c])
            centred = p - 0.5
            if not (p >= 0.0 and p <= 1.0):
                result = np.nan
            elif abs(centred) <= 0.425:
                result = centred * _divide_polynomials(middle, 0.180625 - centred * centred)
            else:
                tail = min(p, 1.0 - p)
                root = math.sqrt(-logarithm(tail, 0.0))
                if tail == 0.0:
                    result = np.inf
                elif root <= 5.0:
                    result = _divide_polynomials(near_tail, root - 1.6)
                else:
                    result = _divide_polynomials(far_tail, root - 5.0)
                result = result if centred > 0.0 else -result
            out[r, c] = result
