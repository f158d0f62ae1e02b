"""Exported SQL, run by the database itself, against the library that made the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sqlml
from benchmarks.database_connections import Connection
from sqlml.errors import BackendError
from sqlml.planner.databases.targets import DATABASES
from tests.databases.families import (
    FAMILIES,
    NAMES,
    SEVERAL,
    boosted,
    model,
    moments,
    of_dates,
    of_several,
    rows,
)

ROWS = 10_000


@pytest.fixture(scope="session")
def con() -> Any:
    with sqlml.connect() as made:
        yield made


def exported(con: Any, fitted: Any, path: Path, options: str) -> str:
    con.create_model("m", fitted, or_replace=True, verify=False)
    con.execute(f"EXPORT MODEL m TO '{path}' (DIALECT {options})")
    return path.read_text(encoding="utf-8")


def scored(
    con: Any, database: Connection, fitted: Any, frame: pd.DataFrame, folder: Path
) -> pd.DataFrame:
    """What the database answers for a frame, in its order."""
    table = frame.assign(id=np.arange(len(frame)))
    database.load("scored", table)
    options = f"{database.name}, TABLE scored, COLUMNS (id)"
    query = exported(con, fitted, folder / "m.sql", options)
    return database.frame(query).sort_values("id", ignore_index=True)


@pytest.mark.by_day(10)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_answers_as_its_library(
    con: Any, database: Connection, name: str, tmp_path: Path
) -> None:
    fitted, (_, _, columns, refuses) = model(name), FAMILIES[name]
    frame = rows(ROWS)[columns]
    got = scored(con, database, fitted, frame, tmp_path)
    whole = frame.notna().all(axis=1) if refuses else np.full(ROWS, True)
    assert got.loc[~whole, got.columns[1:]].isna().all(axis=None)
    got, asked = got[whole], frame[whole]
    labels = fitted.predict(asked)
    if labels.dtype.kind == "f":
        np.testing.assert_allclose(got["predicted_label"].astype(float), labels, rtol=1e-12)
    else:
        assert got["predicted_label"].tolist() == labels.tolist()
    if hasattr(fitted, "predict_proba"):
        names = [f"probability_{value}" for value in fitted.classes_]
        np.testing.assert_allclose(
            got[names].astype(float), fitted.predict_proba(asked), rtol=1e-11, atol=1e-14
        )


@pytest.mark.by_day(8)
@pytest.mark.parametrize(
    "objective", ["binary:logistic", "multi:softprob", "reg:squarederror", "count:poisson"]
)
def test_sums_of_xgboost_are_float32(
    con: Any, database: Connection, objective: str, tmp_path: Path
) -> None:
    fitted = boosted(objective)
    frame = rows(ROWS)[NAMES]
    got = scored(con, database, fitted, frame, tmp_path)
    if objective == "reg:squarederror":
        exact, column = fitted.predict(frame), "predicted_label"
    elif objective == "count:poisson":
        np.testing.assert_allclose(
            got["predicted_label"].astype(float), fitted.predict(frame), rtol=3e-7
        )
        return
    else:
        exact = fitted.predict(frame, output_margin=True)
        column = "score" if objective == "binary:logistic" else "score_0"
        exact = exact if exact.ndim == 1 else exact[:, 0]
        assert got["predicted_label"].tolist() == fitted.predict(frame).tolist()
        probabilities = got[[c for c in got if str(c).startswith("probability")]].astype(float)
        np.testing.assert_allclose(probabilities, fitted.predict_proba(frame), atol=1.2e-7)
    np.testing.assert_array_equal(got[column].astype(float), exact.astype(float))


@pytest.mark.by_day(6)
@pytest.mark.parametrize("kind", SEVERAL)
def test_several_targets_are_columns(
    con: Any, database: Connection, kind: str, tmp_path: Path
) -> None:
    fitted = of_several(kind)
    frame = rows(ROWS)[NAMES].dropna()
    got = scored(con, database, fitted, frame, tmp_path)
    labels = got[["predicted_label_0", "predicted_label_1"]]
    if kind == "numbers":
        np.testing.assert_allclose(labels.astype(float), fitted.predict(frame), rtol=1e-12)
        return
    np.testing.assert_array_equal(labels, fitted.predict(frame))
    found = fitted.predict_proba(frame)
    if kind == "flags":
        found = [np.stack([1 - p, p], axis=1) for p in found.T]
        classes = [["0", "1"]] * 2
    else:
        classes = fitted.classes_
    for target, (names, want) in enumerate(zip(classes, found, strict=True)):
        columns = [f"probability_{target}_{name}" for name in names]
        np.testing.assert_allclose(got[columns].astype(float), want, rtol=1e-11, atol=1e-14)


@pytest.mark.by_day(2)
def test_dates_are_read_to_the_microsecond(con: Any, database: Connection, tmp_path: Path) -> None:
    if DATABASES[database.name].date_sql is None:
        with pytest.raises(BackendError, match="'at' is a datetime, which is not exported for"):
            exported(con, of_dates(), tmp_path / "m.sql", f"{database.name}, TABLE scored")
        return
    frame = moments(ROWS)
    got = scored(con, database, of_dates(), frame, tmp_path)["predicted_label"].astype(float)
    known = frame["at"].notna()
    assert got[~known].isna().all()
    np.testing.assert_allclose(got[known], of_dates().predict(frame[known]), rtol=1e-9, atol=1e-9)


@pytest.mark.by_day(4)
def test_hundreds_of_columns(con: Any, database: Connection, tmp_path: Path) -> None:
    """Conditions in a row, sums and the columns of a query are many, too."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.normal(size=(200, 300))).rename(columns="x{}".format)
    fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(frame, frame["x7"] > 0)
    frame.loc[::7, "x299"] = np.nan
    got = scored(con, database, fitted, frame, tmp_path)
    whole = frame["x299"].notna()
    assert got.loc[~whole, "predicted_label"].isna().all()
    want = fitted.predict_proba(frame[whole])[:, 1]
    np.testing.assert_allclose(got.loc[whole, "probability_true"].astype(float), want, atol=1e-12)
