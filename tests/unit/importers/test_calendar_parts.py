"""Parts of dates are those of the engine, to the microsecond, for all days that doubles hold."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import pytest

from sqlml.importers.calendar_parts import PARTS, Moment
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from sqlml.types import DATETIME, Array

DAY = 86_400_000_000


def moments() -> Array:
    """The first and last microseconds of all days from 1685 to 2254, and some between."""
    days = np.arange(-104_000, 104_000) * DAY
    between = np.random.default_rng(0).integers(-(2**53), 2**53, 20_000)
    return np.concatenate([days, days - 1, between])


@pytest.fixture(scope="module")
def found() -> dict[str, Array]:
    b = Builder()
    moment = Moment(b, b.input("x", "float64", kind=DATETIME))
    made = {name: make(moment) for name, make in PARTS.items()}
    made["leap year"] = b.op("cast", moment.is_leap_year, dtype="float64")
    made["length"] = moment.days_in_month
    made["last"] = b.op("cast", moment.is_month_end, dtype="float64")
    inputs = np.concatenate([moments().astype(np.float64), [np.nan]])
    told = reference.run(b.build(made), {"x": inputs})
    return {name: values[:, 0] for name, values in told.items()}


@pytest.mark.parametrize("part", sorted(PARTS))
def test_as_the_engine_counts(part: str, found: dict[str, Array]) -> None:
    rows = pd.DataFrame({"x": moments().astype("datetime64[us]")})
    name = "epoch_us(x)" if part == "epoch_us" else f"date_part('{part}', x)"
    want = duckdb.sql(f"SELECT {name} AS part FROM rows").fetchnumpy()["part"]
    np.testing.assert_array_equal(found[part][:-1], want.astype(np.float64))
    assert len(rows) == len(want)
    assert np.isnan(found[part][-1])


def test_months_as_pandas_counts(found: dict[str, Array]) -> None:
    dates = pd.Series(moments().astype("datetime64[us]")).dt
    for name, want in {
        "leap year": dates.is_leap_year,
        "length": dates.days_in_month,
        "last": dates.is_month_end,
    }.items():
        np.testing.assert_array_equal(found[name][:-1], want.astype(np.float64))
