"""`Split`: which rows a model is evaluated on, and never fitted to.

A row is held out by a hash of its values without the label, or by the value of a column. Equal
rows are numbered, and their places lie evenly apart, so that the share of them is held out. Two
runs over the same rows hold out the same ones, in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sqlml.dialects.duckdb import DUCKDB, builtin
from sqlml.errors import ConfigError
from sqlml.types import Array, fold

Method = Literal["auto", "random", "seq", "custom", "none"]

METHODS: tuple[Method, ...] = ("auto", "random", "seq", "custom", "none")

FEW, MANY, ENOUGH = 500, 50_000, 10_000
"""Method auto holds out no rows below `FEW`, a fifth of them up to `MANY`, and `ENOUGH` above, as
BigQuery does."""

FRACTION = 0.2
"""The share that is held out unless the statement says otherwise."""

BITS = 31
"""Bits of a place: so few that the number of a row times `STEP` fits into a BIGINT."""

STEP = 1_327_217_885
"""The distance between the places of equal rows, the golden section of all places: multiples of it
are spread most evenly (Knuth, The Art of Computer Programming, section 6.4, theorem S)."""


@dataclass(frozen=True, slots=True)
class Split:
    """How rows are held out.

    method: by a hash of the row (random), those with the greatest values of a column (seq), those
    where a BOOLEAN column is true (custom), none, or as the number of rows asks for (auto).
    fraction: the share that is held out; None unless it was given. column: that of seq and custom;
    for random, and auto, a column of places that the rows have already, as in Spark.
    """

    method: Method = "auto"
    fraction: float | None = None
    column: str | None = None

    def settled(self, rows: int) -> Split:
        """The split for a number of rows: no longer auto, and with its fraction.

        >>> Split().settled(100_000)
        Split(method='random', fraction=0.1, column=None)
        """
        if self.method not in ("auto", "random", "seq"):
            return self
        if self.fraction is not None:
            method = "random" if self.method == "auto" else self.method
            return Split(method, self.fraction, self.column)
        if self.method != "auto":
            return Split(self.method, FRACTION, self.column)
        if rows < FEW:
            return Split("none")
        return Split("random", FRACTION if rows <= MANY else ENOUGH / rows, self.column)

    @property
    def bound(self) -> int:
        """The place below which split random holds rows out."""
        return int((self.fraction or 0.0) * 2**BITS)

    @property
    def reads_hashes(self) -> bool:
        """Whether the keys of rows are unsigned integers."""
        return self.method in ("auto", "random")

    def trained(self, rows: int) -> int:
        """Of seq how many rows are trained on."""
        return rows - round(rows * (self.fraction or 0.0))

    def keys(
        self, columns: Mapping[str, str], label: str | None, group: str | None, seed: int
    ) -> tuple[str, ...]:
        """Return the SQL expressions of a row that decide whether it is held out.

        There are none if all rows are trained on. One is the place of a row, or a column. Two are
        the hash of a row without its label, and what puts equal rows in order: the hash of the
        label.

        Args:
            columns: of the query, name -> type. label, group: columns; rows of a group stay
                together.
        """
        if self.method == "none":
            return ()
        if self.column is not None:
            return (DUCKDB.quote_name(self.column),)
        if group is not None:
            text = f"CAST({DUCKDB.quote_name(group)} AS VARCHAR)"
            return (_first_place(DUCKDB.call("hash", text, str(seed))),)
        features = {n: kind for n, kind in columns.items() if fold(n) != fold(label or "")}
        labels = hashed_columns({n: kind for n, kind in columns.items() if n not in features})
        row = DUCKDB.call("hash", *hashed_columns(features), str(seed))
        return row, DUCKDB.call("hash", *labels) if labels else "CAST(0 AS UBIGINT)"

    def side_sql(self, rows: str, keys: Sequence[str], last: str | None, *, held_out: bool) -> str:
        """Return the query of one side of the rows; the split is settled.

        Args:
            rows: in brackets, with an alias. keys: as `keys` gives them. last: the last value that
                seq trains on, as a literal or a query. held_out: which side.
        """
        if not keys:
            return f"SELECT * FROM {rows} WHERE {'false' if held_out else 'true'}"
        if len(keys) == 1:
            (key,) = keys
            without_null = f"{last} IS NULL AND {key} IS NOT NULL"
            fitted = "true" if last is None else f"coalesce({key} <= {last}, {without_null})"
            if self.method == "custom":
                fitted = f"NOT coalesce({key}, true)"
            elif self.method == "random":
                fitted = f"{key} >= {self.bound}"
            return f"SELECT * FROM {rows} WHERE {f'NOT ({fitted})' if held_out else fitted}"
        # The hashes are columns, so that the engine numbers the rows without their other columns.
        listed = ", ".join(f"{key} AS {name}" for key, name in zip(keys, _KEYS, strict=True))
        order = f"PARTITION BY {_KEYS[0]} ORDER BY {_KEYS[1]}"
        number = DUCKDB.operator("-", f"{builtin('row_number')}() OVER ({order})", "1")
        place = DUCKDB.operator(
            "+", _first_place(_KEYS[0]), DUCKDB.operator("*", number, str(STEP))
        )
        place = DUCKDB.operator("%", place, str(2**BITS))
        return (
            f"SELECT * EXCLUDE ({', '.join(_KEYS)}) FROM (SELECT *, {listed} FROM {rows}) "
            f"AS sqlml_hashed QUALIFY {place} {'<' if held_out else '>='} {self.bound}"
        )

    def held_out(self, keys: Sequence[Any]) -> Array:
        """Return which rows are held out, (n,) bool.

        Args:
            keys: of all rows, as `keys` gives them; (n,) numpy arrays of hashes and places, and
                pyarrow Arrays of columns. The split is settled.

        Raises:
            ConfigError: the column of a custom split is no BOOLEAN, or that of seq has no value.
        """
        if len(keys) > 1:
            rows, ties = keys
            return _below(rows, ties, self.bound)
        (key,) = keys
        if self.method == "random":
            return np.asarray(key) < self.bound
        return self._held_out_by(key)

    def _held_out_by(self, values: Any) -> Array:
        """Return which rows are held out by the values of a column, a pyarrow Array."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.method == "custom":
            if not pa.types.is_boolean(values.type):
                raise ConfigError(
                    f"split_column {self.column!r} must be a BOOLEAN for split custom"
                )
            return np.asarray(pc.fill_null(values, True))  # NULL as in BigQuery
        count = len(values)
        if values.null_count == count:
            raise ConfigError(f"split_column {self.column!r} is NULL in all rows")
        trained = self.trained(count)
        if trained >= count:
            return np.zeros(count, bool)
        order = pc.sort_indices(values)  # NULL last
        last = values[order[max(trained, 1) - 1].as_py()]
        if not last.is_valid:
            return np.asarray(pc.is_null(values))
        return np.asarray(pc.fill_null(pc.greater(values, last), True))


