"""`read_rows`: the rows of a training query, batch by batch, as estimators take them.

Numbers and the numbers of categories go straight into one matrix, or column by column into arrays;
there is no frame of the whole query beside them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.dialects.duckdb import DUCKDB
from sqlml.errors import ConfigError
from sqlml.host import RowHost
from sqlml.training.features.columns import TrainingColumn, TrainingColumns, label_sql
from sqlml.training.options.request import Request
from sqlml.training.options.splits import Split, hashed_columns
from sqlml.training.progress import Progress
from sqlml.training.storage.column_statistics import Classes, ColumnStatistics, Names
from sqlml.training.storage.row_store import Buffer, RowStore, StoredRows, block_rows
from sqlml.types import Array

# `MemoryGuard`: refuses rows that would not fit into memory, before they are read where that is
# known.


SHARE = 0.8
"""Of the engine's memory_limit that rows may take."""


@dataclass(frozen=True, slots=True)
class MemoryGuard:
    """What rows of an estimator that keeps all of them may take.

    row: bytes of one. limit: the engine's memory_limit in bytes; None: the estimator reads blocks.
    """

    request: Request
    row: int
    limit: float | None

    def check(self, rows: int | None) -> None:
        """Refuse a number of rows, if it is known.

        Raises:
            ConfigError: they take more than the limit allows; what would help.
        """
        if self.limit is None or rows is None or rows * self.row <= SHARE * self.limit:
            return
        others = ""
        if self.request.model_type.startswith("boosted_tree") and self.request.task != "rank":
            others = ", or library = 'xgboost', which reads rows in blocks"
        raise ConfigError(
            f"{self.request.trainer.path.rpartition('.')[2]} keeps all rows in memory: "
            f"{rows:,} of them take {rows * self.row / 2**30:.2f} GiB, and memory_limit is "
            f"{self.limit / 2**30:.2f} GiB; SET memory_limit to more, train on a sample "
            f"(SELECT .. USING SAMPLE 10%){others}"
        )


