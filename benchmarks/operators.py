"""The thirteen operators of Hummingbird's tables 11 and 12.

As in the paper they are fitted on the Iris data with 20 features (its four, and sixteen made of
them by adding noise), and score a million rows, and single rows on one thread.

    python -m benchmarks.operators [--operator NAME].. [--contender NAME].. [--write FILE]
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import BernoulliNB
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import (
    Binarizer,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.svm import SVC, LinearSVC, NuSVC
from sklearn.tree import DecisionTreeClassifier

from benchmarks.contest import ONE_ROW, Effort, chosen, field, one_by_one, timed, whole
from benchmarks.models import CACHE, Subject
from benchmarks.peers import PEERS, Setting
from benchmarks.results import Row, line, parser, save, status, with_ratios
from benchmarks.tables import Matrix

OPERATORS: Mapping[str, Callable[[], Any]] = {
    "LogisticRegression": lambda: LogisticRegression(),
    "SGDClassifier": lambda: SGDClassifier(random_state=0),
    "LinearSVC": lambda: LinearSVC(random_state=0),
    "NuSVC": lambda: NuSVC(random_state=0),
    "SVC": lambda: SVC(random_state=0),
    "BernoulliNB": lambda: BernoulliNB(),
    "MLPClassifier": lambda: MLPClassifier(random_state=0),
    "DecisionTreeClassifier": lambda: DecisionTreeClassifier(random_state=0),
    "Binarizer": lambda: Binarizer(threshold=1.0),
    "MinMaxScaler": lambda: MinMaxScaler(),
    "Normalizer": lambda: Normalizer(),
    "PolynomialFeatures": lambda: PolynomialFeatures(),
    "StandardScaler": lambda: StandardScaler(),
}

DTYPES = ("float32", "float64")
"""What the rows hold. sqlml's answer is float64 for either; of float32 others make float32."""


def iris(rows: int, features: int, seed: int) -> tuple[Matrix, np.ndarray[Any, Any]]:
    """`rows` flowers: those of Iris over and over, with noise, and as many columns as asked for."""
    known, species = load_iris(return_X_y=True)
    rng = np.random.default_rng(seed)
    at = rng.integers(0, len(known), rows)
    copies = -(-features // known.shape[1])
    x = np.tile(known.astype(np.float32)[at], copies)[:, :features]
    x += rng.normal(scale=0.3, size=x.shape).astype(np.float32)
    return np.ascontiguousarray(x), species[at]


def measure(name: str, dtype: str, options: argparse.Namespace) -> Iterator[list[Row]]:
    """The rows of a million at a time, and of one, that hold float32 or float64."""
    train, species = iris(options.train, options.features, options.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a network has not converged is no matter here
        model = OPERATORS[name]().fit(train.astype(np.float64), species)
    scores = ("transform", "predict_proba", "predict")
    method = next(m for m in scores if hasattr(model, m))
    key = f"{name}-iris-{dtype}-{options.train}x{options.features}-{options.seed}"
    labels = method != "transform"
    train = train.astype(dtype)
    subject = Subject(model, "scikit-learn", method, labels, key, (train, species))
    kernel = name in ("NuSVC", "SVC")
    rows = min(options.rows, options.kernel_rows) if kernel else options.rows
    x = iris(rows, options.features, options.seed + 1)[0].astype(dtype)
    names = chosen(options.contender, trees=False)
    names = [n for n in names if n not in (options.without or ())]
    effort = Effort(options.rounds, options.least, options.patience)
    about = {"operator": name, "method": method, "dtype": dtype, "features": options.features}
    many = field(subject, names, Setting(options.threads, cache=options.cache), x)
    case = {**about, "mode": "batch", "rows": rows}
    yield timed(many, case, rows, whole(x), effort)
    single = field(subject, names, Setting(1, cache=options.cache), x[:ONE_ROW])
    case = {**about, "mode": "one row", "rows": 1}
    yield timed(single, case, len(x[:ONE_ROW]), one_by_one(x[:ONE_ROW]), effort)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a line for each contender, and write a JSON file when asked to."""
    made = parser("operators", __doc__.partition("\n")[0])
    made.add_argument("--rows", type=int, default=1_000_000)
    made.add_argument("--kernel-rows", type=int, default=200_000, help="of NuSVC and SVC")
    made.add_argument("--features", type=int, default=20)
    made.add_argument("--train", type=int, default=300, help="rows to fit on: bounds the vectors")
    made.add_argument("--operator", action="append", choices=list(OPERATORS), help="default: all")
    made.add_argument("--dtype", action="append", choices=DTYPES, help="of the rows; default: both")
    made.add_argument("--contender", action="append", choices=list(PEERS), help="default: most")
    made.add_argument("--without", action="append", choices=list(PEERS), help="leave it out")
    made.add_argument("--cache", type=Path, default=CACHE, help="folder of fitted models")
    options = made.parse_args(arguments)
    rows: list[Row] = []
    for dtype in options.dtype or DTYPES:
        for name in options.operator or OPERATORS:
            for part in measure(name, dtype, options):
                compared = with_ratios(part)
                rows += compared
                save("operators", options, rows)
                case = compared[0].case
                print(f"{name}.{case['method']}, {dtype}, {case['mode']} ({case['rows']:,}):")
                print("\n".join(line(row) for row in compared), flush=True)
    return status(rows)


if __name__ == "__main__":
    sys.exit(main())
