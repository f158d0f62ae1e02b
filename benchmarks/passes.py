"""`make bench-passes`: what feature selection, pushed down and injected, saves.

The two experiments of Hummingbird's section 6.2.2 (figures 9 and 10), on a table like Nomao's: 119
columns, 89 of numbers with gaps and 30 of categories. A pipeline imputes, scales and one-hot
encodes them and fits a logistic regression

* on the best percentile of its features (SelectPercentile), with an L2 penalty; or
* on all of them with an L1 penalty, whose zero weights sqlml turns into a selection.

In turns, best of several rounds: scikit-learn's predict_proba on the frame, our Program as it was
imported, and the same Program after the passes, both on the native backend. Probabilities are
compared first. `columns` is how many columns of the table the Program still reads.

    python -m benchmarks.passes [--rows N] [--rounds N] [--write FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.feature_selection import SelectPercentile, f_classif
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.machine import machine
from benchmarks.rounds import best_times
from sqlml.backends.base import load_backend
from sqlml.importers.registry import import_model
from sqlml.passes import run, select_outputs

NUMBERS, CATEGORIES = 89, 30
PERCENTILES = (1, 2, 5, 10, 20, 40, 60, 80, 100)
STRENGTHS = (0.0005, 0.001, 0.005, 0.01, 0.1, 1.0)
TRAINING_ROWS = 10_000

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Timing:
    """Best times in seconds for all rows."""

    experiment: str
    setting: float
    columns: int
    library: float
    unoptimised: float
    optimised: float


def table(rows: int, seed: int) -> tuple[pd.DataFrame, Array]:
    """Rows of the Nomao-like table, and whether two records are the same place."""
    rng = np.random.default_rng(seed)
    numbers = rng.random((rows, NUMBERS))
    signal = numbers[:, :6] @ np.array([3.0, -2.0, 1.5, 1.0, -1.0, 0.5])
    numbers[rng.random(numbers.shape) < 0.1] = np.nan
    codes = rng.integers(0, 3, (rows, CATEGORIES))
    signal = signal + 0.8 * (codes[:, 0] == 1) - 0.6 * (codes[:, 1] == 2)
    columns: dict[str, Any] = {f"n{i}": numbers[:, i] for i in range(NUMBERS)}
    for i in range(CATEGORIES):
        columns[f"c{i}"] = np.array(["n", "s", "m"], object)[codes[:, i]]
    noisy = signal + rng.normal(0, 0.5, rows)
    return pd.DataFrame(columns), (noisy > np.median(noisy)).astype(np.int64)


def featurised() -> Any:
    """Imputation and scaling of numbers, one-hot encoding of categories."""
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    return make_column_transformer(
        (numbers, [f"n{i}" for i in range(NUMBERS)]),
        (OneHotEncoder(handle_unknown="ignore"), [f"c{i}" for i in range(CATEGORIES)]),
    )


def pipelines() -> dict[tuple[str, float], Any]:
    """(experiment, setting) -> the unfitted pipeline."""
    made: dict[tuple[str, float], Any] = {}
    for percentile in PERCENTILES:
        made["push-down, percentile", percentile] = make_pipeline(
            featurised(), SelectPercentile(f_classif, percentile=percentile), LogisticRegression()
        )
    for strength in STRENGTHS:
        made["injection, L1 with C", strength] = make_pipeline(
            featurised(), LogisticRegression(C=strength, l1_ratio=1, solver="liblinear")
        )
    return made


def measure(key: tuple[str, float], model: Any, rows: int, rounds: int) -> Timing:
    """Fit, compare, and time the three ways."""
    train, labels = table(TRAINING_ROWS, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(train, labels)
    frame, _ = table(rows, seed=1)
    program = select_outputs(import_model(model).program, ["proba"])
    optimised = run(program)
    backend = load_backend("native")
    before, after = backend.compile(program), backend.compile(optimised)
    inputs: Mapping[str, Array] = {name: frame[name].to_numpy(object) for name in frame}
    inputs = {n: v if n[0] == "c" else v.astype(np.float64) for n, v in inputs.items()}
    ways: tuple[Callable[[], Array], ...] = (
        lambda: np.asarray(model.predict_proba(frame)),
        lambda: before.run(inputs)["proba"],
        lambda: after.run(inputs)["proba"],
    )
    library, *ours = [way() for way in ways]
    for probabilities in ours:
        if not np.allclose(probabilities, library, rtol=1e-9, atol=1e-12):
            sys.exit(f"{key}: probabilities differ by {np.abs(probabilities - library).max():g}")
    best = best_times(ways, rounds)
    return Timing(*key, len(optimised.inputs), *best)


def main(arguments: list[str] | None = None) -> None:
    """Measure, print one line per setting, and write a JSON file when asked to."""
    parser = argparse.ArgumentParser(prog="benchmarks.passes")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", type=Path, metavar="FILE", help="keep the results as JSON")
    chosen = parser.parse_args(arguments)
    print(f"{chosen.rows:,} rows of {NUMBERS + CATEGORIES} columns, ms, best of {chosen.rounds}")
    print(f"{'':<32}{'columns':>8}{'library':>10}{'before':>10}{'after':>10}{'':>8}{'':>8}")
    timings = []
    for key, model in pipelines().items():
        t = measure(key, model, chosen.rows, chosen.rounds)
        timings.append(t)
        times = "".join(f"{s * 1e3:>10,.1f}" for s in (t.library, t.unoptimised, t.optimised))
        print(
            f"{key[0] + ' ' + format(key[1], 'g'):<32}{t.columns:>8}{times}"
            f"{t.unoptimised / t.optimised:>7.1f}x{t.library / t.optimised:>7.1f}x",
            flush=True,
        )
    if chosen.write:
        result = {"machine": machine(), "timings": [asdict(t) for t in timings]}
        chosen.write.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
