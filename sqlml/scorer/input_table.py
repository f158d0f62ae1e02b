"""`Table`: what a user hands to a Scorer (array, frame, table, relation, rows ..), by columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sqlml.errors import InputTypeError
from sqlml.importers.frame import Gaps
from sqlml.ir.program import Program
from sqlml.ir.utf8_column import Texts
from sqlml.passes.split import Layout, PackedColumn
from sqlml.scorer.python_rows import (
    FrameColumns,
    column_of,
    columns_of_dicts,
    columns_of_records,
    columns_of_rows,
    find,
    is_one_column,
    json_texts,
    numbers_of,
    records_of,
    rows_of,
)
from sqlml.types import DATETIME, NESTED, Array, Feature, fold

# `fetched`: frames that are plans (dask, polars, Spark) and relations, as the tables they give.


def fetched(X: Any, features: Sequence[Feature], blanks: bool = False) -> Any:
    """Return `X` if it holds its rows, otherwise the fetched rows, of frames only the columns read.

    Args:
        blanks: as `Gaps.blanks`.

    Raises:
        MissingColumnError, AmbiguousColumnError: before anything is computed.
    """
    if hasattr(X, "__dask_graph__"):
        if getattr(X, "ndim", None) == 2 and hasattr(X, "columns"):
            X = X[_read(features, list(X.columns), blanks)]
        return X.compute()
    if hasattr(X, "collect_schema") and hasattr(X, "collect"):  # polars, whose frames lack collect
        return X.select(_read(features, X.collect_schema().names(), blanks)).collect()
    if hasattr(X, "toArrow") and hasattr(X, "select"):  # Spark
        names = _read(features, X.columns, blanks)
        quoted = [name.replace("`", "``") for name in names]
        return X.select(*[f"`{name}`" for name in quoted]).toArrow()
    for method in ("to_arrow_table", "fetch_arrow_table"):
        if hasattr(X, method):
            return getattr(X, method)()
    return X


def _read(features: Sequence[Feature], names: Sequence[Any], blanks: bool) -> list[Any]:
    """Those of a frame's columns that the model reads; any one, which tells how many rows there
    are, where it reads none."""
    wanted = tuple(feature for feature in features if feature.kind != "any")
    places = find(wanted, [str(name) for name in names], blanks)
    return [names[place] for place in sorted(set(places.values()))] or list(names[:1])


# `microseconds`: a column of dates or timestamps as the numbers that a Program takes.


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


# `SparseRows`: a sparse matrix of scipy, made dense a part at a time.


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


@dataclass(frozen=True, slots=True)
class Table:
    """`rows` rows; either one numeric `matrix` in the features' order, or `columns` by name."""

    rows: int
    features: tuple[Feature, ...]
    matrix: Array | SparseRows | None
    columns: Mapping[str, Any]

    @classmethod
    def of(cls, X: Any, features: Sequence[Feature], gaps: Gaps) -> Table:
        """Read `X`; `gaps` says what sparse matrices and dicts of `X` leave out.

        Raises:
            InputTypeError: another kind of object, or an array of another width.
            MissingColumnError: a feature that the model reads is not among the columns.
        """
        return cls._read(X, tuple(features), gaps)._with_microseconds()

    @classmethod
    def _read(cls, X: Any, features: tuple[Feature, ...], gaps: Gaps) -> Table:
        X = fetched(X, features, gaps.blanks)
        if len(features) == 1 and features[0].kind in NESTED and is_one_column(X):
            rows = rows_of(X)
            return cls(len(rows), features, None, {features[0].name: rows})
        if is_sparse(X):
            return _from_sparse(X, features, gaps)
        records = records_of(X)
        if records is not None:
            by_name = (
                columns_of_records(records, features, gaps.blanks)
                if gaps.separator is None
                else columns_of_dicts(records, features, gaps.separator)
            )
            return cls(len(records), features, None, by_name)
        if isinstance(X, np.ndarray) and X.dtype.names is None:
            return _from_array(np.asarray(X), features)
        if _is_texts(X, features):
            return cls(len(X), features, None, {features[0].name: X})
        if _is_series(X):
            if len(features) != 1:
                raise InputTypeError(
                    f"this {type(X).__name__} is one column, but the model takes {len(features)} "
                    f"columns: {', '.join(f.name for f in features[:12])}; pass a frame (of one "
                    "row: df.iloc[[0]])"
                )
            return cls(len(X), features, None, {features[0].name: X})
        if _is_pandas(X):
            names = [str(name) for name in X.columns.tolist()]
            places = find(features, names, gaps.blanks)
            return cls(int(X.shape[0]), features, None, FrameColumns(X, places))
        nested = {fold(f.name) for f in features if f.kind in NESTED}
        named = _named_columns(X, nested)
        if named is None and isinstance(X, list | tuple):
            held = columns_of_rows(X, features)
            if isinstance(held, np.ndarray):
                return _from_array(held, features)
            return cls(len(X), features, None, held)
        if named is None:
            array = np.asarray(X)
            if array.ndim != 2:
                raise InputTypeError(
                    f"cannot score a {type(X).__name__}; pass a 2-d array, a sparse matrix, a "
                    "frame (pandas, polars, dask, Spark), an Arrow table, a relation of DuckDB, "
                    "a mapping of columns, or a list of rows (lists or dicts)"
                )
            return _from_array(array, features)
        rows, names, column = named
        places = find(features, names, gaps.blanks)
        return cls(rows, features, None, {name: column(k) for name, k in places.items()})

    def _with_microseconds(self) -> Table:
        """The table with numbers in place of dates and timestamps, where the model reads any."""
        dates = [f.name for f in self.features if f.kind == DATETIME]
        if not dates:
            return self
        if self.matrix is not None:
            raise _wrong(dates[0], "dates", "one of an array of numbers")
        made = {n: microseconds(_arrow(self.columns[n], n), n) for n in dates if n in self.columns}
        return replace(self, columns={n: self.columns[n] for n in self.columns} | made)

    @property
    def layout(self) -> Layout:
        """The layout of the packed matrix that loses nothing."""
        if self.matrix is not None and self.matrix.dtype in (np.float32, np.float16):
            return "f32"
        return "f64"

    def slice(self, start: int, stop: int) -> Table:
        """Rows start..stop, without copying."""
        if start == 0 and stop == self.rows:
            return self
        matrix = None if self.matrix is None else self.matrix[start:stop]
        columns: Mapping[str, Any]
        if isinstance(self.columns, FrameColumns):
            columns = self.columns.rows(start, stop)
        else:
            columns = {n: _rows(c, start, stop) for n, c in self.columns.items()}
        return Table(stop - start, self.features, matrix, columns)

    def strings(self, name: str) -> Any:
        """Column `name` as an Arrow array of strings."""
        if self.matrix is not None:
            raise InputTypeError(f"feature {name!r} takes strings, but the array holds numbers")
        column = _text_column(self.columns[name], name)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        kind = column.type
        return column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column

    def objects(self, name: str) -> Array:
        """Column `name` as an object array (n, 1) of str and None."""
        strings: Array = self.strings(name).to_numpy(zero_copy_only=False).astype(object)
        return strings.reshape(-1, 1)

    def value(self, name: str, row: int) -> tuple[Any] | None:
        """One value, in a tuple; None if there is no such column."""
        if self.matrix is not None:
            places = [k for k, feature in enumerate(self.features) if feature.name == name]
            if isinstance(self.matrix, SparseRows):
                held = self.matrix[row : row + 1].dense(places, np.dtype(np.float64))
                return (held[0, 0],) if places else None
            return (self.matrix[row, places[0]],) if places else None
        if name not in self.columns:
            return None
        return (_arrow(_rows(self.columns[name], row, row + 1), name)[0].as_py(),)

    def texts(self, name: str) -> Texts:
        """Column `name` as UTF-8, without an object per text where it is an Arrow column.

        A column of lists, maps or pairs comes as texts of JSON.
        """
        kind = next(f.kind for f in self.features if f.name == name)
        if self.matrix is not None:
            wanted = kind if kind == "pairs" else f"{kind}s"
            raise InputTypeError(f"feature {name!r} takes {wanted}, but the array holds numbers")
        if kind in NESTED:
            return json_texts(self.columns[name], kind, name)
        return Texts.of(_text_column(self.columns[name], name))

    def packed(
        self, columns: Sequence[PackedColumn], codes: Mapping[str, Array], dtype: np.dtype[Any]
    ) -> Array:
        """The packed matrix (n, k) of `columns`: features, and what the encoders made (`codes`)."""
        width = max(1, len(columns))
        if self.matrix is not None and not codes:
            order = {f.name: i for i, f in enumerate(self.features)}
            places = [order[c.name] for c in columns]
            if isinstance(self.matrix, SparseRows):
                return (
                    self.matrix.dense(places, dtype) if places else np.zeros((self.rows, 1), dtype)
                )
            if places == list(range(self.matrix.shape[1])):
                return self.matrix.astype(dtype, copy=False)
            if places:
                return self.matrix[:, places].astype(dtype, copy=False)
        out = (np.empty if columns else np.zeros)((self.rows, width), dtype)
        left = list(range(len(columns)))
        if isinstance(self.columns, FrameColumns):
            numeric = [k for k in left if not columns[k].encoded]
            chosen, block = self.columns.numbers([columns[k].name for k in numeric], dtype)
            at = [numeric[k] for k in chosen]
            if at == left:
                return np.ascontiguousarray(block)
            if at:
                together = at[-1] - at[0] + 1 == len(at)
                out[:, slice(at[0], at[-1] + 1) if together else at] = block
                left = sorted({*left} - {*at})
        for k in left:
            name = columns[k].name
            if columns[k].encoded:
                out[:, k] = codes[name][:, 0]
            else:
                out[:, k] = _numbers(self.columns[name], name)
        return out


