"""FORM function: what a database calls on columns of any table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sqlml
from benchmarks.database_connections import Connection
from sqlml.errors import BackendError
from sqlml.planner.databases.targets import DATABASES
from tests.databases.families import FAMILIES, NAMES, boosted, model, rows
from tests.databases.test_predictions import exported


@pytest.fixture(scope="module")
def con() -> Any:
    with sqlml.connect() as made:
        yield made


@pytest.mark.by_day(4)
@pytest.mark.parametrize("name", ["one-hot", "histograms", "linear"])
def test_functions_answer_as_the_library(
    con: Any, database: Connection, name: str, tmp_path: Path
) -> None:
    if DATABASES[database.name].function_template is None:
        with pytest.raises(BackendError, match="has no functions written in SQL; write FORM"):
            exported(con, model(name), tmp_path / "m.sql", database.name)
        return
    fitted, (_, _, columns, refuses) = model(name), FAMILIES[name]
    frame = rows(10_000)[columns].head(300)
    frame = frame.dropna() if refuses else frame
    database.load("called", frame.assign(id=np.arange(len(frame))))
    if database.name == "postgres":  # which does not replace a function by one of another type
        database.run("DROP ROUTINE IF EXISTS m")
    database.run(exported(con, fitted, tmp_path / "m.sql", database.name))
    read = ", ".join(map(database.quoted, columns))
    calls = f"m({read}) AS label"
    if hasattr(fitted, "classes_"):
        calls += f", m_probability_no({read}) AS p"
    got = database.frame(f"SELECT id, {calls} FROM called").sort_values("id")
    labels = fitted.predict(frame)
    if labels.dtype.kind == "f":
        np.testing.assert_allclose(got["label"].astype(float), labels, rtol=1e-12)
        return
    assert got["label"].tolist() == labels.tolist()
    wanted = fitted.predict_proba(frame)[:, fitted.classes_.tolist().index("no")]
    np.testing.assert_allclose(got["p"].astype(float), wanted, rtol=1e-12)


@pytest.mark.by_day(2)
def test_a_view_shows_the_predictions_of_its_table(
    con: Any, database: Connection, tmp_path: Path
) -> None:
    frame = rows(10_000)[NAMES].head(50)
    database.load("seen", frame)
    database.run("DROP VIEW IF EXISTS m_scores")
    options = f"{database.name}, FORM view, TABLE seen"
    database.run(exported(con, boosted("binary:logistic"), tmp_path / "m.sql", options))
    got = database.frame("SELECT * FROM m_scores")
    assert list(got)[: len(NAMES)] == NAMES
    assert got["predicted_label"].tolist() == boosted("binary:logistic").predict(frame).tolist()
    database.run("DROP VIEW m_scores")
