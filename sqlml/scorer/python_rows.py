"""Rows as Python holds them, lists of values and dicts, turned into columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np

from sqlml.errors import InputTypeError
from sqlml.scorer.pandas_columns import find
from sqlml.types import Array, Feature


def column_of(cells: Sequence[Any]) -> Array:
    """Python's values as a column (n,): numbers and dates as numpy's own, all else as objects.

    numpy would make strings of ["a", 1] and of ["a", nan].
    """
    if len(cells) and not isinstance(cells[0], str):
        try:
            made = np.asarray(cells)
        except ValueError:  # lists of different lengths
            made = np.empty(0, object)
        if made.ndim == 1 and made.dtype.kind in "biufmM":
            return made
    return np.fromiter(cells, object, len(cells))


def numbers_of(cells: Array) -> Array | None:
    """Python's numbers of mixed types, (n,) objects, as float64, missing ones as NaN; or None."""
    made = np.empty(len(cells), np.float64)
    for i, cell in enumerate(cells):
        if cell is None or type(cell).__name__ == "NAType":
            made[i] = np.nan
        elif isinstance(cell, Number | np.bool_) and not isinstance(cell, complex):
            made[i] = float(cell)  # type: ignore[arg-type]
        else:
            return None
    return made


def records_of(X: Any) -> list[Mapping[str, Any]] | None:
    """The rows of `X` where they are dicts, or where it is one row, a dict of values; else None.

    Raises:
        InputTypeError: some rows are dicts and others are not.
    """
    if isinstance(X, Mapping):
        return [X] if any(_is_scalar(value) for value in X.values()) else None
    listed = isinstance(X, list | tuple) or getattr(X, "ndim", None) == 1  # or array, or Series
    if not listed or not isinstance(next(iter(X), None), Mapping):
        return None
    for i, row in enumerate(X):
        if not isinstance(row, Mapping):
            raise InputTypeError(f"row {i} is a {type(row).__name__}, where row 0 is a dict")
    return list(X)


def columns_of_records(
    rows: Sequence[Mapping[str, Any]], features: tuple[Feature, ...], blanks: bool = False
) -> dict[str, Array]:
    """Return columns by feature of rows that are dicts; a key that a row lacks is a missing value.

    Args:
        blanks: as `Gaps.blanks`.

    Raises:
        MissingColumnError: no row has the key.
        AmbiguousColumnError: two keys are the feature's name, as SQL reads names.
    """
    keys = list(dict.fromkeys(key for row in rows for key in row))
    places = find(features, [str(key) for key in keys], blanks)
    return {
        name: column_of([row.get(keys[place]) for row in rows]) for name, place in places.items()
    }


def columns_of_dicts(
    rows: Sequence[Mapping[str, Any]], features: tuple[Feature, ...], separator: str
) -> dict[str, Array]:
    """Columns by feature of the dicts that a DictVectorizer takes, read as it reads them.

    A missing number, or a string in its place, is 0; a missing string, or a number in its place,
    has no column of the vectorizer.

    Raises:
        InputTypeError: a key or value that the vectorizer refuses, or that a column cannot hold.
    """
    made: dict[str, Array] = {}
    for feature in features:
        if feature.kind != "any":
            made[feature.name] = np.full(len(rows), 0.0 if feature.kind == "number" else None)
    for i, row in enumerate(rows):
        for key, value in row.items():
            if not isinstance(key, str) or separator in key:
                wrong = "not a string" if not isinstance(key, str) else f"with {separator!r} in it"
                raise InputTypeError(f"row {i} has the key {key!r:.60}, {wrong}; rename it")
            column = made.get(key)
            if column is None:
                continue
            if column.dtype == object:
                column[i] = _only_string(i, key, value)
            else:
                column[i] = _dict_number(i, key, value)
    return made


def columns_of_rows(
    rows: Sequence[Any], features: tuple[Feature, ...]
) -> Array | Mapping[str, Array]:
    """Rows that are lists: a matrix of numbers (n, k) or (n,), or columns by feature.

    One value per row will do if the model has one column.

    Raises:
        InputTypeError: a row is not a list, or its length is not the model's number of columns.
    """
    try:
        matrix = np.asarray(rows)
    except ValueError:  # rows of different lengths, or with lists in them
        matrix = np.empty(0, object)
    if matrix.size and matrix.dtype.kind in "biuf":
        return matrix
    names = [feature.name for feature in features]
    if len(names) == 1 and all(_is_scalar(row) for row in rows):
        return {names[0]: column_of(rows)}
    for i, row in enumerate(rows):
        if isinstance(row, str | bytes | Mapping) or not hasattr(row, "__len__"):
            raise InputTypeError(
                f"row {i} is the {type(row).__name__} {row!r:.60}, where a row of {len(names)} "
                f"values is expected: {', '.join(names[:12])}"
            )
        if len(row) != len(names):
            raise InputTypeError(
                f"row {i} has {len(row)} values, but the model takes {len(names)} columns: "
                f"{', '.join(names[:12])}"
            )
    columns = list(zip(*rows, strict=True)) if len(rows) else [()] * len(names)
    return {name: column_of(cells) for name, cells in zip(names, columns, strict=True)}


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | bytes | Number | np.generic)


def _only_string(row: int, key: str, value: Any) -> str | None:
    if value is None or isinstance(value, str | Number):
        return value if isinstance(value, str) else None
    strings = _strings(row, key, value)
    if len(strings) > 1:
        raise InputTypeError(
            f"row {row} has {len(strings)} strings under {key!r}, but a column holds one per row"
        )
    return strings[0] if strings else None


def _dict_number(row: int, key: str, value: Any) -> float:
    if value is None:
        return float("nan")
    if isinstance(value, Number) and not isinstance(value, complex):
        return float(value)  # type: ignore[arg-type]
    if not isinstance(value, str):
        _strings(row, key, value)
    return 0.0


def _strings(row: int, key: str, value: Any) -> list[str]:
    strings = [] if isinstance(value, Mapping) or not isinstance(value, Iterable) else list(value)
    if (
        not strings
        and not isinstance(value, list | tuple)
        or not all(isinstance(s, str) for s in strings)
    ):
        raise InputTypeError(
            f"row {row} has the {type(value).__name__} {value!r:.60} under {key!r}; "
            "DictVectorizer takes a number, a string or a list of strings"
        )
    return strings
