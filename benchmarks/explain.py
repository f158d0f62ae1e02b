"""Exact contributions of trees, beside XGBoost's and LightGBM's own and the shap package.

28 columns of floats, 3% of them missing where the library takes that. XGBoost and LightGBM run on
as many threads as sqlml; shap's TreeExplainer has one, and so has sqlml beside it. Contributions
must agree within 2e-6 of a row's largest (XGBoost adds up in float32), or 1e-6. Evaluation, a model
per row and estimated contributions are in `insight.py`.

    python -m benchmarks.explain [--rows N] [--case NAME]... [--write FILE]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import lightgbm
import numpy as np
import numpy.typing as npt
import shap
import xgboost
from sklearn.ensemble import RandomForestRegressor

import sqlml
from benchmarks.compare import Difference
from benchmarks.insight import OTHERS
from benchmarks.results import Row, line, parser, row_of, save, status, with_ratios
from benchmarks.rounds import best_calls

COLUMNS = 28
Numbers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Explained:
    """A model, what its library says of rows, and how far that may lie from what sqlml says.

    share: of the rows that are explained, of those that the command line asks for. bar: how many
    times as fast as the library sqlml has to be. missing: the model takes rows with gaps.
    """

    model: Any
    library: Callable[[Numbers], Any]
    threads: int
    bound: float
    share: float
    bar: float
    missing: bool = True


def rows_of(count: int, seed: int, missing: bool) -> Numbers:
    """Rows of normal numbers."""
    draw = np.random.default_rng(seed)
    made = draw.normal(size=(count, COLUMNS)).astype(np.float32)
    if missing:
        made[draw.random(made.shape) < 0.03] = np.nan
    return made


def _labels(rows: Numbers, seed: int) -> Numbers:
    known = np.nan_to_num(rows)
    noise = np.random.default_rng(seed).normal(size=len(rows))
    made: Numbers = known[:, 0] * known[:, 1] + known[:, 2] + noise
    return made


def of_xgboost(depth: int, trees: int, share: float, options: Any) -> Explained:
    """A classifier of XGBoost."""
    train = rows_of(options.train, options.seed, True)
    model = xgboost.XGBClassifier(
        n_estimators=trees, max_depth=depth, learning_rate=0.1, n_jobs=options.threads
    ).fit(train, _labels(train, options.seed) > 0)
    booster = model.get_booster()
    booster.set_param({"nthread": options.threads})
    return Explained(
        model,
        lambda rows: booster.predict(xgboost.DMatrix(rows), pred_contribs=True),
        options.threads,
        2e-6,
        share,
        20,
    )


def of_lightgbm(leaves: int, trees: int, share: float, options: Any) -> Explained:
    """A classifier of LightGBM."""
    train = rows_of(options.train, options.seed, True)
    model = lightgbm.LGBMClassifier(
        n_estimators=trees, num_leaves=leaves, n_jobs=options.threads, verbose=-1
    ).fit(train, _labels(train, options.seed) > 0)
    booster = model.booster_
    says = partial(booster.predict, pred_contrib=True, num_threads=options.threads)
    return Explained(model, says, options.threads, 1e-6, share, 10)


def of_forest(depth: int, trees: int, share: float, options: Any) -> Explained:
    """A forest of scikit-learn, explained by shap."""
    train = rows_of(options.train, options.seed, False)
    model = RandomForestRegressor(trees, max_depth=depth, n_jobs=options.threads, random_state=0)
    model.fit(train, _labels(train, options.seed))
    explainer = shap.TreeExplainer(model)

    def says(rows: Numbers) -> Numbers:
        values = explainer.shap_values(rows, check_additivity=False)
        base = np.full((len(rows), 1), np.atleast_1d(explainer.expected_value)[0])
        return np.concatenate([values, base], axis=1)

    return Explained(model, says, 1, 1e-6, share, 20, missing=False)


CASES: Mapping[str, Callable[[Any], Explained]] = {
    "xgboost, 100 trees of depth 4": partial(of_xgboost, 4, 100, 1.0),
    "xgboost, 500 trees of depth 4": partial(of_xgboost, 4, 500, 1.0),
    "xgboost, 100 trees of depth 6": partial(of_xgboost, 6, 100, 1.0),
    "xgboost, 500 trees of depth 6": partial(of_xgboost, 6, 500, 0.25),
    "xgboost, 100 trees of depth 8": partial(of_xgboost, 8, 100, 0.25),
    "xgboost, 500 trees of depth 8": partial(of_xgboost, 8, 500, 0.05),
    "lightgbm, 100 trees of 31 leaves": partial(of_lightgbm, 31, 100, 1.0),
    "lightgbm, 500 trees of 63 leaves": partial(of_lightgbm, 63, 500, 0.25),
    "forest, 100 trees of depth 6": partial(of_forest, 6, 100, 1.0),
    "forest, 100 trees of depth 12": partial(of_forest, 12, 100, 0.05),
}
"""Models of which rows are explained."""


def apart(got: Numbers, want: Numbers) -> Difference:
    """The largest difference, and relative to each row's largest contribution."""
    difference = np.abs(got - want).max(axis=1)
    largest = np.abs(want[:, :-1]).max(axis=1)
    return Difference(float(difference.max()), float((difference / largest).max()), 0.0, None)


def measure(name: str, options: Any) -> list[Row]:
    """Times of one model: sqlml's and its library's."""
    case = CASES[name](options)
    count = max(1, int(options.rows * case.share))
    rows = rows_of(count, options.seed + 1, missing=case.missing)
    scorer = sqlml.compile(case.model, threads=case.threads)

    def ours() -> Numbers:
        made = scorer.explain(rows)
        return np.concatenate([made.values, made.baseline[:, None]], axis=1)

    found = apart(ours(), np.asarray(case.library(rows), np.float64))
    ways: Mapping[str, Callable[[], Any]] = {
        "sqlml": ours,
        "library": lambda: case.library(rows),
    }
    times = best_calls(
        list(ways.values()), options.rounds, least=options.least, patience=options.patience
    )
    told = {"model": name, "mode": "contributions", "rows": len(rows), "bar": case.bar}
    made = [
        row_of(
            told,
            way,
            threads=case.threads,
            ns=time.seconds / len(rows) * 1e9,
            rounds=time.rounds,
            difference=found if way == "sqlml" else None,
        )
        for way, time in zip(ways, times, strict=True)
    ]
    made[0] = replace(made[0], exact=found.relative <= case.bound)
    return with_ratios(made)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a line for each contender, and write a JSON file when asked to."""
    made = parser("explain", __doc__)
    made.add_argument("--train", type=int, default=20_000, help="rows to fit on")
    made.add_argument("--rows", type=int, default=20_000, help="to explain, of the smaller models")
    made.add_argument("--evaluated", type=int, default=10_000_000, help="rows of ml_evaluate")
    made.add_argument("--routed", type=int, default=1_000_000, help="rows with a model each")
    made.add_argument("--models", type=int, default=1_000, help="that these rows name")
    made.add_argument("--case", action="append", choices=(*CASES, *OTHERS), help="default: all")
    options = made.parse_args(arguments)
    kept: list[Row] = []
    for name in options.case or (*CASES, *OTHERS):
        rows = OTHERS[name](options) if name in OTHERS else measure(name, options)
        kept += rows
        save("explain", options, kept)
        print(f"{name}:")
        print("\n".join(map(line, rows)), flush=True)
    return status(kept)


if __name__ == "__main__":
    sys.exit(main())
