"""Literals and roundings, bit for bit."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from benchmarks.database_connections import Connection
from sqlml.importers.registry import import_model
from sqlml.ir.builder import Builder
from sqlml.parsing.statements import OtherDatabase
from sqlml.planner.databases.export_for import export_for
from sqlml.planner.databases.targets import DATABASES
from sqlml.planner.databases.transpiled import transpile
from sqlml.types import Array
from tests.databases.families import FAMILIES, NAMES, boosted, model, poisson, rows


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
    items = [f"{transpile(sql, target)} AS v{k}" for k, sql in enumerate(literals)]
    got = database.frame(f"SELECT {', '.join(items)}").iloc[0].astype(float).to_numpy()
    np.testing.assert_array_equal(got, values)


def test_results_of_cases_are_exact(database: Connection) -> None:
    rng = np.random.default_rng(3)
    spread = 10.0 ** rng.integers(-rng.integers(1, 30, (80, 1)), 3, (80, 4))
    values = rng.normal(size=(80, 4)) * spread
    values[::4] = values[::4].astype(np.float32)
    values[:3] = [[1e300, 1e-300, 1.0, 2.0], [0.0, 2.0**-100, 0.5, -1.0], [3.0, -7.0, 9e15, 0.0]]
    target = DATABASES[database.name]
    made = []
    for k, row in enumerate(values.tolist()):
        a, b, c, d = (f"'{value!r}'::DOUBLE" for value in row)
        inner = f"CASE WHEN i < 3 THEN {c} ELSE {d} END"
        case = f"CASE WHEN i < 1 THEN {a} WHEN i < 2 THEN {b} ELSE {inner} END"
        made.append(f"{transpile(f'1 - {case}', target)} AS v{k}")
    database.load("numbers", pd.DataFrame({"i": [0.0, 1.0, 2.0, 3.0]}))
    got = database.frame(f"SELECT i, {', '.join(made)} FROM numbers").sort_values("i")
    np.testing.assert_array_equal(got.iloc[:, 1:].astype(float).T, 1 - values)


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
    rounded = transpile(target.numbers.rounded("x"), target)
    got = database.frame(f"SELECT i, {rounded} AS r FROM numbers").sort_values("i")
    np.testing.assert_array_equal(got["r"].astype(float), values.astype(np.float32).astype(float))


@pytest.mark.parametrize("divisor", [7.0, 3600.0])
def test_remainders(database: Connection, divisor: float) -> None:
    rng = np.random.default_rng(2)
    wholes = rng.integers(-(10**13), 10**13, 500) * divisor
    near = np.concatenate([wholes + k for k in (-1.0, 0.0, 1.0)])
    ulps = np.concatenate([np.nextafter(wholes, 0), np.nextafter(wholes, np.inf)])
    small = rng.normal(size=500) * 10.0 ** rng.integers(-300, 6, 500)
    values = np.concatenate([near, ulps, small])
    too_large = np.array([1e30, -1e30, 1.7e308])
    values = np.concatenate([values[np.abs(values) < 2**52], too_large])
    b = Builder()
    program = b.build({"label": b.op("mod", b.input("x", "float64"), divisor)})
    database.load("numbers", pd.DataFrame({"x": values, "i": np.arange(len(values))}))
    query = export_for(
        program, program.features, "m", OtherDatabase(database.name, None, ("numbers",), ("i",))
    )
    got = database.frame(query).sort_values("i")["predicted_label"].astype(float).to_numpy()
    assert np.isnan(got[-3:]).all()
    np.testing.assert_array_equal(got[:-3], np.mod(values[:-3], divisor))


EXTREMES = [5e-324, 3e-310, 1e-160, 1e-60, 0.5, 1e60, 1e152, 1e290, 9e307, 1.7976931348623157e308]


def extreme_rows() -> pd.DataFrame:
    """Rows with one number of any size, of either sign, and rows of such numbers alone."""
    rng = np.random.default_rng(5)
    signed = [sign * value for value in EXTREMES for sign in (1, -1)]
    single = rng.normal(size=(len(signed) * len(NAMES), len(NAMES))).round(2)
    for k, value in enumerate(np.repeat(signed, len(NAMES))):
        single[k, k % len(NAMES)] = value
    return pd.DataFrame(
        np.concatenate([single, rng.choice([*signed, 0.0], size=(120, len(NAMES)))]), columns=NAMES
    )


def polynomials() -> Any:
    frame = rows(1500, 1).fillna(dict.fromkeys(NAMES, 0.0))
    steps = (PolynomialFeatures(3), StandardScaler(), LinearRegression())
    return make_pipeline(*steps).fit(frame[NAMES], frame["a"] ** 3 - frame["c"])


def small_weights() -> Any:
    frame = rows(1500, 1).fillna(dict.fromkeys(NAMES, 0.0))
    return LinearRegression().fit(frame[NAMES] * 1e200, frame["a"])


RANGE_FAMILIES: Mapping[str, Callable[[], Any]] = {
    **{name: partial(model, name) for name in FAMILIES if FAMILIES[name][2] == NAMES},
    **{name: partial(boosted, name) for name in ("binary:logistic", "count:poisson")},
    "exponential": poisson,
    "polynomials": polynomials,
    "small weights": small_weights,
}


@cache
def answers(name: str) -> list[Any]:
    """What the library predicts of each row; None where it refuses it."""
    fitted, frame, made = RANGE_FAMILIES[name](), extreme_rows(), []
    for k in range(len(frame)):
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                made.append(fitted.predict(frame.iloc[[k]])[0])
        except (ValueError, xgb.core.XGBoostError):
            made.append(None)
    return made


@pytest.mark.by_day(18)
@pytest.mark.parametrize("name", RANGE_FAMILIES)
def test_numbers_of_any_size_end_no_query(database: Connection, name: str) -> None:
    """Such a row has the library's prediction, or NULL; the others have theirs."""
    fitted, frame = RANGE_FAMILIES[name](), extreme_rows()
    imported = import_model(fitted)
    database.load("extremes", frame.assign(id=np.arange(len(frame))))
    target = OtherDatabase(database.name, None, ("extremes",), ("id",))
    query = export_for(imported.program, imported.features, "m", target)
    got = database.frame(query).sort_values("id")["predicted_label"].tolist()
    given = 0
    sizes = frame.abs().max(axis=1)
    for answer, want, size in zip(got, answers(name), sizes, strict=True):
        if name == "clusters" and size > 1e150:  # all distances are infinite
            continue
        is_number = isinstance(want, float | np.floating)
        if want is None or (is_number and not np.isfinite(want)):
            assert answer is None or not np.isfinite(float(answer))
        elif answer is not None:
            given += 1
            if is_number:
                least = 1e-9 if name == "polynomials" else 1e-300  # their terms cancel out
                assert float(answer) == pytest.approx(float(want), rel=1e-6, abs=least)
            else:
                assert answer == want
    assert given >= 40  # trees of scikit-learn refuse numbers beyond float32


def test_sqlite_reads_dates_in_texts() -> None:
    template = DATABASES["sqlite"].date_sql
    assert template is not None
    known = {
        "1970-01-02": 86_400e6,
        "1970-01-01 00:00": 0.0,
        "1970-01-01T00:00:01": 1e6,
        "1969-12-31 23:59:59.9999999": -1.0,
        "1970-01-01 00:00:00.000001": 1.0,
        "1970-01-01 00:00:00+01:00": None,
        "1970-01-01 00:00:00.5Z": None,
        "1970-01-01 00:00Z": None,
        "1970-01-01 00:00:001": None,
        "1970-01-01 00:00:00.5.5": None,
        "1970-02-31": None,
        "12:00": None,
        "now": None,
        "1970": None,
        2440588: None,
        2440587.5: None,
        None: None,
    }
    con = sqlite3.connect(":memory:")
    read_x = template.replace("{c}", "x")
    got = [con.execute(f"SELECT {read_x} FROM (SELECT ? AS x)", (t,)) for t in known]
    assert [cursor.fetchone()[0] for cursor in got] == list(known.values())
    con.close()