def _from_array(array: Array, features: tuple[Feature, ...]) -> Table:
    if array.ndim == 1 and len(features) == 1:
        array = array.reshape(-1, 1)
    _check_shape(array, features)
    if array.dtype.kind in "biuf":
        return Table(array.shape[0], features, array, {})
    columns = {f.name: array[:, i] for i, f in enumerate(features)}
    return Table(array.shape[0], features, None, columns)


def _from_sparse(X: Any, features: tuple[Feature, ...], gaps: Gaps) -> Table:
    if gaps.cell is None:
        raise InputTypeError(
            "values that a sparse matrix does not store are zeros to some model steps and "
            "missing to others (XGBoost), and a Program does not record which; pass X.toarray() "
            "if they are zeros"
        )
    _check_shape(X, features)
    return Table(X.shape[0], features, SparseRows(X, gaps.cell), {})


def _check_shape(array: Any, features: tuple[Feature, ...]) -> None:
    if array.ndim != 2 or array.shape[1] != len(features):
        raise InputTypeError(
            f"the array has shape {array.shape}, but the model takes {len(features)} columns: "
            f"{', '.join(f.name for f in features[:12])}"
        )


def _named_columns(
    X: Any, nested: Collection[str] = ()
) -> tuple[int, list[str], Callable[[int], Any]] | None:
    """Number of rows, the columns' names, and a column by its place; None when they have no names.

    `nested` are the folded names of columns of lists, which no array holds.
    """
    if isinstance(X, pa.Table | pa.RecordBatch):
        return X.num_rows, X.schema.names, X.column
    if isinstance(X, Mapping):
        names = [str(name) for name in X]
        columns = [
            column_of(c) if isinstance(c, list | tuple) and fold(name) not in nested else c
            for name, c in zip(names, X.values(), strict=True)
        ]
        lengths = {len(c) for c in columns}
        if len(lengths) > 1:
            raise InputTypeError(f"the columns have different lengths: {sorted(lengths)}")
        return (lengths.pop() if lengths else 0), names, columns.__getitem__
    if isinstance(X, np.ndarray) and X.dtype.names is not None:
        return len(X), list(X.dtype.names), lambda k: np.asarray(X[X.dtype.names[k]])
    if hasattr(X, "columns") and hasattr(X, "__getitem__") and hasattr(X, "shape"):
        held = list(X.columns)
        return int(X.shape[0]), [str(name) for name in held], lambda k: X[held[k]]
    if hasattr(X, "__arrow_c_stream__"):
        return _named_columns(pa.table(X))
    return None


