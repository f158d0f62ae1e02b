"""How good the choice of a kernel and a backend is: the pick's time over the best one's.

Cells of a grid (trees, depth, features, rows of a batch) are drawn at random from a seed. In each,
trees are grown at random, half of them with 255 thresholds a column as boosters have them and half
with as many as there are nodes; every way of running scores the same rows on one thread, after
its results were checked equal, and `choose` says which it would have taken.

    python -m benchmarks.choice [--cells N] [--budget SECONDS] [--write FILE]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.compare import compare
from benchmarks.results import Row, parser, row_of, save, status
from benchmarks.rounds import best_calls
from sqlml.backends.costs import current_costs
from sqlml.errors import SqlmlError
from sqlml.ir.builder import Builder
from sqlml.ir.program import Program
from sqlml.ir.trees import RawTrees, build_ensemble
from sqlml.planner.program.choose import Choice, choose_way
from sqlml.planner.program.cost import estimate_ways
from sqlml.planner.program.prepare_program import compile_core
from sqlml.types import Array

TREES = (10, 50, 200, 500, 2000)
DEPTHS = (2, 4, 6, 8, 12, 16, 20)
FEATURES = (5, 50, 500)
ROWS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
LEAVES = 1_000
"""The most leaves of a tree: deep trees are not full."""

BYTE_THRESHOLDS = 255
WITHIN = 1.2

FORCED = ("cursor", "descent", "lockstep")
"""The native backend's kernels, each for all batches."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One model and one batch."""

    trees: int
    depth: int
    features: int
    rows: int
    thresholds: str


def cells(count: int, seed: int) -> Iterator[Cell]:
    """Cells of the grid, without end when `count` is 0."""
    rng = np.random.default_rng(seed)
    axes = (TREES, DEPTHS, FEATURES, ROWS)
    for _ in range(count):
        trees, depth, features, rows = (int(rng.choice(axis)) for axis in axes)
        yield Cell(trees, depth, features, rows, str(rng.choice(["bytes", "any"])))


def program_of(cell: Cell, seed: int) -> Program:
    """Random trees: each leaf that may is as likely as any other to be split next."""
    rng = np.random.default_rng(seed)
    kinds = [_structure(cell.depth, rng) for _ in range(8)]
    left, right, leaf, roots = [], [], [], []
    count = 0
    for t in range(cell.trees):
        own_left, own_right = kinds[t % len(kinds)]
        roots.append(count)
        left.append(np.where(own_left < 0, 0, own_left + count))
        right.append(np.where(own_right < 0, 0, own_right + count))
        leaf.append(own_left < 0)
        count += own_left.size
    grid = np.linspace(-2, 2, BYTE_THRESHOLDS)
    threshold = rng.choice(grid, count) if cell.thresholds == "bytes" else rng.normal(size=count)
    raw = RawTrees(
        roots=np.array(roots),
        feature=rng.integers(cell.features, size=count),
        threshold=threshold.astype(np.float32),
        left=np.concatenate(left),
        right=np.concatenate(right),
        leaf=np.concatenate(leaf),
        default_left=rng.random(count) < 0.5,
        value=rng.normal(size=(count, 1)),
    )
    e = build_ensemble(raw, target=np.zeros(cell.trees), base=np.zeros(1), compare="le")
    b = Builder()
    x = b.input("x", "float32", cell.features)
    return b.build({"score": b.op("tree_ensemble", x, **e.attrs())})


