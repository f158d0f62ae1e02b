"""`microseconds`: a column of dates or timestamps as the numbers that a Program takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from sqlml.errors import InputTypeError
from sqlml.types import Array

_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}


def microseconds(column: Any, name: str) -> Array:
    """An Arrow array (n,) of dates or timestamps as microseconds since 1970-01-01.

    Returns:
        (n,) float64, with NaN for NULL; nanoseconds are cut off.

    Raises:
        InputTypeError: another type, or timestamps with a time zone, whose dates depend on it.
    """
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        raise InputTypeError(
            f"feature {name!r} takes dates without a time zone, but the column is {kind}; convert "
            "it, for instance with column.dt.tz_convert('UTC').dt.tz_localize(None)"
        )
    if pa.types.is_date(kind):
        column = column.cast(pa.timestamp("s" if pa.types.is_date32(kind) else "ms"))
    elif not pa.types.is_timestamp(kind):
        raise InputTypeError(f"feature {name!r} takes dates, but the column is {kind}; cast it")
    unit = column.type.unit
    whole: Array = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    whole = whole // 1_000 if unit == "ns" else whole * _PER_UNIT[unit]
    gone: Array = column.is_null().to_numpy(zero_copy_only=False)
    return np.where(gone, np.nan, whole.astype(np.float64))