def _is_pandas(X: Any) -> bool:
    """Whether `X` is a frame whose columns have places too: two of them may have one name."""
    return hasattr(X, "iloc") and hasattr(X, "columns")


def _is_series(X: Any) -> bool:
    """Whether `X` is one column of a frame or an Arrow table."""
    if isinstance(X, pa.Array | pa.ChunkedArray):
        return True
    if hasattr(X, "columns") or isinstance(X, Mapping):
        return False
    return hasattr(X, "iloc") or hasattr(X, "to_arrow")


def _rows(column: Any, start: int, stop: int) -> Any:
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return column.slice(start, stop - start)
    if hasattr(column, "iloc"):
        return column.iloc[start:stop]
    return column[start:stop]


def _numbers(column: Any, name: str) -> Array:
    """A numeric column as float64 (n,), NULL as NaN."""
    array = column if isinstance(column, np.ndarray) else None
    kind = getattr(column, "dtype", None)
    if array is None and (isinstance(kind, np.dtype) or type(kind).__name__ == "SparseDtype"):
        array = np.asarray(column)
    if array is not None and array.dtype.kind in "biuf":
        return array
    try:
        arrow = _arrow(column if array is None else array, name)
    except (InputTypeError, OverflowError):
        mixed = None if array is None or array.dtype != object else numbers_of(array)
        if mixed is None:
            raise
        return mixed
    kind = arrow.type
    if pa.types.is_dictionary(kind) and not _is_text(kind.value_type):
        arrow = arrow.dictionary_decode()  # categories of pandas that are numbers
        kind = arrow.type
    if pa.types.is_boolean(kind):
        arrow = arrow.cast(pa.int8())
    elif pa.types.is_null(kind):
        arrow = arrow.cast(pa.float64())
    elif pa.types.is_decimal(kind):
        # Arrow's own cast multiplies by 10**-scale and misses the nearest float by a bit; the
        # way over text rounds once, as the engine and Python do.
        arrow = arrow.cast(pa.string()).cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise _wrong(name, "numbers", str(kind))
    numbers: Array = arrow.to_numpy(zero_copy_only=False)
    return numbers.astype(np.float64, copy=False)


