"""Kernels for sparse rows (`ir/csr.py`) that sum in the order of scipy and scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import FLAG, reads, specialise, to_kinds, writes
from sqlml.backends.native.kernel_calls import Call, RowKernel, Rows
from sqlml.ir.csr import Csr
from sqlml.types import Array


def make_sparse_linear(weights: Array, bias: Array) -> Callable[[Csr], Array]:
    """Return a function from sparse x (n, k) to x @ weights + bias, summed from column 0 on."""
    dtype = weights.dtype
    kernel = specialise(_linear, (*_row_kinds(dtype), *to_kinds(weights, bias), writes(dtype, 2)))

    def score(x: Csr) -> Array:
        out = np.zeros((x.shape[0], weights.shape[1]), dtype)
        kernel(x.data, x.indices, x.indptr, weights, bias, out)
        return out

    return score


def make_row_normalizer(norm: str, dtype: Any) -> Callable[[Csr], Any]:
    """Return a function that divides each sparse row by the norm, as `csr.normalise` does."""
    kernel = specialise(_normalise, (*_row_kinds(dtype)[::2], FLAG, writes(dtype, 1)))

    def normalise(x: Csr) -> Csr:
        out = np.empty_like(x.data)
        kernel(x.data, x.indptr, norm == "l2", out)
        return x.with_data(out)

    return normalise


def call_fill(row: Array, out: Rows) -> Call:
    """Return the call that copies `row` (m,) to every row of `out`."""
    return Call(specialise(_fill, (*to_kinds(row), writes(out.dtype, 2))), (row, out))


def call_add_products(x: Rows, weights: Array, out: Rows) -> Call:
    """Return the call that adds x @ weights to `out` and skips zeros in x; weights are (k, m)."""
    return RowKernel.of(_add_products, x.dtype, (weights,), out.width, out.dtype).make_call(x, out)


def call_add(row: Array, out: Rows) -> Call:
    """Return the call that adds `row` (m,) to every row of `out`."""
    return Call(specialise(_add, (*to_kinds(row), writes(out.dtype, 2))), (row, out))


def _row_kinds(dtype: Any) -> tuple[Any, Any, Any]:
    return reads(dtype, 1), reads(np.int32, 1), reads(np.int64, 1)


def _fill(row: Any, out: Any) -> None:
    for r in range(out.shape[0]):
        for k in range(out.shape[1]):
            out[r, k] = row[k]


def _add_products(x: Any, weights: Any, out: Any) -> None:
    for r in range(out.shape[0]):
        for k in range(x.shape[1]):
            value = x[r, k]
            if value != 0:
                for output in range(out.shape[1]):
                    out[r, output] += value * weights[k, output]


def _add(row: Any, out: Any) -> None:
    for r in range(out.shape[0]):
        for k in range(out.shape[1]):
            out[r, k] += row[k]


def _linear(data: Any, indices: Any, indptr: Any, weights: Any, bias: Any, out: Any) -> None:
    n_outputs = out.shape[1]
    for r in range(out.shape[0]):
        for j in range(indptr[r], indptr[r + 1]):
            value, feature = data[j], indices[j]
            for output in range(n_outputs):
                out[r, output] += value * weights[feature, output]
        for output in range(n_outputs):
            out[r, output] += bias[output]


def _normalise(data: Any, indptr: Any, is_l2: Any, out: Any) -> None:
    for r in range(indptr.size - 1):
        norm = 0.0
        for j in range(indptr[r], indptr[r + 1]):
            magnitude = data[j] * data[j] if is_l2 else abs(data[j])
            norm += np.float64(magnitude)
        if is_l2:
            norm = np.sqrt(norm)
        if norm == 0.0:
            norm = 1.0
        for j in range(indptr[r], indptr[r + 1]):
            out[j] = np.float64(data[j]) / norm
