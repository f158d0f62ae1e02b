"""A database file with a table, a model and a view, and what the model must say of the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

import sqlml

FEATURES = ["tenure", "charges", "plan", "region"]
COUNT = "SELECT count(*) FROM customers WHERE predict('churn', *) = 'yes'"


def yes(churn: Any, frame: pd.DataFrame) -> int:
    return int((churn.predict(frame[FEATURES]) == "yes").sum())


def fill(path: Path, frame: pd.DataFrame, churn: Any) -> None:
    with sqlml.connect(path) as con:
        con.execute("CREATE TABLE customers AS SELECT * FROM frame")
        con.create_model("churn", churn, comment="who leaves")
        con.execute(
            "CREATE VIEW risky AS SELECT id FROM customers WHERE predict('churn', *) = 'yes'"
        )
