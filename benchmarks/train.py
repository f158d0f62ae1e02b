"""How long training in SQL takes, and the memory, beside the library fed by hand.

Each contender is a process of its own that opens a database and trains a model on one of its
tables: `sqlml` by CREATE MODEL .. AS SELECT; `hand` by the library from its own best matrix, with
nothing stored; `frame` by the library's estimator on a pandas frame, registered with
`create_model`. All rows are trained on, and the first predictions must agree. The last cases train
a deep network with and without `memory = 'sublinear'` (Chen, Xu, Zhang and Guestrin, Training deep
nets with sublinear memory cost, 2016).

    python -m benchmarks.train [--rounds N] [--case NAME]... [--write FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from benchmarks.results import Case, parser, save, status
from benchmarks.train_child import CASES

CONTENDERS = ("sqlml", "hand", "frame")


@dataclass(frozen=True, slots=True)
class Training:
    """Medians of one contender in one case.

    seconds: from the open database to the model. peak: the most memory of the process, in MB.
    ratio, memory: sqlml's over the contender's: below 1 sqlml takes less.
    """

    case: Case
    contender: str
    exact: bool
    seconds: float
    peak: float
    ratio: float | None = None
    memory: float | None = None
    relative: float = 0.0
    labels: float = 0.0
    reason: str | None = None


def numbers(con: duckdb.DuckDBPyConnection, rows: int, seed: int) -> None:
    """28 columns of FLOAT, as the Higgs data has them."""
    listed = ", ".join(f"((hash(i, {seed}, {k}) >> 40) / 16777216)::FLOAT x{k}" for k in range(28))
    con.execute(
        f"CREATE TABLE t AS SELECT *, x0 + x1 * x2 + x3 / 2 > 1 AS y FROM "
        f"(SELECT {listed} FROM range({rows}) r(i))"
    )


def strings(con: duckdb.DuckDBPyConnection, rows: int, seed: int) -> None:
    """Ten columns of names, of 5 to 500 different ones."""
    counts = (5, 8, 12, 20, 30, 50, 80, 120, 250, 500)
    listed = ", ".join(
        f"'name ' || (hash(i, {seed}, {k}) % {count}) x{k}" for k, count in enumerate(counts)
    )
    con.execute(
        f"CREATE TABLE t AS SELECT *, (hash(x0, x3) % 10 + hash(x6) % 10) % 20 > 9 AS y FROM "
        f"(SELECT {listed} FROM range({rows}) r(i))"
    )


def texts(con: duckdb.DuckDBPyConnection, rows: int, seed: int) -> None:
    """Texts of twenty words out of 5,000, rare ones more rarely."""
    word = f"'w' || (5000 * pow((hash(i, {seed}, x) % 10000) / 10000, 3))::INTEGER"
    con.execute(
        f"CREATE TABLE t AS SELECT x, hash(x[:4]) % 3 > 0 AS y FROM (SELECT list_aggregate("
        f"list_transform(range(20), lambda x: {word}), 'string_agg', ' ') AS x "
        f"FROM range({rows}) r(i))"
    )


TABLES: Mapping[str, tuple[Callable[[duckdb.DuckDBPyConnection, int, int], None], int]] = {
    "numbers": (numbers, 3_000_000),
    "strings": (strings, 1_000_000),
    "texts": (texts, 200_000),
    "network": (numbers, 20_000),
}
"""Table -> what makes it, and its rows."""


def run(name: str, contender: str, database: Path, threads: int) -> Any:
    """What a process says that trains: seconds, peak and predictions."""
    env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.train_child", name, contender, str(database)],
        env=env,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def measure(name: str, database: Path, options: argparse.Namespace) -> Iterator[Training]:
    """All contenders of a case, in turns."""
    contenders = CASES[name].contenders
    said: dict[str, list[Any]] = {contender: [] for contender in contenders}
    for _ in range(options.rounds):
        for contender in contenders:
            said[contender].append(run(name, contender, database, options.threads))
    want = np.array(said[contenders[-1]][0]["predictions"])
    ours = {what: _median(said[contenders[0]], what) for what in ("seconds", "peak")}
    for contender in contenders:
        found = np.array([one["predictions"] for one in said[contender]])
        differing = float(np.max(np.abs(found - want) / np.maximum(np.abs(want), 1e-9)))
        seconds, peak = _median(said[contender], "seconds"), _median(said[contender], "peak")
        yield Training(
            {"case": name, "rows": int(TABLES[CASES[name].table][1] * options.share)},
            contender,
            differing <= CASES[name].within,
            seconds,
            peak,
            None if contender == contenders[0] else round(ours["seconds"] / seconds, 3),
            None if contender == contenders[0] else round(ours["peak"] / peak, 3),
            differing,
        )


def _median(said: list[Any], what: str) -> float:
    return round(float(statistics.median(one[what] for one in said)), 3)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a line for each contender, and write a JSON file when asked to."""
    made = parser("train", __doc__)
    made.set_defaults(rounds=3)
    made.add_argument("--share", type=float, default=1.0, help="of the rows, to try it out")
    made.add_argument("--case", action="append", choices=CASES, help="default: all")
    options = made.parse_args(arguments)
    options.of = "median"
    kept: list[Training] = []
    with tempfile.TemporaryDirectory() as folder:
        for table, (make, rows) in TABLES.items():
            names = [n for n, c in CASES.items() if c.table == table]
            names = [n for n in names if not options.case or n in options.case]
            if not names:
                continue
            database = Path(folder) / f"{table}.duckdb"
            with duckdb.connect(database) as con:
                make(con, int(rows * options.share), options.seed)
            for name in names:
                for training in measure(name, database, options):
                    kept.append(training)
                    save("train", options, kept)
                    print(line(training), flush=True)
            database.unlink()
    return status(kept)


def line(training: Training) -> str:
    """A line for the terminal."""
    ratios = ""
    if training.ratio is not None:
        ratios = f"  time {training.ratio:.2f}, memory {training.memory:.2f} of it"
    return (
        f"{training.case['case']:<22}{training.contender:<10}{training.seconds:8.2f} s "
        f"{training.peak:8.0f} MB{ratios}{'' if training.exact else '  NOT EQUAL'}"
    )


if __name__ == "__main__":
    sys.exit(main())
