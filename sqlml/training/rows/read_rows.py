"""Read the rows of a training query batch by batch into the form that estimators expect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.dialects.duckdb import DUCKDB
from sqlml.errors import ConfigError
from sqlml.host import RowHost
from sqlml.training.column_statistics import CategoryNumbers, Classes, ColumnStatistics
from sqlml.training.options.request import Request
from sqlml.training.options.splits import SplitRule, list_hash_arguments
from sqlml.training.progress import Progress
from sqlml.training.row_store import RowBuffer, RowStore, StoredRows, block_rows
from sqlml.training.rows.training_columns import TrainingColumn, TrainingColumns, build_label_sql
from sqlml.types import Array

MEMORY_SHARE = 0.8
"""Share of the engine's memory_limit that rows may take."""


def check_memory(request: Request, rows: int | None, row_bytes: int, limit: float) -> None:
    """Raise ConfigError if the rows exceed memory_limit but the estimator needs them in memory."""
    if rows is None or rows * row_bytes <= MEMORY_SHARE * limit:
        return
    alternative = ""
    if request.model_type.startswith("boosted_tree") and request.task != "rank":
        alternative = ", or library = 'xgboost', which reads rows in blocks"
    name = request.trainer.path.rpartition(".")[2]
    raise ConfigError(
        f"{name} keeps all rows in memory: {rows:,} of them take "
        f"{rows * row_bytes / 2**30:.2f} GiB, and memory_limit is {limit / 2**30:.2f} GiB; SET "
        f"memory_limit to more, train on a sample (SELECT ... USING SAMPLE 10%){alternative}"
    )


_FLOAT32_TYPES = ("FLOAT", "BOOLEAN", "TINYINT", "SMALLINT", "UTINYINT", "USMALLINT")
"""Types of numbers that float32 represents exactly."""


@dataclass(frozen=True, slots=True, eq=False)
class SplitSide:
    """One side of the split: the rows that a model is fitted to, or the held-out rows.

    features: a matrix or a dict of columns. A matrix (n, k), float32 or float64, in memory or in a
        file, holds numbers and category codes in the order of `TrainingRows.features`, with NaN for
        NULL. In a dict, numbers are float64 (n,) with NaN for NULL, and category codes are int32
        (n,) with -1 for NULL.
    label: int64 class codes or float64 numbers (n,), or None. weight: float64 (n,), or None. group:
    int64 (n,), equal for neighboring rows of one group, or None. rows: the number of rows.
    """

    features: Array | Mapping[str, Array] | StoredRows
    label: Array | None
    weight: Array | None
    group: Array | None
    rows: int

    def select(self, mask: Array) -> SplitSide:
        """Return the rows that `mask`, (n,) bool, selects."""
        features = self.features
        if isinstance(features, StoredRows):
            whole_mask = mask
            if features.mask is not None:
                whole_mask = features.mask.copy()
                whole_mask[features.mask] = mask
            features = replace(features, mask=whole_mask)
        elif isinstance(features, Mapping):
            features = {name: values[mask] for name, values in features.items()}
        else:
            features = features[mask]
        label, weight, group = (
            None if array is None else array[mask]
            for array in (self.label, self.weight, self.group)
        )
        return SplitSide(features, label, weight, group, int(mask.sum()))


@dataclass(frozen=True, slots=True, eq=False)
class TrainingRows:
    """The rows of a query, split and checked for valid values.

    order: names of the features in the order of the query. features: numbers, then categories.
    names: the sorted categories of each categorical column. classes: the classes of the label, or
    None. statistics: the statistics of each feature. held_out: None if all rows are fitted. split:
    the settled split. returned_classes: classes that only held-out rows had, before these rows were
    moved to the fitted rows. unlabelled: the number of rows without a label, which are left out.
    memory_limit: the memory limit of the engine, in bytes. folds: the fold of each fitted row (n,),
    or None. fold_bounds: the bounds of the folds. measured: the rows of a fold that a model is not
    fitted to, or None.
    """

    order: tuple[str, ...]
    features: tuple[TrainingColumn, ...]
    names: Mapping[str, tuple[str, ...]]
    classes: Classes | None
    statistics: Mapping[str, ColumnStatistics]
    fitted: SplitSide
    held_out: SplitSide | None
    split: SplitRule
    returned_classes: tuple[Any, ...]
    unlabelled: int
    memory_limit: float
    folds: Array | None = None
    fold_bounds: tuple[str, ...] = ()
    measured: SplitSide | None = None

    def select_fold(self, fitted: Array, measured: Array) -> TrainingRows:
        """Return the rows of a fold, by two masks (n,) over the fitted rows."""
        sides = (self.fitted.select(fitted), self.fitted.select(measured))
        return replace(self, fitted=sides[0], measured=sides[1], folds=None)


