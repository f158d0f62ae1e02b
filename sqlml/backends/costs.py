"""`Costs`: nanoseconds that a backend takes for elementary steps on one thread.

The shipped numbers come from one machine; `sqlml calibrate` measures them again and saves them in
the user's cache folder, or in the file that SQLML_COSTS names. SQLML_COSTS=default uses the
shipped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np

from sqlml.backends import own_files
from sqlml.errors import ConfigError
from sqlml.ir.tree_shape import TreeShape
from sqlml.types import Array

Costs = Mapping[str, float]

SHIPPED: Costs = MappingProxyType(
    {
        # A column in an expression of the engine; of a small tree there a level that rows pass, and
        # a test.
        "sql.number": 0.7,
        "sql.level": 2.5,
        "sql.test": 0.5,
        # A category of an encoder in an expression, which is planned with each query, and is looked
        # at for each row; and the text of a row that is handed to a function in its place.
        "sql.category": 33_000.0,
        "sql.lookup": 3.4,
        "udf.text": 230.0,
        # A column packed and handed to a function, and each call of that for a batch of rows; the
        # same of a native function.
        "udf.number": 4.0,
        "udf.call": 40_000.0,
        "column.number": 1.2,
        "column.call": 10_000.0,
        # Trees, a row: a node over a block of bytes, of 16-bit numbers or of their pages; a tree; a
        # value of a leaf that lies in registers, or in memory; a column's bin; a set's; entering a
        # descent, and a step of it; a row in a tree by lockstep, and a step of it; a row in the top
        # of a tree of a turned block, and a number that is turned. Far steps are those in trees of
        # 64 MB, which no cache holds; far nodes and wide steps those in tables of 2,000 columns. A
        # batch by blocks takes so much more than one by lockstep.
        "native.node": 0.007,
        "native.far_node": 0.105,
        "native.short_node": 0.018,
        "native.paged_node": 0.0105,
        "native.tree": 0.05,
        "native.cursor_leaf": 0.15,
        "native.leaf": 0.5,
        "native.bin": 1.5,
        "native.set": 0.5,
        "native.descent": 2.0,
        "native.step": 1.0,
        "native.far_step": 2.2,
        "native.wide_step": 30.0,
        "native.pair": 2.0,
        "native.pair_step": 0.85,
        "native.far_pair_step": 1.0,
        "native.wide_pair_step": 2.3,
        "native.top": 2.9,
        "native.turned_number": 0.35,
        "native.wide_turned_step": 1.4,
        "native.batch": 3_000.0,
        # An operator's call, a number that it makes, and a multiplication with its addition.
        "native.call": 1_000.0,
        "native.number": 0.4,
        "native.product": 0.03,
        "onnxruntime.call": 8_000.0,
        "onnxruntime.number": 0.4,
        "onnxruntime.product": 0.03,
        "onnxruntime.step": 10.0,
        "torch.call": 6_000.0,
        "torch.number": 0.4,
        "torch.product": 0.03,
        "torch.step": 8.0,
        # The same on a GPU, whose transfers are a byte each way.
        "cuda.call": 10_000.0,
        "cuda.number": 0.004,
        "cuda.product": 0.0002,
        "cuda.step": 0.02,
        "cuda.byte": 0.05,
    }
)


def place() -> Path:
    """Where measured costs are kept."""
    named = os.environ.get("SQLML_COSTS")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "sqlml" / "costs.json"


@cache
def current() -> Costs:
    """The shipped costs, with those measured on this machine in their place.

    Raises:
        ConfigError: the file that SQLML_COSTS names cannot be used.
    """
    named = os.environ.get("SQLML_COSTS")
    if named == "default":
        return SHIPPED
    try:
        return MappingProxyType({**SHIPPED, **parse(place().read_text())})
    except OSError as error:
        if named:
            raise ConfigError(f"SQLML_COSTS: cannot read {named}: {error.strerror}") from None
        return SHIPPED
    except ValueError as error:
        if named:
            raise ConfigError(f"SQLML_COSTS: {named}: {error}") from None
        return SHIPPED  # a damaged cache is as good as none


def parse(text: str) -> dict[str, float]:
    """Costs by name from JSON.

    Raises:
        ValueError: not an object of known names with positive numbers.

    >>> parse('{"native.node": 0.01}')
    {'native.node': 0.01}
    """
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("not an object of costs by name")
    for name, value in found.items():
        if name not in SHIPPED:
            raise ValueError(f"unknown cost {name!r}; costs: {', '.join(SHIPPED)}")
        if type(value) not in (int, float) or not 0 < value < 1e12:
            raise ValueError(f"{name} must be nanoseconds above 0, not {value!r}")
    return {name: float(value) for name, value in found.items()}


def keep(measured: Mapping[str, float]) -> Path:
    """Keep measured costs, and use them from now on in this process; where they are kept.

    Raises:
        OSError: the file cannot be written.
    """
    path = place()
    path.parent.mkdir(parents=True, exist_ok=True)
    own_files.replace(path, (json.dumps(dict(measured), indent=2) + "\n").encode())
    current.cache_clear()
    return path


# What the native kernels for trees cost, and where they cut deep trees: pure functions.


BYTE_BINS, SHORT_BINS = 255, 65_535
"""The most thresholds of a column whose bins take one byte, and two."""

MOST_PAGES = 1500
"""Bytes of a row's bins in pages: those of 512 rows fill a second-level cache."""

