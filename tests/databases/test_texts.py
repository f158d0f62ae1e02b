"""The text that is written for each database: it is the reviewed one, and sqlglot reads it.

`SQLML_UPDATE_GOLDEN=1` writes the golden texts anew.
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sqlglot
from feature_engine.datetime import DatetimeFeatures
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from xgboost import XGBRegressor

from benchmarks.database_connections import OPEN
from sqlml.errors import BackendError
from sqlml.importers.registry import import_model
from sqlml.parsing.statements import OtherDatabase
from sqlml.planner.databases.export_for import export_for
from sqlml.planner.databases.targets import DATABASES
from tests.databases import families

GOLDEN = Path(__file__).parents[1] / "golden" / "databases"


@cache
def models() -> dict[str, Any]:
    """Import models of given numbers, since the last digits of a fit depend on the processor.

    What passes compute from the given numbers is exact in float64.
    """
    fitted = {"churn": _make_churn(), "trees": _make_trees(), "rush": _make_rush()}
    return {name: import_model(model) for name, model in fitted.items()}


def _make_table() -> pd.DataFrame:
    table = pd.DataFrame(np.arange(40.0).reshape(20, 2), columns=["tenure", "order"])
    table["plan"] = ["basic", "it's"] * 10
    return table


def _make_churn() -> Any:
    columns = make_column_transformer(
        (OneHotEncoder(), ["plan"]), (StandardScaler(), ["tenure", "order"])
    )
    churn = make_pipeline(columns, LogisticRegression()).fit(_make_table(), ["no", "yes"] * 10)
    scaler, regression = churn[0].named_transformers_["standardscaler"], churn[-1]
    scaler.mean_, scaler.scale_ = np.array([19.0, 20.0]), np.array([8.0, 16.0])
    regression.coef_ = np.array([[-1.6303676445651103, 1.63036764456511, 0.046875, -0.15625]])
    regression.intercept_ = np.array([-0.25])
    return churn


def _make_trees() -> XGBRegressor:
    """Grow two trees, and give them other thresholds and leaf values."""
    fitted = XGBRegressor(n_estimators=2, max_depth=2)
    fitted.fit(_make_table()[["tenure", "order"]], np.arange(20))
    document = json.loads(fitted.get_booster().save_raw("json"))
    document["learner"]["learner_model_param"]["base_score"] = "[9.5E0]"
    numbers = (
        [20.0, 12.0, 28.0, -1.8000001, -0.48000002, 0.48000002, 1.8000001],
        [18.0, 10.0, 26.0, -1.4250001, -0.5256001, 0.18240005, 1.2832501],
    )
    trees = document["learner"]["gradient_booster"]["model"]["trees"]
    for tree, split_conditions in zip(trees, numbers, strict=True):
        assert tree["left_children"] == [1, 3, 5, -1, -1, -1, -1]
        tree["split_conditions"] = tree["base_weights"] = split_conditions
        tree["split_indices"] = [0] * 7
    given = XGBRegressor()
    given.load_model(bytearray(json.dumps(document).encode()))
    return given


def _make_rush() -> Any:
    visits = pd.DataFrame({"at": pd.date_range("2026-01-01", periods=20, freq="7h")})
    hours = DatetimeFeatures("at", features_to_extract=["hour"])
    rush = make_pipeline(hours, LogisticRegression()).fit(visits, [False, True] * 10)
    rush[-1].coef_ = np.array([[0.04577581175941302]])
    rush[-1].intercept_ = np.array([-0.5171010289837733])
    return rush


def exported(dialect: str) -> list[str]:
    """Return the models that a database takes."""
    has_dates = DATABASES[dialect].date_sql is not None
    return ["churn", "trees", *(["rush"] if has_dates else [])]


def write_models(dialect: str) -> str:
    texts = []
    for name in exported(dialect):
        imported = models()[name]
        model = (imported.program, imported.features, name)
        view = OtherDatabase(dialect, "view", ("shop", "customers"), ("id",))
        texts.append(export_for(*model, view))
        if DATABASES[dialect].function_template is not None:
            texts.append(export_for(*model, OtherDatabase(dialect)))
        if DATABASES[dialect].has_node_tables and name == "trees":
            texts.append(export_for(*model, OtherDatabase(dialect, "nodes", ("customers",))))
    return "\n".join(texts)


@pytest.mark.parametrize("dialect", DATABASES)
def test_the_text_is_the_one_that_was_looked_at(dialect: str) -> None:
    path, text = GOLDEN / f"{dialect}.sql", write_models(dialect)
    if os.environ.get("SQLML_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("dialect", DATABASES)
def test_sqlglot_reads_the_text(dialect: str) -> None:
    for name in exported(dialect):
        imported = models()[name]
        target = OtherDatabase(dialect, None, ("t",), ("id",))
        query = export_for(imported.program, imported.features, "m", target)
        (read,) = sqlglot.parse(query, read=DATABASES[dialect].dialect)
        assert read is not None and not list(read.find_all(sqlglot.exp.Command))


TSQL = {"ABS", "CAST", "CEILING", "COALESCE", "EXP", "FLOOR", "GREATEST", "LEAST", "LOG", "POWER",
        "SIGN", "SQRT", "nvarchar"}  # fmt: skip
"""Functions of SQL Server 2022, and a type."""


@pytest.mark.by_day(4)
@pytest.mark.parametrize("name", families.FAMILIES)
def test_sql_server_has_the_functions_and_nests_the_cases(name: str) -> None:
    imported = import_model(families.model(name))
    target = OtherDatabase("sqlserver", None, ("t",))
    text = export_for(imported.program, imported.features, "m", target)
    called = set(re.findall(r"\b(\w+)\(", text.replace("abs(", "ABS(").replace(" IN (", " ")))
    assert called - {"AND", "AS", "OR", "NOT", "WHEN", "THEN", "BY"} <= TSQL
    words = re.findall(r"\b(?:CASE|END|SELECT)\b", re.sub(r"'(?:[^']|'')*'", "", text))
    depths = accumulate({"CASE": 1, "END": -1}.get(word, 0) for word in words)
    assert max(depths, default=0) <= 10


def test_sql_server_tells_blanks_at_the_end_of_a_text() -> None:
    labels = [True, False] * 2
    table = pd.DataFrame({"plan": ["a", "a ", "ä\\\n", "it's"], "is_new": labels})
    encoder = make_column_transformer((OneHotEncoder(), ["plan"]))
    model = make_pipeline(encoder, LogisticRegression()).fit(table[["plan"]], labels)
    imported = import_model(model)
    target = OtherDatabase("sqlserver", None, ("t",))
    text = export_for(imported.program, imported.features, "m", target)
    for known in ("'a.'", "'a .'", "(N'ä\\' + N'\n.')", "'it''s.'", "CAST(1 AS bit)"):
        assert f" {known} " in text


def test_dates_are_refused_where_they_have_no_form() -> None:
    assert [name for name, one in DATABASES.items() if one.date_sql is None] == ["clickhouse"]
    rush = models()["rush"]
    with pytest.raises(BackendError, match="'at' is a datetime, .* for ClickHouse"):
        export_for(rush.program, rush.features, "m", OtherDatabase("clickhouse", None, ("t",)))


def test_functions_of_spark_are_small_enough_to_be_merged() -> None:
    imported = import_model(families.model("ordinal"))
    with pytest.raises(BackendError, match="Spark would merge the queries of a function to an"):
        export_for(imported.program, imported.features, "m", OtherDatabase("spark"))


def test_the_page_has_all_databases() -> None:
    page = (GOLDEN.parents[2] / "docs" / "databases.md").read_text(encoding="utf-8")
    rows = [
        line for line in page.splitlines() if line.startswith("| `postgres") or "**do not" in line
    ]
    assert set(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in rows))) == set(DATABASES)
    assert set(re.findall(r"`(\w+)`", rows[0].split("|")[1])) == {*OPEN, "spark"}
