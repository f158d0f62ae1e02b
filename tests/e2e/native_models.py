"""The models and rows of the tests of native functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    QuantileTransformer,
    StandardScaler,
)
from xgboost import XGBClassifier

import sqlml
from sqlml.catalog.catalog_connection import IS_DUCKDB_2
from sqlml.udfs.duckdb.native import extension

NEEDS_NATIVE = pytest.mark.skipif(
    not IS_DUCKDB_2 or not (extension.BUILT / extension.EXTENSION).is_file(),
    reason="needs DuckDB 2.0, and native functions that were built",
)

NUMBERS = ["a", "b", "c"]
TEXTS = ["city", "note"]
ROWS = 5000


def people() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(ROWS, 3)), columns=NUMBERS)
    table["city"] = rng.choice(["Bern", "Genf", "Ulm", "Zürich", "", "北京"], ROWS)
    long = [f"a note of more than twelve bytes, {k}" for k in range(20)]
    table["note"] = rng.choice([*long, "short", "twelve bytes"], ROWS)
    return table


def models() -> dict[str, Any]:
    """Fitted models by name, those of texts too."""
    table = people().head(800)
    x, rng = table[NUMBERS], np.random.default_rng(1)
    y = np.digitize(table.a + table.b * table.c, [-0.5, 0.5])
    named = np.array(["low", "middle", "high"])[y]
    two = np.stack([y > 0, rng.integers(0, 2, len(y))], axis=1)
    hot = (OneHotEncoder(handle_unknown="ignore"), TEXTS)
    strict = make_column_transformer((OneHotEncoder(), TEXTS), (StandardScaler(), NUMBERS))
    coded = make_column_transformer(
        (OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-9), TEXTS),
        remainder="passthrough",
    )
    forest = RandomForestClassifier(20, max_depth=5, random_state=0)
    return {
        "forest": forest.fit(x, named),
        "boosted": XGBClassifier(n_estimators=20, n_jobs=1).fit(x, y),
        "logistic": make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y > 0),
        "ridge": Ridge().fit(x, table.a),
        "targets": MultiOutputClassifier(LogisticRegression()).fit(x, two),
        "pair": RandomForestRegressor(5, max_depth=3).fit(x, table[["b", "c"]]),
        "near": KNeighborsClassifier(3, algorithm="brute").fit(x.head(200), named[:200]),
        "scaler": StandardScaler().fit(x),
        "steps": make_pipeline(
            make_column_transformer(
                (QuantileTransformer(n_quantiles=50, random_state=0), ["a"]),
                (KBinsDiscretizer(5), ["b"]),
                (PowerTransformer(), ["c"]),
            ),
            LogisticRegression(),
        ).fit(x, named),
        "calibrated": CalibratedClassifierCV(clone(forest), method="isotonic", cv=2).fit(x, named),
        "hot": make_pipeline(
            make_column_transformer(hot, (StandardScaler(), NUMBERS)), LogisticRegression()
        ).fit(table, named),
        "strict": make_pipeline(strict, LogisticRegression()).fit(table, y > 0),
        "coded": make_pipeline(coded, clone(forest)).fit(table, named),
    }


def filled(*names: str) -> sqlml.Session:
    """A session with the people, also with holes, and with the models, strict and not."""
    con = sqlml.connect()
    con.register("made", people())
    con.execute("CREATE TABLE t AS SELECT row_number() OVER () AS id, * FROM made")
    con.execute(
        "CREATE TABLE holes AS SELECT * REPLACE (CASE WHEN id % 7 THEN b END AS b, "
        "CASE WHEN id % 5 THEN city END AS city, "
        "CASE WHEN id % 11 THEN note ELSE 'a note that nobody has seen' END AS note) FROM t"
    )
    for name, model in models().items():
        if name in names or not names:
            con.create_model(name, model)
            if name != "scaler":
                con.create_model(f"{name}_null", model, on_null="null")
    return con


def simple() -> Any:
    """A model that is too large to be written as SQL."""
    forest = RandomForestClassifier(30, max_depth=5, random_state=0)
    return forest.fit(people()[NUMBERS].head(500), people().a.head(500) > 0)


def routes(con: sqlml.Session, query: str) -> list[str]:
    plan = con.plan(query)
    assert plan is not None
    return [call["route"] for call in plan.to_dict()["calls"]]
