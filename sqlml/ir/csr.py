"""`Csr`: rows of which most columns are zero and not stored, as text makes them.

The order of every sum is that of scipy's and scikit-learn's own loops over a CSR matrix: the
stored entries of a row from left to right, from zero, in the dtype that those use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from sqlml.types import Array

Norm = Literal["l1", "l2"]


class Csr:
    """n rows of `width` columns: row i holds `data[j]` in column `indices[j]`, for
    `indptr[i] <= j < indptr[i + 1]`; what is not stored is zero.

    data: (m,) float32 or float64; indices: (m,) int32; indptr: (n + 1,) int64. A column is stored
    at most once a row. Stored zeros stay: some libraries tell them from absent ones.
    """

    __slots__ = ("data", "indices", "indptr", "width")

    def __init__(self, data: Array, indices: Array, indptr: Array, width: int) -> None:
        self.data = data
        self.indices = indices
        self.indptr = indptr
        self.width = width

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns), those not stored too."""
        return (self.indptr.size - 1, self.width)

    @property
    def dtype(self) -> np.dtype[Any]:
        """dtype of the stored numbers."""
        return self.data.dtype

    @property
    def rows(self) -> Array:
        """int64 (m,): the row of each stored number."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    def with_data(self, data: Array) -> Csr:
        """Numbers `data` (m,) in the places of this matrix."""
        return Csr(data, self.indices, self.indptr, self.width)

    def astype(self, dtype: Any, copy: bool = True) -> Csr:
        """This matrix with its numbers in another dtype."""
        return self.with_data(self.data.astype(dtype, copy=copy))

    def toarray(self, fill: float = 0.0) -> Array:
        """(n, width) with `fill` where nothing is stored."""
        dense: Array = np.full(self.shape, fill, self.dtype)
        dense[self.rows, self.indices] = self.data
        return dense


def of(dense: Array) -> Csr:
    """The entries of an (n, k) matrix that are not zero; NaN is one."""
    rows, columns = np.nonzero(dense)
    indptr = np.zeros(dense.shape[0] + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=dense.shape[0]), out=indptr[1:])
    return Csr(dense[rows, columns], columns.astype(np.int32), indptr, dense.shape[1])


def concat(parts: Sequence[Any]) -> Any:
    """Sparse and dense (n, k) values side by side; of a dense one, what is not zero is stored."""
    sparse = [part if isinstance(part, Csr) else of(part) for part in parts]
    dtype = np.result_type(*[part.dtype for part in parts])
    counts = [np.diff(part.indptr) for part in sparse]
    indptr = np.zeros(sparse[0].indptr.size, np.int64)
    np.cumsum(np.sum(counts, axis=0), out=indptr[1:])
    data = np.empty(int(indptr[-1]), dtype)
    indices = np.empty(data.size, np.int32)
    start, first = indptr[:-1].copy(), 0
    for part, count in zip(sparse, counts, strict=True):
        place = np.arange(part.data.size) + np.repeat(start - part.indptr[:-1], count)
        data[place] = part.data
        indices[place] = part.indices + np.int32(first)
        start += count
        first += part.width
    return Csr(data, indices, indptr, first)


class Selector:
    """Columns `indices` of rows of `width` columns, in that order; one may come twice."""

    def __init__(self, width: int, indices: Array) -> None:
        self._columns = indices.size
        self._order = np.argsort(indices, kind="stable").astype(np.int32)
        self._copies = np.bincount(indices, minlength=width)
        self._first = np.cumsum(self._copies) - self._copies
        self._once = bool(self._copies.max(initial=0) <= 1)

    def __call__(self, x: Csr) -> Any:
        """The chosen columns of `x`."""
        copies = self._copies[x.indices]
        total = np.concatenate([[0], np.cumsum(copies)])
        first = self._first[x.indices]
        if self._once:
            kept = copies > 0
            data, place = x.data[kept], first[kept]
        else:
            data = np.repeat(x.data, copies)
            place = np.repeat(first - total[:-1], copies) + np.arange(data.size)
        return Csr(data, self._order[place], total[x.indptr], self._columns)


def linear(x: Csr, weights: Array, bias: Array) -> Array:
    """x @ weights (width, m) + bias (m,): dense (n, m)."""
    scores: Array = np.zeros((x.shape[0], weights.shape[1]), x.dtype)
    rows = x.rows
    for m in range(weights.shape[1]):
        np.add.at(scores[:, m], rows, x.data * weights[x.indices, m])
    scores += bias
    return scores


def normalise(x: Csr, norm: Norm) -> Csr:
    """Each row divided by the sum of its sizes (l1) or the root of its squares' sum (l2).

    Sums and quotients are in float64, squares in the rows' own dtype; a row of zeros stays.
    """
    rows = x.rows
    sizes = np.abs(x.data) if norm == "l1" else x.data * x.data
    total = np.bincount(rows, sizes.astype(np.float64), minlength=x.shape[0])
    if norm == "l2":
        total = np.sqrt(total)
    total[total == 0] = 1
    return x.with_data((x.data / total[rows]).astype(x.dtype))
