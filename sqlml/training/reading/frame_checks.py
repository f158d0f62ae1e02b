"""`check_frame`: what a frame of training rows looks like, and what may be unintended in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sqlml.errors import ConfigError
from sqlml.training.options.request import Request
from sqlml.training.reading.checks import is_key, tell_each_other
from sqlml.training.storage.column_statistics import ColumnStatistics
from sqlml.types import Array


def check_frame(
    frame: Any,
    types: Mapping[str, str],
    features: Sequence[str],
    label: Array | None,
    classes: int | None,
    request: Request,
) -> tuple[list[ColumnStatistics], list[str]]:
    """Statistics of the features of a pandas frame, and notices.

    Args:
        types: name -> SQL type of its columns.
        label: (n,) numbers, or those of classes. classes: how many there are; None for numbers.

    Raises:
        ConfigError: a feature equals the label, and the option `leaks` is 'error'.
    """
    found, notices = [], []
    for name in features:
        values, names = _values(frame[name])
        statistics = ColumnStatistics(name, types[name])
        found.append(statistics)
        if values is None:
            statistics.rows, statistics.nulls = len(frame), int(frame[name].isna().sum())
            continue
        if values.dtype == np.float64:
            statistics.add_numbers(values)
        else:
            statistics.add_codes(values)
            statistics.distinct, statistics.names = len(names), names
        if statistics.is_constant:
            notices.append(f"column {name!r} has one value in all rows")
        elif is_key(statistics, types[name], values):
            notices.append(
                f"column {name!r} is like a key, with a value of its own in nearly every row"
            )
        elif label is not None and tell_each_other(values, label, classes):
            told = f"column {name!r} tells the label {request.label!r} exactly"
            if request.leaks == "error":
                raise ConfigError(
                    f"{told}: leave it out of the query, or set leaks = 'warn' if that is intended"
                )
            notices.append(f"{told}: a leak? leave it out of the query if it is")
    return found, notices


def _values(column: Any) -> tuple[Array | None, tuple[str, ...]]:
    """(n,) float64 numbers with NaN, or int64 codes of texts, -1 for NULL, and these texts; None of
    other values."""
    import pandas as pd

    if pd.api.types.is_bool_dtype(column) or pd.api.types.is_numeric_dtype(column):
        numbers: Array = column.to_numpy(np.float64, na_value=np.nan)
        return numbers, ()
    if not isinstance(column.dtype, pd.CategoricalDtype) and (
        pd.api.types.infer_dtype(column, skipna=True) not in ("string", "empty", "boolean")
    ):
        return None, ()
    codes, names = pd.factorize(column)
    return codes.astype(np.int64), tuple(map(_as_sql, names))


def _as_sql(value: Any) -> str:
    """A text, or a truth as the engine writes one."""
    return str(value).lower() if isinstance(value, bool) else str(value)
