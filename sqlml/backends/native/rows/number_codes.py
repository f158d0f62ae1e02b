"""Encode numbers as the indices of known categories, as the operator `encode` does."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.kernel_calls import RowKernel
from sqlml.types import Array


def make_code_kernel(categories: Array, missing_code: int, dtype: np.dtype[Any]) -> RowKernel:
    """Return a kernel that maps x (n, 1) of `dtype` to float64 codes (n, 1).

    The last of equal categories determines the code. An unknown number gets -1, and NaN gets
    `missing_code`.
    """
    indices = np.flatnonzero(categories == categories)[::-1]
    numbers, first_indices = np.unique(categories[indices], return_index=True)
    constants = (numbers.astype(np.float64), indices[first_indices].astype(np.float64))
    return RowKernel.of(_look_up, dtype, (*constants, missing_code), 1, np.dtype(np.float64))


def _look_up(x: Any, numbers: Any, codes: Any, missing_code: Any, out: Any) -> None:
    for r in range(x.shape[0]):
        value = np.float64(x[r, 0])
        start, stop = 0, numbers.size
        while start < stop:
            middle = (start + stop) // 2
            if numbers[middle] < value:
                start = middle + 1
            else:
                stop = middle
        code = -1.0
        if value != value:
            code = np.float64(missing_code)
        elif start < numbers.size and numbers[start] == value:
            code = codes[start]
        out[r, 0] = code
