"""The databases of the corpus: one with tables and models, one with the library's own scores.

Table customers(id, name, tenure, charges, plan, region, visits, joined) has gaps in tenure and
region; logins(customer_id, seen, pages) has several rows for most of them; haus has the columns
"Größe", "select", "Mixed Case" and "a""b"; boxes(id, c, cs, tags) holds customers as structs and
lists of structs. The models, and their columns in table `scored` (customers) or `haus_scored`:

=======  =====================================================  ==================================
churn    pipeline of imputers, one-hot and logistic regression  p label, q "yes", m score, pm map
risk     XGBoost of three classes on tenure, charges, visits    r label, r0 r1 r2, rm scores, rp map
value    linear regression on charges, visits; two versions     v, and v1 of version 1
loyal    tree on tenure and visits, boolean labels              l label, lt of true
spare    regression tree on charges, visits that reads visits   sp
scale    StandardScaler of charges, visits                      s list
haus     tree on the unusual names                              h
=======  =====================================================  ==================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import xgboost
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import sqlml
from tests.e2e.conftest import churn_pipeline

ROWS = 120
HAUS = ["Größe", "select", "Mixed Case", 'a"b']
FEATURES: Mapping[str, list[str]] = {
    "churn": ["tenure", "charges", "plan", "region"],
    "risk": ["tenure", "charges", "visits"],
    "value": ["charges", "visits"],
    "loyal": ["tenure", "visits"],
    "spare": ["charges", "visits"],
    "scale": ["charges", "visits"],
    "haus": HAUS,
}

TABLES = """
CREATE TABLE customers AS SELECT id::INTEGER AS id, name, tenure, charges, plan, region,
    visits::INTEGER AS visits, DATE '2024-01-01' + (id * 3)::INTEGER AS joined FROM customers_frame;
CREATE TABLE logins AS SELECT customer_id::INTEGER AS customer_id,
    TIMESTAMP '2024-06-01' + to_hours(hours::INTEGER) AS seen, pages::INTEGER AS pages
    FROM logins_frame;
CREATE TABLE haus AS SELECT * FROM haus_frame;
CREATE TABLE boxes AS SELECT id, {'tenure': tenure, 'charges': charges, 'plan': plan,
    'region': region, 'visits': visits} AS c,
    [{'charges': charges + i, 'visits': visits} for i in [0, 10, 20]] AS cs,
    [plan, coalesce(region, 'none')] AS tags FROM customers WHERE id < 40;
"""

SCORED = """
CREATE TABLE scored AS SELECT c.*, p, q, m, MAP(['no', 'yes'], [1 - q, q]) AS pm,
    r, r0, r1, r2, rm, MAP([0::BIGINT, 1, 2], [r0, r1, r2]) AS rp, v, v1, l, lt, s, sp
    FROM customers c JOIN customers_scores USING (id);
CREATE TABLE haus_scored AS FROM haus POSITIONAL JOIN haus_scores;
"""


@dataclass(frozen=True, slots=True)
class Shop:
    """The frames and the fitted objects."""

    customers: pd.DataFrame
    logins: pd.DataFrame
    haus: pd.DataFrame
    models: Mapping[str, Any]
    first_value: Any

    def scores(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The scores of all models whose features `rows` has, as columns."""
        found: dict[str, Any] = {}
        for name, model in self.models.items():
            if not set(FEATURES[name]) <= set(rows.columns):
                continue
            inputs = rows[FEATURES[name]]
            if name == "churn":
                inputs = inputs.assign(**{c: _objects(inputs[c]) for c in ("plan", "region")})
                found["p"] = model.predict(inputs)
                found["q"] = model.predict_proba(inputs)[:, 1]
                found["m"] = model.decision_function(inputs)
            elif name == "risk":
                inputs = inputs.astype(float)
                probabilities = model.predict_proba(inputs).astype(float)
                found["r"] = model.predict(inputs).astype(np.int64)
                found |= {f"r{k}": probabilities[:, k] for k in range(3)}
                margins = model.predict(inputs, output_margin=True).astype(float)
                found["rm"] = pd.Series(margins.tolist(), index=rows.index)
            elif name == "loyal":
                inputs = inputs.astype(float)
                found["l"], found["lt"] = model.predict(inputs), model.predict_proba(inputs)[:, 1]
            elif not inputs.isna().to_numpy().any():  # the others take no missing values
                inputs = inputs.astype(float)
                if name == "value":
                    found["v"] = model.predict(inputs)
                    found["v1"] = self.first_value.predict(inputs)
                elif name == "spare":
                    found["sp"] = model.predict(inputs)
                elif name == "scale":
                    found["s"] = pd.Series(model.transform(inputs).tolist(), index=rows.index)
                else:
                    found["h"] = model.predict(inputs)
        return pd.DataFrame(found, index=rows.index)

    def score_given(self, plain: duckdb.DuckDBPyConnection, query: str) -> None:
        """The rows of `query` and their scores, as the table `given`."""
        rows = plain.sql(query).df()
        given = pd.concat([rows, self.scores(rows)], axis=1).assign(row=range(len(rows)))
        plain.register("given_frame", given)
        plain.execute("CREATE OR REPLACE TEMP TABLE given AS FROM given_frame ORDER BY row")
        plain.unregister("given_frame")


