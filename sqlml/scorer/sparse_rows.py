"""`SparseRows`: a sparse matrix of scipy, made dense a part at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sqlml.errors import InputTypeError
from sqlml.types import Array

BLOCK = 1 << 24
"""Cells of a sparse matrix that are made dense at once: 128 MB of float64."""


class SparseRows:
    """The rows of a sparse matrix; `cell` is what those cells hold that it does not store."""

    __slots__ = ("_cell", "_matrix", "dtype", "shape")

    def __init__(self, matrix: Any, cell: float) -> None:
        rows = matrix.tocsr()
        if rows.dtype.kind not in "biuf":
            raise InputTypeError(f"the sparse matrix holds {rows.dtype}, not numbers")
        if not rows.has_canonical_format:
            rows = rows.copy()  # the caller's own, perhaps
            rows.sum_duplicates()
        self._matrix = rows
        self._cell = cell
        self.shape: tuple[int, int] = rows.shape
        self.dtype: np.dtype[Any] = rows.dtype

    def __getitem__(self, rows: slice) -> SparseRows:
        return SparseRows(self._matrix[rows], self._cell)

    def dense(self, places: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """The columns at `places`, (n, k) of `dtype`."""
        chosen = self._matrix
        if list(places) != list(range(self.shape[1])):
            chosen = chosen[:, list(places)]
        if self._cell == 0:
            made: Array = chosen.toarray().astype(dtype, copy=False)
            return made
        made = np.full(chosen.shape, self._cell, dtype)
        made[np.repeat(np.arange(chosen.shape[0]), np.diff(chosen.indptr)), chosen.indices] = (
            chosen.data
        )
        return made

    @property
    def parts(self) -> list[slice]:
        """The rows, so many at a time as become dense at once."""
        size = max(1, BLOCK // max(1, self.shape[1]))
        return [slice(a, a + size) for a in range(0, max(1, self.shape[0]), size)]


def is_sparse(X: Any) -> bool:
    """Whether `X` is a sparse matrix or array of scipy."""
    return hasattr(X, "tocsr") and hasattr(X, "nnz")
