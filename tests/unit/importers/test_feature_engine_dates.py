"""feature_engine's parts, differences and ordinals of dates."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

import sqlml
from sqlml import errors

pytest.importorskip("feature_engine")

from feature_engine.datetime import DatetimeFeatures, DatetimeOrdinal, DatetimeSubtraction

RANDOM = np.random.default_rng(0)


def dates(seed: int) -> pd.Series:
    """Timestamps from 1938 to 2033, ends of months and years among them."""
    random = np.random.default_rng(seed)
    some = random.integers(-(10**15), 2 * 10**15, 200).astype("datetime64[us]")
    ends = pd.date_range("2019-12-31", periods=30, freq="MS") - pd.Timedelta(1, "us")
    return pd.Series([*pd.Series(some), *ends])


ROWS = pd.DataFrame({"at": dates(1), "seen": dates(2), "n": RANDOM.normal(size=230)})
GAPS = ROWS.assign(at=ROWS["at"].where(RANDOM.random(230) > 0.2))
PARTS = """month quarter semester year day_of_week day_of_month day_of_year weekend month_start
month_end quarter_start quarter_end year_start year_end leap_year hour minute second""".split()


def same(model: Any, rows: pd.DataFrame) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = model.transform(rows)
    got = sqlml.compile(model).transform(rows)
    np.testing.assert_array_equal(got, want.astype(np.float64).to_numpy())


def test_all_parts() -> None:
    rows = ROWS[["at", "n"]]
    same(DatetimeFeatures("at", features_to_extract="all").fit(rows), rows)


def test_missing_dates_count_as_they_do_there() -> None:
    rows = GAPS[["n", "at"]]
    model = DatetimeFeatures("at", features_to_extract=PARTS, missing_values="ignore")
    same(model.fit(rows), rows)


@pytest.mark.parametrize("part", ["week", "days_in_month"])
def test_missing_dates_that_are_refused_there(part: str) -> None:
    rows = GAPS[["at"]]
    model = DatetimeFeatures("at", features_to_extract=[part], missing_values="ignore").fit(rows)
    with pytest.raises(errors.MissingValueError, match="'at'"):
        sqlml.compile(model).transform(rows)


@pytest.mark.parametrize("unit", ["D", "Y", "W", "h", "us"])
def test_differences(unit: str) -> None:
    model = DatetimeSubtraction("at", ["seen"], output_unit=unit, drop_original=True)
    same(model.fit(GAPS), GAPS)


def test_ordinals() -> None:
    rows = ROWS[["at", "n"]]
    same(DatetimeOrdinal("at").fit(rows), rows)
    same(DatetimeOrdinal("at", start_date="2001-02-03").fit(rows), rows)


def test_in_a_pipeline_and_in_sql() -> None:
    steps = DatetimeFeatures("at", drop_original=False), DatetimeSubtraction("at", "seen")
    steps[1].set_params(drop_original=True)
    model = make_pipeline(*steps, LinearRegression()).fit(ROWS, ROWS["n"])
    with sqlml.connect() as con:
        con.create_model("m", model)
        con.execute("CREATE TABLE t AS SELECT * FROM ROWS")
        got = con.sql("SELECT predict('m', *) AS p FROM t").fetchnumpy()["p"]
    np.testing.assert_allclose(got, model.predict(ROWS), rtol=1e-12)


def test_numbers_that_an_earlier_step_made_are_no_dates() -> None:
    step = DatetimeOrdinal("at", drop_original=False).fit(ROWS)
    with pytest.raises(errors.UnsupportedModelError, match="both as numbers and as dates"):
        sqlml.compile(step)


def test_the_index_is_refused() -> None:
    rows = ROWS.set_index("at")
    model = DatetimeFeatures("index").fit(rows)
    with pytest.raises(errors.UnsupportedModelError, match="fit it on a column"):
        sqlml.compile(model)
