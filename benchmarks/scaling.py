"""How the time of a row depends on the size of a batch, threads, trees, depth and features.

Each axis changes one of them and keeps the others at what the options say, on tables shaped like
Higgs; results are drawn as curves. A contender whose next batch would take longer than
`--patience`, by what the last one took, is left out of it with that reason.

    python -m benchmarks.scaling [--axis NAME]... [--model NAME]... [--write FILE]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.contest import Effort, Field, chosen, field, timed, whole
from benchmarks.models import CACHE, Subject, ensemble
from benchmarks.peers import PEERS, Setting
from benchmarks.results import Row, line, parser, row_of, save, status, with_ratios
from benchmarks.tables import TABLES, Matrix, Shape, shaped

BASE = "higgs"
MODELS = ("xgboost", "lightgbm", "random forest")
CONTENDERS = ("onnxruntime", "hummingbird", "onedal", "treelite")


def subject_of(
    kind: str, options: argparse.Namespace, *, trees: int, depth: int, features: int
) -> tuple[Subject, Shape]:
    """A fitted model, and the shape of the rows that it scores."""
    shape = replace(TABLES[BASE], features=features)
    subject = ensemble(
        kind,
        shape,
        trees=trees,
        depth=depth,
        rows=options.train,
        seed=options.seed,
        threads=options.threads,
        cache=options.cache,
    )
    return subject, shape


def by_rows(kind: str, options: argparse.Namespace) -> Iterator[list[Row]]:
    """Batches of 1 row to a million."""
    base = _base(options)
    subject, shape = subject_of(kind, options, **base)
    x, _ = shaped(shape, max(options.batches), options.seed + 1)
    contenders = _field(subject, options, options.threads, x[: options.rows])
    last: dict[str, float] = {}
    for size in sorted(options.batches):
        case = {"axis": "rows", "at": size, "model": kind, **base, "rows": size}
        within, left_out = _within(contenders, last, size, options.patience)
        rows = timed(within, case, size, whole(x[:size]), _effort(options))
        last |= {row.contender: row.ns for row in rows if row.ns is not None}
        threads = options.threads
        late = [row_of(case, n, threads=threads, reason=why) for n, why in left_out.items()]
        yield [*rows, *late]


def by_threads(kind: str, options: argparse.Namespace) -> Iterator[list[Row]]:
    """One thread up to all cores."""
    base = _base(options)
    subject, shape = subject_of(kind, options, **base)
    x, _ = shaped(shape, options.rows, options.seed + 1)
    for threads in range(1, (os.cpu_count() or 1) + 1):
        case = {"axis": "threads", "at": threads, "model": kind, **base, "rows": len(x)}
        contenders = _field(subject, options, threads, x)
        yield timed(contenders, case, len(x), whole(x), _effort(options))


def by(
    axis: str, values: Sequence[int], options: argparse.Namespace, kind: str
) -> Iterator[list[Row]]:
    """Trees, depth or features, all else as the options say."""
    for value in values:
        base = {**_base(options), axis: value}
        subject, shape = subject_of(kind, options, **base)
        x, _ = shaped(shape, options.rows, options.seed + 1)
        case = {"axis": axis, "at": value, "model": kind, **base, "rows": len(x)}
        contenders = _field(subject, options, options.threads, x)
        yield timed(contenders, case, len(x), whole(x), _effort(options))


AXES = ("rows", "threads", "trees", "depth", "features")


def measure(axis: str, kind: str, options: argparse.Namespace) -> Iterator[list[Row]]:
    """The rows of each point of one axis for one model."""
    if axis == "rows":
        return by_rows(kind, options)
    if axis == "threads":
        return by_threads(kind, options)
    values = {"trees": options.trees, "depth": options.depths, "features": options.features}
    return by(axis, values[axis], options, kind)


def _base(options: argparse.Namespace) -> dict[str, int]:
    features = TABLES[BASE].features
    return {"trees": options.base_trees, "depth": options.base_depth, "features": features}


def _field(subject: Subject, options: argparse.Namespace, threads: int, x: Matrix) -> Field:
    names = chosen(options.contender or CONTENDERS)
    return field(subject, names, Setting(threads, options.compile_limit, options.cache), x)


def _effort(options: argparse.Namespace) -> Effort:
    return Effort(options.rounds, options.least, options.patience)


def _within(
    contenders: Field, last: Mapping[str, float], size: int, patience: float
) -> tuple[Field, dict[str, str]]:
    """Those whose batch of `size` rows is expected to end in time, and why the others are out."""
    slow = {
        name: f"would take {ns * size / 1e9:,.0f} s"
        for name, ns in last.items()
        if ns * size / 1e9 > patience and name != "sqlml"
    }
    kept = tuple(r for r in contenders.ready if r.name not in slow)
    return replace(contenders, ready=kept), slow


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a line for each contender, and write a JSON file when asked to."""
    made = parser("scaling", __doc__.partition("\n")[0])
    sizes = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000]
    made.add_argument("--rows", type=int, default=50_000, help="of the axes other than rows")
    made.add_argument("--batches", type=int, nargs="+", default=sizes, help="the axis of rows")
    made.add_argument("--trees", type=int, nargs="+", default=[10, 50, 100, 200, 500, 1000, 2000])
    made.add_argument("--depths", type=int, nargs="+", default=[2, 4, 6, 8, 10, 12, 16, 20])
    made.add_argument("--features", type=int, nargs="+", default=[12, 28, 100, 250, 500])
    made.add_argument("--base-trees", type=int, default=500, help="where trees are not the axis")
    made.add_argument("--base-depth", type=int, default=8, help="where depth is not the axis")
    made.add_argument("--train", type=int, default=20_000, help="rows to fit on")
    made.add_argument("--axis", action="append", choices=AXES, help="default: all")
    made.add_argument("--model", action="append", choices=MODELS, help="default: all")
    made.add_argument("--contender", action="append", choices=list(PEERS), help="default: a few")
    made.add_argument("--compile-limit", type=float, default=300.0, help="seconds for gcc")
    made.add_argument("--cache", type=Path, default=CACHE, help="folder of fitted models")
    options = made.parse_args(arguments)
    rows: list[Row] = []
    for axis in options.axis or AXES:
        for kind in options.model or MODELS:
            for part in measure(axis, kind, options):
                compared = with_ratios(part)
                rows += compared
                save("scaling", options, rows)
                print(f"{kind}, {axis} {compared[0].case['at']:,}:")
                print("\n".join(line(row) for row in compared), flush=True)
    return status(rows)


if __name__ == "__main__":
    sys.exit(main())
