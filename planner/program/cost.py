"""The cost model: estimated times of scoring a Program on each backend of this machine.

An estimate is a sum over the operators of a Program. An operator costs a call for each block of
rows and, for each row, the numbers that it computes, its matrix products and its steps down trees.
The coefficients come from `backends.costs`. Estimates rank backends; they are not precise times.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sqlml.backends.costs import Costs, current_costs, estimate_tree_costs
from sqlml.backends.devices import is_available, is_installed
from sqlml.ir.operators.contributions import make_ensemble
from sqlml.ir.operators.elementwise import DIVISION, ROUNDING, UNARY_FLOAT
from sqlml.ir.program import Node, Program
from sqlml.ir.tree_shape import TreeShape, measure_tree_shape
from sqlml.ir.trees import Ensemble
from sqlml.passes import prepare_for_kernels
from sqlml.passes.one_tree import build_one_tree

ROWS = 100_000  # The assumed number of rows if the engine estimates none.

BATCH = 2_048
"""The number of rows that the engine passes to a function and CPU backends process at a time."""

MARGIN = 2.0
"""The factor by which another CPU backend must be faster than the native backend. Estimates are not
precise, and other backends have libraries that take seconds to load."""

_TESTS_OF_EXPRESSION = 4
"""The number of tests that take as long to plan as the expression of a small tree without tests."""

_VIEWS = frozenset({"concat", "select", "reshape"})
"""Operators that choose numbers, for which backends read other places or copy only a little."""

_SEARCHES = frozenset({"nearest", "knn_impute"})
"""Operators that look for the nearest points."""

_FUNCTIONS = frozenset({"softmax", *UNARY_FLOAT, *DIVISION}) - {"div", "sqrt", *ROUNDING}
"""Operators that compute a function such as exp for each number."""

BLOCK = 512  # Native block kernels take as long for fewer rows as for this number of rows.


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The estimated time of one way to run a Program on one thread, infinite if it cannot run."""

    backend: str
    strategy: str
    device: str
    seconds: float
    start: float = 0.0  # The seconds to load the library, or 0 if it is already loaded.
    kernel: str = ""  # The kernel that runs the strategy, if the backend has several.
    has_trees: bool = True

    @property
    def name(self) -> str:
        device = "" if self.device == "cpu" else f" on {self.device}"
        kernel = f" ({self.kernel})" if self.kernel else ""
        strategy = f"/{self.strategy}" if self.has_trees else ""
        return f"{self.backend}{strategy}{device}{kernel}"


def estimate_ways(
    program: Program, costs: Costs, rows: int = ROWS, batch: int = BATCH, by_column: bool = False
) -> tuple[CostEstimate, ...]:
    """Estimate all ways to run `program` on this machine, and return the cheapest first."""
    ways = [way for way in WAYS if _is_available(way)]
    if not any(node.op == "tree_ensemble" for node in program.nodes):
        ways = list({(way.backend, way.device): way for way in reversed(ways)}.values())
    kernel_program = prepare_for_kernels(program)
    programs = [kernel_program if way.backend == "native" else program for way in ways]
    estimates = [
        _estimate_way(estimated, way, costs, rows, batch, by_column)
        for way, estimated in zip(ways, programs, strict=True)
    ]
    return tuple(sorted(estimates, key=_sort_key))


def _sort_key(estimate: CostEstimate) -> float:
    handicap = MARGIN if estimate.backend != "native" and estimate.device == "cpu" else 1.0
    return handicap * (estimate.start + estimate.seconds)


def estimate_sql(program: Program, costs: Costs, rows: int = ROWS) -> CostEstimate:
    """Estimate the time of a linear model or tree as SQL.

    It is infinite for large trees, and for sums of products of columns, which DuckDB would compute
    and check one by one.
    """
    if any(node.op == "tree_ensemble" for node in program.nodes):
        tree = build_one_tree(program)
        nanoseconds = math.inf
        if tree is not None:
            num_checks = 1 + sum(r.is_limited for r in tree.ranges)
            per_row = tree.mean_levels * costs["sql.level"] + tree.tests * costs["sql.test"]
            nanoseconds = rows * (per_row + num_checks * costs["sql.operation"])
            nanoseconds += (tree.tests + _TESTS_OF_EXPRESSION) * costs["sql.plan"]
    else:
        has_products = any(_multiplies_columns(program, node) for node in program.nodes)
        operations = sum(map(_count_operations, program.nodes))
        nanoseconds = math.inf if has_products else rows * operations * costs["sql.operation"]
    return CostEstimate("sql", "", "cpu", nanoseconds * 1e-9, has_trees=False)


