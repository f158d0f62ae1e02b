"""`Csr`: sparse rows, such as those of text, in compressed sparse row format.

Sums start with zero and add the stored entries of a row from left to right, in the order and in the
dtype of scipy's and scikit-learn's loops over a CSR matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sqlml.types import Array


@dataclass(slots=True, eq=False)
class Csr:
    """A sparse matrix of n rows and `width` columns.

    Row i has `data[j]` in column `indices[j]` for `indptr[i] <= j < indptr[i + 1]`; other entries
    are zero. `data` is float32 or float64 (m,), `indices` is int32 (m,), and `indptr` is int64
    (n + 1,). A row stores a column at most once. Stored zeros are kept, because some libraries
    distinguish stored zeros from absent entries.
    """

    data: Array
    indices: Array
    indptr: Array
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        return (self.indptr.size - 1, self.width)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    @property
    def rows(self) -> Array:
        """The row index of each stored number, int64 (m,)."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    def with_data(self, data: Array) -> Csr:
        return Csr(data, self.indices, self.indptr, self.width)

    def astype(self, dtype: Any, copy: bool = True) -> Csr:
        return self.with_data(self.data.astype(dtype, copy=copy))

    def toarray(self, fill: float = 0.0) -> Array:
        """Return a dense (n, width) array with `fill` where nothing is stored."""
        dense: Array = np.full(self.shape, fill, self.dtype)
        dense[self.rows, self.indices] = self.data
        return dense


def from_dense(dense: Array) -> Csr:
    """Convert a dense matrix to a `Csr` that stores all entries except zeros."""
    rows, columns = np.nonzero(dense)
    indptr = np.zeros(dense.shape[0] + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=dense.shape[0]), out=indptr[1:])
    return Csr(dense[rows, columns], columns.astype(np.int32), indptr, dense.shape[1])


def concat_columns(matrices: Sequence[Any]) -> Any:
    """Concatenate the columns of sparse and dense (n, k) matrices."""
    sparse = [matrix if isinstance(matrix, Csr) else from_dense(matrix) for matrix in matrices]
    dtype = np.result_type(*[matrix.dtype for matrix in matrices])
    counts = [np.diff(matrix.indptr) for matrix in sparse]
    indptr = np.zeros(sparse[0].indptr.size, np.int64)
    np.cumsum(np.sum(counts, axis=0), out=indptr[1:])
    data = np.empty(int(indptr[-1]), dtype)
    indices = np.empty(data.size, np.int32)
    next_position, first_column = indptr[:-1].copy(), 0
    for matrix, count in zip(sparse, counts, strict=True):
        shifts = np.repeat(next_position - matrix.indptr[:-1], count)
        destination = np.arange(matrix.data.size) + shifts
        data[destination] = matrix.data
        indices[destination] = matrix.indices + np.int32(first_column)
        next_position += count
        first_column += matrix.width
    return Csr(data, indices, indptr, first_column)


class ColumnSelector:
    """Selects the columns `indices` of a matrix of `width` columns; an index may repeat."""

    def __init__(self, width: int, indices: Array) -> None:
        self._column_count = indices.size
        self._order = np.argsort(indices, kind="stable").astype(np.int32)
        self._copy_counts = np.bincount(indices, minlength=width)
        self._first = np.cumsum(self._copy_counts) - self._copy_counts
        self._has_no_repeats = bool(self._copy_counts.max(initial=0) <= 1)

    def __call__(self, x: Csr) -> Any:
        counts = self._copy_counts[x.indices]
        ends = np.concatenate([[0], np.cumsum(counts)])
        first_positions = self._first[x.indices]
        if self._has_no_repeats:
            is_selected = counts > 0
            data, position = x.data[is_selected], first_positions[is_selected]
        else:
            data = np.repeat(x.data, counts)
            position = np.repeat(first_positions - ends[:-1], counts) + np.arange(data.size)
        return Csr(data, self._order[position], ends[x.indptr], self._column_count)


def multiply(x: Csr, weights: Array, bias: Array) -> Array:
    """Return x @ weights + bias as a dense array; weights are (width, k), and bias is (k,)."""
    scores: Array = np.zeros((x.shape[0], weights.shape[1]), x.dtype)
    rows = x.rows
    for column in range(weights.shape[1]):
        np.add.at(scores[:, column], rows, x.data * weights[x.indices, column])
    scores += bias
    return scores


def normalize_rows(x: Csr, norm: Literal["l1", "l2"]) -> Csr:
    """Divide each row by the row's norm, summed in float64; rows of zeros stay zero."""
    rows = x.rows
    terms = np.abs(x.data) if norm == "l1" else x.data * x.data
    norms = np.bincount(rows, terms.astype(np.float64), minlength=x.shape[0])
    if norm == "l2":
        norms = np.sqrt(norms)
    norms[norms == 0] = 1
    return x.with_data((x.data / norms[rows]).astype(x.dtype))
