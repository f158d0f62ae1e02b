"""Rows as Python holds them, lists of values and dicts, turned into columns."""

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

from sqlml.bounded_cache import Recent
from sqlml.errors import AmbiguousColumnError, InputTypeError, MissingColumnError
from sqlml.ir.utf8_column import Texts
from sqlml.limits import FOUND_BYTES
from sqlml.suggestions import closest
from sqlml.types import Array, Feature, Kind, features_behind_blanks, fold

# Where a model's features lie in a frame, and the columns of a pandas frame, many at once.


FEW = 12
"""As many columns are read faster one by one than as a part of the frame, which takes 0.1 ms."""


class FrameColumns(Mapping[str, Any]):
    """Features' columns of a pandas frame by name, each cut out when it is asked for.

    A frame of hundreds of columns takes longer to take apart than most models take to run, so
    `numbers` reads all plain columns of numbers in one go.
    """

    __slots__ = ("_frame", "_labels", "_places")

    def __init__(self, frame: Any, places: Mapping[str, int]) -> None:
        self._frame = frame
        self._places = places
        unique = frame.columns.is_unique
        self._labels = frame.columns.tolist() if unique else [None] * frame.shape[1]

    def __getitem__(self, name: str) -> Any:
        place = self._places[name]
        label = self._labels[place]
        # By its label takes half as long as by its place.
        return self._frame[label] if type(label) is str else self._frame.iloc[:, place]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def rows(self, start: int, stop: int) -> FrameColumns:
        """Rows start..stop, without copying."""
        return FrameColumns(self._frame.iloc[start:stop], self._places)

    def numbers(self, names: Sequence[str], dtype: np.dtype[Any]) -> tuple[list[int], Array]:
        """Which of the columns `names` hold numpy's own numbers, and these: (n, k) of `dtype`.

        All others (nullable, Arrow's, objects ..) are to be read one by one.
        """
        dtypes = self._frame.dtypes.tolist()
        plain = {t for t in set(dtypes) if isinstance(t, np.dtype) and t.kind in "biuf"}
        places = [self._places[name] for name in names]
        chosen = [k for k, place in enumerate(places) if dtypes[place] in plain]
        wanted = [places[k] for k in chosen]
        if wanted == list(range(len(dtypes))):
            return chosen, self._frame.to_numpy(dtype)
        if len(wanted) > FEW:
            return chosen, self._frame.iloc[:, wanted].to_numpy(dtype)
        made = np.empty((len(self._frame), len(wanted)), dtype)
        for at, k in enumerate(chosen):
            made[:, at] = self[names[k]].to_numpy()
        return chosen, made


class _Same:
    """Features that compare equal only to themselves: comparing hundreds takes too long."""

    __slots__ = ("features",)

    def __init__(self, features: tuple[Feature, ...]) -> None:
        self.features = features

    def __hash__(self) -> int:
        return id(self.features)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.features is self.features


def find(
    features: tuple[Feature, ...], names: Sequence[str], blanks: bool = False
) -> Mapping[str, int]:
    """Map each feature's name to the place of its column among `names`.

    That is the column of that very name, else the one that has it in another case. A feature that
    may be anything may be absent.

    Args:
        blanks: a column feeds the feature that has _ for its blanks, as `Gaps.blanks` says.

    Raises:
        MissingColumnError: a feature is not among them.
        AmbiguousColumnError: two columns have its name.
    """
    if blanks:
        renamed = features_behind_blanks(features, names)
        names = [renamed[name].name if name in renamed else name for name in names]
    key = _Same(features), tuple(names)
    found = _found.get(key)
    if found is None:
        found = _find(*key)
        _found.put(key, found, _BYTES * (len(features) + len(names)))
    return found


_BYTES = 200
"""What a name takes, about."""

_found: Recent[tuple[_Same, tuple[str, ...]], Mapping[str, int]] = Recent(FOUND_BYTES)


def _find(same: _Same, names: tuple[str, ...]) -> Mapping[str, int]:
    exact, folded = _by_name(names), _by_name([fold(name) for name in names])
    found: dict[str, int] = {}
    for feature in same.features:
        own = exact.get(feature.name) or folded.get(fold(feature.name), [])
        if len(own) > 1:
            raise AmbiguousColumnError(
                f"{len(own)} columns are called {feature.name!r}; give each its own name"
            )
        if own:
            found[feature.name] = own[0]
        elif feature.kind != "any":
            raise _missing(feature.name, names)
    return MappingProxyType(found)


def _by_name(names: Sequence[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    return places


def _missing(name: str, have: Sequence[str]) -> MissingColumnError:
    close = closest(name, have)
    hint = f" (did you mean {close!r}?)" if close is not None else ""
    return MissingColumnError(
        f"the model needs column {name!r}{hint}, not among: {', '.join(have[:30])}"
    )


# Columns of lists, maps and pairs as a user's Python objects hold them, as texts of JSON.
#
# What a row is follows scikit-learn: any iterable is a list (a dict is the list of its keys), a
# map is a dict, and pairs are an iterable of two-element lists or tuples. A frame's own structs,
# which Python shows as dicts, are maps, or pairs where they stand in lists.


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
