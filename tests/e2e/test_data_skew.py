"""`ml_validate_data_skew`: rows beside those that a model was trained on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sqlml
from sqlml.errors import BindError
from sqlml.training.column_statistics import MAX_SAMPLED, CodeCounts, NumberSample


def made(seed: int, rows: int, shift: float) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    found = pd.DataFrame(
        {
            "x": rng.normal(shift, 1, rows),
            "few": rng.integers(0, 9, rows) + int(shift),
            "plan": rng.choice(["a", "b", "c"], rows, p=[0.5 - shift / 3, 0.3, 0.2 + shift / 3]),
            "flag": rng.random(rows) < 0.3 + shift / 3,
            "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 90, rows), "D"),
        }
    )
    found.loc[rng.random(rows) < 0.1 + shift / 5, "few"] = None
    found["y"] = found.x + rng.normal(size=rows) > 0
    return found


BASE, STUDY = made(0, 3000, 0.0), made(1, 2000, 0.6)


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as con:
        con.register("base_frame", BASE)
        con.register("study_frame", STUDY)
        con.execute("CREATE TABLE base AS FROM base_frame")
        con.execute("CREATE TABLE study AS FROM study_frame")
        con.execute(
            "CREATE MODEL m OPTIONS (model_type = 'logistic_reg', label = 'y') AS FROM base"
        )
        yield con


def rows(con: sqlml.Session, form: str) -> dict[str, dict[str, Any]]:
    found = con.sql(f"SELECT * FROM {form}").to_arrow_table().to_pylist()
    return {row["input"]: row for row in found}


def test_it_says_what_a_comparison_with_the_training_rows_says(con: sqlml.Session) -> None:
    found = rows(con, "ml_validate_data_skew(MODEL m, TABLE study)")
    assert {name.partition("_")[0] for name in found} == {"x", "few", "plan", "flag", "day"}
    as_features = "(SELECT * REPLACE (flag::INTEGER AS flag) FROM {})".format
    drift = f"ml_validate_data_drift({as_features('base')}, {as_features('study')})"
    for name, told in rows(con, drift).items():
        if name in ("y", "day"):
            continue
        exact = name != "x"
        for metric, value in told.items():
            assert found[name][metric] == pytest.approx(value, abs=1e-12 if exact else 0.02), name
    x = found["x"]
    assert x["kolmogorov_smirnov"] == pytest.approx(stats.ks_2samp(BASE.x, STUDY.x)[0], abs=0.011)
    assert x["rows_base"] == 3000 and x["rows_study"] == 2000
    for bins in (2, 10, 37, 100):
        same = rows(con, f"ML.VALIDATE_DATA_SKEW(MODEL m, (FROM base), bins := {bins})")
        assert all(row["psi"] < 1e-9 and not row["is_anomaly"] for row in same.values())
    by_day = con.execute("SELECT extract(month FROM day) AS m, count(*) FROM study GROUP BY m")
    assert found["day_month"]["l_infinity"] < 0.1 and len(by_day.fetchall()) == 3


def test_thresholds_of_columns(con: sqlml.Session) -> None:
    both = "TABLE base, TABLE study"
    for form in (
        "ml_validate_data_skew(MODEL m, TABLE study, thresholds := {'plan': 0.001, X: 0.7})",
        "ML.VALIDATE_DATA_SKEW(MODEL m, TABLE study, STRUCT([('plan', 0.001), STRUCT('x', 0.7)] "
        "AS thresholds, 0.01 AS numerical_default_threshold))",
        f"ml_validate_data_drift({both}, thresholds := {{plan: 0.001, x: 0.7}})",
    ):
        found = rows(con, form)
        assert found["plan"]["threshold"] == 0.001 and found["plan"]["is_anomaly"]
        assert found["x"]["threshold"] == 0.7 and not found["x"]["is_anomaly"]
        assert found["few"]["threshold"] == (0.01 if "0.01 AS" in form else 0.3)


def test_columns_are_made_as_the_model_makes_them(con: sqlml.Session) -> None:
    con.execute(
        "CREATE OR REPLACE MODEL made TRANSFORM (x * 2 AS twice, lower(plan) AS plan) OPTIONS "
        "(model_type = 'boosted_tree_classifier', label = 'y', max_iterations = 2) "
        "AS SELECT x, upper(plan) AS plan, y FROM base"
    )
    found = rows(
        con, "ml_validate_data_skew(MODEL made, (SELECT x, upper(plan) AS plan FROM base))"
    )
    assert set(found) == {"twice", "plan"}
    assert max(row["value"] for row in found.values()) < 1e-3


def test_an_estimator_of_ones_own_is_known_too(con: sqlml.Session) -> None:
    own = make_pipeline(StandardScaler(), LogisticRegression())
    con.train(
        "own", own, "SELECT x, few::DOUBLE AS few, y FROM base WHERE few IS NOT NULL", label="y"
    )
    found = rows(con, "ml_validate_data_skew(MODEL own, TABLE study)")
    assert found["x"]["rows_base"] == BASE.few.notna().sum()
    assert found["x"]["is_anomaly"] is False and found["few"]["null_share_study"] > 0.1


@pytest.mark.nightly
def test_very_many_names_and_rows() -> None:
    numbers = NumberSample()
    rng = np.random.default_rng(3)
    drawn = rng.normal(size=MAX_SAMPLED * 5)
    for part in np.array_split(drawn, 37):
        numbers.add(part)
    values, counts = np.array(numbers.values()).T
    assert MAX_SAMPLED / 2 <= counts.sum() <= MAX_SAMPLED and len(values) == 100
    upto = np.searchsorted(np.sort(drawn), values, side="right") / len(drawn)
    np.testing.assert_allclose(np.cumsum(counts) / counts.sum(), upto, atol=0.005)
    codes = CodeCounts()
    codes.add(np.arange(3000))
    codes.add(np.array([7, 7, -1, 2999]))
    kept, others = codes.values([f"n{k}" for k in range(3000)])
    assert kept[:2] == [["n7", 3], ["n2999", 2]] and len(kept) == 1000 and others == 2000
    with sqlml.connect() as con:
        con.execute(
            "CREATE TABLE t AS SELECT 'name' || CASE WHEN i < 4000 THEN i % 40 ELSE i END AS name, "
            "i % 2 AS y FROM range(8000) r(i)"
        )
        con.execute(
            "CREATE MODEL m OPTIONS (model_type = 'boosted_tree_classifier', label = 'y', "
            "max_iterations = 1) AS FROM t"
        )
        name = "CASE WHEN i < 50 THEN 'name1' ELSE 'new' || i END"
        study = f"(SELECT {name} AS name FROM range(100) r(i))"
        found = rows(con, f"ml_validate_data_skew(MODEL m, {study})")["name"]
        assert found["l_infinity"] == pytest.approx(0.5 - 100 / 8000)
        assert rows(con, "ml_validate_data_skew(MODEL m, TABLE t)")["name"]["value"] < 1e-12


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("ml_validate_data_skew(MODEL bought, TABLE study)", "does not know its training rows"),
        ("ml_validate_data_skew(MODEL m)", "takes a model and its rows"),
        ("ml_validate_data_skew(MODEL m, TABLE study, thresholds := 0.1)", "numbers by names"),
        ("ml_validate_data_skew(MODEL m, TABLE study, thresholds := {'z': 1})", "column 'z'; col"),
        (
            "ml_validate_data_skew(MODEL m, TABLE study, thresholds := {'x': 'y'})",
            "expected numbers",
        ),
        (
            "ml_validate_data_skew(MODEL m, TABLE study, bins := {'x': 1})",
            "option bins takes a num",
        ),
        ("ml_validate_data_skew(MODEL m, (SELECT x FROM study))", "few"),
        ("ml_validate_data_skew(MODEL m, TABLE study, thresholds := {'x': 1, X: 2})", "twice"),
        ("ml_validate_data_skew(MODEL m, TABLE study, thresholds := {'x': 1e400})", "finite"),
    ],
)
def test_what_cannot_be(con: sqlml.Session, form: str, message: str) -> None:
    bought = LogisticRegression().fit(BASE[["x"]], BASE.y)
    con.create_model("bought", bought, verify=False, or_replace=True)
    with pytest.raises(Exception, match=message) as caught:
        con.execute(f"FROM {form}").fetchall()
    assert isinstance(caught.value, BindError) or "few" in message