BYTE_EXITS, SHORT_EXITS = 256, 65_536
"""The most exits of a tree's upper part whose cursors take one byte, and two."""

BARE_NODE_BYTES, PACKED_NODE_BYTES = 16, 8
"""Of a node or leaf, as the lockstep and the descent kernel have them."""

NEAR_BYTES, FAR_BYTES = 12 << 20, 64 << 20
"""Trees that a processor's own caches mostly hold, and trees that lie in memory."""

NEAR_BLOCK, FAR_BLOCK = 64 << 10, 1 << 20
"""Bytes of a block's bins that cost a node nothing, and of a block of `WIDE` columns."""

BLOCK_ROWS = 512

LANES, TOP = 64, 4
"""Rows of a turned block, and levels of a tree that are answered for all of them (`lockstep.py`).
"""

LOW, TURNED_COLUMNS = 12, 12
"""Levels of the trees that go down turned blocks, and the most columns for each tree: more take
longer to be turned than is won."""

WIDE = 2000
"""Columns of the tables that far nodes and wide steps are measured with: the values of a few rows,
and the bins of a block, are then more than the near caches hold."""


@dataclass(frozen=True, slots=True, eq=False)
class TreeCosts:
    """Nanoseconds per row on one thread, in large batches, of an Ensemble.

    Infinite where a kernel cannot run it. lockstep: row by row; turned: in turned blocks. batch:
    extra nanoseconds that a batch in blocks of rows takes. paged: the cursor kernel reads its bins
    in pages. cut int64 (T,): the depths where the descent begins; L, the number of levels, where it
    never does.
    """

    cursor: float
    descent: float
    lockstep: float
    batch: float
    paged: bool
    cut: Array
    turned: float = np.inf

    def by_lockstep(self, rows: int) -> float:
        """Nanoseconds per row by the lockstep kernel, in batches of `rows` rows."""
        return self.lockstep if rows < LANES else min(self.lockstep, self.turned)


def tree_costs(shape: TreeShape, costs: Costs) -> TreeCosts:
    """Estimate the kernels for `shape` with the coefficients of a machine."""
    trees, _ = shape.nodes.shape
    values, places = trees * shape.values, 2 * float(shape.nodes.sum())
    pair_step = _step(costs, "pair_step", places * BARE_NODE_BYTES)
    pair_step *= _wide(costs, "pair_step", shape.columns)
    lockstep = float(
        trees * costs["native.pair"] + shape.steps.sum() * pair_step + values * costs["native.leaf"]
    )
    batch, turned = costs["native.batch"], _turned(shape, costs)
    if shape.thresholds > SHORT_BINS:
        none = np.zeros(trees, np.int64)
        return TreeCosts(np.inf, np.inf, lockstep, batch, False, none, turned)
    step = _step(costs, "step", places * PACKED_NODE_BYTES)
    step *= _wide(costs, "step", shape.columns)
    far = _far_node(costs, shape.columns)
    short_node = costs["native.short_node"] + far
    short = _cuts(shape, short_node, costs["native.descent"], step, SHORT_EXITS)
    ways = [short]
    if shape.thresholds <= BYTE_BINS:
        node = costs["native.node"] + far
        ways.append(_cuts(shape, node, costs["native.descent"], step, BYTE_EXITS))
    walked = min(way.cursor for way in ways)
    paged = np.inf
    if BYTE_BINS < shape.thresholds and shape.all_thresholds < MOST_PAGES * BYTE_BINS:
        node = costs["native.paged_node"] + far
        paged = _cuts(shape, node, costs["native.descent"], step, BYTE_EXITS).cursor
    enter = trees * costs["native.tree"] + shape.sets * costs["native.set"]
    enter += shape.columns * costs["native.bin"] * _search(shape)
    best = min(ways, key=lambda way: way.descent)
    return TreeCosts(
        cursor=min(walked, paged) + enter + values * costs["native.cursor_leaf"],
        descent=best.descent + enter + values * costs["native.leaf"],
        lockstep=lockstep,
        batch=batch,
        paged=paged < walked,
        cut=best.cut,
        turned=turned,
    )


