"""`Costs`: the nanoseconds that a backend needs for elementary steps, on one thread.

The shipped numbers come from one machine. `sqlml calibrate` measures them again and saves them in
the user's cache folder, or in the file that SQLML_COSTS names. SQLML_COSTS=default selects the
shipped numbers. `tree_costs` estimates the native kernels for trees from them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from sqlml.backends import own_files
from sqlml.errors import ConfigError
from sqlml.ir.tree_shape import TreeShape
from sqlml.types import Array

Costs = Mapping[str, float]

# `sqlml calibrate` does not measure sql.plan, sql.label, column.text and point, which are fixed.
DEFAULT_COSTS: Costs = {
    # SQL expressions: an operation, a level that a row passes in a small tree, a test of the tree,
    # the planning of a test, and finding the label of a class number that a function returns.
    "sql.operation": 0.33,
    "sql.level": 1.5,
    "sql.test": 0.4,
    "sql.plan": 50_000.0,
    "sql.label": 6.0,
    # Encoders: planning a category in an expression, looking up a row, and passing a row's text to
    # a function instead.
    "sql.category": 33_000.0,
    "sql.lookup": 3.4,
    "udf.text": 230.0,
    # Functions: passing a packed column, and calling the function for a batch of rows. The costs
    # named "column" are those of a native function, which also looks up a row's text.
    "udf.number": 4.0,
    "udf.call": 40_000.0,
    "column.number": 0.6,
    "column.text": 20.0,
    "column.call": 3_500.0,
    # Trees, per row. node, short_node and paged_node: a node in a block of bytes, of 16-bit numbers
    # or of pages. cursor_leaf and leaf: a leaf value in registers or in memory. bin and set: the
    # bin of a column or of a category set. descent and step: the start of a descent, and a step.
    # pair and pair_step: a tree in lockstep, and a step. set_step: the extra cost of a step that
    # tests a set. top and turned_number: the top of a tree in a transposed block, and a transposed
    # number. Far steps are steps in trees of 64 MB, which
    # exceed all caches. Far nodes and wide steps belong to tables of 2,000 columns. batch: the
    # extra cost of a batch in blocks compared with a batch in lockstep.
    "native.node": 0.007,
    "native.far_node": 0.105,
    "native.short_node": 0.018,
    "native.paged_node": 0.0105,
    "native.tree": 0.05,
    "native.cursor_leaf": 0.15,
    "native.leaf": 0.5,
    "native.bin": 1.5,
    "native.set": 0.06,
    "native.descent": 2.0,
    "native.step": 1.0,
    "native.far_step": 2.2,
    "native.wide_step": 30.0,
    "native.pair": 2.0,
    "native.pair_step": 0.85,
    "native.far_pair_step": 1.0,
    "native.set_step": 14.0,
    "native.wide_pair_step": 2.3,
    "native.top": 2.9,
    "native.turned_number": 0.35,
    "native.wide_turned_step": 1.4,
    "native.batch": 3_000.0,
    # A call of an operator, a number of the result, a number that a function such as exp computes,
    # a multiplication with an addition, and a point whose distance is compared.
    "native.call": 250.0,
    "native.arithmetic": 0.15,
    "native.function": 1.1,
    "native.product": 0.03,
    "native.point": 2.5,
    "onnxruntime.call": 8_000.0,
    "onnxruntime.arithmetic": 0.4,
    "onnxruntime.function": 2.0,
    "onnxruntime.product": 0.03,
    "onnxruntime.point": 2.5,
    "onnxruntime.step": 10.0,
    "torch.call": 6_000.0,
    "torch.arithmetic": 0.4,
    "torch.function": 2.0,
    "torch.product": 0.03,
    "torch.point": 2.5,
    "torch.step": 8.0,
    # The same costs on a GPU, and the cost of transferring a byte.
    "cuda.call": 10_000.0,
    "cuda.arithmetic": 0.004,
    "cuda.function": 0.004,
    "cuda.product": 0.0002,
    "cuda.point": 0.02,
    "cuda.step": 0.02,
    "cuda.byte": 0.05,
}


def costs_path() -> Path:
    configured = os.environ.get("SQLML_COSTS")
    if configured:
        return Path(configured)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sqlml" / "costs.json"


@cache
def current_costs() -> Costs:
    """Return all costs by name; costs that were not measured on this machine have defaults."""
    configured = os.environ.get("SQLML_COSTS")
    if configured == "default":
        return DEFAULT_COSTS
    try:
        return {**DEFAULT_COSTS, **parse_costs(costs_path().read_text())}
    except (OSError, ValueError) as error:
        if not configured:
            return DEFAULT_COSTS  # A damaged cache is treated as missing.
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"SQLML_COSTS: cannot read {configured}: {reason}") from None


def parse_costs(text: str) -> dict[str, float]:
    """Parse costs by name from JSON; raise ValueError for an unknown name or an invalid cost.

    >>> parse_costs('{"native.node": 0.01}')
    {'native.node': 0.01}
    """
    costs = json.loads(text)
    if not isinstance(costs, dict):
        raise ValueError("not an object of costs by name")
    for name, value in costs.items():
        if name not in DEFAULT_COSTS:
            raise ValueError(f"unknown cost {name!r}; costs: {', '.join(DEFAULT_COSTS)}")
        if type(value) not in (int, float) or not 0 < value < 1e12:
            raise ValueError(
                f"{name} must be a positive number of nanoseconds below 1e12, not {value!r}"
            )
    return {name: float(value) for name, value in costs.items()}


def save_costs(measured: Mapping[str, float]) -> Path:
    """Save measured costs, use them in this process from now on, and return the file's path."""
    path = costs_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    own_files.replace(path, (json.dumps(dict(measured), indent=2) + "\n").encode())
    current_costs.cache_clear()
    return path


