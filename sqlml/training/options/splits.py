"""The split into rows that a model is fitted to and held-out rows that it is evaluated on.

A row is held out by a hash of its values without the label, or by the value of a column. Equal rows
are numbered, and their positions are spread evenly, so that the requested share of them is held
out. Two runs over the same rows hold out the same rows, whatever their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from sqlml.dialects.duckdb import DUCKDB, builtin
from sqlml.errors import ConfigError
from sqlml.types import Array, fold

Method = Literal["auto", "random", "seq", "custom", "none"]

METHODS: tuple[Method, ...] = get_args(Method)

MIN_ROWS, MAX_SHARE_ROWS, MAX_HELD_OUT = 500, 50_000, 10_000
"""Like BigQuery, method auto holds out no rows below `MIN_ROWS`, a fifth of the rows up to
`MAX_SHARE_ROWS`, and `MAX_HELD_OUT` rows above that."""

FRACTION = 0.2
"""Default share of held-out rows."""

BITS = 31
"""Bits of a row's position, few enough that a row number times `STEP` fits into a BIGINT."""

STEP = 1_327_217_885
"""Distance between positions of equal rows: the golden section (Knuth, TAOCP 6.4, theorem S)."""


@dataclass(frozen=True, slots=True)
class SplitRule:
    """A rule that decides which rows are held out.

    method: random (by a hash of the row), seq (the largest values of a column), custom (the rows
    where a BOOLEAN column is true), none, or auto (by the number of rows). fraction: the share of
    held-out rows, or None if no share was set. column: the column that seq and custom read; for
    random and auto, a column with the positions of the rows, as in Spark.
    """

    method: Method = "auto"
    fraction: float | None = None
    column: str | None = None

    def settle(self, num_rows: int) -> SplitRule:
        """Return the split for `num_rows` rows, with a definite method and fraction.

        >>> SplitRule().settle(100_000)
        SplitRule(method='random', fraction=0.1, column=None)
        """
        if self.method not in ("auto", "random", "seq"):
            return self
        method: Method = "random" if self.method == "auto" else self.method
        if self.fraction is not None or self.method != "auto":
            fraction = FRACTION if self.fraction is None else self.fraction
            return SplitRule(method, fraction, self.column)
        if num_rows < MIN_ROWS:
            return SplitRule("none")
        fraction = FRACTION if num_rows <= MAX_SHARE_ROWS else MAX_HELD_OUT / num_rows
        return SplitRule(method, fraction, self.column)

    @property
    def bound(self) -> int:
        """The position below which rows are held out by the method random."""
        return int((self.fraction or 0.0) * 2**BITS)

    @property
    def reads_hashes(self) -> bool:
        return self.method in ("auto", "random")

    def count_trained(self, num_rows: int) -> int:
        """Return how many of `num_rows` rows the method seq trains on."""
        return num_rows - round(num_rows * (self.fraction or 0.0))

    def build_keys(
        self, columns: Mapping[str, str], label: str | None, group: str | None, seed: int
    ) -> tuple[str, ...]:
        """Return the SQL expressions whose values decide whether a row is held out.

        Return () if no rows are held out. A single expression is the split column, or the position
        of the row's group, so that the rows of a group stay together. Otherwise, return the hash of
        the row without its label, and the hash of the label. The latter orders equal rows.
        """
        if self.method == "none":
            return ()
        if self.column is not None:
            return (DUCKDB.quote_name(self.column),)
        if group is not None:
            return (build_group_position(group, seed),)
        return build_row_hashes(columns, label, seed)

    def select_side(
        self, rows_sql: str, keys: Sequence[str], last: str | None, *, held_out: bool
    ) -> str:
        """Return a query for the held-out (`held_out`) or the fitted rows of `rows_sql`.

        `rows_sql` is a query in parentheses with an alias. `keys` are its `build_keys`. `last`
        is SQL for the largest value that method seq trains on, or None to train on all rows.
        """
        if not keys:
            return f"SELECT * FROM {rows_sql} WHERE {'false' if held_out else 'true'}"
        if len(keys) == 1:
            (key,) = keys
            if self.method == "custom":
                is_fitted = f"NOT coalesce({key}, true)"
            elif self.method == "random":
                is_fitted = f"{key} >= {self.bound}"
            elif last is None:
                is_fitted = "true"
            else:
                is_fitted = f"coalesce({key} <= {last}, {last} IS NULL AND {key} IS NOT NULL)"
            condition = f"NOT ({is_fitted})" if held_out else is_fitted
            return f"SELECT * FROM {rows_sql} WHERE {condition}"
        hashed_sql, position = build_positions(rows_sql, keys)
        return (
            f"SELECT * EXCLUDE ({', '.join(KEYS)}) FROM {hashed_sql} "
            f"QUALIFY {position} {'<' if held_out else '>='} {self.bound}"
        )

    def find_held_out(self, keys: Sequence[Any]) -> Array:
        """Return a mask, (n,) bool, of the held-out rows; the split must be settled.

        `keys` are the values of `build_keys`. Hashes and positions are numpy arrays, and the
        values of a split column are a pyarrow Array.
        """
        if len(keys) > 1:
            row_hashes, label_hashes = keys
            return _mark_below(row_hashes, label_hashes, self.bound)
        (values,) = keys
        if self.method == "random":
            return np.asarray(values) < self.bound
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.method == "custom":
            if not pa.types.is_boolean(values.type):
                message = f"split_column {self.column!r} must be a BOOLEAN for split custom"
                raise ConfigError(message)
            return np.asarray(pc.fill_null(values, True))  # BigQuery holds NULL out, too.
        count = len(values)
        if values.null_count == count:
            raise ConfigError(f"split_column {self.column!r} is NULL in all rows")
        fitted_count = self.count_trained(count)
        if fitted_count >= count:
            return np.zeros(count, bool)
        order = pc.sort_indices(values)  # NULL comes last.
        last_fitted = values[order[max(fitted_count, 1) - 1].as_py()]
        if not last_fitted.is_valid:
            return np.asarray(pc.is_null(values))
        return np.asarray(pc.fill_null(pc.greater(values, last_fitted), True))


