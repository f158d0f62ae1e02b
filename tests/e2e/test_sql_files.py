"""Every file below sql/ runs, and answers what the source library does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder

import sqlml

SQL = Path(sqlml.__file__).parent / "sql"
FEATURES = ["tenure", "plan", "monthly_charges", "region"]


def text(name: str) -> str:
    return (SQL / name).read_text(encoding="utf-8")


def churn_pipeline() -> Pipeline:
    strings = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="unknown"),
        OneHotEncoder(handle_unknown="ignore"),
    )
    columns = ColumnTransformer(
        [
            ("numbers", SimpleImputer(strategy="median"), ["tenure", "monthly_charges"]),
            ("strings", strings, ["plan", "region"]),
        ]
    )
    return make_pipeline(columns, GradientBoostingClassifier(n_estimators=20, random_state=0))


@pytest.fixture
def con(tmp_path: Path) -> Iterator[Any]:
    with sqlml.connect(str(tmp_path / "shop.duckdb")) as con:
        con.execute(text("examples/customers.sql"))
        yield con


@pytest.fixture
def customers(con: Any) -> pd.DataFrame:
    frame: pd.DataFrame = con.sql("SELECT * FROM customers ORDER BY id").df()
    return frame


@pytest.fixture
def churn(con: Any, customers: pd.DataFrame) -> Pipeline:
    pipeline = churn_pipeline().fit(customers[FEATURES], customers["churned"])
    con.create_model("churn_model", pipeline, verify=False)
    return pipeline


def test_every_file_has_a_test() -> None:
    here = Path(__file__).read_text() + (Path(__file__).parent / "test_demo.py").read_text()
    files = [p.relative_to(SQL) for p in SQL.rglob("*.sql")]
    assert len(files) >= 15
    untested = [p.name for p in files if p.parent.name != "demo" and p.name not in here]
    assert untested == []
    assert {p.suffix for p in SQL.rglob("*") if p.is_file()} == {".sql"}


def test_every_demo_file_is_read_by_the_demo() -> None:
    code = "".join(p.read_text() for p in (SQL.parent / "tools" / "demo").glob("*.py"))
    unread = [
        p.stem
        for p in (SQL / "demo").glob("*.sql")
        if f'query("{p.stem}")' not in code and not p.stem.startswith("time_")
    ]
    assert unread == []


def test_customers_has_nulls_strings_and_both_labels(customers: pd.DataFrame) -> None:
    assert list(customers.columns) == ["id", *FEATURES, "churned"]
    assert len(customers) == customers["id"].nunique() == 2000
    assert set(customers["churned"]) == {"yes", "no"}
    assert customers["region"].isna().sum() > 100
    assert customers["monthly_charges"].isna().sum() > 50


def test_predict_gives_the_pipelines_label_in_every_binding_form(
    con: Any, customers: pd.DataFrame, churn: Pipeline
) -> None:
    got = con.execute(text("examples/predict.sql")).fetchall()
    want = [(i, *[label] * 8) for i, label in enumerate(churn.predict(customers[FEATURES]), 1)]
    assert got == want


def test_predict_proba_gives_the_pipelines_probabilities(
    con: Any, customers: pd.DataFrame, churn: Pipeline
) -> None:
    rows = con.execute(text("examples/predict_proba.sql")).fetchall()
    want = churn.predict_proba(customers[FEATURES])
    assert list(churn.classes_) == ["no", "yes"]
    np.testing.assert_allclose([[r[3], r[2]] for r in rows], want, rtol=1e-6)
    assert [list(r[1]) for r in rows] == [["no", "yes"]] * len(rows)
    np.testing.assert_array_equal([list(r[1].values()) for r in rows], [[r[3], r[2]] for r in rows])


def test_filter_keeps_the_rows_that_the_pipeline_would(
    con: Any, customers: pd.DataFrame, churn: Pipeline
) -> None:
    scored = customers.assign(
        churns=churn.predict_proba(customers[FEATURES])[:, 1],
        label=churn.predict(customers[FEATURES]),
    )
    want = (
        scored[(scored["monthly_charges"] > 60) & (scored["label"] == "yes")]
        .sort_values(["churns", "id"], ascending=[False, True])
        .head(10)
    )
    got = con.execute(text("examples/filter.sql")).fetchall()
    assert [(r[0], r[1]) for r in got] == list(zip(want["id"], want["plan"], strict=True))
    np.testing.assert_allclose([r[2] for r in got], want["churns"], rtol=1e-6)


def test_aggregate_groups_by_the_predicted_label(
    con: Any, customers: pd.DataFrame, churn: Pipeline
) -> None:
    scored = customers.assign(
        region=customers["region"].fillna("unknown"),
        churns=churn.predict_proba(customers[FEATURES])[:, 1],
        label=churn.predict(customers[FEATURES]),
    )
    groups = scored.groupby(["region", "label"], sort=True)
    want = [
        (region, label, len(rows), rows["churns"].mean())
        for (region, label), rows in groups
        if len(rows) > 10
    ]
    got = con.execute(text("examples/aggregate.sql")).fetchall()
    assert [r[:3] for r in got] == [w[:3] for w in want]
    np.testing.assert_allclose([r[4] for r in got], [w[3] for w in want], rtol=1e-6)


def test_window_ranks_by_the_predicted_probability(
    con: Any, customers: pd.DataFrame, churn: Pipeline
) -> None:
    scored = customers.assign(churns=churn.predict_proba(customers[FEATURES])[:, 1])
    ordered = scored.sort_values(["plan", "churns", "id"], ascending=[True, False, True])
    want = ordered.groupby("plan").head(3)
    got = con.execute(text("examples/window.sql")).fetchall()
    assert [r[:2] for r in got] == list(zip(want["plan"], want["id"], strict=True))


def test_write_puts_scores_into_a_table_a_view_and_a_column(
    con: Any, customers: pd.DataFrame, churn: Pipeline
) -> None:
    labels = churn.predict(customers[FEATURES])
    churners = int((labels == "yes").sum())
    assert con.execute(text("examples/write.sql")).fetchall() == [(2000, churners, churners)]
    written = con.execute("SELECT expected FROM customers ORDER BY id").fetchall()
    assert [r[0] for r in written] == list(labels)


def test_models_come_from_the_files_of_their_libraries(
    con: Any, customers: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = re.findall(r"^--   (.*)$", text("examples/models.sql"), flags=re.MULTILINE)
    assert len(script) == 5 and not Path("charges.json").exists()
    exec("\n".join(script), {"con": con})  # as a reader would run it
    model = xgboost.XGBRegressor()
    model.load_model("charges.json")
    frame = customers[["tenure"]].assign(premium=customers["plan"] == "premium")
    got = con.execute(text("examples/models.sql")).fetchall()
    np.testing.assert_array_equal(np.array([r[1] for r in got], np.float32), model.predict(frame))
