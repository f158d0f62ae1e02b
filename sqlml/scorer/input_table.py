"""The rows that a user passes to a Scorer, as a table of columns.

`Table.of` reads arrays, sparse matrices, frames, Arrow tables, relations, mappings of columns and
lists of rows. `python_rows` reads the values in Python lists and dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sqlml.errors import InputTypeError
from sqlml.importers.frame import MissingValueRules
from sqlml.ir.program import Program
from sqlml.ir.utf8_column import TextColumn
from sqlml.passes.split import Layout, PackedColumn
from sqlml.scorer import python_rows
from sqlml.scorer.python_rows import FrameColumns
from sqlml.types import DATETIME, NESTED, Array, Feature, fold


def fetch(X: Any, features: Sequence[Feature], blanks: bool = False) -> Any:
    """If `X` is a lazy frame or a relation, load the columns of `features`; else return `X`.

    If `blanks`, the feature `my_col` also matches a column `My Col`, because LightGBM replaces
    blanks in names.
    """
    if hasattr(X, "__dask_graph__"):
        if getattr(X, "ndim", None) == 2 and hasattr(X, "columns"):
            X = X[_select_columns(features, list(X.columns), blanks)]
        return X.compute()
    if hasattr(X, "collect_schema") and hasattr(X, "collect"):  # a lazy frame of polars
        return X.select(_select_columns(features, X.collect_schema().names(), blanks)).collect()
    if hasattr(X, "toArrow") and hasattr(X, "select"):  # Spark
        names = [name.replace("`", "``") for name in _select_columns(features, X.columns, blanks)]
        return X.select(*[f"`{name}`" for name in names]).toArrow()
    for method in ("to_arrow_table", "fetch_arrow_table"):
        if hasattr(X, method):
            return getattr(X, method)()
    return X


def _select_columns(features: Sequence[Feature], names: Sequence[Any], blanks: bool) -> list[Any]:
    """Return the `names` of the columns that the model reads.

    If the model reads no column, return the first name, since the rows must be counted.
    """
    used_features = tuple(feature for feature in features if feature.kind != "any")
    indices = python_rows.find_columns(used_features, [str(name) for name in names], blanks)
    return [names[index] for index in sorted(set(indices.values()))] or list(names[:1])


_MICROSECONDS_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}


def to_microseconds(column: Any, name: str) -> Array:
    """Convert Arrow dates or timestamps (n,) to float64 microseconds since 1970-01-01.

    NULL becomes NaN. Nanoseconds are truncated to microseconds.
    """
    arrow_type = column.type
    if pa.types.is_null(arrow_type):
        return np.full(len(column), np.nan)
    if pa.types.is_timestamp(arrow_type) and arrow_type.tz is not None:
        raise InputTypeError(
            f"feature {name!r} takes dates without a time zone, but the column is {arrow_type}; "
            "convert it, for instance with column.dt.tz_convert('UTC').dt.tz_localize(None)"
        )
    if pa.types.is_date(arrow_type):
        column = column.cast(pa.timestamp("s" if pa.types.is_date32(arrow_type) else "ms"))
    elif not pa.types.is_timestamp(arrow_type):
        message = f"feature {name!r} takes dates, but the column is {arrow_type}; cast it"
        raise InputTypeError(message)
    unit = column.type.unit
    ticks: Array = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    ticks = ticks // 1_000 if unit == "ns" else ticks * _MICROSECONDS_PER_UNIT[unit]
    is_missing: Array = column.is_null().to_numpy(zero_copy_only=False)
    return np.where(is_missing, np.nan, ticks.astype(np.float64))


BLOCK = 1 << 24
"""Maximum number of cells of a sparse matrix to make dense at once: 128 MB of float64."""


class SparseRows:
    """The rows of a sparse matrix. Dense blocks have `fill_value` in cells that are not stored."""

    __slots__ = ("_fill_value", "_matrix", "dtype", "shape")

    def __init__(self, matrix: Any, fill_value: float) -> None:
        csr_matrix = matrix.tocsr()
        if csr_matrix.dtype.kind not in "biuf":
            message = f"the sparse matrix has the dtype {csr_matrix.dtype}, which is not numeric"
            raise InputTypeError(message)
        if not csr_matrix.has_canonical_format:
            csr_matrix = csr_matrix.copy()  # Do not change the caller's matrix.
            csr_matrix.sum_duplicates()
        self._matrix = csr_matrix
        self._fill_value = fill_value
        self.shape: tuple[int, int] = csr_matrix.shape
        self.dtype: np.dtype[Any] = csr_matrix.dtype

    def __getitem__(self, rows: slice) -> SparseRows:
        return SparseRows(self._matrix[rows], self._fill_value)

    def to_dense(self, columns: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Return the columns with the given indices as a dense matrix (n, k) of `dtype`."""
        matrix = self._matrix
        if list(columns) != list(range(self.shape[1])):
            matrix = matrix[:, list(columns)]
        if self._fill_value == 0:
            dense_matrix: Array = matrix.toarray()
            return dense_matrix.astype(dtype, copy=False)
        dense = np.full(matrix.shape, self._fill_value, dtype)
        row_indices = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        dense[row_indices, matrix.indices] = matrix.data
        return dense

    @property
    def parts(self) -> list[slice]:
        """Slices that cover all rows. Each slice is small enough to be made dense at once."""
        num_rows = max(1, BLOCK // max(1, self.shape[1]))
        starts = range(0, max(1, self.shape[0]), num_rows)
        return [slice(start, start + num_rows) for start in starts]


@dataclass(frozen=True, slots=True)
class Table:
    """Input rows as one numeric matrix or as named columns.

    `features` are the columns of the training data. The columns of `matrix` have the same order. If
    `matrix` is None, `columns` maps feature names to columns of any type that `Table.of` accepts.
    """

    rows: int
    features: tuple[Feature, ...]
    matrix: Array | SparseRows | None
    columns: Mapping[str, Any]

    @classmethod
    def of(cls, X: Any, features: Sequence[Feature], gaps: MissingValueRules) -> Table:
        """Read rows `X` into a table; `gaps` defines missing cells of sparse rows and dicts."""
        return cls._read(X, tuple(features), gaps)._convert_dates()

    @classmethod
    def _read(cls, X: Any, features: tuple[Feature, ...], gaps: MissingValueRules) -> Table:
        X = fetch(X, features, gaps.blanks)
        if len(features) == 1 and features[0].kind in NESTED and python_rows.is_one_column(X):
            rows = python_rows.list_rows(X)
            return cls(len(rows), features, None, {features[0].name: rows})
        if hasattr(X, "tocsr") and hasattr(X, "nnz"):
            return _read_sparse(X, features, gaps)
        records = python_rows.find_records(X)
        if records is not None:
            if gaps.separator is None:
                columns_by_name = python_rows.convert_records(records, features, gaps.blanks)
            else:
                columns_by_name = python_rows.convert_dicts(records, features, gaps.separator)
            return cls(len(records), features, None, columns_by_name)
        if isinstance(X, np.ndarray) and X.dtype.names is None:
            return _read_array(np.asarray(X), features)
        if _is_document_list(X, features) or _is_series(X):
            if len(features) != 1:
                raise InputTypeError(
                    f"this {type(X).__name__} is one column, but the model takes {len(features)} "
                    f"columns: {', '.join(f.name for f in features[:12])}; pass a frame (of one "
                    "row: df.iloc[[0]])"
                )
            return cls(len(X), features, None, {features[0].name: X})
        if hasattr(X, "iloc") and hasattr(X, "columns"):  # A pandas frame may repeat a name.
            names = [str(name) for name in X.columns.tolist()]
            indices = python_rows.find_columns(features, names, gaps.blanks)
            return cls(int(X.shape[0]), features, None, FrameColumns(X, indices))
        named_columns = _find_named_columns(X, {fold(f.name) for f in features if f.kind in NESTED})
        if named_columns is None and isinstance(X, list | tuple):
            columns = python_rows.convert_rows(X, features)
            if isinstance(columns, np.ndarray):
                return _read_array(columns, features)
            return cls(len(X), features, None, columns)
        if named_columns is None:
            array = np.asarray(X)
            if array.ndim != 2:
                raise InputTypeError(
                    f"cannot score a {type(X).__name__}; pass a 2-d array, a sparse matrix, a "
                    "frame (pandas, polars, dask, Spark), an Arrow table, a relation of DuckDB, "
                    "a mapping of columns, or a list of rows (lists or dicts)"
                )
            return _read_array(array, features)
        rows, names, read_column = named_columns
        indices = python_rows.find_columns(features, names, gaps.blanks)
        return cls(rows, features, None, {name: read_column(k) for name, k in indices.items()})

    def _convert_dates(self) -> Table:
        date_features = [f.name for f in self.features if f.kind == DATETIME]
        if not date_features:
            return self
        if self.matrix is not None:
            raise _make_type_error(date_features[0], "dates", "one of an array of numbers")
        columns = dict(self.columns)
        for name in filter(columns.__contains__, date_features):
            columns[name] = to_microseconds(_to_arrow(columns[name], name), name)
        return replace(self, columns=columns)

    @property
    def layout(self) -> Layout:
        """The narrowest layout that represents all numbers exactly."""
        is_narrow = self.matrix is not None and self.matrix.dtype in (np.float32, np.float16)
        return "f32" if is_narrow else "f64"

    def slice(self, start: int, stop: int) -> Table:
        """Return the rows from `start` up to `stop`, without copying them."""
        if start == 0 and stop == self.rows:
            return self
        matrix = None if self.matrix is None else self.matrix[start:stop]
        if isinstance(self.columns, FrameColumns):
            columns: Mapping[str, Any] = self.columns.slice_rows(start, stop)
        else:
            columns = {name: _slice_rows(c, start, stop) for name, c in self.columns.items()}
        return Table(stop - start, self.features, matrix, columns)

    def read_strings(self, name: str) -> Any:
        """Return the column of a feature as an Arrow array of strings."""
        if self.matrix is not None:
            raise InputTypeError(f"feature {name!r} takes strings, but the array contains numbers")
        column = _to_string_column(self.columns[name], name)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        arrow_type = column.type
        return column.cast(arrow_type.value_type) if pa.types.is_dictionary(arrow_type) else column

    def read_objects(self, name: str) -> Array:
        """Return the column of a feature as an object array (n, 1) of str and None."""
        strings: Array = self.read_strings(name).to_numpy(zero_copy_only=False).astype(object)
        return strings.reshape(-1, 1)

    def read_cell(self, name: str, row: int) -> tuple[Any] | None:
        """Return (value,) for one cell, or None if the column is missing."""
        if self.matrix is not None:
            indices = [k for k, feature in enumerate(self.features) if feature.name == name]
            if not indices:
                return None
            if isinstance(self.matrix, SparseRows):
                return (self.matrix[row : row + 1].to_dense(indices, np.dtype(np.float64))[0, 0],)
            return (self.matrix[row, indices[0]],)
        if name not in self.columns:
            return None
        return (_to_arrow(_slice_rows(self.columns[name], row, row + 1), name)[0].as_py(),)

    def read_texts(self, name: str) -> TextColumn:
        """Return the UTF-8 texts of a feature; lists, maps and pairs are encoded as JSON."""
        kind = next(f.kind for f in self.features if f.name == name)
        if self.matrix is not None:
            accepted_values = kind if kind == "pairs" else f"{kind}s"
            message = f"feature {name!r} takes {accepted_values}, but the array contains numbers"
            raise InputTypeError(message)
        if kind in NESTED:
            return python_rows.encode_json(self.columns[name], kind, name)
        return TextColumn.from_values(_to_string_column(self.columns[name], name))

    def pack(
        self, columns: Sequence[PackedColumn], codes: Mapping[str, Array], dtype: np.dtype[Any]
    ) -> Array:
        """Pack `columns` into one matrix (n, k) of `dtype`.

        Each column is a numeric feature or an encoded feature. `codes` maps the names of encoded
        features to category codes.
        """
        width = max(1, len(columns))
        if self.matrix is not None and not codes:
            indices_by_name = {f.name: i for i, f in enumerate(self.features)}
            indices = [indices_by_name[column.name] for column in columns]
            if isinstance(self.matrix, SparseRows):
                if not indices:
                    return np.zeros((self.rows, 1), dtype)
                return self.matrix.to_dense(indices, dtype)
            if indices == list(range(self.matrix.shape[1])):
                return self.matrix.astype(dtype, copy=False)
            if indices:
                return self.matrix[:, indices].astype(dtype, copy=False)
        packed = (np.empty if columns else np.zeros)((self.rows, width), dtype)
        unfilled_indices = list(range(len(columns)))
        if isinstance(self.columns, FrameColumns):
            numeric_indices = [k for k in unfilled_indices if not columns[k].is_encoded]
            names = [columns[k].name for k in numeric_indices]
            positions, values = self.columns.read_numbers(names, dtype)
            filled_indices = [numeric_indices[k] for k in positions]
            if filled_indices == unfilled_indices:
                return np.ascontiguousarray(values)
            if filled_indices:
                first, last = filled_indices[0], filled_indices[-1]
                is_contiguous = last - first + 1 == len(filled_indices)
                packed[:, slice(first, last + 1) if is_contiguous else filled_indices] = values
                unfilled_indices = sorted({*unfilled_indices} - {*filled_indices})
        for k in unfilled_indices:
            name = columns[k].name
            if columns[k].is_encoded:
                packed[:, k] = codes[name][:, 0]
            else:
                packed[:, k] = _to_numeric_column(self.columns[name], name)
        return packed


def _read_array(array: Array, features: tuple[Feature, ...]) -> Table:
    if array.ndim == 1 and len(features) == 1:
        array = array.reshape(-1, 1)
    _check_shape(array, features)
    if array.dtype.kind in "biuf":
        return Table(array.shape[0], features, array, {})
    return Table(len(array), features, None, {f.name: array[:, i] for i, f in enumerate(features)})


def _read_sparse(X: Any, features: tuple[Feature, ...], gaps: MissingValueRules) -> Table:
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
        expected = f"{len(features)} columns: {', '.join(f.name for f in features[:12])}"
        raise InputTypeError(f"the array has shape {array.shape}, but the model takes {expected}")


def _find_named_columns(
    X: Any, nested: Collection[str] = ()
) -> tuple[int, list[str], Callable[[int], Any]] | None:
    """Return the row count, the column names, and a function that maps an index to a column.

    Return None if `X` has no named columns. Columns that are Python lists become arrays, unless
    `nested` contains the case-folded name.
    """
    if isinstance(X, pa.Table | pa.RecordBatch):
        return X.num_rows, X.schema.names, X.column
    if isinstance(X, Mapping):
        names = [str(name) for name in X]
        columns = []
        for name, cells in zip(names, X.values(), strict=True):
            is_list = isinstance(cells, list | tuple) and fold(name) not in nested
            columns.append(python_rows.make_column(cells) if is_list else cells)
        lengths = {len(column) for column in columns}
        if len(lengths) > 1:
            raise InputTypeError(f"the columns have different lengths: {sorted(lengths)}")
        return (lengths.pop() if lengths else 0), names, columns.__getitem__
    if isinstance(X, np.ndarray) and X.dtype.names is not None:
        return len(X), list(X.dtype.names), lambda k: np.asarray(X[X.dtype.names[k]])
    if hasattr(X, "columns") and hasattr(X, "__getitem__") and hasattr(X, "shape"):
        labels = list(X.columns)
        return int(X.shape[0]), [str(label) for label in labels], lambda k: X[labels[k]]
    return _find_named_columns(pa.table(X)) if hasattr(X, "__arrow_c_stream__") else None


def _is_series(X: Any) -> bool:
    if isinstance(X, pa.Array | pa.ChunkedArray):
        return True
    is_frame = hasattr(X, "columns") or isinstance(X, Mapping)
    return not is_frame and (hasattr(X, "iloc") or hasattr(X, "to_arrow"))


def _slice_rows(column: Any, start: int, stop: int) -> Any:
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return column.slice(start, stop - start)
    return (column.iloc if hasattr(column, "iloc") else column)[start:stop]


def _to_numeric_column(column: Any, name: str) -> Array:
    """Convert a column to numbers (n,). If a conversion is necessary, NULL becomes NaN."""
    array = column if isinstance(column, np.ndarray) else None
    column_type = getattr(column, "dtype", None)
    is_sparse = type(column_type).__name__ == "SparseDtype"
    if array is None and (isinstance(column_type, np.dtype) or is_sparse):
        array = np.asarray(column)
    if array is not None and array.dtype.kind in "biuf":
        return array
    try:
        arrow_array = _to_arrow(column if array is None else array, name)
    except (InputTypeError, OverflowError):
        # Arrow rejects Python numbers of mixed types.
        converted = (
            None if array is None or array.dtype != object else python_rows.convert_numbers(array)
        )
        if converted is None:
            raise
        return converted
    column_type = arrow_array.type
    if pa.types.is_dictionary(column_type) and not _is_string_type(column_type.value_type):
        arrow_array = arrow_array.dictionary_decode()  # Categories in pandas may be numbers.
        column_type = arrow_array.type
    if pa.types.is_boolean(column_type):
        arrow_array = arrow_array.cast(pa.int8())
    elif pa.types.is_null(column_type):
        arrow_array = arrow_array.cast(pa.float64())
    elif pa.types.is_decimal(column_type):
        # Arrow's direct cast multiplies by 10**-scale, and may miss the nearest float by one bit. A
        # cast through text rounds only once, as the engine and Python do.
        arrow_array = arrow_array.cast(pa.string()).cast(pa.float64())
    elif not (pa.types.is_integer(column_type) or pa.types.is_floating(column_type)):
        raise _make_type_error(name, "numbers", str(column_type))
    numbers: Array = arrow_array.to_numpy(zero_copy_only=False)
    return numbers.astype(np.float64, copy=False)


def _to_string_column(column: Any, name: str) -> Any:
    array = column if isinstance(column, pa.ChunkedArray) else _to_arrow(column, name)
    value_type = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if pa.types.is_null(value_type):
        return array.cast(pa.string())
    # A column without values may have the type of NaN.
    if pa.types.is_floating(value_type) and np.isnan(array.to_numpy(zero_copy_only=False)).all():
        return pa.nulls(len(array), pa.string())
    if not _is_string_type(value_type):
        raise _make_type_error(name, "strings", str(value_type))
    return array


def _is_string_type(arrow_type: pa.DataType) -> bool:
    return arrow_type in (pa.string(), pa.large_string(), pa.string_view())


def _is_document_list(X: Any, features: tuple[Feature, ...]) -> bool:
    """Return whether `X` is a sequence of documents, as text vectorizers accept."""
    if len(features) != 1 or features[0].kind != "string":
        return False
    if isinstance(X, list | tuple):
        return all(document is None or isinstance(document, str) for document in X[:1])
    is_polars = hasattr(X, "to_arrow") and not hasattr(X, "columns")
    is_arrow = isinstance(X, pa.Array | pa.ChunkedArray)
    return is_arrow or is_polars or getattr(X, "ndim", None) == 1


def _to_arrow(column: Any, name: str) -> Any:
    try:
        if isinstance(column, pa.ChunkedArray):
            return column.combine_chunks()
        if isinstance(column, pa.Array):
            return column
        values = getattr(column, "array", None)  # The values of pandas may wrap an Arrow array.
        if not hasattr(values, "__arrow_array__"):
            if hasattr(column, "to_arrow"):
                return column.to_arrow()
            values = column
        array = pa.array(values, from_pandas=True)
        return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    except UnicodeEncodeError as error:
        problem = f"a string that is not valid Unicode: {error}"
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        problem = f"values of mixed types: {error}"
    except pa.ArrowNotImplementedError:
        dtype = getattr(column, "dtype", type(column).__name__)
        problem = f"{dtype}, neither numbers nor text; cast it"
    raise InputTypeError(f"column {name!r} contains {problem}")


def _make_type_error(name: str, accepted: str, actual_type: str) -> InputTypeError:
    message = f"feature {name!r} takes {accepted}, but the column is {actual_type}; cast it"
    return InputTypeError(message)


def read_program_inputs(
    program: Program,
    rows: Any,
    features: Sequence[Feature] | None = None,
    gaps: MissingValueRules | None = None,
) -> dict[str, Array]:
    """Convert rows of any type that a Scorer accepts to a mapping of feature names to arrays (n,).

    `features` are the training columns in order. The default is the features of the Program.
    """
    columns = program.features if features is None else features
    table = Table.of(rows, columns, gaps or MissingValueRules())
    return {feature.name: _read_feature(table, feature) for feature in program.features}


def _read_feature(table: Table, feature: Feature) -> Array:
    if feature.kind in ("number", DATETIME):
        return table.pack((PackedColumn(feature.name, False),), {}, np.dtype(np.float64))[:, 0]
    if feature.kind == "string":
        return table.read_objects(feature.name)[:, 0]
    texts = table.read_texts(feature.name)
    values = [None if missing else texts.text(index) for index, missing in enumerate(texts.missing)]
    return np.array([*values, None], object)[:-1]  # None keeps the array one-dimensional.
