"""Literals and roundings, bit for bit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.database_connections import Connection
from sqlml.planner.databases.targets import DATABASES
from sqlml.planner.databases.transpiled import transpiled
from sqlml.types import Array


def doubles(count: int) -> Array:
    """Of all sizes, and such as are known to be read wrongly."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**64, size=count, dtype=np.uint64).view(np.float64)
    known = [0.1, 1 / 3, 2.2250738585072014e-308, 1.7976931348623157e308, 9007199254740993.0, 5e-5]
    plain = rng.normal(size=count)
    return np.concatenate([bits[np.isfinite(bits)], plain, known, -np.array(known), [0.0]])


def test_literals_are_read_exactly(database: Connection) -> None:
    values = doubles(300)
    values = values[(np.abs(values) >= 2.3e-308) | (values == 0)]
    target = DATABASES[database.name]
    literals = [f"'{value!r}'::DOUBLE" for value in values.tolist()]
    items = [f"{transpiled(sql, target)} AS v{k}" for k, sql in enumerate(literals)]
    got = database.frame(f"SELECT {', '.join(items)}").iloc[0].astype(float).to_numpy()
    np.testing.assert_array_equal(got, values)


@pytest.mark.parametrize("near_ties", [False, True])
def test_roundings_to_float32(database: Connection, near_ties: bool) -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=3000) * 10.0 ** rng.integers(-37, 38, size=3000)
    if near_ties:  # exactly between two float32 numbers, and an ulp beside
        low = values.astype(np.float32)
        with np.errstate(over="ignore"):
            high = np.nextafter(low, np.float32(np.inf), dtype=np.float32)
        middle = (low.astype(float) + high.astype(float)) / 2
        values = np.concatenate([middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf)])
    values = values[np.abs(values) < 3e38]
    database.load("numbers", pd.DataFrame({"x": values, "i": np.arange(len(values))}))
    target = DATABASES[database.name]
    rounded = transpiled(target.numbers.rounded("x"), target)
    got = database.frame(f"SELECT i, {rounded} AS r FROM numbers").sort_values("i")
    np.testing.assert_array_equal(got["r"].astype(float), values.astype(np.float32).astype(float))
