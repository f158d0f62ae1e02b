"""`Split`: which rows a model is evaluated on, and never fitted to.

Each row gets a place from the engine: a hash of its values, or the value of a column. Two runs over
the same rows hold out the same, in whatever order they come, and equal rows stay together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sqlml.dialects.duckdb import DUCKDB, builtin
from sqlml.errors import ConfigError
from sqlml.types import Array

Method = Literal["auto", "random", "seq", "custom", "none"]

METHODS: tuple[Method, ...] = ("auto", "random", "seq", "custom", "none")

FEW, MANY, ENOUGH = 500, 50_000, 10_000
"""Method auto holds out no rows below `FEW`, a fifth of them up to `MANY`, and `ENOUGH` above, as
BigQuery does."""

FRACTION = 0.2
"""The share that is held out unless the statement says otherwise."""

BITS = 53
"""Of a hash that a DOUBLE holds."""


@dataclass(frozen=True, slots=True)
class Split:
    """How rows are held out.

    method: by a hash of the row (random), those with the greatest values of a column (seq), those
    where a BOOLEAN column is true (custom), none, or as the number of rows asks for (auto).
    fraction: the share that is held out; None unless it was given. column: that of seq and custom.
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
        return Split("random", FRACTION if rows <= MANY else ENOUGH / rows)

    @property
    def bound(self) -> int:
        """Of random the place below which rows are held out."""
        return int((self.fraction or 0.0) * 2**BITS)

    def trained(self, rows: int) -> int:
        """Of seq how many rows are trained on."""
        return rows - round(rows * (self.fraction or 0.0))

    def place(self, columns: Sequence[str], seed: int) -> str | None:
        """The SQL expression of a row's place; None if all rows are trained on.

        Args:
            columns: those whose values make a row, quoted: of equal rows all or none are held out.
        """
        if self.method == "none":
            return None
        if self.column is not None:
            return DUCKDB.quote_name(self.column)
        row = f"{builtin('hash')}({', '.join(columns)}, {seed})"
        return f"CAST({builtin('>>')}({row}, {64 - BITS}) AS BIGINT)"

    def fitted_sql(self, place: str, last: str | None) -> str:
        """The SQL condition of rows that are fitted to; the split is settled.

        Args:
            place: as `place` gives it. last: of seq the last value trained on, as a literal.
        """
        if self.method == "random":
            return f"{place} >= {self.bound}"
        if self.method == "custom":
            return f"NOT coalesce({place}, true)"
        return "true" if last is None else f"coalesce({place} <= {last}, false)"

    def held_out(self, places: Any) -> Array:
        """Which rows are held out, (n,) bool.

        Args:
            places: of all rows, a pyarrow Array; the split is settled.

        Raises:
            ConfigError: the column of a custom split is no BOOLEAN, or that of seq has no value.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.method == "custom":
            if not pa.types.is_boolean(places.type):
                raise ConfigError(
                    f"split_column {self.column!r} must be a BOOLEAN for split custom"
                )
            return np.asarray(pc.fill_null(places, True))  # NULL as in BigQuery
        if self.method == "random":
            return np.asarray(places) < self.bound
        count = len(places)
        if places.null_count == count:
            raise ConfigError(f"split_column {self.column!r} is NULL in all rows")
        trained = self.trained(count)
        if trained >= count:
            return np.zeros(count, bool)
        order = pc.sort_indices(places)  # NULL last
        last = places[order[max(trained, 1) - 1].as_py()]
        if not last.is_valid:
            return np.asarray(pc.is_null(places))
        return np.asarray(pc.fill_null(pc.greater(places, last), True))


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
