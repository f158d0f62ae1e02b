"""Filters on predictions of trees, with the shapes of ReTree's queries.

ReTree reads a filter on the prediction of a decision tree as a filter on the columns that the tree
reads. Its queries join tables of TPC-H, flights, stays in a hospital, and taxi rides, and keep the
rows whose prediction is above a number or equal to a label. What is measured, and beside which
contenders, stands in `prediction_query.py` and `contenders.py`.

    python -m benchmarks.outside.retree [--query NAME]... [--scale S] [--write FILE]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from benchmarks.outside import tables
from benchmarks.outside.imbridge import FLIGHTS, TPCH_5, TPCH_10
from benchmarks.outside.prediction_query import (
    Fit,
    PredictionQuery,
    fit_pipeline,
    rank_into_classes,
    run,
)
from benchmarks.outside.tpch import make_tpch

CLASSIFIERS: Mapping[str, Fit] = {
    "decision tree": fit_pipeline(partial(DecisionTreeClassifier, max_depth=8, random_state=0)),
    "lightgbm": fit_pipeline(partial(LGBMClassifier, n_estimators=50, n_jobs=1, verbose=-1)),
}
REGRESSORS: Mapping[str, Fit] = {
    "decision tree": fit_pipeline(partial(DecisionTreeRegressor, max_depth=8, random_state=0)),
    "lightgbm": fit_pipeline(partial(LGBMRegressor, n_estimators=50, n_jobs=1, verbose=-1)),
}

NUMBER, LABEL = "({hash} % 1000) / 1000.0", "if({hash} % 3 = 0, 'late', 'early')"
"""Expressions that replace a prediction in the queries without a model."""

TPCH_9 = """
SELECT n_name, year(o_orderdate) AS o_year,
l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount, {p} AS p
FROM part, supplier, lineitem, partsupp, orders, nation
WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey
AND p_partkey = l_partkey AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey
AND p_name LIKE '%green%'
"""

TAXI = """
SELECT zone, fare, {p} AS p FROM rides JOIN zones USING (zone_id) WHERE passengers > 0
"""

_LINE = ("l_quantity", "l_extendedprice", "l_discount", "l_tax")


def _value(frame: pd.DataFrame, columns: Sequence[str]) -> Any:
    """Return numbers from 0 to 1 that depend on the columns."""
    return rank_into_classes(frame, columns, 1000) / 1000.0


def _label(frame: pd.DataFrame, columns: Sequence[str]) -> Any:
    """Return one of three labels, which depends on the columns."""
    return np.array(["early", "late", "on time"])[rank_into_classes(frame, columns, 3)]


QUERIES: Mapping[str, PredictionQuery] = {
    "TPC-H 5": PredictionQuery(
        make_tpch,
        TPCH_5,
        "SELECT n_name, sum(amount) AS revenue FROM {rows} WHERE p > 0.9 GROUP BY n_name "
        "ORDER BY revenue DESC",
        ("c_acctbal", "o_totalprice", *_LINE, "s_acctbal"),
        (),
        partial(_value, columns=("o_totalprice", "l_quantity", "s_acctbal")),
        REGRESSORS,
        result="DOUBLE",
        placeholder=NUMBER,
    ),
    "TPC-H 9": PredictionQuery(
        make_tpch,
        TPCH_9,
        "SELECT n_name, o_year, sum(amount) AS profit FROM {rows} WHERE p > 0.9 "
        "GROUP BY n_name, o_year ORDER BY n_name, o_year DESC",
        (*_LINE, "ps_supplycost", "ps_availqty", "p_retailprice", "p_size"),
        (),
        partial(_value, columns=("l_quantity", "ps_supplycost", "p_retailprice")),
        REGRESSORS,
        result="DOUBLE",
        placeholder=NUMBER,
    ),
    "TPC-H 10": PredictionQuery(
        make_tpch,
        TPCH_10,
        "SELECT c_custkey, c_name, sum(amount) AS revenue FROM {rows} WHERE p = 'late' "
        "GROUP BY ALL ORDER BY revenue DESC LIMIT 20",
        ("c_acctbal", "o_totalprice", *_LINE),
        ("l_shipmode", "o_orderpriority"),
        partial(_label, columns=("l_quantity", "l_shipmode", "o_totalprice")),
        CLASSIFIERS,
        result="VARCHAR",
        placeholder=LABEL,
    ),
    "flights": PredictionQuery(
        lambda scale: tables.make_flights(int(2_000_000 * scale), 2),
        FLIGHTS,
        "SELECT count(*) FROM {rows} WHERE p = 'late'",
        ("slatitude", "slongitude", "dlatitude", "dlongitude", "name1"),
        ("acountry", "active"),
        partial(_label, columns=("slatitude", "acountry", "dlatitude")),
        CLASSIFIERS,
        result="VARCHAR",
        placeholder=LABEL,
    ),
    "hospital": PredictionQuery(
        lambda scale: tables.make_hospital(int(2_000_000 * scale), 4),
        "SELECT eid, {p} AS p FROM stays WHERE n0 > 0",
        "SELECT count(*), sum(p) FROM {rows} WHERE p > 0.9",
        tuple(f"n{k}" for k in range(9)),
        ("rcount", "gender", "facid"),
        partial(_value, columns=("n1", "n2", "rcount")),
        REGRESSORS,
        result="DOUBLE",
        placeholder=NUMBER,
    ),
    "taxi": PredictionQuery(
        lambda scale: tables.make_rides(int(4_000_000 * scale), 8),
        TAXI,
        "SELECT zone, count(*), sum(fare) FROM {rows} WHERE p > 0.95 GROUP BY zone",
        ("distance", "fare", "pickup_hour", "pickup_day", "passengers", "tolls"),
        ("payment",),
        partial(_value, columns=("fare", "distance", "payment")),
        REGRESSORS,
        result="DOUBLE",
        placeholder=NUMBER,
    ),
}


def main(arguments: list[str] | None = None) -> int:
    return run("outside.retree", __doc__, QUERIES, arguments)


if __name__ == "__main__":
    sys.exit(main())