KEYS = ("sqlml_row_hash", "sqlml_label_hash")
"""The columns of the hashes that `build_row_hashes` computes."""

_PORTION_ROWS = 1 << 20
"""Approximate number of rows that are sorted at a time."""


def build_row_hashes(columns: Mapping[str, str], label: str | None, seed: int) -> tuple[str, str]:
    """Return SQL for the hash of a row without its label, and for the hash of its label."""
    features = {n: kind for n, kind in columns.items() if fold(n) != fold(label or "")}
    labels = list_hash_arguments({n: kind for n, kind in columns.items() if n not in features})
    row_hash = DUCKDB.call("hash", *list_hash_arguments(features), str(seed))
    return row_hash, DUCKDB.call("hash", *labels) if labels else "CAST(0 AS UBIGINT)"


def build_group_position(group: str, seed: int) -> str:
    """Return SQL for the position that all rows with the same value of `group` have."""
    group_text = f"CAST({DUCKDB.quote_name(group)} AS VARCHAR)"
    return _build_base_position(DUCKDB.call("hash", group_text, str(seed)))


def build_positions(rows_sql: str, keys: Sequence[str]) -> tuple[str, str]:
    """Return a relation with the hashes of its rows as the columns `KEYS`, and their position.

    `rows_sql` is a query in parentheses with an alias, and `keys` are its `build_row_hashes`.
    """
    # The hashes are columns, so that the engine numbers the rows without their other columns.
    key_columns = ", ".join(f"{key} AS {name}" for key, name in zip(keys, KEYS, strict=True))
    order = f"PARTITION BY {KEYS[0]} ORDER BY {KEYS[1]}"
    row_number = DUCKDB.operator("-", f"{builtin('row_number')}() OVER ({order})", "1")
    offset = DUCKDB.operator("*", row_number, str(STEP))
    position = DUCKDB.operator("+", _build_base_position(KEYS[0]), offset)
    position = DUCKDB.operator("%", position, str(2**BITS))
    return f"(SELECT *, {key_columns} FROM {rows_sql}) AS sqlml_hashed", position


