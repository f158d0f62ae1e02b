"""Measure the costs of the backends that `backends.costs` ships.

Every coefficient is the slope between two runs that differ in one thing: the depth of trees, the
number of columns, or the values per leaf. Runs are short, and the shortest of several counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sqlml.backends.base import Compiled
from sqlml.backends.costs import WIDE
from sqlml.backends.devices import is_available, is_installed
from sqlml.ir.builder import Builder
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.planner.program.choose import Choice
from sqlml.planner.program.prepare import compile_core
from sqlml.types import Array

ROWS, COLUMNS, TREES = 4_096, 16, 64
ROUNDS = 5

PADDED = 1.2
"""Cost of a node of a grown tree, relative to full trees: some triples lack a child."""


def backend_costs() -> dict[str, float]:
    """Nanoseconds by name, of each backend that is installed.

    Takes about a second of measuring, besides loading libraries and, the first time, compiling
    kernels.
    """
    found = _native()
    for library, backend, device, owner in (
        ("onnxruntime", "onnxruntime", "cpu", "onnxruntime"),
        ("torch", "torch", "cpu", "torch"),
        ("torch", "torch", "cuda", "cuda"),
    ):
        if is_installed(library) and (device == "cpu" or is_available(device)):
            found |= _backend(backend, device, owner)
    return found


def perfect_trees(
    depth: int, trees: int, columns: int, thresholds: int, values: int = 1, seed: int = 0
) -> Ensemble:
    """Build trees that are full to `depth`, with random tests at some thresholds per column."""
    rng = np.random.default_rng(seed)
    size, leaves = (1 << depth) - 1, 1 << depth
    left, right = np.zeros(size, np.int64), np.zeros(size, np.int64)
    level = np.zeros(1, np.int64)  # pre-order numbers of a level's nodes, from left to right
    for d in range(depth):
        if d == depth - 1:
            left[level], right[level] = (~np.arange(leaves)).reshape(-1, 2).T
        else:
            left[level], right[level] = level + 1, level + (1 << (depth - 1 - d))
        level = np.stack([level + 1, level + (1 << (depth - 1 - d))], axis=1).ravel()

    def of_all_trees(child: Array) -> Array:
        tree = np.arange(trees)[:, None]
        moved = np.where(child >= 0, child + tree * size, child - tree * leaves)
        return moved.astype(np.int32).ravel()

    count = trees * size
    return Ensemble(
        roots=(np.arange(trees) * size).astype(np.int32),
        feature=rng.integers(columns, size=count).astype(np.int32),
        threshold=np.linspace(-1, 1, thresholds)[rng.integers(thresholds, size=count)].astype("f4"),
        left=of_all_trees(left),
        right=of_all_trees(right),
        default_left=np.zeros(count, bool),
        leaf_values=rng.normal(size=(trees * leaves, values)),
        target=np.zeros(trees, np.int32),
        base=np.zeros(values),
        compare="le",
    )


def _native() -> dict[str, float]:
    from sqlml.backends.native.trees.binned import binned  # numba is loaded only here
    from sqlml.backends.native.trees.cursor_forest import cursor_forest
    from sqlml.backends.native.trees.descent_forest import descent_forest
    from sqlml.backends.native.trees.lockstep_forest import lockstep_forest

    tables = {n: _batch(ROWS, n).astype(np.float32) for n in (4, COLUMNS, WIDE)}
    few, many = 100, 400  # bins of one byte, and of two

    def cursor(depth: int, thresholds: int, columns: int = COLUMNS, trees: int = TREES) -> float:
        e = perfect_trees(depth, trees, columns, thresholds)
        x = tables[columns]
        tests = binned(e)
        assert tests is not None
        return _time(cursor_forest(e, tests, x.dtype), x)

    def descent(depth: int, values: int = 1, columns: int = COLUMNS) -> float:
        e = perfect_trees(depth, DEEP_TREES, columns, many, values)
        x = tables[columns]
        tests = binned(e)
        assert tests is not None
        cut = np.full(DEEP_TREES, 5)
        return _time(descent_forest(e, tests, cut, x.dtype), x)

    def lockstep(depth: int, columns: int = COLUMNS, rows: int = 32, trees: int = TREES) -> float:
        e = perfect_trees(depth, trees, columns, few)
        x = tables[columns]
        return _time(lockstep_forest(e, x.dtype), x[:rows])

    node = PADDED * (cursor(6, few) - cursor(3, few)) / (TREES * 56)
    # Low trees have as many thresholds in each column as tall ones only where trees are many.
    tall_and_low = cursor(6, many, 4, SHORT_TREES) - cursor(3, many, 4, SHORT_TREES)
    short = PADDED * tall_and_low / (SHORT_TREES * 56)
    bin_ = (cursor(6, few) - cursor(6, few, 4)) / (COLUMNS - 4)
    a_tree = (cursor(3, few) - TREES * 7 * node - COLUMNS * bin_) / TREES
    # Rows are looked at every 4 levels, so 6 levels below the cut cost as much as 8.
    step = (descent(11) - descent(9)) / (DEEP_TREES * 4)
    leaf = (descent(9, 3) - descent(9)) / (DEEP_TREES * 2)
    above = DEEP_TREES * 31 * short + COLUMNS * bin_
    enter = (descent(9) - above) / DEEP_TREES - 4 * step - leaf
    pair_step = (lockstep(8) - lockstep(3)) / (TREES * 5)
    # So many rows go down in turned blocks, where trees are not too few for the columns.
    top, wide_top = (lockstep(4, n, ROWS, SHORT_TREES) for n in (COLUMNS, WIDE))
    turned_number = (wide_top - top) / (WIDE - COLUMNS)
    wide_turned = lockstep(8, WIDE, ROWS, SHORT_TREES) - wide_top
    # So many trees test every column, be they short or tall.
    far = cursor(6, few, WIDE, WIDE_TREES) - cursor(3, few, WIDE, WIDE_TREES)
    return {
        "native.node": node,
        "native.far_node": PADDED * far / (WIDE_TREES * 56),
        "native.wide_step": (descent(11, columns=WIDE) - descent(9, columns=WIDE))
        / (DEEP_TREES * 4),
        "native.wide_pair_step": (lockstep(8, WIDE, ROWS) - lockstep(3, WIDE, ROWS)) / (TREES * 5),
        "native.short_node": short,
        # It compares bytes, but the pages of real forests lie in the second-level cache.
        "native.paged_node": (node + short) / 2,
        "native.bin": bin_,
        "native.tree": a_tree / 4,
        "native.cursor_leaf": a_tree * 3 / 4,
        "native.step": step,
        "native.leaf": leaf,
        "native.descent": enter,
        "native.pair_step": pair_step,
        "native.pair": lockstep(3) / TREES - 3 * pair_step,
        "native.top": (top - COLUMNS * turned_number) / SHORT_TREES - leaf,
        "native.turned_number": turned_number,
        "native.wide_turned_step": wide_turned / (SHORT_TREES * 4),
        **_numbers("native", "cpu", "native"),
    }


DEEP_TREES, SHORT_TREES, WIDE_TREES = 16, 512, 1024


def _backend(backend: str, device: str, owner: str) -> dict[str, float]:
    strategy = "traverse" if backend == "onnxruntime" else "tt"
    b = Builder()
    trees = perfect_trees(6, TREES, COLUMNS, 100)
    made = b.op("tree_ensemble", b.input("x", "float32", COLUMNS), **trees.attrs())
    run = _compiled(b.build({"score": made}), backend, strategy, device)
    x = _batch(ROWS if device == "cpu" else 32 * ROWS, COLUMNS).astype(np.float32)
    found = {f"{owner}.step": _time(run, x) / (TREES * 6), **_numbers(backend, device, owner)}
    if device == "cuda":
        found[f"{owner}.byte"] = _byte(backend, device)
    return found


def _numbers(backend: str, device: str, owner: str) -> dict[str, float]:
    """Return the costs of a call, a number and a product."""
    strategy = "traverse" if backend != "torch" else "tt"

    def run(width: int, outputs: int, rows: int, steps: int) -> float:
        b = Builder()
        value = b.input("x", "float64", width)
        if outputs:
            rng = np.random.default_rng(0)
            value = b.op(
                "linear", value, weights=rng.normal(size=(width, outputs)), bias=np.zeros(outputs)
            )
        for _ in range(steps):
            value = b.op("sigmoid", value)
        program = b.build({"score": value})
        return _time(_compiled(program, backend, strategy, device), _batch(rows, width)) * rows

    rows = ROWS if device == "cpu" else 64 * ROWS
    call = (run(1, 0, 1, 9) - run(1, 0, 1, 1)) / 8
    number = (run(32, 0, rows, 5) - run(32, 0, rows, 1)) / (4 * 32 * rows)
    product = (run(128, 128, rows, 0) - run(128, 16, rows, 0)) / (rows * 128 * 112)
    return {f"{owner}.call": call, f"{owner}.number": number, f"{owner}.product": product}


def _byte(backend: str, device: str) -> float:
    """Return the cost of copying a byte to the device and back."""
    b = Builder()
    run = _compiled(
        b.build({"score": b.op("cast", b.input("x", "float64", 64), dtype="float32")}),
        backend,
        "tt",
        device,
    )
    return _time(run, _batch(64 * ROWS, 64)) / (64 * 12)


def _compiled(program: Program, backend: str, strategy: str, device: str) -> Callable[[Array], Any]:
    compiled: Compiled = compile_core(program, Choice(backend, strategy, device, "calibration"))
    (name,) = program.inputs

    def run(x: Array) -> Mapping[str, Array]:
        return compiled.run({name: x})

    return run


def _batch(rows: int, columns: int) -> Array:
    return np.random.default_rng(1).uniform(-1, 1, size=(rows, columns))


def _time(run: Callable[[Array], Any] | None, x: Array) -> float:
    """Return nanoseconds per row, the best of several rounds."""
    assert run is not None
    run(x)
    best = math.inf
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        run(x)
        best = min(best, time.perf_counter_ns() - start)
    return best / int(x.shape[0])