def _turned(shape: TreeShape, costs: Costs) -> float:
    """Lockstep in turned blocks: the upper levels of a tree at once, and steps below them."""
    trees, levels = shape.nodes.shape
    if shape.sets or levels > LOW or shape.columns > TURNED_COLUMNS * trees:
        return np.inf
    step = _step(costs, "pair_step", 2 * float(shape.nodes.sum()) * BARE_NODE_BYTES)
    step *= _wide(costs, "pair_step", shape.columns, "wide_turned_step")
    enter = trees * costs["native.top"] + shape.columns * costs["native.turned_number"]
    values = trees * shape.values * costs["native.leaf"]
    return float(enter + shape.inside[:, TOP:].sum() * step + values)


@dataclass(frozen=True, slots=True, eq=False)
class _Cuts:
    """Nanoseconds per row in the trees, walked to the leaves or cut where that is best."""

    cursor: float
    descent: float
    cut: Array


def _cuts(shape: TreeShape, node: float, enter: float, step: float, most: int) -> _Cuts:
    """The costs where a node takes `node` and a tree may have `most` exits from its upper part."""
    trees, levels = shape.nodes.shape
    asked = np.where(shape.oblivious[:, None], 1, shape.nodes)
    none = np.zeros((trees, 1))
    # Column c: cut at depth c, the levels above it walked and the rest gone down.
    walked = np.concatenate([none, asked.cumsum(1) * node], axis=1)
    exits = np.concatenate([none, shape.nodes.cumsum(1)], axis=1) + 1
    walked[exits > most] = np.inf
    steps = shape.inside[:, ::-1].cumsum(1)[:, ::-1] * step + enter
    steps[shape.oblivious] = np.inf  # they are never cut
    cost = walked + np.concatenate([steps, none], axis=1)
    cut = cost.argmin(1)
    least = cost[np.arange(trees), cut].sum()
    return _Cuts(float(walked[:, levels].sum()), float(least), cut)


def _search(shape: TreeShape) -> float:
    """How many times as long a bin takes as among 100 thresholds: larger tables leave the caches.

    Measured for 255 to 65,000 thresholds in each of 41 columns: 1.3 to 8.5.
    """
    return float(1 + 2.6 * np.sqrt(shape.all_thresholds / max(1, shape.columns) / 10_000))


def _far_node(costs: Costs, columns: int) -> float:
    """The extra time of a node, which grows as the caches hold less of a block's bins."""
    size = max(columns * BLOCK_ROWS, NEAR_BLOCK)
    share = np.log(size / NEAR_BLOCK) / np.log(FAR_BLOCK / NEAR_BLOCK)
    return float((costs["native.far_node"] - costs["native.node"]) * min(share, 1.0))


def _wide(costs: Costs, name: str, columns: int, wide: str | None = None) -> float:
    """How many times as long a step takes in tables of so many columns."""
    most = costs[f"native.{wide or f'wide_{name}'}"] / costs[f"native.{name}"]
    return float(1 + (max(most, 1.0) - 1) * min(columns / WIDE, 1.0))


def _step(costs: Costs, name: str, size: float) -> float:
    """A step down trees of `size` bytes: slower, the less of them a cache holds."""
    near, far = costs[f"native.{name}"], costs[f"native.far_{name}"]
    share = np.log(max(size, NEAR_BYTES) / NEAR_BYTES) / np.log(FAR_BYTES / NEAR_BYTES)
    return float(near + (far - near) * min(share, 1.0))