def _text_column(column: Any, name: str) -> Any:
    """A column of strings as an Arrow array, which may be chunked."""
    arrow = column if isinstance(column, pa.ChunkedArray) else _arrow(column, name)
    kind = arrow.type.value_type if pa.types.is_dictionary(arrow.type) else arrow.type
    if pa.types.is_null(kind):
        return arrow.cast(pa.string())
    if pa.types.is_floating(kind) and np.isnan(arrow.to_numpy(zero_copy_only=False)).all():
        return pa.nulls(len(arrow), pa.string())  # a missing column has no type
    if not _is_text(kind):
        raise _wrong(name, "strings", str(kind))
    return arrow


def _is_text(kind: Any) -> bool:
    """Return whether a type of Arrow is one of texts."""
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(kind) for is_kind in checks)


def _is_texts(X: Any, features: tuple[Feature, ...]) -> bool:
    """Whether `X` is one sequence of documents, as a vectorizer takes them."""
    if len(features) != 1 or features[0].kind != "string":
        return False
    if isinstance(X, list | tuple):
        return all(x is None or isinstance(x, str) for x in X[:1])
    series = getattr(X, "ndim", None) == 1 or hasattr(X, "to_arrow") and not hasattr(X, "columns")
    return isinstance(X, pa.Array | pa.ChunkedArray) or series


def _arrow(column: Any, name: str) -> Any:
    try:
        if isinstance(column, pa.ChunkedArray):
            return column.combine_chunks()
        if isinstance(column, pa.Array):
            return column
        held = getattr(column, "array", None)  # pandas' own, which hands Arrow's over as they are
        if not hasattr(held, "__arrow_array__"):
            if hasattr(column, "to_arrow"):
                return column.to_arrow()
            held = column
        made = pa.array(held, from_pandas=True)
        return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made
    except UnicodeEncodeError as error:
        raise InputTypeError(
            f"column {name!r} holds a string that is not valid Unicode: {error}"
        ) from None
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputTypeError(f"column {name!r} holds values of mixed types: {error}") from None
    except pa.ArrowNotImplementedError:
        kind = getattr(column, "dtype", type(column).__name__)
        raise InputTypeError(
            f"column {name!r} holds {kind}, neither numbers nor text; cast it"
        ) from None


def _wrong(name: str, wants: str, kind: str) -> InputTypeError:
    return InputTypeError(f"feature {name!r} takes {wants}, but the column is {kind}; cast it")


# `program_inputs`: rows as a model's Program takes them.


def program_inputs(
    program: Program,
    rows: Any,
    features: Sequence[Feature] | None = None,
    gaps: Gaps | None = None,
) -> dict[str, Array]:
    """The inputs of a Program, by name, of rows: (n,) each.

    Args:
        rows: a frame, or what else a Scorer takes.
        features: the columns of training, in order; without it the Program's own inputs.
        gaps: what the rows of a sparse matrix lack.

    Raises:
        MissingColumnError: the rows lack a feature.
    """
    table = Table.of(rows, program.features if features is None else features, gaps or Gaps())
    return {f.name: _values(table, f) for f in program.features}


def _values(table: Table, feature: Feature) -> Array:
    """A feature's values (n,), as a Program takes them."""
    if feature.kind in ("number", DATETIME):
        return table.packed((PackedColumn(feature.name, False),), {}, np.dtype(np.float64))[:, 0]
    if feature.kind == "string":
        return table.objects(feature.name)[:, 0]
    texts = table.texts(feature.name)
    held = [None if gone else texts.text(i) for i, gone in enumerate(texts.missing)]
    return np.array([*held, None], object)[:-1]  # never taken for a matrix of characters
