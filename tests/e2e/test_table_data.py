"""`ml_describe_data` and `ml_validate_data_drift`, beside numpy and scipy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.spatial.distance import jensenshannon
from sklearn.linear_model import LogisticRegression

import sqlml
from sqlml import errors

DRAW = np.random.default_rng(8)


def _rows(count: int, moved: float, plans: list[float]) -> pd.DataFrame:
    made = pd.DataFrame({"x": DRAW.normal(moved, 1, count).round(2), "same": DRAW.random(count)})
    made["plan"] = DRAW.choice(["a", "b", "it's"], count, p=plans)
    made["flag"] = DRAW.random(count) > 0.2
    made.loc[DRAW.random(count) < abs(moved), "plan"] = None
    made["day"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(DRAW.integers(0, 3, count), "D")
    return made


BASE, STUDY = _rows(800, 0, [0.5, 0.3, 0.2]), _rows(500, 0.4, [0.2, 0.3, 0.5])


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as con:
        for name, frame in (("base", BASE), ("study", STUDY)):
            con.register(f"{name}_frame", frame)
            con.execute(f"CREATE TABLE {name} AS FROM {name}_frame")
        con.execute("ALTER TABLE base ADD COLUMN tags VARCHAR[]")
        yield con


def _described(con: sqlml.Session, form: str) -> dict[str, dict[str, object]]:
    found = con.sql(f"FROM {form}")
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
    return {str(row[found.columns[0]]): row for row in rows}


def test_a_table_is_described(con: sqlml.Session) -> None:
    found = _described(con, "ml_describe_data(TABLE study, num_quantiles := 4, top_k := 2)")
    assert list(found) == ["x", "same", "plan", "flag", "day"]
    x, plan = found["x"], found["plan"]
    assert (x["type"], x["num_rows"], x["num_nulls"]) == ("DOUBLE", 500, 0)
    assert (x["min"], x["max"]) == (str(STUDY.x.min()), str(STUDY.x.max()))
    assert x["mean"] == pytest.approx(STUDY.x.mean())
    assert x["stddev"] == pytest.approx(STUDY.x.std(ddof=0))
    np.testing.assert_allclose(
        x["quantiles"], np.quantile(STUDY.x, [0, 0.25, 0.5, 0.75, 1]), atol=0.1
    )
    assert plan["num_nulls"] == STUDY.plan.isna().sum()
    counts = STUDY.plan.value_counts()
    assert plan["top_values"] == [
        {"value": name, "count": counts[name]} for name in counts.index[:2]
    ]
    assert plan["avg_string_length"] == pytest.approx(STUDY.plan.dropna().str.len().mean())
    assert found["flag"]["top_values"][0]["value"] == "true"  # type: ignore[index]
    assert found["day"]["min"] == "2026-01-01 00:00:00" and found["day"]["mean"] is None
    nested = _described(
        con, "ML.DESCRIBE_DATA((SELECT tags FROM base WHERE x > ?))".replace("?", "0")
    )
    assert nested["tags"]["type"] == "VARCHAR[]" and nested["tags"]["min"] is None


def test_quantiles_lie_between_the_ends_and_columns_go_by_name(con: sqlml.Session) -> None:
    found = _described(con, "ml_describe_data((SELECT -10 - i AS v FROM range(5) r(i)))")
    assert found["v"]["quantiles"] == [-14, -12, -10]
    con.execute("CREATE TABLE s AS SELECT 'x' AS q, 1 AS p")
    con.execute("CREATE VIEW told AS FROM ml_describe_data(TABLE s)")
    con.execute("CREATE OR REPLACE TABLE s AS SELECT 5 AS p, 'y' AS q, 7 AS more")
    assert con.execute("SELECT name, min FROM told ORDER BY ALL").fetchall() == [
        ("p", "5"),
        ("q", "y"),
    ]


def test_distributions_are_compared(con: sqlml.Session) -> None:
    found = _described(con, "ml_validate_data_drift(TABLE base, TABLE study, bins := 8)")
    x, plan = found["x"], found["plan"]
    assert x["kolmogorov_smirnov"] == pytest.approx(stats.ks_2samp(BASE.x, STUDY.x).statistic)
    edges = [-np.inf, *np.quantile(BASE.x, np.linspace(0, 1, 9)[1:-1]), np.inf]
    p, q = (
        np.histogram(-side, -np.array(edges)[::-1])[0][::-1] / len(side)  # bins have upper ends
        for side in (BASE.x, STUDY.x)
    )
    assert x["jensen_shannon_divergence"] == pytest.approx(jensenshannon(p, q) ** 2)
    assert x["psi"] == pytest.approx(float(((p - q) * np.log(p / q)).sum()))
    assert x["l_infinity"] == pytest.approx(np.abs(p - q).max())
    p, q = (
        side.plan.value_counts(normalize=True).sort_index().to_numpy() for side in (BASE, STUDY)
    )
    assert plan["jensen_shannon_divergence"] == pytest.approx(jensenshannon(p, q) ** 2)
    assert plan["l_infinity"] == pytest.approx(np.abs(p - q).max())
    assert plan["psi"] == pytest.approx(float(((p - q) * np.log(p / q)).sum()))
    assert plan["kolmogorov_smirnov"] is None
    assert plan["null_share_study"] == pytest.approx(STUDY.plan.isna().mean())
    assert plan["is_anomaly"] and not x["is_anomaly"] and not found["same"]["is_anomaly"]
    again = _described(con, "ml_validate_data_drift(TABLE base, TABLE base)")
    assert all(row["value"] == 0 and not row["is_anomaly"] for row in again.values())


def test_metrics_and_thresholds_are_chosen(con: sqlml.Session) -> None:
    found = _described(
        con,
        "ML.VALIDATE_DATA_DRIFT(TABLE base, (FROM study), STRUCT(0.1 AS "
        "numerical_default_threshold, 'KOLMOGOROV_SMIRNOV' AS numerical_metric_type, "
        "'L_INFTY' AS categorical_metric_type, 0.2 AS categorical_default_threshold))",
    )
    assert found["x"]["metric"] == "kolmogorov_smirnov" and found["x"]["is_anomaly"]
    assert found["plan"]["metric"] == "l_infinity" and found["plan"]["value"] > 0.2  # type: ignore[operator]


def test_predictions_are_compared(con: sqlml.Session) -> None:
    con.create_model(
        "m", LogisticRegression().fit(BASE[["x", "same"]], BASE.flag), verify=False, or_replace=True
    )
    both = ", ".join(f"(FROM ml_predict(MODEL m, TABLE {name}))" for name in ("base", "study"))
    found = _described(con, f"ml_validate_data_drift({both})")
    assert {"x", "predicted_label"} <= found.keys()


BAD: Mapping[str, str] = {
    "ml_describe_data(TABLE nowhere)": "nowhere",
    "ml_describe_data(TABLE base, top_k := -1)": "from 0 to 100",
    "ml_describe_data(TABLE base, TABLE study)": "takes rows, as in ml_describe_data(TABLE t)",
    "ml_validate_data_drift(TABLE base)": "takes two tables",
    "ml_validate_data_drift(TABLE base, (SELECT 1 AS z))": "share no column",
    "ml_validate_data_drift(TABLE base, (SELECT 'x' AS x))": "is DOUBLE in the first table and VAR",
    "ml_validate_data_drift(TABLE base, TABLE study, numerical_metric_type := 'x')": "metrics: jen",
    "ML.TFDV_DESCRIBE(TABLE base)": "unknown function ML.TFDV_DESCRIBE; did you mean",
}


@pytest.mark.parametrize("form", BAD)
def test_one_clear_error(con: sqlml.Session, form: str) -> None:
    with pytest.raises(errors.BindError) as caught:
        con.sql(f"FROM {form}")
    assert BAD[form] in str(caught.value)