BYTE_BINS, SHORT_BINS = 255, 65_535
"""Maximum number of thresholds of a column for bins of one byte, and for bins of two bytes."""

MOST_PAGES = 1500
"""Maximum number of bytes of the bins of a row in pages; 512 such rows fill an L2 cache."""

BYTE_EXITS, SHORT_EXITS = 256, 65_536
"""Maximum number of exits from the top of a tree, for cursors of one byte and of two bytes."""

BARE_NODE_BYTES, PACKED_NODE_BYTES = 16, 8
"""Number of bytes of a node or leaf in the lockstep kernel and in the descent kernel."""

NEAR_BYTES, FAR_BYTES = 12 << 20, 64 << 20
"""Sizes in bytes of trees that mostly fit into the caches, and of trees that exceed them."""

NEAR_BLOCK, FAR_BLOCK = 64 << 10, 1 << 20
"""Bytes of a block's bins without extra cost per node, and bytes of bins of `WIDE` columns."""

BLOCK_ROWS = 512

LANES, TOP = 64, 4
"""Number of rows in a transposed block, and of tree levels that test all rows (`lockstep.py`)."""

LOW, TURNED_COLUMNS = 12, 12
"""Maximum number of levels, and of columns per tree, for which transposing blocks pays off."""

WIDE = 2000
"""Number of columns in measurements of far nodes and wide steps. The values of a few rows, and the
bins of a block, then exceed the near caches."""


@dataclass(frozen=True, slots=True, eq=False)
class TreeCosts:
    """Costs of scoring an Ensemble with each kernel, in nanoseconds per row on one thread.

    The costs are valid for large batches. The cost of a kernel that cannot run the ensemble is
    infinite. `turned` is the cost of lockstep in transposed blocks. `batch` is the extra time in
    nanoseconds if a batch runs in blocks of rows. `paged` tells whether the cursor kernel reads
    bins in pages. `cut`, int64 (T,), is the depth at which the descent begins in each tree.
    """

    cursor: float
    descent: float
    lockstep: float
    batch: float
    paged: bool
    cut: Array
    turned: float = np.inf

    def choose_lockstep_cost(self, rows: int) -> float:
        """Return the cost of the lockstep kernel in batches of `rows` rows."""
        return self.lockstep if rows < LANES else min(self.lockstep, self.turned)


def estimate_tree_costs(shape: TreeShape, costs: Costs) -> TreeCosts:
    """Estimate the costs of all kernels for trees of the given `shape`."""
    num_trees, _ = shape.nodes.shape
    num_values, num_slots = num_trees * shape.values, 2 * float(shape.nodes.sum())
    pair_step = _estimate_step_cost(costs, "pair_step", num_slots * BARE_NODE_BYTES)
    pair_step *= _estimate_width_slowdown(costs, "pair_step", shape.columns)
    leaf_cost = num_values * costs["native.leaf"]
    lockstep = float(num_trees * costs["native.pair"] + shape.steps.sum() * pair_step + leaf_cost)
    lockstep += shape.categories * costs["native.bin"]
    lockstep += shape.set_share * float(shape.steps.sum()) * costs["native.set_step"]
    batch_cost, turned_cost = costs["native.batch"], _estimate_turned_cost(shape, costs)
    if shape.thresholds > SHORT_BINS:
        no_cuts = np.zeros(num_trees, np.int64)
        return TreeCosts(np.inf, np.inf, lockstep, batch_cost, False, no_cuts, turned_cost)
    step_cost = _estimate_step_cost(costs, "step", num_slots * PACKED_NODE_BYTES)
    step_cost *= _estimate_width_slowdown(costs, "step", shape.columns)
    far_cost = _estimate_far_node_cost(costs, shape.columns)

    def find_cuts(cost_name: str, exits: int) -> _Cuts:
        node_cost, descent_cost = costs[cost_name] + far_cost, costs["native.descent"]
        return _find_best_cuts(shape, node_cost, descent_cost, step_cost, exits)

    cut_candidates = [find_cuts("native.short_node", SHORT_EXITS)]
    if shape.thresholds <= BYTE_BINS:
        cut_candidates.append(find_cuts("native.node", BYTE_EXITS))
    cursor_cost = min(candidate.cursor for candidate in cut_candidates)
    paged_cost = np.inf
    if BYTE_BINS < shape.thresholds and shape.all_thresholds < MOST_PAGES * BYTE_BINS:
        paged_cost = find_cuts("native.paged_node", BYTE_EXITS).cursor
    entry_cost = num_trees * costs["native.tree"] + shape.sets * costs["native.set"]
    entry_cost += shape.columns * costs["native.bin"] * _estimate_bin_slowdown(shape)
    best_cuts = min(cut_candidates, key=lambda candidate: candidate.descent)
    return TreeCosts(
        cursor=min(cursor_cost, paged_cost) + entry_cost + num_values * costs["native.cursor_leaf"],
        descent=best_cuts.descent + entry_cost + leaf_cost,
        lockstep=lockstep,
        batch=batch_cost,
        paged=paged_cost < cursor_cost,
        cut=best_cuts.cut,
        turned=turned_cost,
    )