_NARROW = ("FLOAT", "BOOLEAN", "TINYINT", "SMALLINT", "UTINYINT", "USMALLINT")
"""Types of numbers that float32 holds without rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """The rows that a model is fitted to, or those held out.

    features: (n, k) float32 or float64, the numbers and the codes of categories in the order of
        `TrainingRows.features`, NaN for NULL, or the same in a file; or the columns by name:
        numbers as float64 (n,) with NaN, the codes of categories as int32 (n,) with -1 for NULL.
    label: (n,) the codes of classes, int64, or numbers, float64; None without a label.
    weight: (n,) float64, or None. group: (n,) int64, equal for neighbours of one group, or None.
    """

    features: Array | Mapping[str, Array] | StoredRows
    label: Array | None
    weight: Array | None
    group: Array | None
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class TrainingRows:
    """The rows of a query.

    order: the names of the features as the query has them. features: numbers, then categories.
    names: of the categories of each column, in order. classes: of the label, or None. statistics:
    of each feature. held_out: None if all rows are fitted to. split: as it was settled. kept:
    classes that only held-out rows have had; these are fitted to. unlabelled: rows that were left
    out, since their label is NULL. memory_limit: the engine's, in bytes.
    """

    order: tuple[str, ...]
    features: tuple[TrainingColumn, ...]
    names: Mapping[str, tuple[str, ...]]
    classes: Classes | None
    statistics: Mapping[str, ColumnStatistics]
    fitted: Side
    held_out: Side | None
    split: Split
    kept: tuple[Any, ...]
    unlabelled: int
    memory_limit: float


def read_rows(
    host: RowHost, query: str, columns: TrainingColumns, request: Request, progress: Progress
) -> TrainingRows:
    """Run a query once, and keep what a model learns from.

    Raises:
        ConfigError: infinite values, or a label that nothing can be learned from.
    """
    reader = _Reader(columns, request, host.temporary_folder(), host.memory_limit())
    expected = host.estimated_rows(query)
    guard = reader.guard()
    guard.check(expected)
    progress.begin("reading", expected, "row")
    for batch in host.batches(reader.sql(query), reader.batch_rows):
        reader.take(batch)
        guard.check(reader.count)
        reader.check_names()
        progress.add(batch.num_rows)
    if reader.needs_room:
        host.drop_pages()
    return reader.rows()


class _Reader:
    """What is kept of the batches so far."""

    def __init__(
        self, columns: TrainingColumns, request: Request, folder: str | None, limit: float
    ) -> None:
        self.columns = columns
        self.request = request
        self.memory_limit = limit
        numbers = [column for column in columns.features if column.role == "number"]
        categories = [column for column in columns.features if column.role == "category"]
        self.features = (*numbers, *categories)
        self.statistics = {c.name: ColumnStatistics(c.name, c.type) for c in self.features}
        self.names = {c.name: Names() for c in self.features if c.role == "category"}
        label = request.label
        task = request.task
        classes = columns.label if task == "classify" else None
        self.classes = None if classes is None else Classes(classes.type)
        self.label = Buffer(np.float64 if self.classes is None else np.int64) if label else None
        self.weight = Buffer(np.float64) if request.weight else None
        self.group = Names() if request.group else None
        self.groups = Buffer(np.int64) if request.group else None
        raw = columns.raw
        self.split_keys = request.split.keys(raw, request.label, request.group, request.seed)
        self.hashes = [Buffer(np.uint64) for _ in self.split_keys]
        self.split_values: list[Any] = []
        self.recoded: dict[int, Array] = {}
        self.unlabelled = 0
        self.matrix: RowStore | None = None
        self.arrays: dict[str, Buffer] = {}
        if request.trainer.features == "ordinal" or self.request.reads_blocks:
            most = self._most()
            self.matrix = RowStore(self._matrix_type(), len(self.features), most, folder)
        else:
            kinds = {
                c.name: np.int32 if c.role == "category" else np.float64 for c in self.features
            }
            self.arrays = {name: Buffer(kind) for name, kind in kinds.items()}

    @property
    def count(self) -> int:
        """The rows that are kept so far."""
        first = self.matrix if self.matrix is not None else next(iter(self.arrays.values()))
        return len(first)

    @property
    def batch_rows(self) -> int:
        """Rows of a batch of the engine, which keeps several of them."""
        return block_rows(8 * len(self.features), _BATCH_BYTES)

    @property
    def needs_room(self) -> bool:
        """Whether what is made of rows in a file will take a good part of memory_limit."""
        if self.matrix is None or self.matrix.in_memory:
            return False
        nbytes = len(self.matrix) * self.matrix.width * self.matrix.dtype.itemsize
        return bool(nbytes >= _MUCH * self.memory_limit)

    def _most(self) -> float:
        """Bytes of rows that are kept in memory."""
        if not self.request.reads_blocks:
            return float("inf")
        if self.request.out_of_core:
            return 0
        return max(MOST_IN_MEMORY, self.memory_limit * SHARES.get(self.request.trainer.package, 0))

    def check_names(self) -> None:
        """Refuse more names of categories than fit into memory.

        Raises:
            ConfigError: a column has too many.
        """
        held = sum(names.nbytes for names in self.names.values())
        if held > SHARE * self.memory_limit:
            wide = max(self.names, key=lambda name: self.names[name].nbytes)
            raise ConfigError(
                f"column {wide!r} has over {len(self.names[wide]):,} different texts, which do not "
                "fit into memory_limit: leave it out, or group them in the query"
            )

    def guard(self) -> MemoryGuard:
        """What may be kept of the rows."""
        item = 8 if self.matrix is None else self.matrix.dtype.itemsize
        row = item * len(self.features) + 8
        return MemoryGuard(
            self.request, row, None if self.request.reads_blocks else self.memory_limit
        )

    def _matrix_type(self) -> Any:
        if self.request.trainer.features != "ordinal":
            return np.float64
        narrow = all(c.role == "category" or c.type in _NARROW for c in self.features)
        return np.float32 if narrow or self.request.trainer.package == "xgboost" else np.float64

    def sql(self, query: str) -> str:
        """The query whose batches `take` takes: features, label, weight, group, and what
        decides the split."""
        request = self.request
        items = [column.sql for column in self.features]
        if self.columns.label is not None:
            items.append(label_sql(self.columns.label, request))
        if request.weight is not None:
            items.append(f"CAST({DUCKDB.quote_name(request.weight)} AS DOUBLE)")
        order = ""
        if request.group is not None:
            group = f"CAST({DUCKDB.quote_name(request.group)} AS VARCHAR)"
            items.append(group)
            row = DUCKDB.call("hash", *hashed_columns(self.columns.raw))
            order = f" ORDER BY {group}, {row}"  # as threads may not change
        items += self.split_keys
        listed = ", ".join(f"{item} AS c{n}" for n, item in enumerate(items))
        return f"SELECT {listed} FROM (\n{query}\n) AS sqlml_rows{order}"

    def take(self, batch: Any) -> None:
        """Keep one batch of the engine."""
        import pyarrow as pa
        import pyarrow.compute as pc

        request = self.request
        if request.label is not None:
            labelled = pc.is_valid(batch.column(len(self.features)))
            if not pc.all(labelled).as_py():
                whole = batch.num_rows
                batch = batch.filter(labelled)
                self.unlabelled += whole - batch.num_rows
        arrays = iter(batch.columns)
        rows = batch.num_rows
        matrix = self.matrix
        block = None if matrix is None else np.empty((rows, matrix.width), matrix.dtype)
        for k, column in enumerate(self.features):
            values = self._feature(column, next(arrays))
            if block is None:
                self.arrays[column.name].append(values)
            elif column.role == "category":
                block[:, k] = np.where(values < 0, np.nan, values)
            else:
                block[:, k] = values
        if matrix is not None and block is not None:
            matrix.append(block)
        if self.label is not None:
            values = self._label(next(arrays))
            self.label.append(
                _numbers(values) if self.classes is None else self.classes.codes(values)
            )
        if self.weight is not None:
            self.weight.append(self._weights(_numbers(next(arrays))))
        if self.group is not None and self.groups is not None:
            self.groups.append(self.group.codes(next(arrays)))
        for hashes, values in zip(self.hashes, arrays, strict=True):
            if request.split.reads_hashes:
                hashes.append(values.to_numpy())
            else:  # copied: an array of a batch keeps all of it in memory
                self.split_values.append(pa.concat_arrays([values, values.slice(0, 0)]))

    def _feature(self, column: TrainingColumn, values: Any) -> Array:
        """(n,) codes or numbers, counted."""
        statistics = self.statistics[column.name]
        if column.role == "category":
            codes = self.names[column.name].codes(values)
            statistics.add_codes(codes)
            return codes
        numbers = _numbers(values)
        statistics.add_numbers(numbers)
        if statistics.infinite:
            raise ConfigError(
                f"column {column.name!r} has infinite values, which models cannot learn from; turn "
                f"them into NULL in the query{_as_null(column)}"
            )
        narrow = self.matrix is not None and self.matrix.dtype == np.float32
        if narrow and max(-(statistics.least or 0), statistics.most or 0) > _GREATEST:
            raise ConfigError(
                f"column {column.name!r} has numbers beyond {_GREATEST:.6g}, which "
                f"{self.request.library} cannot take; scale them in the query"
            )
        return numbers

    def _label(self, values: Any) -> Any:
        """A column of labels without infinite values and NaN.

        Raises:
            ConfigError: it has some.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_floating(values.type) and not pc.all(pc.is_finite(values)).as_py():
            name = spelled_name(str(self.request.label))
            raise ConfigError(
                f"the label {self.request.label!r} is infinite or NaN in some rows; leave them out "
                f"of the query: WHERE isfinite({name})"
            )
        return values

    def _weights(self, weights: Array) -> Array:
        if not ((weights >= 0) & np.isfinite(weights)).all():
            raise ConfigError(
                f"column {self.request.weight!r} must have finite weights of at least 0, and no "
                "NULL"
            )
        return weights

    def rows(self) -> TrainingRows:
        """All that was kept, its rows held out and its categories in order."""
        self._sort_names()
        if self.classes is not None and self.label is not None:
            held = self.label.array()
            held[:] = self.classes.sorted_places()[held]
        split, mask = self._held_out()
        kept = self._keep_classes(mask)
        if mask is not None and not mask.any():
            mask = None
        held_out = None if mask is None else self._side(mask, taken=True)
        return TrainingRows(
            tuple(column.name for column in self.columns.features),
            self.features,
            {name: names.sorted() for name, names in self.names.items()},
            self.classes,
            self.statistics,
            self._side(mask, taken=False),
            held_out,
            split,
            kept,
            self.unlabelled,
            self.memory_limit,
        )

    def _sort_names(self) -> None:
        """Number the categories anew, in the order of their names."""
        for k, column in enumerate(self.features):
            names = self.names.get(column.name)
            if names is None:
                continue
            statistics = self.statistics[column.name]
            statistics.distinct, statistics.names = len(names), names.as_seen()
            place = names.sorted_places()
            if self.matrix is None:
                codes = self.arrays[column.name].array()
                codes[:] = np.where(codes < 0, -1, place[codes]) if len(place) else -1
                continue
            if not self.matrix.in_memory:
                self.recoded[k] = place
                continue
            held = self.matrix.array()
            for start in range(0, len(held), _BLOCK):
                block = held[start : start + _BLOCK, k]
                known = ~np.isnan(block)
                block[known] = place[block[known].astype(np.int64)]

    def _held_out(self) -> tuple[Split, Array | None]:
        """The split, and which rows are held out, (n,) bool; None if none is."""
        import pyarrow as pa

        split = self.request.split.settled(self.count)
        if split.method == "none" or not self.count:
            return split, None
        if split.reads_hashes:
            return split, split.held_out([hashes.array() for hashes in self.hashes])
        return split, split.held_out([pa.concat_arrays(self.split_values)])

    def _keep_classes(self, mask: Array | None) -> tuple[Any, ...]:
        """Fit to the rows of classes that no other row has; those classes."""
        if mask is None or self.classes is None or self.label is None:
            return ()
        codes = self.label.array()
        fitted = np.bincount(codes[~mask], minlength=len(self.classes))
        alone = np.flatnonzero(fitted == 0)
        mask[np.isin(codes, alone)] = False
        values = self.classes.values()
        return tuple(values[k] for k in alone)

    def _side(self, mask: Array | None, taken: bool) -> Side:
        """The rows of a mask, taken out; or those that are left afterwards."""

        def part(buffer: Buffer | RowStore) -> Array:
            return buffer.take_out(np.asarray(mask)) if taken else buffer.array()

        others = (self.label, self.weight, self.groups)
        label, weight, group = (None if b is None else part(b) for b in others)
        features: Array | dict[str, Array] | StoredRows
        if self.matrix is None:
            features = {name: part(buffer) for name, buffer in self.arrays.items()}
            rows = len(next(iter(features.values())))
        elif self.matrix.in_memory:
            features = part(self.matrix)
            rows = len(features)
        else:
            chosen = mask if taken or mask is None else ~mask
            features = StoredRows(self.matrix, chosen, self.recoded)
            rows = len(features)
        return Side(features, label, weight, group, rows)


