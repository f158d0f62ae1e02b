"""Rows of Python values (lists and dicts) as columns.

`encode_json` writes lists, maps and pairs as JSON. As in scikit-learn, any iterable is a list (a
dict is a list of keys), a map is a dict, and pairs are an iterable of two-element lists or tuples.
The structs of a frame are maps. A list of structs is a list of pairs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from numbers import Number
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from sqlml.bounded_cache import RecentCache
from sqlml.errors import AmbiguousColumnError, InputTypeError, MissingColumnError
from sqlml.ir.utf8_column import TextColumn
from sqlml.limits import COLUMN_INDICES_BYTES
from sqlml.suggestions import closest
from sqlml.types import Array, Feature, Kind, features_behind_blanks, fold

MAX_SINGLE_COLUMNS = 12
"""Maximum number of columns to read one by one. More columns are faster as one frame (0.1 ms)."""


class FrameColumns(Mapping[str, Any]):
    """A mapping of feature names to the columns of a pandas frame, which are extracted lazily.

    Extracting hundreds of columns one by one is slower than most models. So `read_numbers` reads
    all columns with a numeric numpy dtype at once.
    """

    __slots__ = ("_frame", "_indices", "_labels")

    def __init__(self, frame: Any, indices: Mapping[str, int]) -> None:
        self._frame = frame
        self._indices = indices
        is_unique = frame.columns.is_unique
        self._labels = frame.columns.tolist() if is_unique else [None] * frame.shape[1]

    def __getitem__(self, name: str) -> Any:
        index = self._indices[name]
        label = self._labels[index]
        # Access by label is twice as fast as access by index.
        return self._frame[label] if type(label) is str else self._frame.iloc[:, index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)

    def slice_rows(self, start: int, stop: int) -> FrameColumns:
        """Return the rows from `start` up to `stop`, without copying them."""
        return FrameColumns(self._frame.iloc[start:stop], self._indices)

    def read_numbers(self, names: Sequence[str], dtype: np.dtype[Any]) -> tuple[list[int], Array]:
        """Read the columns among `names` that have a numeric numpy dtype.

        Return the positions of these columns in `names`, and their values (n, k) in `dtype`. The
        caller must read all other columns (nullable, Arrow, objects, ...) one by one.
        """
        dtypes = self._frame.dtypes.tolist()
        numeric_dtypes = {t for t in set(dtypes) if isinstance(t, np.dtype) and t.kind in "biuf"}
        indices = [self._indices[name] for name in names]
        positions = [k for k, index in enumerate(indices) if dtypes[index] in numeric_dtypes]
        column_indices = [indices[k] for k in positions]
        if column_indices == list(range(len(dtypes))):
            return positions, self._frame.to_numpy(dtype)
        if len(column_indices) > MAX_SINGLE_COLUMNS:
            return positions, self._frame.iloc[:, column_indices].to_numpy(dtype)
        values = np.empty((len(self._frame), len(positions)), dtype)
        for k, position in enumerate(positions):
            values[:, k] = self[names[position]].to_numpy()
        return positions, values


def find_columns(
    features: tuple[Feature, ...], names: Sequence[str], blanks: bool = False
) -> Mapping[str, int]:
    """Map each feature's name to the index of the matching column in `names`.

    A match in exact case is preferred. A feature of kind "any" may have no column.
    If `blanks`, the column `my col` also matches the feature `my_col`, as in LightGBM.
    """
    if blanks:
        renamed = features_behind_blanks(features, names)
        names = [renamed[name].name if name in renamed else name for name in names]
    key = id(features), tuple(names)  # Comparing hundreds of features is too slow.
    entry = _indices_cache.get(key)
    if entry is None:  # The entry keeps `features` alive, so the id stays unique.
        entry = features, _match_names(features, names)
        _indices_cache.put(key, entry, _BYTES_PER_NAME * (len(features) + len(names)))
    return entry[1]


_BYTES_PER_NAME = 200
_Entry = tuple[tuple[Feature, ...], Mapping[str, int]]
_indices_cache: RecentCache[tuple[int, tuple[str, ...]], _Entry] = RecentCache(COLUMN_INDICES_BYTES)


def _match_names(features: tuple[Feature, ...], names: Sequence[str]) -> Mapping[str, int]:
    exact_matches = _group_by_name(names)
    folded_matches = _group_by_name([fold(name) for name in names])
    indices: dict[str, int] = {}
    for feature in features:
        matches = exact_matches.get(feature.name) or folded_matches.get(fold(feature.name), [])
        if len(matches) > 1:
            message = f"{len(matches)} columns are called {feature.name!r}; give each its own name"
            raise AmbiguousColumnError(message)
        if matches:
            indices[feature.name] = matches[0]
        elif feature.kind != "any":
            suggestion = closest(feature.name, names)
            hint = f" (did you mean {suggestion!r}?)" if suggestion is not None else ""
            raise MissingColumnError(
                f"the model needs column {feature.name!r}{hint}, not among: {', '.join(names[:30])}"
            )
    return MappingProxyType(indices)


def _group_by_name(names: Sequence[str]) -> dict[str, list[int]]:
    indices: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        indices.setdefault(name, []).append(index)
    return indices


_ACCEPTED_VALUES: dict[Kind, str] = {
    "list": "a list of strings or numbers",
    "map": "a dict of names to numbers or strings",
    "pairs": "a list of pairs (name, number or string)",
}


def encode_json(column: Any, kind: Kind, name: str) -> TextColumn:
    """Encode each row of a nested column as a JSON string; a missing row stays missing."""
    json_rows: Array = np.empty(len(column), object)
    frame_rows = _read_frame_rows(column)
    for index, row in enumerate(column if frame_rows is None else frame_rows):
        if not _is_missing(row):  # The JSON is ASCII, so that a lone surrogate survives.
            json_rows[index] = json.dumps(_to_json(row, kind, name, frame_rows is not None))
    return TextColumn.from_values(json_rows)


def is_one_column(X: Any) -> bool:
    """Return whether `X` is a single nested column instead of a frame."""
    if isinstance(X, list | tuple | pa.Array | pa.ChunkedArray):
        return True
    if isinstance(X, np.ndarray):
        return X.ndim in (1, 2)
    return getattr(X, "ndim", None) == 1 or hasattr(X, "to_arrow") and not hasattr(X, "columns")


def list_rows(X: Any) -> Any:
    """Convert a nested column, as accepted by `is_one_column`, to a sequence of rows.

    Each row of a matrix becomes a list, unless the matrix is one column of lists or dicts.
    """
    if not isinstance(X, np.ndarray) or X.ndim == 1:
        return X
    if X.shape[1] == 1 and X.dtype == object:
        cells = [cell for cell in islice(X[:, 0], 1000) if not _is_missing(cell)]
        if cells and not isinstance(cells[0], str) and isinstance(cells[0], Iterable):
            return X[:, 0]
    return list(X)


def _read_frame_rows(column: Any) -> list[Any] | None:
    """Return the rows of an Arrow or polars column, or None if the column is of another type."""
    is_polars = hasattr(column, "to_list") and hasattr(column, "to_arrow")
    if is_polars and str(getattr(column, "dtype", "")) != "Object":
        return list(column.to_list())
    if hasattr(column, "iloc") and hasattr(column.dtype, "pyarrow_dtype"):
        column = pa.array(column)
    is_arrow = isinstance(column, pa.Array | pa.ChunkedArray)
    return list(column.to_pylist()) if is_arrow else None


def _to_json(row: Any, kind: Kind, name: str, in_frame: bool) -> Any:
    if kind == "map":
        if in_frame and isinstance(row, list) and all(isinstance(pair, tuple) for pair in row):
            row = dict(row)  # `row` is an Arrow map.
        if not isinstance(row, Mapping):
            raise _make_type_error(row, kind, name)
        return {_check_key(k, name): _scalar_to_json(v, kind, name) for k, v in row.items()}
    is_scalar = isinstance(row, str | bytes) or not isinstance(row, Iterable)
    if is_scalar or (isinstance(row, Mapping) and (in_frame or kind == "pairs")):
        raise _make_type_error(row, kind, name)
    if isinstance(row, np.ndarray):
        row = row.tolist()
        row = row if isinstance(row, list) else [row]
    if kind == "list":
        return [_scalar_to_json(element, kind, name) for element in row]
    pairs = []
    for element in row:
        pair = tuple(element.values()) if in_frame and isinstance(element, dict) else element
        if not isinstance(pair, list | tuple | np.ndarray) or len(pair) != 2:
            raise _make_type_error(element, kind, name)
        key, value = pair
        pairs.append((_check_key(key, name), _scalar_to_json(value, kind, name)))
    return pairs


def _check_key(key: Any, name: str) -> str:
    if not isinstance(key, str):
        problem = f"has the {type(key).__name__} {key!r:.60} as a name"
        raise InputTypeError(f"column {name!r} {problem}, but names must be strings")
    return str(key)


def _scalar_to_json(value: Any, kind: Kind, name: str) -> str | bool | int | float | None:
    if isinstance(value, np.generic):
        value = float(value) if isinstance(value, np.floating) else value.item()
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Decimal):
        return float(value)  # Round to the nearest float, as the engine's cast to DOUBLE does.
    if _is_missing(value):
        return None
    raise _make_type_error(value, kind, name)


def _is_missing(value: Any) -> bool:
    """Return whether `value` is None, NaN or pandas.NA (which does not support comparison)."""
    if value is None or type(value).__name__ == "NAType":
        return True
    return isinstance(value, float | np.floating) and bool(value != value)


def _make_type_error(row: Any, kind: Kind, name: str) -> InputTypeError:
    return InputTypeError(
        f"column {name!r} has the {type(row).__name__} {row!r:.60}, but the model takes "
        f"{_ACCEPTED_VALUES[kind]}; convert it"
    )


def make_column(cells: Sequence[Any]) -> Array:
    """Convert Python values to a column (n,) of numbers, of dates, or otherwise of objects.

    `np.asarray` alone would convert ["a", 1] and ["a", nan] to strings.
    """
    if len(cells) and not isinstance(cells[0], str):
        try:
            array = np.asarray(cells)
        except ValueError:  # The lists have different lengths.
            array = np.empty(0, object)
        if array.ndim == 1 and array.dtype.kind in "biufmM":
            return array
    return np.fromiter(cells, object, len(cells))


def convert_numbers(cells: Array) -> Array | None:
    """Convert objects (n,) to float64, or return None if a cell is neither a number nor missing."""
    numbers = np.empty(len(cells), np.float64)
    for i, cell in enumerate(cells):
        if cell is None or type(cell).__name__ == "NAType":
            numbers[i] = np.nan
        elif isinstance(cell, Number | np.bool_) and not isinstance(cell, complex):
            numbers[i] = float(cell)  # type: ignore[arg-type]
        else:
            return None
    return numbers


def find_records(X: Any) -> list[Mapping[str, Any]] | None:
    """Return the rows of `X`, or None if the rows are not dicts. A dict of scalars is one row."""
    if isinstance(X, Mapping):
        return [X] if any(_is_scalar(value) for value in X.values()) else None
    is_sequence = isinstance(X, list | tuple) or getattr(X, "ndim", None) == 1
    if not is_sequence or not isinstance(next(iter(X), None), Mapping):
        return None
    for index, row in enumerate(X):
        if not isinstance(row, Mapping):
            raise InputTypeError(f"row {index} is a {type(row).__name__}, but row 0 is a dict")
    return list(X)


def convert_records(
    rows: Sequence[Mapping[str, Any]], features: tuple[Feature, ...], blanks: bool = False
) -> dict[str, Array]:
    """Convert dicts to columns, keyed by feature name. A missing key becomes a missing value."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    indices = find_columns(features, [str(key) for key in keys], blanks)
    return {name: make_column([row.get(keys[k]) for row in rows]) for name, k in indices.items()}


