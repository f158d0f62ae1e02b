"""Columns of lists, maps and pairs as a user's Python objects hold them, as texts of JSON.

What a row is follows scikit-learn: any iterable is a list (a dict is the list of its keys), a map
is a dict, and pairs are an iterable of two-element lists or tuples. A frame's own structs, which
Python shows as dicts, are maps, or pairs where they stand in lists.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from itertools import islice
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from sqlml.errors import InputTypeError
from sqlml.ir.utf8_column import Texts
from sqlml.types import Array, Kind

_FORM: Mapping[Kind, str] = MappingProxyType(
    {
        "list": "a list of strings or numbers",
        "map": "a dict of names to numbers or strings",
        "pairs": "a list of pairs (name, number or string)",
    }
)


def json_texts(column: Any, kind: Kind, name: str) -> Texts:
    """Each row of `column` as a text of JSON, missing where the row is.

    Args:
        column: a sequence of Python objects, an object array, a pandas, polars or Arrow column.
        kind: "list", "map" or "pairs".

    Raises:
        InputTypeError: a row is something else, or holds what is neither string nor number.
    """
    made: Array = np.empty(len(column), object)
    framed = _framed(column)
    for i, row in enumerate(column if framed is None else framed):
        if not _is_missing(row):
            plain = _plain(row, kind, name, framed is not None)
            # ASCII only, so that even a lone surrogate comes back as it was.
            made[i] = json.dumps(plain)
    return Texts.of(made)


def is_one_column(X: Any) -> bool:
    """Whether `X` holds the rows of one nested column rather than a frame of columns."""
    if isinstance(X, list | tuple | pa.Array | pa.ChunkedArray):
        return True
    if isinstance(X, np.ndarray):
        return X.ndim in (1, 2)
    return getattr(X, "ndim", None) == 1 or hasattr(X, "to_arrow") and not hasattr(X, "columns")


def rows_of(X: Any) -> Any:
    """`X`, for which `is_one_column` holds, as one sequence of rows.

    Each row of a matrix is a list, unless the matrix is one column of lists or dicts.
    """
    if not isinstance(X, np.ndarray) or X.ndim == 1:
        return X
    if X.shape[1] == 1 and X.dtype == object:
        cells = [cell for cell in islice(X[:, 0], 1000) if not _is_missing(cell)]
        if cells and not isinstance(cells[0], str) and isinstance(cells[0], Iterable):
            return X[:, 0]
    return list(X)


def _framed(column: Any) -> list[Any] | None:
    """The rows of an Arrow or polars column, whose structs are not dicts; None for others."""
    if isinstance(column, pa.Array | pa.ChunkedArray):
        rows: list[Any] = column.to_pylist()
        return rows
    kind = str(getattr(column, "dtype", ""))
    if hasattr(column, "to_list") and hasattr(column, "to_arrow") and kind != "Object":
        rows = column.to_list()  # polars
        return rows
    if hasattr(column, "iloc") and hasattr(column.dtype, "pyarrow_dtype"):
        rows = pa.array(column).to_pylist()
        return rows
    return None


def _plain(row: Any, kind: Kind, name: str, framed: bool) -> Any:
    """A row as json.dumps takes it."""
    if kind == "map":
        if framed and isinstance(row, list) and all(isinstance(pair, tuple) for pair in row):
            row = dict(row)  # Arrow's maps
        if not isinstance(row, Mapping):
            raise _wrong(row, kind, name)
        return {_key(k, name): _scalar(v, kind, name) for k, v in row.items()}
    scalar = isinstance(row, str | bytes) or not isinstance(row, Iterable)
    if scalar or (isinstance(row, Mapping) and (framed or kind == "pairs")):
        raise _wrong(row, kind, name)
    if isinstance(row, np.ndarray):
        row = row.tolist()
        row = row if isinstance(row, list) else [row]
    if kind == "list":
        return [_scalar(item, kind, name) for item in row]
    return [_pair(item, name, framed) for item in row]


def _pair(item: Any, name: str, framed: bool) -> tuple[str, Any]:
    if framed and isinstance(item, dict):
        item = tuple(item.values())
    if not isinstance(item, list | tuple | np.ndarray) or len(item) != 2:
        raise _wrong(item, "pairs", name)
    first, second = item
    return _key(first, name), _scalar(second, "pairs", name)


def _key(key: Any, name: str) -> str:
    if not isinstance(key, str):
        raise InputTypeError(
            f"column {name!r} has the {type(key).__name__} {key!r:.60} as a name; names are strings"
        )
    return str(key)


def _scalar(value: Any, kind: Kind, name: str) -> str | bool | int | float | None:
    """One value as JSON has it; numbers of any width as Python's own."""
    if isinstance(value, np.generic):
        value = float(value) if isinstance(value, np.floating) else value.item()
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Decimal):
        return float(value)  # to the nearest, as the engine's DECIMAL becomes a DOUBLE
    if _is_missing(value):
        return None
    raise InputTypeError(
        f"column {name!r} has the {type(value).__name__} {value!r:.60}, where the model takes "
        f"{_FORM[kind]}; cast it"
    )


def _is_missing(value: Any) -> bool:
    """None, NaN, or pandas' NA, which compares with nothing."""
    if value is None or type(value).__name__ == "NAType":
        return True
    return isinstance(value, float | np.floating) and bool(value != value)


def _wrong(row: Any, kind: Kind, name: str) -> InputTypeError:
    return InputTypeError(
        f"column {name!r} has the {type(row).__name__} {row!r:.60} where the model takes "
        f"{_FORM[kind]}"
    )