def _as_null(column: TrainingColumn) -> str:
    """How a query makes NULL of a column's infinite values, for messages."""
    if column.expression is not None:
        return ""
    name = spelled_name(column.name)
    return f": CASE WHEN isfinite({name}) THEN {name} END"


def spelled_name(name: str) -> str:
    """A name as users write it: in quotes only where it needs them."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else DUCKDB.quote_name(name)


_GREATEST = float(np.finfo(np.float32).max)
"""The greatest number of a float32."""

MOST_IN_MEMORY = 64 << 20
"""Bytes of a matrix that is kept in memory though its estimator reads blocks."""

SHARES: Mapping[str, float] = MappingProxyType({"lightgbm": 0.25, "sklearn": 0.25})
"""Package -> the share of memory_limit that a matrix may take before it is a file, if the package
makes another model of blocks than of one matrix. XGBoost makes the same."""

_MUCH = 0.125
"""Of memory_limit that a matrix in a file has if the engine is to make room."""

_BATCH_BYTES = 8 << 20
"""Bytes of a batch of the engine, about."""

_BLOCK = 1 << 18
"""Rows whose codes are changed at a time."""


def _numbers(values: Any) -> Array:
    """(n,) numbers of a column of Arrow, NaN for NULL, without a copy where none is needed."""
    if values.null_count:
        import pyarrow as pa
        import pyarrow.compute as pc

        narrow = pa.types.is_float32(values.type)
        kind = pa.float32() if narrow else pa.float64()
        values = pc.fill_null(values.cast(kind, safe=False), float("nan"))
    made: Array = values.to_numpy(zero_copy_only=False)
    return made