def _count_operations(node: Node) -> int:
    """Return the number of operations of a node as a SQL expression."""
    if not node.type.rowwise or node.op in ("input", *_VIEWS):
        return 0
    multiply_adds = _count_multiply_adds(node)
    return 2 * multiply_adds if multiply_adds else _count_columns(node)


def _multiplies_columns(program: Program, node: Node) -> bool:
    return node.op == "mul" and all(program.nodes[j].type.rowwise for j in node.inputs)


def count_inline_categories() -> int:
    """Return the maximum number of categories of an encoder that SQL computes.

    If there are more categories, it is faster to pass the strings to a function.
    """
    costs = current_costs()
    category_cost = costs["sql.category"] + ROWS * costs["sql.lookup"]
    return max(1, round(ROWS * costs["udf.text"] / category_cost))


def _is_available(way: ExecutionOption) -> bool:
    return (way.device == "cpu" or is_available(way.device)) and is_installed(way.library)


def _estimate_way(
    program: Program, way: ExecutionOption, costs: Costs, rows: int, batch: int, by_column: bool
) -> CostEstimate:
    rates, transfer = _Rates(way.costs, costs), _Rates("column" if by_column else "udf", costs)
    batch = batch if way.device == "cuda" else BATCH
    call_count = math.ceil(rows / batch) if rows else 0
    nanoseconds = math.ceil(rows / BATCH) * transfer["call"]
    kernel = ""
    for node in program.nodes:
        if not node.type.rowwise:
            continue
        if node.op == "input":
            nanoseconds += rows * _count_columns(node) * (rates["byte"] * 8 + transfer["number"])
            continue
        if node.op in _VIEWS:
            continue
        nanoseconds += call_count * rates["call"]
        if node.op == "tree_ensemble":
            shape = measure_tree_shape(Ensemble.of(node.attrs))
            per_row, kernel = way.estimate_trees(shape, rates, min(rows, batch))
            nanoseconds += rows * per_row
        elif node.op == "tree_contributions":
            ensemble = make_ensemble(node.attrs)
            node_visits = rows * ensemble.nodes * ((ensemble.depth + 1) // 2)
            nanoseconds += node_visits * CONTRIBUTION_NANOSECONDS
        else:
            nanoseconds += rows * _estimate_operator(node, rates)
    start = 0.0 if way.library in sys.modules else way.start
    seconds = nanoseconds * 1e-9
    has_trees = any(node.op == "tree_ensemble" for node in program.nodes)
    return CostEstimate(way.backend, way.strategy, way.device, seconds, start, kernel, has_trees)


def _estimate_operator(node: Node, rates: _Rates) -> float:
    """Estimate the nanoseconds per row of an operator without trees."""
    if node.op in _SEARCHES:
        arrays = (a for a in node.attrs.values() if isinstance(a, np.ndarray) and a.ndim)
        points = max(len(a) for a in arrays)
        return points * rates["point"] + _count_multiply_adds(node) * rates["product"]
    number_cost = rates["function" if node.op in _FUNCTIONS else "arithmetic"]
    return _count_columns(node) * number_cost + _count_multiply_adds(node) * rates["product"]


@dataclass(frozen=True, slots=True)
class _Rates:
    """The cost coefficients of `owner`, keyed by name without this prefix, and 0 if missing."""

    owner: str
    costs: Costs

    def __getitem__(self, name: str) -> float:
        return self.costs.get(f"{self.owner}.{name}", 0.0)


def _count_columns(node: Node) -> int:
    return int(np.prod(node.type.shape[1:], dtype=np.int64))


def _count_multiply_adds(node: Node) -> int:
    matrices = [a for a in node.attrs.values() if isinstance(a, np.ndarray) and a.ndim == 2]
    return sum(a.size for a in matrices if a.dtype.kind == "f")


def _estimate_native_trees(shape: TreeShape, rates: _Rates, rows: int) -> tuple[float, str]:
    """Return the nanoseconds per row of the fastest native tree kernel, and the kernel's name."""
    tree_costs = estimate_tree_costs(shape, rates.costs)
    block_cost = min(tree_costs.cursor, tree_costs.descent) * max(1.0, BLOCK / max(rows, 1))
    block_cost += tree_costs.batch / max(rows, 1)
    block_kernel = "cursor" if tree_costs.cursor <= tree_costs.descent else "descent"
    cost_by_kernel = {"lockstep": tree_costs.choose_lockstep_cost(rows), block_kernel: block_cost}
    kernel = min(cost_by_kernel, key=lambda k: cost_by_kernel[k])
    return cost_by_kernel[kernel], kernel


def _estimate_steps(shape: TreeShape, rates: _Rates, rows: int) -> tuple[float, str]:
    levels = shape.nodes.shape[1]
    leaf_cost = shape.values * rates["arithmetic"]
    return shape.trees * (levels * rates["step"] + leaf_cost), ""


def _estimate_gemm(shape: TreeShape, rates: _Rates, rows: int) -> tuple[float, str]:
    """Estimate trees, padded to equal size, as matrix products (Hummingbird, algorithm 1)."""
    max_nodes = int(shape.nodes.sum(1).max(initial=0))
    num_elements = shape.trees * (2 * max_nodes + 2 * (max_nodes + 1))
    num_products = shape.trees * (max_nodes * (max_nodes + 1) + (max_nodes + 1) * shape.values)
    return num_elements * rates["arithmetic"] + num_products * rates["product"], ""


def _estimate_perfect_trees(shape: TreeShape, rates: _Rates, rows: int) -> tuple[float, str]:
    """Estimate the traversal of trees padded to perfect trees, infinite for deep trees."""
    is_too_deep = shape.nodes.shape[1] > MAX_PERFECT_DEPTH
    return (math.inf, "") if is_too_deep else _estimate_steps(shape, rates, rows)


CONTRIBUTION_NANOSECONDS = 1.3
"""Nanoseconds per row, node and quadrature point in `native/trees/contribution_kernel.py`."""

MAX_PERFECT_DEPTH = 10
"""The maximum number of levels of trees that are padded to perfect trees (Hummingbird, 5.1)."""


@dataclass(frozen=True, slots=True)
class ExecutionOption:
    """A way to run a Program: a backend, strategy and device, with the data for estimates."""

    backend: str
    strategy: str
    device: str
    costs: str  # The prefix of the cost coefficients.
    library: str
    start: float  # The seconds to load the library.
    # Returns the nanoseconds per row and the kernel, given the number of rows per batch.
    estimate_trees: Callable[[TreeShape, _Rates, int], tuple[float, str]]


# The simplest ways come first.
WAYS: tuple[ExecutionOption, ...] = (
    ExecutionOption("native", "traverse", "cpu", "native", "numba", 0.0, _estimate_native_trees),
    ExecutionOption(
        "onnxruntime", "traverse", "cpu", "onnxruntime", "onnxruntime", 0.3, _estimate_steps
    ),
    ExecutionOption("torch", "gemm", "cpu", "torch", "torch", 1.5, _estimate_gemm),
    ExecutionOption("torch", "tt", "cpu", "torch", "torch", 1.5, _estimate_steps),
    ExecutionOption("torch", "ptt", "cpu", "torch", "torch", 1.5, _estimate_perfect_trees),
    ExecutionOption("torch", "fused", "cuda", "cuda", "torch", 4.0, _estimate_steps),
    ExecutionOption("torch", "gemm", "cuda", "cuda", "torch", 4.0, _estimate_gemm),
    ExecutionOption("torch", "tt", "cuda", "cuda", "torch", 4.0, _estimate_steps),
    ExecutionOption("torch", "ptt", "cuda", "cuda", "torch", 4.0, _estimate_perfect_trees),
)
