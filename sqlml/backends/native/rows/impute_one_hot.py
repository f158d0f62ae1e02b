"""Kernels that go over columns once: imputation, one-hot, arg max, and the check for NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import FLAG, kinds_of, reads, specialise, writes
from sqlml.backends.native.kernel_calls import Call, Rows
from sqlml.types import Array

Kernel = Callable[[Array], Array]


def imputer(fill: Array, missing: float) -> Kernel:
    """x (n, k) of fill's dtype -> x with `fill` where it is `missing` (NaN: where it is NaN)."""
    dtype = fill.dtype
    gone = np.array([missing], dtype)
    kernel = specialise(_impute, (reads(dtype, 2), *kinds_of(fill, gone), writes(dtype, 2)))

    def impute(x: Array) -> Array:
        out = np.empty(x.shape, dtype)
        kernel(x, fill, gone, out)
        return out

    return impute


def _impute(x: Any, fill: Any, missing: Any, out: Any) -> None:
    gone = missing[0]
    if gone != gone:
        for r in range(x.shape[0]):
            for c in range(x.shape[1]):
                value = x[r, c]
                out[r, c] = fill[c] if value != value else value
    else:
        for r in range(x.shape[0]):
            for c in range(x.shape[1]):
                value = x[r, c]
                out[r, c] = fill[c] if value == gone else value


def one_hot(width: int, codes: np.dtype[Any], dtype: np.dtype[Any]) -> Kernel:
    """codes (n, 1) -> (n, width) of `dtype`: 1 in the code's column, all 0 for another code."""
    kernel = specialise(_one_hot, (reads(codes, 2), writes(dtype, 2)))

    def encode(x: Array) -> Array:
        out = np.zeros((x.shape[0], width), dtype)
        kernel(x, out)
        return out

    return encode


def _one_hot(codes: Any, out: Any) -> None:
    width = out.shape[1]
    for r in range(codes.shape[0]):
        code = codes[r, 0]
        if code >= 0 and code < width:
            out[r, code] = 1


def argmax(dtype: np.dtype[Any]) -> Kernel:
    """x (n, k) with k > 0 -> int64 (n, 1): the first column of the maximum, or of a NaN."""
    kernel = specialise(_argmax, (reads(dtype, 2), writes(np.int64, 2)))

    def first_max(x: Array) -> Array:
        out = np.empty((x.shape[0], 1), np.int64)
        kernel(x, out)
        return out

    return first_max


def _argmax(x: Any, out: Any) -> None:
    for r in range(x.shape[0]):
        best, at = x[r, 0], 0
        for c in range(x.shape[1]):
            value = x[r, c]
            if value != value:
                at = c
                break
            if value > best:
                best, at = value, c
        out[r, 0] = at


def refusing(x: Rows, allow_nan: bool) -> Call:
    """The call that ends where a number of rows is infinite (or NaN, unless `allow_nan`)."""
    found = _has_infinity if allow_nan else _has_nan_times_zero
    return Call(specialise(found, (reads(x.dtype, 2),)), (x,))


def checker(dtype: np.dtype[Any], allow_nan: bool) -> Callable[[Array], bool]:
    """x (n, k) -> whether an entry is infinite (or NaN, unless `allow_nan`)."""
    kernel = specialise(_has_nan_times_zero, (reads(dtype, 2),))
    strict = specialise(_has_infinity, (reads(dtype, 2),))
    return lambda x: bool(kernel(x)) and (not allow_nan or bool(strict(x)))


def _has_nan_times_zero(x: Any) -> bool:
    # x * 0 is NaN for NaN and the infinities and 0 for all else: one test a row, not one a value.
    for r in range(x.shape[0]):
        bad = False
        for c in range(x.shape[1]):
            bad |= x[r, c] * 0 != 0
        if bad:
            return True
    return False


def _has_infinity(x: Any) -> bool:
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            value = x[r, c]
            if value == np.inf or value == -np.inf:
                return True
    return False


def range_checker(low: Array, high: Array, allow_nan: bool) -> Callable[[Array], bool]:
    """x (n, k) -> whether an entry lies outside low (k,) .. high (k,), is infinite or a bad NaN."""
    dtype = low.dtype
    largest = np.finfo(dtype).max
    lowest, highest = np.maximum(low, -largest), np.minimum(high, largest)
    kernel = specialise(_is_outside, (reads(dtype, 2), *kinds_of(lowest, highest), FLAG))
    return lambda x: bool(kernel(x, lowest, highest, allow_nan))


def _is_outside(x: Any, low: Any, high: Any, allow_nan: Any) -> bool:
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            value = x[r, c]
            if not (low[c] <= value <= high[c]) and not (allow_nan and value != value):
                return True
    return False