def _build_base_position(row_hash: str) -> str:
    """Return SQL for the highest `BITS` bits of a row hash, which are equal for equal rows."""
    return f"CAST({DUCKDB.operator('>>', row_hash, str(64 - BITS))} AS BIGINT)"


def _mark_below(row_hashes: Array, label_hashes: Array, bound: int) -> Array:
    """Return a mask, (n,) bool, of the rows whose position is below `bound`."""
    is_below = np.empty(len(row_hashes), bool)
    for rows, positions in iterate_positions(row_hashes, label_hashes):
        is_below[rows] = positions < bound
    return is_below


def iterate_positions(row_hashes: Array, label_hashes: Array) -> Iterator[tuple[Any, Array]]:
    """Yield portions of the rows as an index and the int64 positions of these rows.

    `row_hashes` and `label_hashes` are (n,) uint64. The latter order rows with equal row hashes.
    """
    # Rows are sorted in portions with the same first byte of the hash, which bounds memory.
    portion_count = min(1 << (len(row_hashes) // _PORTION_ROWS).bit_length(), 256)
    first_bytes = row_hashes.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)[:, 7]
    row_portions = first_bytes // np.uint8(256 // portion_count) if portion_count > 1 else None
    for portion in range(portion_count):
        rows = slice(None) if row_portions is None else np.flatnonzero(row_portions == portion)
        hashes = row_hashes[rows]
        positions = (hashes >> np.uint64(64 - BITS)).astype(np.int64)
        sorted_hashes = np.sort(hashes)
        if (sorted_hashes[1:] == sorted_hashes[:-1]).any():
            positions += _number_ties(hashes, label_hashes[rows]) * STEP
            positions %= 2**BITS
        yield rows, positions


def _number_ties(row_hashes: Array, label_hashes: Array) -> Array:
    order = np.lexsort((label_hashes, row_hashes))
    sorted_rows = row_hashes[order]
    run_starts = np.flatnonzero(np.append(True, sorted_rows[1:] != sorted_rows[:-1]))
    sizes = np.diff(run_starts, append=len(row_hashes))
    tie_numbers = np.empty(len(row_hashes), np.int64)
    tie_numbers[order] = np.arange(len(row_hashes)) - np.repeat(run_starts, sizes)
    return tie_numbers


def list_hash_arguments(columns: Mapping[str, str]) -> list[str]:
    """Return SQL arguments to hash `columns`, keyed by name; an ENUM is hashed as a string."""
    quoted = {name: DUCKDB.quote_name(name) for name in columns}
    return [
        f"CAST({quoted[name]} AS VARCHAR)" if sql_type.startswith("ENUM(") else quoted[name]
        for name, sql_type in columns.items()
    ]


def parse_split(method: str | None, fraction: float | None, column: str | None) -> SplitRule:
    # BigQuery writes auto_split and no_split.
    folded_method = "auto" if method is None else method.lower().removesuffix("_split")
    folded_method = "none" if folded_method == "no" else folded_method
    parsed_method = next((m for m in METHODS if m == folded_method), None)
    if parsed_method is None:
        raise ConfigError(f"unknown split {method!r}; splits: {', '.join(METHODS)}")
    if fraction is not None and not 0 <= fraction < 1:
        raise ConfigError(f"eval_fraction must be at least 0 and below 1, not {fraction!r}")
    if parsed_method in ("seq", "custom") and column is None:
        raise ConfigError(f"split {parsed_method!r} needs the option split_column")
    if parsed_method not in ("seq", "custom") and column is not None:
        raise ConfigError("option split_column needs split = 'seq' or 'custom'")
    if parsed_method in ("none", "custom") and fraction:
        raise ConfigError(f"split {parsed_method!r} takes no eval_fraction")
    return SplitRule("none") if fraction == 0 else SplitRule(parsed_method, fraction, column)
