"""Measure how long the first prediction of a process takes, for ten rows.

The numbers are medians of several processes of each kind:

* first: the first process on a machine, whose runtime library has the machine code of all known
  kernels, as that of a wheel has;
* first, compiling: the first process on a machine, whose runtime library has no kernels, as after
  an installation from source. Another process compiles them in the meantime;
* later: a process that loads the kernels which such an earlier process has compiled.

Each kind makes the prediction in two ways: `sqlml.compile(model)` with `predict_proba`, and a query
of a model that is stored in a database. The time of the first prediction starts when sqlml and
DuckDB are imported, the model is loaded, and the scorer or session is open. The goals are 2 s for
the first prediction on a machine, and 0.2 s for that of a later process.

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
from sqlml.backends.native.runtime.build_runtime import CONNECTION
from sqlml.backends.no_wait import WAIT

ROOT = Path(__file__).resolve().parent.parent
BUILT = Path("sqlml", "backends", "native", "runtime", "built")
WITH_KERNELS, WITHOUT_KERNELS = "with kernels", "without kernels"
"""The folders with copies of sqlml."""

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
    """Yield the times of all kinds of processes that score one model."""
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
        kernels = folder / f"{name} {way} kernels"
        with_kernels, without_kernels = folder / WITH_KERNELS, folder / WITHOUT_KERNELS
        # Python compiles its own files in the first process of a copy, which is not measured.
        run(command, folder / f"{name} {way} unused", folder, with_kernels)
        run(command, kernels, folder, without_kernels)
        later = [run(command, kernels, folder, without_kernels) for _ in range(options.rounds)]
        for process, copy in (("first", with_kernels), ("first, compiling", without_kernels)):
            fresh = (folder / f"{name} {way} {process} {i}" for i in range(options.rounds))
            first = [run(command, empty, folder, copy) for empty in fresh]
            yield summed({**case, "process": process}, first, want)
        yield summed({**case, "process": "later"}, later, want)


def _quoted(classes: Any) -> str:
    return "true" if classes.dtype == bool else "1"


def copy_packages(folder: Path) -> None:
    """Write a copy of sqlml with the runtime of a wheel, and one with that of a source package.

    The runtime of the checkout is built first if it is not up to date, which takes minutes. It has
    kernels for this processor's level only; those of a wheel for other levels would not run here.

    Raises:
        subprocess.CalledProcessError: no C compiler is found, or this platform has no runtime.
    """
    command = [sys.executable, "-m", "sqlml.backends.native.runtime"]
    subprocess.run(command, cwd=ROOT, check=True)
    for copy in (folder / WITH_KERNELS, folder / WITHOUT_KERNELS):
        for name in ("sqlml", "benchmarks"):
            skipped = shutil.ignore_patterns("__pycache__", ".cache")
            shutil.copytree(ROOT / name, copy / name, ignore=skipped)
    # The library that opens a connection is a runtime without kernels. A new one would have a key
    # of its own, with which DuckDB would install it once more.
    built = folder / WITHOUT_KERNELS / BUILT
    shutil.copytree(built / CONNECTION, built, dirs_exist_ok=True)


def run(command: list[str], kernels: Path, folder: Path, copy: Path) -> Any:
    """Return what a process of a copy of sqlml prints, which keeps its kernels in a folder.

    Raises:
        subprocess.CalledProcessError: the process failed.
    """
    env = {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env |= {"NUMBA_CACHE_DIR": str(kernels), "PYTHONPYCACHEPREFIX": str(folder / "pycache")}
    env[WAIT] = "0"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.starting_child", *command],
        cwd=copy,
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
        copy_packages(Path(folder))
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
