"""Read the rows of a training query, and divide them by the values of the partition columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from sqlml.dialects.type_names import STRINGS
from sqlml.errors import ConfigError
from sqlml.host import RowHost
from sqlml.training.options.request import Request
from sqlml.training.partitioned_program import Key, PartitionColumn
from sqlml.training.progress import Progress
from sqlml.training.rows.read_rows import RowReader, TrainingRows, collect_rows
from sqlml.training.rows.training_columns import TrainingColumns
from sqlml.types import Array

MAX_PARTITIONS = 100_000
"""Maximum number of partitions of a model."""

_INTEGERS = re.compile(r"U?(TINYINT|SMALLINT|INTEGER|BIGINT)|BOOLEAN")

MAX_INTEGER = 2**53
"""Magnitude below which an integer is a DOUBLE that no other integer is rounded to."""


class PartitionedRows:
    """The rows of a query, which are divided into partitions.

    columns: the partition columns. keys: the values of each partition, in sorted order. counts: the
    number of rows with a label of each partition, int64 (k,). request: the request, whose split is
    settled for partitions of average size.
    """

    def __init__(self, reader: RowReader) -> None:
        types = reader.columns.raw
        names = reader.request.partition_by
        self.columns = tuple(_make_column(name, types[name]) for name in names)
        self._reader = reader
        codes = np.stack([buffer.array() for buffer in reader.partition_codes], axis=1)
        for name, column_codes in zip(names, codes.T, strict=True):
            null_count = int((column_codes < 0).sum())
            if null_count:
                raise ConfigError(
                    f"partition column {name!r} is NULL in {null_count:,} rows to train on: leave "
                    f"them out of the query, or give them a value with coalesce({name}, ..)"
                )
        distinct, indices = np.unique(codes, axis=0, return_inverse=True)
        if len(distinct) > MAX_PARTITIONS:
            raise ConfigError(
                f"PARTITION BY {', '.join(names)} gives {len(distinct):,} partitions, and a model "
                f"has at most {MAX_PARTITIONS:,}: use a column with fewer values"
            )
        texts = [numbers.list_by_code() for numbers in reader.partition_names]
        keys = [self._read_key(texts, row) for row in distinct.tolist()]
        self._order = np.argsort(indices.reshape(-1), kind="stable")
        ends = np.cumsum(np.bincount(indices.reshape(-1), minlength=len(keys)))
        sorted_positions = sorted(range(len(keys)), key=keys.__getitem__)
        self._slices = [slice(ends[k - 1] if k else 0, ends[k]) for k in sorted_positions]
        self.keys: list[Key] = [keys[k] for k in sorted_positions]
        self.counts: Array = np.array([s.stop - s.start for s in self._slices], np.int64)
        mean_rows = int(self.counts.mean()) if keys else 0
        split = reader.request.split.settle(mean_rows)
        self.request = reader.request = replace(reader.request, split=split)

    def _read_key(self, texts: Sequence[Sequence[str]], codes: Sequence[int]) -> Key:
        return tuple(
            _check_text(column.name, text[code])
            if column.is_text
            else _read_integer(column.name, text[code])
            for column, text, code in zip(self.columns, texts, codes, strict=True)
        )

    def iterate(self, positions: Sequence[int]) -> Iterator[TrainingRows]:
        """Yield the rows of the partitions at `positions` in `keys`."""
        for position in positions:
            rows = self._order[self._slices[position]]
            yield self._reader.take(rows).finish()

    def take_all(self) -> TrainingRows:
        """Return a copy of the rows of all partitions, in the order of the query."""
        return self._reader.take(np.arange(len(self._order))).finish()


def read_partitions(
    host: RowHost, query: str, columns: TrainingColumns, request: Request, progress: Progress
) -> PartitionedRows:
    """Run a query once, and divide its rows by the columns `request.partition_by`.

    Raise ConfigError if a partition column is NULL or cannot divide rows, or if there are too many
    partitions.
    """
    for name in request.partition_by:
        _make_column(name, columns.raw[name])
    return PartitionedRows(collect_rows(host, query, columns, request, progress))


def _make_column(name: str, sql_type: str) -> PartitionColumn:
    is_text = STRINGS.fullmatch(sql_type) is not None
    if not is_text and _INTEGERS.fullmatch(sql_type) is None:
        raise ConfigError(
            f"PARTITION BY takes columns of strings, integers and booleans, and {name!r} is "
            f"{sql_type}: cast it to VARCHAR in the query, here and where the model predicts"
        )
    return PartitionColumn(name, is_text)


def _read_integer(name: str, text: str) -> int:
    value = {"true": 1, "false": 0}.get(text)
    value = int(text) if value is None else value
    if abs(value) >= MAX_INTEGER:
        raise ConfigError(
            f"partition column {name!r} has integers from 2^53 on, such as {value}: cast it to "
            "VARCHAR in the query, here and where the model predicts"
        )
    return value


def _check_text(name: str, text: str) -> str:
    if "\0" in text:
        raise ConfigError(
            f"partition column {name!r} has a NUL character in {text!r:.40}: replace it in the "
            "query"
        )
    return text