def _structure(depth: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """left and right of one tree's nodes, -1 at leaves."""
    left, right, depths = [-1], [-1], [0]
    open_leaves = [0]
    while open_leaves and len(left) < 2 * LEAVES - 1:
        node = open_leaves.pop(int(rng.integers(len(open_leaves))))
        left[node], right[node] = len(left), len(left) + 1
        for _ in range(2):
            left.append(-1)
            right.append(-1)
            depths.append(depths[node] + 1)
            if depths[-1] < depth:
                open_leaves.append(len(left) - 1)
    return np.array(left), np.array(right)


def ways(program: Program, rows: int, budget: float) -> dict[str, Choice]:
    """Every way that is estimated to score the rows within `budget` seconds, by its name."""
    found = {
        f"{e.backend}/{e.strategy}": Choice(e.backend, e.strategy, e.device, "benchmark")
        for e in estimate_ways(program, current_costs(), rows)
        if e.seconds < budget
    }
    for strategy in FORCED:
        found[f"native/{strategy}"] = Choice("native", strategy, "cpu", "benchmark")
    return found


def measure(cell: Cell, seed: int, budget: float, rounds: int) -> list[Row]:
    """The rows of one cell: every way, and the one that is picked among them as `sqlml`."""
    program = program_of(cell, seed)
    x = np.random.default_rng(seed + 1).normal(size=(cell.rows, cell.features)).astype(np.float32)
    case = {f: getattr(cell, f) for f in Cell.__dataclass_fields__}
    pick = choose_way(program, {"device": "cpu"}, cell.rows)
    wanted: Array | None = None
    rows: list[Row] = []
    runs: list[tuple[str, Any, Any]] = []
    for name, choice in ways(program, cell.rows, budget).items():
        try:
            run = partial(compile_core(program, choice).run, {"x": x})
            made: Array = run()["score"]
        except SqlmlError as error:
            rows.append(row_of(case, name, threads=1, reason=str(error)))
            continue
        wanted = made if wanted is None else wanted
        found = compare(made.astype(float), wanted.astype(float), "decision_function", labels=False)
        if not found.exact:
            rows.append(row_of(case, name, threads=1, difference=found, reason="another number"))
            continue
        runs.append((name, run, found))
    timings = best_calls([run for _, run, _ in runs], rounds, patience=budget)
    for (name, _, found), timing in zip(runs, timings, strict=True):
        ns = timing.seconds / cell.rows * 1e9
        own = "sqlml" if name == f"{pick.backend}/{pick.strategy}" else name
        note = name if own == "sqlml" else ""
        rows.append(
            row_of(case, own, threads=1, ns=ns, rounds=timing.rounds, difference=found, note=note)
        )
    return rows


def share_within(cells_: Sequence[Sequence[Row]], factor: float) -> float:
    """The share of cells whose pick took at most `factor` times as long as the best way."""
    good = 0
    for rows in cells_:
        times = {r.contender: r.ns for r in rows if r.ns is not None}
        good += times["sqlml"] <= factor * min(times.values())
    return good / max(1, len(cells_))


def main(arguments: list[str] | None = None) -> int:
    """Measure cell by cell, and print each pick that was not the best."""
    made = parser("choice", __doc__)
    made.add_argument("--cells", type=int, default=200)
    made.add_argument("--budget", type=float, default=1.0, help="seconds of one call, at most")
    options = made.parse_args(arguments)
    if find_spec("torch") is not None:
        import torch

        torch.set_num_threads(1)
    done: list[list[Row]] = []
    left_out = 0
    for i, cell in enumerate(cells(options.cells, options.seed)):
        seed = options.seed + i
        if (
            estimate_ways(program_of(cell, seed), current_costs(), cell.rows)[0].seconds
            > options.budget
        ):
            left_out += 1
            continue
        rows = measure(cell, seed, options.budget, options.rounds)
        done.append(rows)
        save("choice", options, [row for cell_rows in done for row in cell_rows])
        times = {r.note or r.contender: r.ns for r in rows if r.ns is not None}
        picked = next(r for r in rows if r.contender == "sqlml")
        best = min(times, key=lambda n: times[n])
        if picked.ns is not None and picked.ns > WITHIN * times[best]:
            print(f"{cell}: {picked.note} {picked.ns / times[best]:.2f} times {best}", flush=True)
    print(
        f"{len(done)} cells, {left_out} too long; within {WITHIN} of the best in "
        f"{share_within(done, WITHIN):.1%}, within 1.5 in {share_within(done, 1.5):.1%}"
    )
    return status(row for rows in done for row in rows)


if __name__ == "__main__":
    sys.exit(main())
