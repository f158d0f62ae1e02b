"""`make bench`: rows per second of scoring, by the source library and by sqlml.

For each model, over the same rows, in turns, the best of several rounds of

* the source library's own `predict_proba` on a numpy array,
* `sqlml.compile(model).predict_proba` on the same array,
* the same model as a SQL function over a DuckDB table of FLOAT columns, and
* what that table costs without it: fetch a frame, `predict_proba`, write the frame back.

    python -m benchmarks.scoring [--rows N] [--rounds N] [--model NAME]... [--write FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost import XGBClassifier

import sqlml
from benchmarks.machine import machine
from benchmarks.rounds import best_times

FEATURES = 28
TRAINING_ROWS = 20_000

Matrix = npt.NDArray[np.float32]

MODELS: Mapping[str, Callable[[], Any]] = {
    "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "forest": lambda: RandomForestClassifier(100, max_depth=8, n_jobs=-1, random_state=0),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=50, random_state=0),
    "hist_boosting": lambda: HistGradientBoostingClassifier(max_iter=100, random_state=0),
    "xgboost": lambda: XGBClassifier(n_estimators=500, max_depth=8, random_state=0),
    "lightgbm": lambda: LGBMClassifier(
        n_estimators=500, num_leaves=255, max_depth=8, random_state=0, verbose=-1
    ),
}


@dataclass(frozen=True, slots=True)
class Timing:
    """Best times in seconds for all rows, and the largest difference of any probability."""

    model: str
    rows: int
    library: float
    compiled: float
    by_frame: float
    in_sql: float
    largest_difference: float


def data(rows: int, seed: int) -> tuple[Matrix, npt.NDArray[np.int64]]:
    """Rows of `FEATURES` floats, of which a few decide the class together, with noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, FEATURES)).astype(np.float32)
    signal = x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + np.abs(x[:, 3]) - 0.8
    return x, (signal + rng.normal(scale=0.3, size=rows) > 0).astype(np.int64)


def measure(name: str, rows: int, rounds: int) -> Timing:
    """Fit the model, and time each way of scoring `rows` rows with it."""
    train, labels = data(TRAINING_ROWS, seed=0)
    model = MODELS[name]().fit(train, labels)
    x, _ = data(rows, seed=1)
    columns = [f"f{i}" for i in range(FEATURES)]
    scorer = sqlml.compile(model)
    with sqlml.connect(":memory:") as con:
        con.register("matrix", pd.DataFrame(x, columns=columns))
        con.execute("CREATE TABLE points AS FROM matrix")
        con.unregister("matrix")
        con.create_model("m", model, inputs=columns)

        def by_frame() -> None:
            frame = con.execute("SELECT * FROM points").df()
            frame["p"] = model.predict_proba(frame.to_numpy())[:, 1]
            con.register("scored", frame[["p"]])
            con.execute("CREATE OR REPLACE TABLE scores AS FROM scored")
            con.unregister("scored")

        def in_sql() -> None:
            con.execute(
                "CREATE OR REPLACE TABLE scores AS "
                "SELECT predict_proba('m', *, class := 1) AS p FROM points"
            )

        ways: tuple[Callable[[], Any], ...] = (
            lambda: model.predict_proba(x),
            lambda: scorer.predict_proba(x),
            by_frame,
            in_sql,
        )
        for way in ways:
            way()  # compiles what needs compiling
        best = best_times(ways, rounds)
        scores = con.execute("SELECT p FROM scores").fetchnumpy()["p"]
    difference = float(np.abs(scores - model.predict_proba(x)[:, 1]).max(initial=0.0))
    return Timing(name, rows, best[0], best[1], best[2], best[3], difference)


def main(arguments: list[str] | None = None) -> None:
    """Measure, print one line per model, and write a JSON file when asked to."""
    parser = argparse.ArgumentParser(prog="benchmarks.scoring")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", action="append", choices=list(MODELS), help="default: all")
    parser.add_argument("--write", type=Path, metavar="FILE", help="keep the results as JSON")
    chosen = parser.parse_args(arguments)

    print(f"{chosen.rows:,} rows of {FEATURES} features, ns per row, best of {chosen.rounds}")
    print(f"{'':<14}{'library':>10}{'compiled':>10}{'':>8}{'by frame':>10}{'SQL':>10}{'':>8}")
    timings = []
    for name in chosen.model or MODELS:
        t = measure(name, chosen.rows, chosen.rounds)
        timings.append(t)
        library, compiled, by_frame, in_sql = (
            f"{seconds / t.rows * 1e9:>10,.0f}"
            for seconds in (t.library, t.compiled, t.by_frame, t.in_sql)
        )
        print(
            f"{name:<14}{library}{compiled}{t.library / t.compiled:>7.1f}x"
            f"{by_frame}{in_sql}{t.by_frame / t.in_sql:>7.1f}x",
            flush=True,
        )
        if not t.largest_difference <= 1e-6:
            sys.exit(f"{name}: probabilities differ by {t.largest_difference:g}")
    if chosen.write:
        result = {"machine": machine(), "timings": [asdict(t) for t in timings]}
        chosen.write.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