def read_rows(
    host: RowHost, query: str, columns: TrainingColumns, request: Request, progress: Progress
) -> TrainingRows:
    """Run a query once, and collect its rows for training."""
    return collect_rows(host, query, columns, request, progress).finish()


def collect_rows(
    host: RowHost, query: str, columns: TrainingColumns, request: Request, progress: Progress
) -> RowReader:
    """Run a query once, and return the reader that has read all of its rows."""
    reader = RowReader(columns, request, host)
    expected = host.estimated_rows(query)
    reader.check_memory(expected)
    progress.begin("reading", expected, "row")
    for batch in host.batches(reader.build_query(query), reader.batch_rows):
        reader.add_batch(batch)
        reader.check_memory(reader.count)
        progress.add(batch.num_rows)
    if reader.crowds_engine:
        host.drop_pages()
    return reader


class RowReader:
    """Collects the rows of a query in columns or in a matrix, batch by batch."""

    def __init__(
        self,
        columns: TrainingColumns,
        request: Request,
        host: RowHost,
        memory_limit: float | None = None,
    ) -> None:
        self.columns = columns
        self.request = request
        self.host = host
        self.memory_limit = host.memory_limit() if memory_limit is None else memory_limit
        numbers = [column for column in columns.features if column.role == "number"]
        categories = [column for column in columns.features if column.role == "category"]
        self.features = (*numbers, *categories)
        self.statistics = {c.name: ColumnStatistics(c.name, c.type) for c in self.features}
        self.names = {c.name: CategoryNumbers() for c in self.features if c.role == "category"}
        class_column = columns.label if request.task == "classify" else None
        self.classes = None if class_column is None else Classes(class_column.type)
        label_type = np.float64 if self.classes is None else np.int64
        self.labels = RowBuffer(label_type) if request.label else None
        self.weights = RowBuffer(np.float64) if request.weight else None
        self.group_encoder = CategoryNumbers() if request.group else None
        self.group_codes = RowBuffer(np.int64) if request.group else None
        split_options = request.label, request.group, request.seed
        self.partition_names = [CategoryNumbers() for _ in request.partition_by]
        self.partition_codes = [RowBuffer(np.int32) for _ in request.partition_by]
        self.split_keys = request.split.build_keys(columns.raw, *split_options)
        self.hashes = [RowBuffer(np.uint64) for _ in self.split_keys]
        self.split_values: list[Any] = []
        folds = request.folds
        self.fold_keys: tuple[str, ...] = ()
        if folds is not None:
            self.fold_keys = folds.build_keys(columns.raw, request.label, request.seed)
        self.fold_values: list[list[Any]] = [[] for _ in self.fold_keys]
        self.recoded: dict[int, Array] = {}
        self.unlabelled = 0
        self.matrix: RowStore | None = None
        self.arrays: dict[str, RowBuffer] = {}
        if request.trainer.features == "ordinal" or request.reads_blocks:
            self.matrix = self._make_matrix(
                host.temporary_folder() if request.reads_blocks else None
            )
        else:
            for column in self.features:
                dtype = np.int32 if column.role == "category" else np.float64
                self.arrays[column.name] = RowBuffer(dtype)

    @property
    def count(self) -> int:
        return len(next(iter(self.arrays.values())) if self.matrix is None else self.matrix)

    @property
    def batch_rows(self) -> int:
        """The number of rows in a batch from the engine, which keeps several batches in memory."""
        return block_rows(8 * len(self.features), _BATCH_BYTES)

    @property
    def crowds_engine(self) -> bool:
        if self.matrix is None or self.matrix.in_memory:
            return False
        return self.matrix.nbytes >= _CROWDING_SHARE * self.memory_limit

    def _make_matrix(self, folder: str | None) -> RowStore:
        request = self.request
        package = request.trainer.package
        max_memory_bytes = float("inf")
        if request.reads_blocks:
            memory_bytes = max(MAX_MEMORY_BYTES, self.memory_limit * MEMORY_SHARES.get(package, 0))
            max_memory_bytes = 0 if request.out_of_core else memory_bytes
        is_exact = all(c.role == "category" or c.type in _FLOAT32_TYPES for c in self.features)
        is_narrow = request.trainer.features == "ordinal" and (is_exact or package == "xgboost")
        dtype = np.float32 if is_narrow else np.float64
        return RowStore(dtype, len(self.features), max_memory_bytes, folder)

    def check_memory(self, rows: int | None) -> None:
        if not self.request.reads_blocks:
            item_bytes = 8 if self.matrix is None else self.matrix.dtype.itemsize
            check_memory(self.request, rows, item_bytes * len(self.features) + 8, self.memory_limit)
        nbytes = sum(names.nbytes for names in self.names.values())
        if nbytes > MEMORY_SHARE * self.memory_limit:
            largest = max(self.names, key=lambda name: self.names[name].nbytes)
            raise ConfigError(
                f"column {largest!r} has over {len(self.names[largest]):,} distinct strings, which "
                "do not fit into memory_limit: leave it out, or group them in the query"
            )

    def build_query(self, query: str) -> str:
        request = self.request
        expressions = [column.sql for column in self.features]
        if self.columns.label is not None:
            expressions.append(build_label_sql(self.columns.label, request))
        if request.weight is not None:
            expressions.append(f"CAST({DUCKDB.quote_name(request.weight)} AS DOUBLE)")
        order_by = ""
        if request.group is not None:
            group_sql = f"CAST({DUCKDB.quote_name(request.group)} AS VARCHAR)"
            expressions.append(group_sql)
            row_hash = DUCKDB.call("hash", *list_hash_arguments(self.columns.raw))
            # The order is total, so it does not depend on the number of threads.
            order_by = f" ORDER BY {group_sql}, {row_hash}"
        expressions += [
            f"CAST({DUCKDB.quote_name(name)} AS VARCHAR)" for name in request.partition_by
        ]
        expressions += [*self.split_keys, *self.fold_keys]
        columns_sql = ", ".join(f"{expression} AS c{n}" for n, expression in enumerate(expressions))
        return f"SELECT {columns_sql} FROM (\n{query}\n) AS sqlml_rows{order_by}"

    def add_batch(self, batch: Any) -> None:
        """Append the rows of a pyarrow RecordBatch, except those without a label."""
        import pyarrow as pa
        import pyarrow.compute as pc

        request = self.request
        if request.label is not None:
            labels = batch.column(len(self.features))
            if labels.null_count:
                self.unlabelled += labels.null_count
                batch = batch.filter(pc.is_valid(labels))
        remaining_columns = iter(batch.columns)
        matrix = self.matrix
        block = None if matrix is None else np.empty((batch.num_rows, matrix.width), matrix.dtype)
        for column_index, column in enumerate(self.features):
            values = self._convert_feature(column, next(remaining_columns))
            if block is None:
                self.arrays[column.name].append(values)
            elif column.role == "category":
                block[:, column_index] = np.where(values < 0, np.nan, values)
            else:
                block[:, column_index] = values
        if matrix is not None and block is not None:
            matrix.append(block)
        if self.labels is not None:
            labels = self._check_label(next(remaining_columns))
            encode = _to_numbers if self.classes is None else self.classes.encode
            self.labels.append(encode(labels))
        if self.weights is not None:
            self.weights.append(check_weights(_to_numbers(next(remaining_columns)), request))
        if self.group_encoder is not None and self.group_codes is not None:
            self.group_codes.append(self.group_encoder.encode(next(remaining_columns)))
        for names, codes in zip(self.partition_names, self.partition_codes, strict=True):
            codes.append(names.encode(next(remaining_columns)))
        for hashes in self.hashes:
            keys = next(remaining_columns)
            if request.split.reads_hashes:
                hashes.append(keys.to_numpy())
            else:
                # Copy the array, because a reference would keep the whole batch in memory.
                self.split_values.append(pa.concat_arrays([keys, keys.slice(0, 0)]))
        for fold_keys, keys in zip(self.fold_values, remaining_columns, strict=True):
            fold_keys.append(pa.concat_arrays([keys, keys.slice(0, 0)]))

    def _convert_feature(self, column: TrainingColumn, values: Any) -> Array:
        statistics = self.statistics[column.name]
        if column.role == "category":
            codes = self.names[column.name].encode(values)
            statistics.add_codes(codes)
            return codes
        numbers = _to_numbers(values)
        statistics.add_numbers(numbers)
        if statistics.has_infinite:
            name = quote_if_needed(column.name)
            is_computed = column.expression is not None
            advice = "" if is_computed else f": CASE WHEN isfinite({name}) THEN {name} END"
            raise ConfigError(
                f"column {column.name!r} has infinite values, which models cannot learn from; turn "
                f"them into NULL in the query{advice}"
            )
        is_float32 = self.matrix is not None and self.matrix.dtype == np.float32
        max_magnitude = max(-(statistics.min_value or 0), statistics.max_value or 0)
        if is_float32 and max_magnitude > _FLOAT32_MAX:
            fault = f"numbers beyond {_FLOAT32_MAX:.6g}, which {self.request.library} cannot take"
            raise ConfigError(f"column {column.name!r} has {fault}; scale them in the query")
        return numbers

    def _check_label(self, values: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_floating(values.type) and not pc.all(pc.is_finite(values)).as_py():
            name = str(self.request.label)
            advice = f"leave them out of the query: WHERE isfinite({quote_if_needed(name)})"
            raise ConfigError(f"the label {name!r} is infinite or NaN in some rows; {advice}")
        return values

    def take(self, rows: Array) -> RowReader:
        """Return a reader that has read only the rows (n,) at these indices, in this order.

        The rows of this reader must be in memory.
        """
        import pyarrow as pa

        part = RowReader(self.columns, self.request, self.host, self.memory_limit)
        block = None if self.matrix is None else np.empty((len(rows), len(self.features)))
        for index, column in enumerate(self.features):
            if self.matrix is None:
                values = self.arrays[column.name].array()[rows]
            else:
                values = self.matrix.array()[rows, index]
            statistics = part.statistics[column.name]
            if column.role == "category":
                codes = np.where(values >= 0, values, -1).astype(np.int64)
                names = self.names[column.name].list_by_code()
                values = part.names[column.name].encode_codes(codes, names)
                statistics.add_codes(values)
            else:
                statistics.add_numbers(values)
            if block is None:
                part.arrays[column.name].append(values)
            elif column.role == "category":
                block[:, index] = np.where(values < 0, np.nan, values)
            else:
                block[:, index] = values
        if part.matrix is not None and block is not None:
            part.matrix.append(block)
        if part.labels is not None and self.labels is not None:
            labels = self.labels.array()[rows]
            if part.classes is not None and self.classes is not None:
                labels = part.classes.encode_codes(labels, self.classes.list_by_code())
            part.labels.append(labels)
        if part.weights is not None and self.weights is not None:
            part.weights.append(self.weights.array()[rows])
        if part.group_codes is not None and self.group_codes is not None:
            part.group_codes.append(self.group_codes.array()[rows])
        # The part has no hashes if the split was settled to hold out no rows.
        for part_hashes, hashes in zip(part.hashes, self.hashes, strict=False):
            part_hashes.append(hashes.array()[rows] if len(hashes) else np.empty(0, np.uint64))
        if self.split_values:
            self.split_values = [pa.concat_arrays(self.split_values)]
            part.split_values = [self.split_values[0].take(pa.array(rows))]
        return part

    def finish(self) -> TrainingRows:
        """Split the rows, and return them with categories and classes numbered in sorted order."""
        self._sort_names()
        if self.classes is not None and self.labels is not None:
            codes = self.labels.array()
            codes[:] = self.classes.sorted_positions()[codes]
        split, mask = self._find_held_out()
        returned_classes = self._move_lone_classes(mask)
        if mask is not None and not mask.any():
            mask = None
        folds, fold_bounds = self._assign_folds(mask)
        # The held-out rows are removed first; the fitted rows are those that remain.
        held_out = None if mask is None else self._build_side(mask, is_held_out=True)
        return TrainingRows(
            order=tuple(column.name for column in self.columns.features),
            features=self.features,
            names={name: names.sorted() for name, names in self.names.items()},
            classes=self.classes,
            statistics=self.statistics,
            fitted=self._build_side(mask, is_held_out=False),
            held_out=held_out,
            split=split,
            returned_classes=returned_classes,
            unlabelled=self.unlabelled,
            memory_limit=self.memory_limit,
            folds=folds,
            fold_bounds=fold_bounds,
        )

    def _assign_folds(self, held_out: Array | None) -> tuple[Array | None, tuple[str, ...]]:
        import pyarrow as pa

        if self.request.folds is None or not self.count:
            return None, ()
        keys = [pa.concat_arrays(values) for values in self.fold_values]
        if held_out is not None:
            keys = [values.filter(pa.array(~held_out)) for values in keys]
        return self.request.folds.assign(keys)

    def _sort_names(self) -> None:
        """Renumber category codes in the order of the names; a file is renumbered when read."""
        for column_index, column in enumerate(self.features):
            names = self.names.get(column.name)
            if names is None:
                continue
            statistics = self.statistics[column.name]
            statistics.distinct_count, statistics.names = len(names), names.list_by_code()
            new_codes = names.sorted_positions()
            if self.matrix is None:
                codes = self.arrays[column.name].array()
                codes[:] = np.where(codes < 0, -1, new_codes[codes]) if len(new_codes) else -1
                continue
            if not self.matrix.in_memory:
                self.recoded[column_index] = new_codes
                continue
            matrix = self.matrix.array()
            for start in range(0, len(matrix), _RECODED_ROWS):
                block = matrix[start : start + _RECODED_ROWS, column_index]
                is_present = ~np.isnan(block)
                block[is_present] = new_codes[block[is_present].astype(np.int64)]

    def _find_held_out(self) -> tuple[SplitRule, Array | None]:
        import pyarrow as pa

        split = self.request.split.settle(self.count)
        if split.method == "none" or not self.count:
            return split, None
        if split.reads_hashes:
            return split, split.find_held_out([hashes.array() for hashes in self.hashes])
        return split, split.find_held_out([pa.concat_arrays(self.split_values)])

    def _move_lone_classes(self, mask: Array | None) -> tuple[Any, ...]:
        if mask is None or self.classes is None or self.labels is None:
            return ()
        codes = self.labels.array()
        fitted_counts = np.bincount(codes[~mask], minlength=len(self.classes))
        lone_codes = np.flatnonzero(fitted_counts == 0)
        mask[np.isin(codes, lone_codes)] = False
        values = self.classes.values()
        return tuple(values[code] for code in lone_codes)

    def _build_side(self, mask: Array | None, is_held_out: bool) -> SplitSide:
        def select(buffer: RowBuffer | RowStore) -> Array:
            return buffer.take_out(np.asarray(mask)) if is_held_out else buffer.array()

        buffers = (self.labels, self.weights, self.group_codes)
        label, weight, group = (None if b is None else select(b) for b in buffers)
        features: Array | dict[str, Array] | StoredRows
        if self.matrix is None:
            features = {name: select(buffer) for name, buffer in self.arrays.items()}
            rows = len(next(iter(features.values())))
            return SplitSide(features, label, weight, group, rows)
        if self.matrix.in_memory:
            features = select(self.matrix)
        else:
            selected = mask if is_held_out or mask is None else ~mask
            features = StoredRows(self.matrix, selected, self.recoded)
        return SplitSide(features, label, weight, group, len(features))


def check_weights(weights: Array, request: Request) -> Array:
    if not ((weights >= 0) & np.isfinite(weights)).all():
        message = f"column {request.weight!r} must have finite weights of at least 0, and no NULL"
        raise ConfigError(message)
    return weights


def quote_if_needed(name: str) -> str:
    """Quote a name only if SQL requires quotes."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else DUCKDB.quote_name(name)


_FLOAT32_MAX = float(np.finfo(np.float32).max)
MAX_MEMORY_BYTES = 64 << 20
"""A matrix of at most this many bytes stays in memory even if its estimator reads blocks."""

MEMORY_SHARES: Mapping[str, float] = {"lightgbm": 0.25, "sklearn": 0.25}
"""Maps packages to the share of memory_limit above which rows move to a file.

If these packages train on blocks, they train a different model. XGBoost trains the same model.
"""

_CROWDING_SHARE = 0.125
"""A matrix in a file above this share of memory_limit makes the engine release memory."""

_BATCH_BYTES = 8 << 20
_RECODED_ROWS = 1 << 18


def _to_numbers(values: Any) -> Array:
    """Return the (n,) numbers of an Arrow column, NaN for NULL, without a copy if possible."""
    if values.null_count:
        import pyarrow as pa
        import pyarrow.compute as pc

        float_type = pa.float32() if pa.types.is_float32(values.type) else pa.float64()
        values = pc.fill_null(values.cast(float_type, safe=False), float("nan"))
    return np.asarray(values.to_numpy(zero_copy_only=False))