def _objects(column: pd.Series[Any]) -> pd.Series[Any]:
    """Strings as Python objects, the missing ones NaN: what the pipeline was trained on."""
    return column.astype(object).where(column.notna(), np.nan)


def make_shop() -> Shop:
    """The frames, from a fixed seed, and the models fitted on them."""
    rng = np.random.default_rng(11)
    customers = pd.DataFrame(
        {
            "id": np.arange(ROWS),
            "name": [f"name {i}" if i % 7 else "O'Brien" for i in range(ROWS)],
            "tenure": rng.integers(0, 72, ROWS).astype(float),
            "charges": rng.normal(60, 20, ROWS).round(2),
            "plan": rng.choice(["basic", "pro", "max"], ROWS),
            "region": rng.choice(["north", "south", "it's"], ROWS),
            "visits": rng.integers(0, 30, ROWS),
        }
    )
    customers.loc[rng.random(ROWS) < 0.15, "tenure"] = np.nan
    customers.loc[rng.random(ROWS) < 0.15, "region"] = None
    logins = pd.DataFrame(
        {
            "customer_id": rng.integers(0, ROWS, 200),
            "hours": rng.permutation(1000)[:200],
            "pages": rng.integers(1, 9, 200),
        }
    )
    haus = pd.DataFrame(rng.integers(0, 9, (40, 4)).astype(float), columns=HAUS)
    haus["select"] = haus["select"].astype(int)
    target = customers.visits * 2 - customers.charges
    classes = (customers.tenure.fillna(99) > 30).astype(int) + (
        customers.charges + customers.visits > 75
    )
    booster = xgboost.XGBClassifier(n_estimators=8, max_depth=3, n_jobs=1, random_state=0)
    tree = DecisionTreeClassifier(max_depth=4, random_state=0)
    rest = customers[["charges", "visits"]].astype(float)
    models = {
        "churn": churn_pipeline(customers),
        "risk": booster.fit(customers[FEATURES["risk"]].astype(float), classes),
        "value": LinearRegression().fit(rest, target + rest.charges**2 / 50),
        "loyal": tree.fit(
            customers[FEATURES["loyal"]].astype(float),
            customers.visits * 3 > customers.tenure.fillna(50),
        ),
        "spare": DecisionTreeRegressor(max_depth=1).fit(rest, customers.visits > 11),
        "scale": StandardScaler().fit(rest),
        "haus": DecisionTreeRegressor(random_state=0).fit(
            haus.astype(float), haus.sum(axis=1) + rng.normal(size=40)
        ),
    }
    return Shop(customers, logins, haus, models, LinearRegression().fit(rest, target))


def _tables(con: Any, shop: Shop) -> None:
    con.register("customers_frame", shop.customers)
    con.register("logins_frame", shop.logins)
    con.register("haus_frame", shop.haus)
    con.execute(TABLES)
    for name in ("customers_frame", "logins_frame", "haus_frame"):
        con.unregister(name)


def make_databases(shop: Shop, folder: Path) -> tuple[Path, Path]:
    """Two files: one with the tables and the models, one with the tables and their scores."""
    modelled, plain = folder / "shop.duckdb", folder / "plain.duckdb"
    with sqlml.connect(modelled) as con:
        _tables(con, shop)
        con.create_model("value", shop.first_value)
        for name, model in shop.models.items():
            con.create_model(name, model, or_replace=name == "value")
    with duckdb.connect(plain) as con:
        _tables(con, shop)
        scores = shop.scores(shop.customers).assign(id=shop.customers.id)
        con.register("customers_scores", scores)
        con.register("haus_scores", shop.scores(shop.haus))
        con.execute(SCORED)
    return modelled, plain
