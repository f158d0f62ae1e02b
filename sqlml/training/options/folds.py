"""The division of training rows into the folds of a cross-validation.

Each fold is a range of keys: positions of rows or of groups, as in `splits.py`, or times. The
bounds of the ranges are stored with the model. A row therefore stays in its fold when other rows
are added, and a new row belongs to a fold, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sqlml.dialects.duckdb import DUCKDB
from sqlml.errors import ConfigError
from sqlml.training.options.splits import (
    KEYS,
    build_group_position,
    build_positions,
    build_row_hashes,
    iterate_positions,
)
from sqlml.types import Array

FoldMethod = Literal["random", "group", "time"]

MAX_FOLDS = 100


@dataclass(frozen=True, slots=True)
class FoldRule:
    """A rule that divides rows into `count` folds.

    method: random (by a hash of the row), group (by a hash of `column`), or time (blocks of the
    sorted values of `column`, each predicted by a model of all earlier blocks).
    """

    count: int
    method: FoldMethod = "random"
    column: str | None = None

    def build_keys(
        self, columns: Mapping[str, str], label: str | None, seed: int
    ) -> tuple[str, ...]:
        """Return the SQL expressions whose values decide the fold of a row."""
        if self.column is None:
            return build_row_hashes(columns, label, seed)
        name = DUCKDB.quote_name(self.column)
        if self.method == "time":
            return (name,)
        return (f"CASE WHEN {name} IS NOT NULL THEN {build_group_position(self.column, seed)} END",)

    def assign(self, keys: Sequence[Any]) -> tuple[Array, tuple[str, ...]]:
        """Return the fold of each row, int64 (n,), and the bounds that `build_fold_sql` reads.

        `keys` are the values of `build_keys` as pyarrow Arrays. Folds are numbered from 1, and the
        rows of the first block of times, which no model predicts, have the number 0.
        """
        if self.method == "random":
            hashes = [key.to_numpy(zero_copy_only=False) for key in keys]
            positions = np.empty(len(hashes[0]), np.int64)
            for rows, portion in iterate_positions(*hashes):
                positions[rows] = portion
            sorted_positions = np.sort(positions)
            starts = self._find_starts(len(positions), "rows")
            bounds = sorted_positions[starts]
            return self._find_folds(positions, bounds), tuple(map(str, bounds.tolist()))
        import pyarrow as pa
        import pyarrow.compute as pc

        (values,) = keys
        is_missing = pc.is_null(values, nan_is_null=True)
        if pc.any(is_missing).as_py():
            count, name = int(pc.sum(is_missing).as_py()), f"column {self.column!r}"
            kind = "group" if self.method == "group" else "time"
            raise ConfigError(
                f"{name} is NULL in {count:,} of the rows to train on, so they have no {kind}: "
                f"leave them out of the query, or give them a {kind} with coalesce"
            )
        encoded = pc.dictionary_encode(values)
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        order = np.asarray(pc.sort_indices(encoded.dictionary))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        starts = self._find_starts(len(order), "groups" if self.method == "group" else "times")
        bounds = encoded.dictionary.take(pa.array(order[starts]))
        row_ranks = ranks[np.asarray(encoded.indices)]
        return self._find_folds(row_ranks, starts), tuple(pc.cast(bounds, pa.string()).to_pylist())

    def _find_starts(self, count: int, noun: str) -> Array:
        """Return the indices, among `count` sorted keys, at which a further fold begins."""
        column = "" if self.column is None else f" in column {self.column!r}"
        needed = self.count + (self.method == "time")
        if count < needed:
            raise ConfigError(
                f"option cv: {self.count} folds need at least {needed} {noun}{column}, and the "
                f"rows to train on have {count}: lower cv"
            )
        if self.method == "time":  # As scikit-learn's TimeSeriesSplit, on distinct times.
            return count - count // needed * np.arange(self.count, 0, -1)
        sizes = np.full(self.count, count // self.count)
        sizes[: count % self.count] += 1
        return np.cumsum(sizes)[:-1]

    def _find_folds(self, keys: Array, bounds: Array) -> Array:
        first = 0 if self.method == "time" else 1
        return np.searchsorted(bounds, keys, side="right") + first

    def select_fold(
        self, rows_sql: str, keys: Sequence[str], bounds: Sequence[str], key_type: str
    ) -> str:
        """Return a query for the rows of `rows_sql` with their `fold`, or NULL for no fold.

        `rows_sql` is a query in parentheses with an alias, `keys` are its `build_keys`, and
        `key_type` is the type of the column if the method is time.
        """
        hidden = ""
        if len(keys) > 1:
            rows_sql, key = build_positions(rows_sql, keys)
            hidden = f" EXCLUDE ({', '.join(KEYS)})"
        else:
            (key,) = keys
        sql_type = key_type if self.method == "time" else "BIGINT"
        # The key is a column, so that it is computed once.
        rows_sql = f"(SELECT *{hidden}, {key} AS {_KEY} FROM {rows_sql}) AS sqlml_keyed"
        last = len(bounds) + (self.method != "time")
        cases = " ".join(
            f"WHEN {_KEY} >= CAST({DUCKDB.text(bound)} AS {sql_type}) THEN {last - n}"
            for n, bound in enumerate(reversed(bounds))
        )
        first = "" if self.method == "time" else f" WHEN {_KEY} IS NOT NULL THEN 1"
        return (
            f"SELECT * EXCLUDE ({_KEY}), CAST(CASE {cases}{first} END AS INTEGER) AS fold "
            f"FROM {rows_sql}"
        )


_KEY = "sqlml_fold_key"


def parse_folds(count: int | None, by: str | None, time: str | None) -> FoldRule | None:
    """Parse the options cv, cv_by and cv_time, or return None if no option is set."""
    if count is None:
        if by is not None or time is not None:
            name = "cv_by" if time is None else "cv_time"
            raise ConfigError(f"option {name} needs cv, the number of folds, such as cv = 5")
        return None
    if not 2 <= count <= MAX_FOLDS:
        raise ConfigError(f"option cv must be from 2 to {MAX_FOLDS} folds, not {count}")
    if by is not None and time is not None:
        message = "give cv_by or cv_time, not both: a fold has whole groups or a block of times"
        raise ConfigError(message)
    if time is not None:
        return FoldRule(count, "time", time)
    return FoldRule(count) if by is None else FoldRule(count, "group", by)