def convert_dicts(
    rows: Sequence[Mapping[str, Any]], features: tuple[Feature, ...], separator: str
) -> dict[str, Array]:
    """Convert dicts to columns, keyed by feature name, as scikit-learn's DictVectorizer does.

    If the value of a numeric feature is missing or a string, it becomes 0. If the value of a string
    feature is missing or a number, it becomes None, which matches no column of the vectorizer.
    """
    columns: dict[str, Array] = {}
    for feature in (f for f in features if f.kind != "any"):
        columns[feature.name] = np.full(len(rows), 0.0 if feature.kind == "number" else None)
    for i, row in enumerate(rows):
        for key, value in row.items():
            if not isinstance(key, str) or separator in key:
                is_string = isinstance(key, str)
                problem = f"which contains {separator!r}" if is_string else "which is not a string"
                raise InputTypeError(f"row {i} has the key {key!r:.60}, {problem}; rename it")
            column = columns.get(key)
            if column is not None:
                read_value = _read_string if column.dtype == object else _read_number
                column[i] = read_value(i, key, value)
    return columns


def convert_rows(rows: Sequence[Any], features: tuple[Feature, ...]) -> Array | Mapping[str, Array]:
    """Convert lists of values to a numeric array, (n, k) or (n,), or to columns keyed by name.

    If the model has one column, a row may be a single value.
    """
    try:
        matrix = np.asarray(rows)
    except ValueError:  # Rows have different lengths or contain lists.
        matrix = np.empty(0, object)
    if matrix.size and matrix.dtype.kind in "biuf":
        return matrix
    names = [feature.name for feature in features]
    if len(names) == 1 and all(_is_scalar(row) for row in rows):
        return {names[0]: make_column(rows)}
    for i, row in enumerate(rows):
        if isinstance(row, str | bytes | Mapping) or not hasattr(row, "__len__"):
            expected = f"a row of {len(names)} values is expected: {', '.join(names[:12])}"
            raise InputTypeError(f"row {i} is the {type(row).__name__} {row!r:.60}, but {expected}")
        if len(row) != len(names):
            expected = f"{len(names)} columns: {', '.join(names[:12])}"
            raise InputTypeError(f"row {i} has {len(row)} values, but the model takes {expected}")
    columns = list(zip(*rows, strict=True)) if len(rows) else [()] * len(names)
    return {name: make_column(cells) for name, cells in zip(names, columns, strict=True)}


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | bytes | Number | np.generic)


def _read_string(row: int, key: str, value: Any) -> str | None:
    if value is None or isinstance(value, str | Number):
        return value if isinstance(value, str) else None
    strings = _read_strings(row, key, value)
    if len(strings) > 1:
        raise InputTypeError(
            f"row {row} has {len(strings)} strings under {key!r}, but a column has one per row"
        )
    return strings[0] if strings else None


def _read_number(row: int, key: str, value: Any) -> float:
    if value is None:
        return float("nan")
    if isinstance(value, Number) and not isinstance(value, complex):
        return float(value)  # type: ignore[arg-type]
    if not isinstance(value, str):
        _read_strings(row, key, value)  # Check the type of `value`.
    return 0.0


def _read_strings(row: int, key: str, value: Any) -> list[str]:
    strings = [] if isinstance(value, Mapping) or not isinstance(value, Iterable) else list(value)
    is_list = bool(strings) or isinstance(value, list | tuple)
    if not is_list or not all(isinstance(string, str) for string in strings):
        raise InputTypeError(
            f"row {row} has the {type(value).__name__} {value!r:.60} under {key!r}; "
            "DictVectorizer takes a number, a string or a list of strings"
        )
    return strings
