"""What is written for each database, as sqlglot reads it back and as it was looked at.

`SQLML_UPDATE_GOLDEN=1` writes the texts anew.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sqlglot
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from xgboost import XGBRegressor

from sqlml.importers.registry import import_model
from sqlml.planner.databases.export import export_for
from sqlml.planner.databases.targets import DATABASES

GOLDEN = Path(__file__).parents[1] / "golden" / "databases"


@cache
def models() -> dict[str, Any]:
    numbers = np.arange(40.0).reshape(20, 2)
    table = pd.DataFrame(numbers, columns=["tenure", "order"])
    table["plan"] = ["basic", "it's"] * 10
    columns = make_column_transformer(
        (OneHotEncoder(), ["plan"]), (StandardScaler(), ["tenure", "order"])
    )
    churn = make_pipeline(columns, LogisticRegression()).fit(table, ["no", "yes"] * 10)
    trees = XGBRegressor(n_estimators=2, max_depth=2).fit(table[["tenure", "order"]], np.arange(20))
    return {"churn": import_model(churn), "trees": import_model(trees)}


def written(dialect: str) -> str:
    made = []
    for name, imported in models().items():
        given = (imported.program, imported.features, name, dialect)
        made.append(export_for(*given, table=["shop", "customers"], columns=["id"], form="view"))
        if DATABASES[dialect].function is not None:
            made.append(export_for(*given))
    return "\n".join(made)


@pytest.mark.parametrize("dialect", DATABASES)
def test_the_text_is_the_one_that_was_looked_at(dialect: str) -> None:
    path, text = GOLDEN / f"{dialect}.sql", written(dialect)
    if os.environ.get("SQLML_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("dialect", DATABASES)
def test_sqlglot_reads_the_text(dialect: str) -> None:
    for imported in models().values():
        query = export_for(
            imported.program, imported.features, "m", dialect, table=["t"], columns=["id"]
        )
        (read,) = sqlglot.parse(query, read=DATABASES[dialect].dialect)
        assert read is not None and not list(read.find_all(sqlglot.exp.Command))


def test_the_page_has_all_databases() -> None:
    page = (GOLDEN.parents[2] / "docs" / "databases.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `postgres") or "**not" in line]
    assert set(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in rows))) == set(DATABASES)
    run = {name for name, database in DATABASES.items() if database.is_run}
    assert set(re.findall(r"`(\w+)`", rows[0].split("|")[1])) == run