def _estimate_turned_cost(shape: TreeShape, costs: Costs) -> float:
    num_trees, num_levels = shape.nodes.shape
    if shape.sets or num_levels > LOW or shape.columns > TURNED_COLUMNS * num_trees:
        return np.inf
    tree_bytes = 2 * float(shape.nodes.sum()) * BARE_NODE_BYTES
    step_cost = _estimate_step_cost(costs, "pair_step", tree_bytes)
    step_cost *= _estimate_width_slowdown(costs, "pair_step", shape.columns, "wide_turned_step")
    entry_cost = num_trees * costs["native.top"] + shape.columns * costs["native.turned_number"]
    leaf_cost = num_trees * shape.values * costs["native.leaf"]
    return float(entry_cost + shape.inside[:, TOP:].sum() * step_cost + leaf_cost)


@dataclass(frozen=True, slots=True, eq=False)
class _Cuts:
    """The costs of walking trees to the leaves, and of walking to depth `cut` and descending."""

    cursor: float
    descent: float
    cut: Array


def _find_best_cuts(
    shape: TreeShape, node_cost: float, entry_cost: float, step_cost: float, max_exits: int
) -> _Cuts:
    """Find the cheapest depth of each tree at which to switch from walking nodes to a descent.

    A node above this depth costs `node_cost`, and at most `max_exits` exits may lead below. A
    descent costs `entry_cost` to start and `step_cost` per step.
    """
    num_trees, num_levels = shape.nodes.shape
    nodes_tested = np.where(shape.oblivious[:, None], 1, shape.nodes)
    zero_column = np.zeros((num_trees, 1))
    # In column c, trees are cut at depth c: levels above are walked, other levels are descended.
    walk_costs = np.concatenate([zero_column, nodes_tested.cumsum(1) * node_cost], axis=1)
    exits = np.concatenate([zero_column, shape.nodes.cumsum(1)], axis=1) + 1
    walk_costs[exits > max_exits] = np.inf
    descent_costs = shape.inside[:, ::-1].cumsum(1)[:, ::-1] * step_cost + entry_cost
    descent_costs[shape.oblivious] = np.inf  # Oblivious trees are never cut.
    total_costs = walk_costs + np.concatenate([descent_costs, zero_column], axis=1)
    cuts = total_costs.argmin(1)
    min_cost = total_costs[np.arange(num_trees), cuts].sum()
    return _Cuts(float(walk_costs[:, num_levels].sum()), float(min_cost), cuts)


def _estimate_bin_slowdown(shape: TreeShape) -> float:
    return float(1 + 2.6 * np.sqrt(shape.all_thresholds / max(1, shape.columns) / 10_000))


def _estimate_far_node_cost(costs: Costs, num_columns: int) -> float:
    """Return the extra time per node if the bins of a block exceed the caches."""
    block_bytes = max(num_columns * BLOCK_ROWS, NEAR_BLOCK)
    share = np.log(block_bytes / NEAR_BLOCK) / np.log(FAR_BLOCK / NEAR_BLOCK)
    return float((costs["native.far_node"] - costs["native.node"]) * min(share, 1.0))


def _estimate_width_slowdown(costs: Costs, name: str, columns: int, wide_name: str = "") -> float:
    """Return the relative time of a step: 1 in a narrow table, more with many columns."""
    max_slowdown = costs[f"native.{wide_name or f'wide_{name}'}"] / costs[f"native.{name}"]
    return float(1 + (max(max_slowdown, 1.0) - 1) * min(columns / WIDE, 1.0))


def _estimate_step_cost(costs: Costs, name: str, tree_bytes: float) -> float:
    near_cost, far_cost = costs[f"native.{name}"], costs[f"native.far_{name}"]
    share = np.log(max(tree_bytes, NEAR_BYTES) / NEAR_BYTES) / np.log(FAR_BYTES / NEAR_BYTES)
    return float(near_cost + (far_cost - near_cost) * min(share, 1.0))
