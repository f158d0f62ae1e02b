"""Measure the costs of the backends. The default costs are in `backends.costs`.

Every cost is the slope between two runs that differ in one thing: the depth of trees, the number of
columns, or the number of values per leaf. Runs are short, and the fastest of several runs counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from sqlml.backends.base import CompiledProgram
from sqlml.backends.costs import WIDE
from sqlml.backends.devices import is_available, is_installed
from sqlml.ir.builder import Builder
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.planner.program.choose import Choice
from sqlml.planner.program.prepare_program import compile_core
from sqlml.types import Array

ROWS, COLUMNS, TREES = 4_096, 16, 64
ROUNDS = 5

PADDED = 1.2
"""Cost of a node in a real tree, where some children are missing, relative to a full tree."""


def measure_backends() -> dict[str, float]:
    """Return the costs of each installed backend in ns, keyed by names such as "torch.step"."""
    costs = _measure_native()
    for library, backend, device, owner in (
        ("onnxruntime", "onnxruntime", "cpu", "onnxruntime"),
        ("torch", "torch", "cpu", "torch"),
        ("torch", "torch", "cuda", "cuda"),
    ):
        if is_installed(library) and (device == "cpu" or is_available(device)):
            costs |= _measure_library(backend, device, owner)
    return costs


def make_perfect_trees(
    depth: int, trees: int, columns: int, thresholds: int, values: int = 1, seed: int = 0
) -> Ensemble:
    """Build full trees of the given depth, with random tests.

    There are `thresholds` different thresholds per column, and `values` numbers per leaf.
    """
    rng = np.random.default_rng(seed)
    num_nodes, num_leaves = (1 << depth) - 1, 1 << depth
    left, right = np.zeros(num_nodes, np.int64), np.zeros(num_nodes, np.int64)
    level = np.zeros(1, np.int64)  # The pre-order indices of the nodes in a level.
    for height in reversed(range(1, depth)):
        left[level], right[level] = level + 1, level + (1 << height)
        level = np.stack([left[level], right[level]], axis=1).ravel()
    left[level], right[level] = (~np.arange(num_leaves)).reshape(-1, 2).T

    def index_children(child: Array) -> Array:
        tree = np.arange(trees)[:, None]
        indices = np.where(child >= 0, child + tree * num_nodes, child - tree * num_leaves)
        return indices.astype(np.int32).ravel()

    count = trees * num_nodes
    return Ensemble(
        roots=(np.arange(trees) * num_nodes).astype(np.int32),
        feature=rng.integers(columns, size=count).astype(np.int32),
        threshold=np.linspace(-1, 1, thresholds)[rng.integers(thresholds, size=count)].astype("f4"),
        left=index_children(left),
        right=index_children(right),
        default_left=np.zeros(count, bool),
        leaf_values=rng.normal(size=(trees * num_leaves, values)),
        target=np.zeros(trees, np.int32),
        base=np.zeros(values),
        compare="le",
    )


class _TreeTimer:
    """Measures native tree kernels on full trees. Each method returns nanoseconds per row."""

    def __init__(self) -> None:
        self.tables = {n: _make_rows(ROWS, n).astype(np.float32) for n in (4, COLUMNS, WIDE)}

    def time_cursor(
        self, depth: int, bins: int, columns: int = COLUMNS, trees: int = TREES
    ) -> float:
        from sqlml.backends.native.trees.binned import bin_tests  # Importing numba is slow.
        from sqlml.backends.native.trees.cursor_forest import compile_cursor_forest

        ensemble, x = make_perfect_trees(depth, trees, columns, bins), self.tables[columns]
        tests = bin_tests(ensemble)
        assert tests is not None
        return _time_rows(compile_cursor_forest(ensemble, tests, x.dtype), x)

    def time_descent(self, depth: int, values: int = 1, columns: int = COLUMNS) -> float:
        from sqlml.backends.native.trees.binned import bin_tests
        from sqlml.backends.native.trees.descent_forest import compile_descent_forest

        ensemble = make_perfect_trees(depth, DEEP_TREES, columns, WIDE_BINS, values)
        x, tests = self.tables[columns], bin_tests(ensemble)
        assert tests is not None
        run = compile_descent_forest(ensemble, tests, np.full(DEEP_TREES, 5), x.dtype)
        return _time_rows(run, x)

    def time_lockstep(
        self, depth: int, columns: int = COLUMNS, rows: int = 32, trees: int = TREES
    ) -> float:
        from sqlml.backends.native.trees.lockstep_forest import compile_lockstep_forest

        ensemble, x = make_perfect_trees(depth, trees, columns, BINS), self.tables[columns]
        return _time_rows(compile_lockstep_forest(ensemble, x.dtype), x[:rows])


DEEP_TREES, SHORT_TREES, WIDE_TREES = 16, 512, 1024

BINS, WIDE_BINS = 100, 400
"""Numbers of thresholds per column for bins of one byte and of two bytes."""


def _measure_native() -> dict[str, float]:
    # A full tree of depth 3 has 7 tests, and a full tree of depth 6 has 63 tests: 56 more.
    timer = _TreeTimer()
    cursor, descent, lockstep = timer.time_cursor, timer.time_descent, timer.time_lockstep
    node_cost = PADDED * (cursor(6, BINS) - cursor(3, BINS)) / (TREES * 56)
    # With many trees, low trees have as many distinct thresholds per column as tall trees.
    tall_time, low_time = (cursor(depth, WIDE_BINS, 4, SHORT_TREES) for depth in (6, 3))
    short_cost = PADDED * (tall_time - low_time) / (SHORT_TREES * 56)
    bin_cost = (cursor(6, BINS) - cursor(6, BINS, 4)) / (COLUMNS - 4)
    tree_cost = (cursor(3, BINS) - TREES * 7 * node_cost - COLUMNS * bin_cost) / TREES
    # The kernel checks rows every 4 levels, so 6 levels below the cut cost as much as 8 levels.
    step_cost = (descent(11) - descent(9)) / (DEEP_TREES * 4)
    wide_step = (descent(11, columns=WIDE) - descent(9, columns=WIDE)) / (DEEP_TREES * 4)
    leaf_cost = (descent(9, 3) - descent(9)) / (DEEP_TREES * 2)
    top_cost = DEEP_TREES * 31 * short_cost + COLUMNS * bin_cost
    descent_cost = (descent(9) - top_cost) / DEEP_TREES - 4 * step_cost - leaf_cost
    pair_step = (lockstep(8) - lockstep(3)) / (TREES * 5)
    # With this many rows and trees, the kernel transposes blocks of rows.
    top_time, wide_top_time = (lockstep(4, n, ROWS, SHORT_TREES) for n in (COLUMNS, WIDE))
    transposed_cost = (wide_top_time - top_time) / (WIDE - COLUMNS)
    wide_transposed_time = lockstep(8, WIDE, ROWS, SHORT_TREES) - wide_top_time
    # There are enough trees to test every column at both depths.
    far_time = cursor(6, BINS, WIDE, WIDE_TREES) - cursor(3, BINS, WIDE, WIDE_TREES)
    return {
        "native.node": node_cost,
        "native.far_node": PADDED * far_time / (WIDE_TREES * 56),
        "native.wide_step": wide_step,
        "native.wide_pair_step": (lockstep(8, WIDE, ROWS) - lockstep(3, WIDE, ROWS)) / (TREES * 5),
        "native.short_node": short_cost,
        # This kernel compares bytes, but the nodes of real forests are in the second-level cache.
        "native.paged_node": (node_cost + short_cost) / 2,
        "native.bin": bin_cost,
        "native.tree": tree_cost / 4,
        "native.cursor_leaf": tree_cost * 3 / 4,
        "native.step": step_cost,
        "native.leaf": leaf_cost,
        "native.descent": descent_cost,
        "native.pair_step": pair_step,
        "native.pair": lockstep(3) / TREES - 3 * pair_step,
        "native.top": (top_time - COLUMNS * transposed_cost) / SHORT_TREES - leaf_cost,
        "native.turned_number": transposed_cost,
        "native.wide_turned_step": wide_transposed_time / (SHORT_TREES * 4),
        **_measure_numbers("native", "cpu", "native"),
    }


def _measure_library(backend: str, device: str, owner: str) -> dict[str, float]:
    strategy = "traverse" if backend == "onnxruntime" else "tt"
    builder = Builder()
    trees = make_perfect_trees(6, TREES, COLUMNS, 100)
    score = builder.op("tree_ensemble", builder.input("x", "float32", COLUMNS), **trees.attrs())
    run = _compile(builder.build({"score": score}), backend, strategy, device)
    x = _make_rows(ROWS if device == "cpu" else 32 * ROWS, COLUMNS).astype(np.float32)
    costs = {f"{owner}.step": _time_rows(run, x) / (TREES * 6)}
    if device == "cuda":
        costs[f"{owner}.byte"] = _measure_byte(backend, device)
    return {**costs, **_measure_numbers(backend, device, owner)}


def _measure_numbers(backend: str, device: str, owner: str) -> dict[str, float]:
    strategy = "traverse" if backend != "torch" else "tt"

    def measure(width: int, outputs: int, rows: int, steps: int, op: str = "sigmoid") -> float:
        builder = Builder()
        result = builder.input("x", "float64", width)
        if outputs:
            weights = np.random.default_rng(0).normal(size=(width, outputs))
            result = builder.linear(result, weights, np.zeros(outputs))
        for _ in range(steps):
            result = builder.op(op, *([result, result] if op == "mul" else [result]))
        run = _compile(builder.build({"score": result}), backend, strategy, device)
        return _time_rows(run, _make_rows(rows, width)) * rows

    rows = ROWS if device == "cpu" else 64 * ROWS

    def measure_step(op: str) -> float:
        return (measure(32, 0, rows, 5, op) - measure(32, 0, rows, 1, op)) / (4 * 32 * rows)

    costs = {
        "call": (measure(1, 0, 1, 9) - measure(1, 0, 1, 1)) / 8,
        "arithmetic": measure_step("mul"),
        "function": measure_step("sigmoid"),
        "product": (measure(128, 128, rows, 0) - measure(128, 16, rows, 0)) / (rows * 128 * 112),
    }
    return {f"{owner}.{name}": cost for name, cost in costs.items()}


def _measure_byte(backend: str, device: str) -> float:
    """Return the cost of copying one byte to the device or back, in nanoseconds."""
    builder = Builder()
    score = builder.op("cast", builder.input("x", "float64", 64), dtype="float32")
    run = _compile(builder.build({"score": score}), backend, "tt", device)
    return _time_rows(run, _make_rows(64 * ROWS, 64)) / (64 * 12)


def _compile(program: Program, backend: str, strategy: str, device: str) -> Callable[[Array], Any]:
    choice = Choice(backend, strategy, device, "calibration")
    compiled: CompiledProgram = compile_core(program, choice)
    (name,) = program.inputs
    return lambda x: compiled.run({name: x})


def _make_rows(rows: int, columns: int) -> Array:
    return np.random.default_rng(1).uniform(-1, 1, size=(rows, columns))


def _time_rows(run: Callable[[Array], Any] | None, x: Array) -> float:
    """Return the best time of `run` on `x` in several rounds, in nanoseconds per row."""
    assert run is not None
    run(x)
    best_time = math.inf
    for _ in range(ROUNDS):
        start_time = time.perf_counter_ns()
        run(x)
        best_time = min(best_time, time.perf_counter_ns() - start_time)
    return best_time / int(x.shape[0])
