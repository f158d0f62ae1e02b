"""Run prediction queries with the shapes of IMBridge's, with sqlml and with what others use.

IMBridge puts models into DuckDB as Python functions over Arrow columns. Its queries join, filter
and group around a call of the model; `tables.py` names the source. What is measured, and
beside which contenders, stands in `prediction_query.py` and `contenders.py`.

    python -m benchmarks.outside.imbridge [--query NAME]... [--scale S] [--write FILE]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial

from catboost import CatBoostClassifier
from lightgbm import LGBMClassifier
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

from benchmarks.outside import tables
from benchmarks.outside.graphs import fit_factors, fit_seasons
from benchmarks.outside.prediction_query import (
    Fit,
    PredictionQuery,
    fit_pipeline,
    rank_into_classes,
    run,
)
from benchmarks.outside.tpch import make_tpch

LOGISTIC: Mapping[str, Fit] = {
    "logistic regression": fit_pipeline(partial(LogisticRegression, max_iter=100))
}
TREE: Mapping[str, Fit] = {
    "decision tree": fit_pipeline(partial(DecisionTreeClassifier, max_depth=10, random_state=0))
}
FOREST: Mapping[str, Fit] = {
    "random forest": fit_pipeline(
        partial(RandomForestClassifier, 100, max_depth=10, random_state=0)
    )
}
BOOSTED: Mapping[str, Fit] = {
    "xgboost": fit_pipeline(partial(XGBClassifier, n_estimators=100, max_depth=6, n_jobs=1)),
    "lightgbm": fit_pipeline(partial(LGBMClassifier, n_estimators=100, n_jobs=1, verbose=-1)),
    "catboost": fit_pipeline(
        partial(CatBoostClassifier, iterations=100, thread_count=1, verbose=False)
    ),
    "gradient boosting": fit_pipeline(partial(GradientBoostingClassifier, random_state=0)),
}
NETWORK: Mapping[str, Fit] = {
    "network": fit_pipeline(partial(MLPClassifier, (512, 128), max_iter=3, random_state=0))
}

_LINE = ("l_quantity", "l_extendedprice", "l_discount", "l_tax")
_CLASSES = ("o_orderstatus", "l_linestatus", "l_shipinstruct", "l_shipmode")

EXPEDIA = """
SELECT l.prop_id, l.srch_id, {p} AS p FROM listings l
JOIN hotels h ON l.prop_id = h.prop_id JOIN searches s ON l.srch_id = s.srch_id
WHERE prop_location_score1 > 1 AND prop_location_score2 > 0.1
AND prop_log_historical_price > 4 AND count_bookings > 5
AND srch_booking_window > 10 AND srch_length_of_stay > 1
"""

FLIGHTS = """
SELECT r.airlineid, r.sairportid, r.dairportid, {p} AS p FROM routes r
JOIN airlines a ON r.airlineid = a.airlineid
JOIN origins o ON r.sairportid = o.sairportid
JOIN destinations d ON r.dairportid = d.dairportid
WHERE name2 = 't' AND name4 = 't' AND name1 > 2.8
"""

TPCH_5 = """
SELECT n_name, l_extendedprice * (1 - l_discount) AS amount, {p} AS p
FROM customer, orders, lineitem, supplier, nation, region
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey
AND n_regionkey = r_regionkey AND r_name = 'ASIA'
AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'
"""

TPCH_10 = """
SELECT c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment,
l_extendedprice * (1 - l_discount) AS amount, {p} AS p
FROM customer, orders, lineitem, nation
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND c_nationkey = n_nationkey
AND o_orderdate >= DATE '1993-10-01' AND o_orderdate < DATE '1994-01-01'
"""

QUERIES: Mapping[str, PredictionQuery] = {
    "Expedia": PredictionQuery(
        lambda scale: tables.make_expedia(int(540_000 * scale), 1),
        EXPEDIA,
        "SELECT count(prop_id), count(srch_id), sum(p) FROM {rows}",
        tuple(
            "prop_location_score1 prop_location_score2 prop_log_historical_price price_usd "
            "orig_destination_distance prop_review_score avg_bookings_usd "
            "stdev_bookings_usd".split()
        ),
        tuple(
            "position prop_country_id prop_starrating prop_brand_bool count_clicks count_bookings "
            "year month weekofyear time site_id visitor_location_country_id srch_destination_id "
            "srch_length_of_stay srch_booking_window srch_adults_count srch_children_count "
            "srch_room_count srch_saturday_night_bool random_bool".split()
        ),
        lambda rows: rank_into_classes(
            rows, ("price_usd", "prop_country_id", "srch_room_count"), 2
        ),
        {**TREE, **LOGISTIC},
    ),
    "Flights": PredictionQuery(
        lambda scale: tables.make_flights(int(600_000 * scale), 2),
        FLIGHTS,
        "SELECT count(airlineid), count(sairportid), count(dairportid), sum(p) FROM {rows}",
        ("slatitude", "slongitude", "dlatitude", "dlongitude"),
        tuple(
            "name1 name2 name4 acountry active scity scountry stimezone sdst dcity dcountry "
            "dtimezone ddst".split()
        ),
        partial(rank_into_classes, columns=("slatitude", "acountry", "dcountry"), classes=2),
        FOREST,
    ),
    "Credit Card": PredictionQuery(
        lambda scale: tables.make_credit_card(int(2_000_000 * scale), 3),
        "SELECT seconds, amount, {p} AS p FROM card WHERE v1 > 1 AND v2 < 0.27 AND v3 > 0.3",
        "SELECT count(seconds), count(amount), sum(p) FROM {rows}",
        (*(f"v{k}" for k in range(1, 29)), "amount"),
        (),
        partial(rank_into_classes, columns=("v4", "v12", "amount"), classes=2),
        {**BOOSTED, **LOGISTIC},
    ),
    "Hospital": PredictionQuery(
        lambda scale: tables.make_hospital(int(200_000 * scale), 4),
        "SELECT eid, {p} AS p FROM stays WHERE n0 > 0",
        "SELECT count(eid), sum(p) FROM {rows}",
        tuple(f"n{k}" for k in range(9)),
        ("rcount", "gender", "facid", *(f"flag{k}" for k in range(12))),
        partial(rank_into_classes, columns=("n1", "n2", "rcount"), classes=17),
        {**LOGISTIC, **NETWORK},
    ),
    "TPC-H 5": PredictionQuery(
        make_tpch,
        TPCH_5,
        "SELECT n_name, sum(amount) AS revenue FROM {rows} WHERE p = 1 GROUP BY n_name "
        "ORDER BY revenue DESC",
        ("c_acctbal", "o_totalprice", *_LINE, "s_acctbal"),
        (*_CLASSES, "l_returnflag", "n_nationkey", "n_regionkey"),
        partial(rank_into_classes, columns=("o_totalprice", "l_shipmode", "l_quantity"), classes=5),
        NETWORK,
    ),
    "TPC-H 10": PredictionQuery(
        make_tpch,
        TPCH_10,
        "SELECT c_custkey, c_name, sum(amount) AS revenue, c_acctbal, n_name, c_address, c_phone, "
        "c_comment FROM {rows} WHERE p = 'R' GROUP BY ALL ORDER BY revenue DESC",
        ("c_acctbal", "o_totalprice", *_LINE),
        (*_CLASSES, "o_orderpriority", "n_nationkey", "n_regionkey"),
        tables.label_returns,
        {"lightgbm": BOOSTED["lightgbm"]},
        result="VARCHAR",
        placeholder="if({hash} % 4 = 0, 'R', 'N')",
    ),
    "TPCx-AI 3": PredictionQuery(
        lambda scale: tables.make_sales(int(1_000_000 * scale), 6),
        "SELECT store, department, week, {p} AS p FROM sales JOIN departments USING (department)",
        "SELECT store, count(*), sum(p) FROM {rows} GROUP BY store",
        (),
        ("store", "department", "week"),
        None,
        {"seasonal forecasts": fit_seasons},
        result="DOUBLE",
    ),
    "TPCx-AI 4": PredictionQuery(
        lambda scale: tables.make_reviews(int(50_000 * scale), 5),
        "SELECT id, {p} AS p FROM reviews",
        "SELECT count(id), sum(p) FROM {rows}",
        (),
        ("txt",),
        partial(rank_into_classes, columns=("txt",), classes=2),
        {"naive Bayes": fit_pipeline(MultinomialNB)},
    ),
    "TPCx-AI 7": PredictionQuery(
        lambda scale: tables.make_ratings(int(2_000_000 * scale), 7),
        "SELECT userid, productid, {p} AS p FROM ratings WHERE rating > 3",
        "SELECT userid % 10 AS part, count(*), sum(p) FROM {rows} GROUP BY part",
        (),
        ("userid", "productid"),
        None,
        {"factors": fit_factors},
        result="DOUBLE",
    ),
}


def main(arguments: list[str] | None = None) -> int:
    return run("outside.imbridge", __doc__, QUERIES, arguments)


if __name__ == "__main__":
    sys.exit(main())
