"""A database with a model that sqlml trained, and its customers; a report full of hostile names."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

import sqlml
from sqlml.report.make_report import Report

ROWS = 3000


def shop() -> pd.DataFrame:
    """Customers of whom some leave; the last of them have no label."""
    draw = np.random.default_rng(3)
    made = pd.DataFrame(
        {
            "tenure": draw.integers(0, 72, ROWS),
            "charges": draw.gamma(4, 15, ROWS).round(2),
            "plan": draw.choice(["basic", "pro", "max"], ROWS),
            "region": draw.choice(["north", "south", "it's"], ROWS),
        }
    )
    leaves = made.charges / 40 - made.tenure / 20 - (made.plan == "max") + draw.normal(size=ROWS)
    made["churned"] = np.where(leaves > 0, "yes", "no")
    made.loc[made.index >= ROWS - 7, "churned"] = None
    return made


@pytest.fixture(scope="package")
def con() -> Iterator[sqlml.Session]:
    """The table `customers`, and the model `churn`, which was trained on those of the north."""
    with sqlml.connect() as con:
        con.register("frame", shop())
        con.execute("CREATE TABLE customers AS FROM frame")
        con.execute(
            "CREATE MODEL churn OPTIONS (model_type = 'logistic_reg', label = 'churned') AS "
            "SELECT tenure, charges, plan, churned FROM customers "
            "WHERE region = 'north' AND churned IS NOT NULL"
        )
        yield con


HOSTILE = "</script><img src=x onerror=alert(1)>\"'`{{7*7}}{% raw %}\u202e\x07"
"""What a stranger may call a model, a column or a class."""


@pytest.fixture(scope="package")
def hostile() -> Report:
    """The report of a model all of whose names and values are hostile."""
    draw = np.random.default_rng(0)
    rows = pd.DataFrame(draw.normal(size=(200, 2)), columns=[HOSTILE, "b"])
    name = HOSTILE.replace("/", "|").replace(".", "")
    labels = np.where(rows.b > 0, HOSTILE, "no")
    model = DecisionTreeClassifier(max_depth=2).fit(rows, labels)
    with sqlml.connect() as con:
        con.create_model(name, model, comment=HOSTILE, verify=False)
        con.register("frame", rows.assign(truth=labels, g=HOSTILE))
        return con.report(name, "frame", label="truth", by="g")
