"""How long a process takes to its first prediction, of ten rows: medians of some processes.

Three kinds of process: the first one on a machine (an empty cache folder) where a wheel has brought
kernels, the first one where they are compiled meanwhile, as in a checkout, and later ones, which
load them; and of each the ways there are, `sqlml.compile(model)` with `predict_proba`, and a query
of a model that is stored in a database. What is measured is the first prediction when sqlml and
DuckDB are imported, the model is loaded, and the scorer or session is open. The asked times are 2 s
for the first prediction on a machine, and 0.2 s for that of a later process.

    python -m benchmarks.starting [--rounds N] [--model NAME]... [--write FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from xgboost import XGBClassifier

import sqlml
from benchmarks.results import parser, save, status
from benchmarks.tables import table
from sqlml.backends.no_wait import WAIT

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "package"

ROWS = 10
WORDS = 500


@dataclass(frozen=True, slots=True)
class Start:
    """Medians in seconds of one kind of process; see `starting_child.py` for the parts.

    ready: from the second prediction until no kernel was missing. compiled: whether one was missing
    after the second prediction. numba: whether it was loaded.
    """

    case: Mapping[str, Any]
    contender: str
    exact: bool
    imported: float
    model: float
    open: float
    first: float
    second: float
    ready: float
    compiled: bool
    numba: bool
    reason: str | None = None


def numbers(options: argparse.Namespace) -> tuple[Any, Any]:
    """Rows of numbers and their classes."""
    return table("higgs", options.train, options.seed)


def texts(options: argparse.Namespace) -> tuple[Any, Any]:
    """Texts of twenty words, (rows, 1), and their classes."""
    rng = np.random.default_rng(options.seed)
    words = np.array([f"word{i}" for i in range(WORDS)])
    chosen = rng.integers(WORDS, size=(options.train, 20))
    x = np.array([" ".join(words[row]) for row in chosen], object)
    return x, (chosen < WORDS // 4).sum(axis=1) > 5


Make = Callable[[argparse.Namespace], tuple[Any, Any]]
MODELS: Mapping[str, tuple[Make, Callable[[argparse.Namespace], Any]]] = {
    "logistic regression": (numbers, lambda options: LogisticRegression()),
    "random forest": (numbers, lambda options: RandomForestClassifier(options.trees, n_jobs=-1)),
    "histogram boosting": (numbers, lambda options: HistGradientBoostingClassifier()),
    "xgboost": (numbers, lambda options: XGBClassifier(n_estimators=5 * options.trees)),
    "text": (texts, lambda options: make_pipeline(TfidfVectorizer(), LogisticRegression())),
}


def measure(name: str, options: argparse.Namespace, folder: Path) -> Iterator[Start]:
    """All kinds of process of one model."""
    rows_of, unfitted = MODELS[name]
    x, y = rows_of(options)
    model = unfitted(options).fit(x, y)
    ours, want = x[:ROWS], model.predict_proba(x[:ROWS])[:, 1]
    is_text = x.ndim == 1
    names = ["text"] if is_text else [f"f{i}" for i in range(x.shape[1])]
    paths = {way: folder / f"{name}.{way}" for way in ("model", "rows", "duckdb")}
    paths["model"].write_bytes(pickle.dumps(model))
    paths["rows"].write_bytes(pickle.dumps(ours.reshape(ROWS, -1)))
    with sqlml.connect(str(paths["duckdb"])) as con:
        con.register("matrix", pd.DataFrame(ours.reshape(ROWS, -1), columns=names))
        con.execute("CREATE TABLE t AS FROM matrix")
        con.unregister("matrix")
        con.create_model("m", model, inputs=names)
    query = f"SELECT predict_proba('m', {', '.join(names)}, class := {_quoted(y)}) AS p FROM t"
    commands = {
        "scorer": ["scorer", str(paths["model"]), str(paths["rows"])],
        "query": ["query", str(paths["duckdb"]), query],
    }
    for way, command in commands.items():
        case = {"model": name, "way": way}
        kept = folder / f"{name} {way} kernels"
        run(command, kept, folder)  # and Python's own compiled files
        later = [run(command, kept, folder) for _ in range(options.rounds)]
        for process, place in (("first", folder / PACKAGE), ("first, compiling", ROOT)):
            fresh = (folder / f"{name} {way} {process} {i}" for i in range(options.rounds))
            first = [run(command, empty, folder, place) for empty in fresh]
            yield summed({**case, "process": process}, first, want)
        yield summed({**case, "process": "later"}, later, want)


def _quoted(classes: Any) -> str:
    return "true" if classes.dtype == bool else "1"


def package(folder: Path) -> None:
    """Write a copy of sqlml to a folder, with kernels as a wheel has them."""
    for name in ("sqlml", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    built = folder / "sqlml" / "backends" / "native" / "jit" / "built"
    command = [sys.executable, "-m", "sqlml.backends.native.jit.compile_ahead", str(built)]
    subprocess.run(command, cwd=folder, check=True)


def run(command: list[str], kernels: Path, folder: Path, place: Path = ROOT) -> Any:
    """What a process of the sqlml at a place says whose kernels lie in a folder.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    env = {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env |= {"NUMBA_CACHE_DIR": str(kernels), "PYTHONPYCACHEPREFIX": str(folder / "pycache")}
    env[WAIT] = "0"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.starting_child", *command],
        cwd=place,
        env=env,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def summed(case: Mapping[str, Any], said: list[Any], want: Any) -> Start:
    """The medians of some processes, and whether all of them gave the library's numbers."""

    def median(part: str) -> float:
        return round(float(statistics.median(one[part] for one in said)), 5)

    exact = all(np.allclose(one["numbers"], want, rtol=1e-6, atol=0) for one in said)
    return Start(
        case,
        "sqlml",
        exact,
        median("imported"),
        median("model"),
        median("open"),
        median("first"),
        median("second"),
        median("ready"),
        any(one["compiled"] for one in said),
        any(one["loaded"] for one in said),
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a line for each kind of process, and write a JSON file when asked to."""
    made = parser("starting", __doc__)
    made.add_argument("--train", type=int, default=5_000, help="rows to fit on")
    made.add_argument("--trees", type=int, default=100, help="of the forest; XGBoost has 5 times")
    made.add_argument("--model", action="append", choices=MODELS, help="default: all")
    options = made.parse_args(arguments)
    options.of = "median"
    kept: list[Start] = []
    with tempfile.TemporaryDirectory() as folder:
        package(Path(folder) / PACKAGE)
        for name in options.model or MODELS:
            for start in measure(name, options, Path(folder)):
                kept.append(start)
                save("starting", options, kept)
                print(line(start), flush=True)
    return status(kept)


def line(start: Start) -> str:
    """A line for the terminal."""
    case = start.case
    return (
        f"{case['model']:<20}{case['way']:<8}{case['process']:<17} first {start.first:.3f} s, "
        f"second {start.second * 1e3:.2f} ms, "
        f"kernels ready after {start.ready:.2f} s{', with numba' if start.numba else ''}"
    )


if __name__ == "__main__":
    sys.exit(main())
