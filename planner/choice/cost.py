"""What scoring a Program would cost on each backend: pure functions of its shape and a machine.

An estimate is a sum over the operators of a Program: a call for each block of rows, and for each
row the numbers that it makes, the products of matrices and the steps down trees. The coefficients
are `backends.costs`. It is made to rank ways of running, not to foretell a time to the percent.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from sqlml.backends.costs import Costs, current, tree_costs
from sqlml.backends.devices import available, installed
from sqlml.ir.operators.contributions import ensemble_of
from sqlml.ir.program import Node, Program
from sqlml.ir.tree_shape import TreeShape, tree_shape
from sqlml.ir.trees import Ensemble
from sqlml.passes.one_tree import OneTree, one_tree

ROWS = 100_000
"""Rows that are assumed if the number is unknown."""

BATCH = 2_048
"""Rows that the engine passes to a function at a time, and that backends on the CPU work on."""

MARGIN = 2.0

BLOCK = 512
"""Rows that the native kernels for many rows work for at least."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds that a way of running takes on one thread; infinite if it is not feasible.

    `kernel` names the kernel that runs a strategy, if it has several. `start` are the
    seconds to load a library that this process has not loaded yet. `strategy` is for trees, and
    means nothing without them.
    """

    backend: str
    strategy: str
    device: str
    seconds: float
    start: float = 0.0
    kernel: str = ""
    has_trees: bool = True

    @property
    def name(self) -> str:
        """The name of the way, as EXPLAIN prints it."""
        where = "" if self.device == "cpu" else f" on {self.device}"
        kernel = f" ({self.kernel})" if self.kernel else ""
        strategy = f"/{self.strategy}" if self.has_trees else ""
        return f"{self.backend}{strategy}{where}{kernel}"


@dataclass(frozen=True, slots=True)
class Way:
    """One way of running: whose coefficients it uses, its library, and its loading time."""

    backend: str
    strategy: str
    device: str
    costs: str
    library: str
    start: float


WAYS: tuple[Way, ...] = (
    Way("native", "traverse", "cpu", "native", "numba", 0.0),
    Way("onnxruntime", "traverse", "cpu", "onnxruntime", "onnxruntime", 0.3),
    Way("torch", "gemm", "cpu", "torch", "torch", 1.5),
    Way("torch", "tt", "cpu", "torch", "torch", 1.5),
    Way("torch", "ptt", "cpu", "torch", "torch", 1.5),
    Way("torch", "fused", "cuda", "cuda", "torch", 4.0),
    Way("torch", "gemm", "cuda", "cuda", "torch", 4.0),
    Way("torch", "tt", "cuda", "cuda", "torch", 4.0),
    Way("torch", "ptt", "cuda", "cuda", "torch", 4.0),
)
"""All ways that a Program may be run without being asked to, the plainest first."""


def estimates(
    program: Program,
    costs: Costs,
    rows: int = ROWS,
    batch: int = BATCH,
    by_column: bool = False,
) -> tuple[Estimate, ...]:
    """The ways that this machine has, cheapest first, for `rows` rows, `batch` at a time.

    They are given to the function by Arrow, or `by_column`.

    On the CPU sqlml's own backend comes first unless another is estimated to be `MARGIN` times as
    fast: an estimate is no closer than that, and the others' libraries take seconds to load.
    """
    ways = [way for way in WAYS if _is_there(way)]
    if not any(node.op == "tree_ensemble" for node in program.nodes):
        ways = list({(way.backend, way.device): way for way in reversed(ways)}.values())
    found = [_estimate(program, way, costs, rows, batch, by_column) for way in ways]
    return tuple(sorted(found, key=_rank))


def _rank(e: Estimate) -> float:
    handicap = MARGIN if e.backend != "native" and e.device == "cpu" else 1.0
    return handicap * (e.start + e.seconds)


def sql_estimate(program: Program, costs: Costs, rows: int = ROWS) -> Estimate:
    """What a linear model or a small tree takes as an expression; infinite for a larger tree."""
    if any(node.op == "tree_ensemble" for node in program.nodes):
        one = one_tree(program)
        nanoseconds = math.inf if one is None else _one_tree(one, costs, rows)
    else:
        width = sum(_width(node) for node in program.nodes if node.op == "input")
        nanoseconds = rows * width * costs["sql.number"]
    return Estimate("sql", "", "cpu", nanoseconds * 1e-9, has_trees=False)


def most_categories() -> int:
    """Categories of an encoder up to which they are written into the query.

    Beyond, that takes longer for `ROWS` rows than to give the function their texts.
    """
    costs = current()
    each = costs["sql.category"] + ROWS * costs["sql.lookup"]
    return max(1, round(ROWS * costs["udf.text"] / each))


def _one_tree(one: OneTree, costs: Costs, rows: int) -> float:
    checks = sum(r.limited for r in one.ranges)
    a_row = one.levels * costs["sql.level"] + one.tests * costs["sql.test"]
    return rows * (a_row + (1 + checks) * costs["sql.number"])


def _is_there(way: Way) -> bool:
    has_device = way.device == "cpu" or available(way.device)
    return has_device and installed(way.library)


def _estimate(
    program: Program, way: Way, costs: Costs, rows: int, batch: int, by_column: bool
) -> Estimate:
    own, handed = _Rates(way.costs, costs), _Rates("column" if by_column else "udf", costs)
    batch = batch if way.device == "cuda" else BATCH
    calls = math.ceil(rows / batch) if rows else 0
    nanoseconds, kernel = math.ceil(rows / BATCH) * handed["call"], ""
    for node in program.nodes:
        if not node.type.rowwise:
            continue
        if node.op == "input":
            nanoseconds += rows * _width(node) * (own["byte"] * 8 + handed["number"])
            continue
        nanoseconds += calls * own["call"]
        if node.op == "tree_ensemble":
            a_row, kernel = _TREES[way.backend, way.strategy](_shape(node), own, min(rows, batch))
            nanoseconds += rows * a_row
        elif node.op == "tree_contributions":
            e = ensemble_of(node.attrs)
            nanoseconds += rows * e.nodes * ((e.depth + 1) // 2) * CONTRIBUTION
        else:
            nanoseconds += rows * (_width(node) * own["number"] + _products(node) * own["product"])
    loaded = way.library in sys.modules
    return Estimate(
        way.backend,
        way.strategy,
        way.device,
        nanoseconds * 1e-9,
        0.0 if loaded else way.start,
        kernel,
        any(node.op == "tree_ensemble" for node in program.nodes),
    )


@dataclass(frozen=True, slots=True)
class _Rates:
    """The costs of one backend, by their bare names; 0 for unknown ones."""

    owner: str
    costs: Costs

    def __getitem__(self, name: str) -> float:
        return self.costs.get(f"{self.owner}.{name}", 0.0)


def _width(node: Node) -> int:
    return int(np.prod(node.type.shape[1:], dtype=np.int64))


def _products(node: Node) -> int:
    """Multiplications with an addition that a row takes, beyond the numbers that are made."""
    matrices = [a for a in node.attrs.values() if isinstance(a, np.ndarray) and a.ndim == 2]
    return sum(a.size for a in matrices if a.dtype.kind == "f")


def _shape(node: Node) -> TreeShape:
    return tree_shape(Ensemble.of(node.attrs))


def _native(shape: TreeShape, own: _Rates, rows: int) -> tuple[float, str]:
    made = tree_costs(shape, own.costs)
    blocks = min(made.cursor, made.descent) * max(1.0, BLOCK / max(rows, 1))
    blocks += made.batch / max(rows, 1)
    block_kernel = "cursor" if made.cursor <= made.descent else "descent"
    ways = {"lockstep": made.by_lockstep(rows), block_kernel: blocks}
    kernel = min(ways, key=lambda k: ways[k])
    return ways[kernel], kernel


def _steps(shape: TreeShape, own: _Rates, rows: int) -> tuple[float, str]:
    """Each row goes down each tree to its deepest level."""
    levels = shape.nodes.shape[1]
    return shape.trees * levels * own["step"] + shape.trees * shape.values * own["number"], ""


def _gemm(shape: TreeShape, own: _Rates, rows: int) -> tuple[float, str]:
    """Hummingbird, algorithm 1: all nodes, and nodes by leaves of each tree, padded to the most."""
    nodes = int(shape.nodes.sum(1).max(initial=0))
    numbers = shape.trees * (2 * nodes + 2 * (nodes + 1))
    products = shape.trees * (nodes * (nodes + 1) + (nodes + 1) * shape.values)
    return numbers * own["number"] + products * own["product"], ""


def _perfect(shape: TreeShape, own: _Rates, rows: int) -> tuple[float, str]:
    """The steps of `_steps` when every tree is padded to a perfect one; none for deep trees."""
    deep = shape.nodes.shape[1] > DEEPEST_PERFECT
    return (math.inf, "") if deep else _steps(shape, own, rows)


CONTRIBUTION = 1.3
"""Nanoseconds that a row takes for a node and a point of `native/trees/contributions.py`."""

DEEPEST_PERFECT = 10
"""Levels up to which trees are filled up to perfect ones (Hummingbird, section 5.1)."""


TreeCost = Callable[[TreeShape, _Rates, int], tuple[float, str]]
"""Nanoseconds that a row takes in batches of so many rows, and the kernel's name."""

_TREES: Mapping[tuple[str, str], TreeCost] = MappingProxyType(
    {
        ("native", "traverse"): _native,
        ("onnxruntime", "traverse"): _steps,
        ("torch", "gemm"): _gemm,
        ("torch", "tt"): _steps,
        ("torch", "ptt"): _perfect,
        ("torch", "fused"): _steps,
    }
)