_KEYS = ("sqlml_row_hash", "sqlml_label_hash")

_AT_ONCE = 1 << 20
"""Rows that are sorted at a time, about."""


def _first_place(row_hash: str) -> str:
    """Return the SQL of the place of a row that has no equal one."""
    return f"CAST({DUCKDB.operator('>>', row_hash, str(64 - BITS))} AS BIGINT)"


def _below(rows: Array, ties: Array, bound: int) -> Array:
    """Return which rows have a place below a bound, (n,) bool.

    Rows are sorted in portions that hash alike, which keeps memory bounded.

    Args:
        rows: (n,) uint64, equal for equal rows. ties: (n,) uint64, the order of equal ones.
    """
    portions = min(1 << (len(rows) // _AT_ONCE).bit_length(), 256)
    first_bytes = rows.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)[:, 7]
    portion_of = first_bytes // np.uint8(256 // portions) if portions > 1 else None
    below = np.empty(len(rows), bool)
    for portion in range(portions):
        chosen = slice(None) if portion_of is None else np.flatnonzero(portion_of == portion)
        hashes = rows[chosen]
        places = (hashes >> np.uint64(64 - BITS)).astype(np.int64)
        in_order = np.sort(hashes)
        if (in_order[1:] == in_order[:-1]).any():
            places += _numbers(hashes, ties[chosen]) * STEP
            places %= 2**BITS
        below[chosen] = places < bound
    return below


def _numbers(rows: Array, ties: Array) -> Array:
    """Number equal rows from 0 in the order of their ties, (n,) int64."""
    order = np.lexsort((ties, rows))
    in_order = rows[order]
    starts = np.flatnonzero(np.concatenate([[True], in_order[1:] != in_order[:-1]]))
    sizes = np.diff(np.concatenate([starts, [len(rows)]]))
    numbers = np.empty(len(rows), np.int64)
    numbers[order] = np.arange(len(rows)) - np.repeat(starts, sizes)
    return numbers


def hashed_columns(columns: Mapping[str, str]) -> list[str]:
    """Return the SQL expressions that make up a row, for its hash.

    An ENUM is the text that it would be in a file, and not its number.

    Args:
        columns: name -> type.
    """
    quoted = {name: DUCKDB.quote_name(name) for name in columns}
    return [
        f"CAST({quoted[name]} AS VARCHAR)" if kind.startswith("ENUM(") else quoted[name]
        for name, kind in columns.items()
    ]


def checked_split(method: str | None, fraction: float | None, column: str | None) -> Split:
    """The split that options ask for.

    Raises:
        ConfigError: an unknown method, a fraction that is none, or a column too many or too few.
    """
    name = "auto" if method is None else _plain(method)
    known = next((m for m in METHODS if m == name), None)
    if known is None:
        raise ConfigError(f"unknown split {method!r}; splits: {', '.join(METHODS)}")
    if fraction is not None and not 0 <= fraction < 1:
        raise ConfigError(f"eval_fraction must be at least 0 and below 1, not {fraction!r}")
    if known in ("seq", "custom") and column is None:
        raise ConfigError(f"split {known!r} needs the option split_column")
    if known not in ("seq", "custom") and column is not None:
        raise ConfigError("option split_column needs split = 'seq' or 'custom'")
    if known in ("none", "custom") and fraction:
        raise ConfigError(f"split {known!r} takes no eval_fraction")
    return Split("none") if fraction == 0 else Split(known, fraction, column)


def _plain(method: str) -> str:
    """A method by its own name: BigQuery says auto_split and no_split."""
    name = method.lower().removesuffix("_split")
    return "none" if name == "no" else name
