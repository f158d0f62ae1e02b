"""Columns copied out of rows, numbers converted and shifted: kernels that stand between others."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.jit.argument_kinds import ArrayKind
from sqlml.backends.native.jit.specialise import kinds_of, reads, specialise, writes
from sqlml.backends.native.kernel_calls import Call, Rows
from sqlml.types import Array


def converted(x: Rows, out: Rows) -> Call:
    """The call that writes the numbers of a line as those of another dtype."""
    return Call(specialise(_convert, (reads(x.dtype, 1, "C"), writes(out.dtype, 1))), (x, out))


def taken(x: Rows, columns: Array, out: Rows) -> Call:
    """The call that copies `columns` int64 of rows, maybe as another dtype."""
    columns = np.ascontiguousarray(columns, np.int64)
    to = writes(out.dtype, 2) if out.whole else ArrayKind(out.dtype, 2, "A", False)
    kinds = (reads(x.dtype, 2), *kinds_of(columns), to)
    return Call(specialise(_take, kinds), (x, columns, out))


def shifted(x: Rows, by: Array, out: Rows) -> Call:
    """The call that adds the numbers `by` int64 to the columns of rows."""
    kinds = (reads(x.dtype, 2), *kinds_of(by), writes(out.dtype, 2))
    return Call(specialise(_shift, kinds), (x, by, out))


def _convert(x: Any, out: Any) -> None:
    for i in range(x.size):
        out[i] = x[i]


def _shift(x: Any, by: Any, out: Any) -> None:
    for r in range(x.shape[0]):
        for c in range(by.size):
            out[r, c] = x[r, c] + by[c]


def _take(x: Any, columns: Any, out: Any) -> None:
    for r in range(x.shape[0]):
        for c in range(columns.size):
            out[r, c] = x[r, columns[c]]
