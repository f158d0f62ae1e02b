"""`whole_range`: between which whole numbers a value of the IR lies, as far as its making tells.

A place in a table needs no check where it cannot lie outside.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

Range = tuple[Array, Array]
"""Least and greatest number of each column, float64 (k,) both."""

_EXACT = frozenset({"int32", "int64", "float32", "float64"})
"""Types that hold all numbers up to `_LARGEST`."""

_ENDS: Mapping[str, Callable[[Range, Range], list[Array]]] = MappingProxyType(
    {
        "add": lambda left, right: [left[0] + right[0], left[1] + right[1]],
        "mul": lambda left, right: [a * b for a in left for b in right],
        "where": lambda left, right: [*left, *right],
    }
)
"""Numbers between which those of an operator lie, by the ranges of its last two operands."""

_DEEPEST, _MOST = 32, 256
"""How far back a value is followed, and through how many others."""

_LARGEST = 2.0**24
"""Whole numbers up to here are exact in every float but float16."""


def whole_range(b: Builder, value: Value) -> Range | None:
    """The range of `value`, column by column; None where it may be anything, or no whole number."""
    return _Search(b, {}).range(value, _DEEPEST)


@dataclass(frozen=True, slots=True)
class _Search:
    """What is known of values so far: a graph may use one value many times."""

    b: Builder
    known: dict[int, Range | None]

    def range(self, value: Value, depth: int) -> Range | None:
        if value.index not in self.known:
            if depth == 0 or len(self.known) > _MOST:
                return None
            self.known[value.index] = self._range(value, depth)
        return self.known[value.index]

    def _range(self, value: Value, depth: int) -> Range | None:
        node, dtype = self.b.node(value), value.type.dtype
        if not (value.type.rowwise or node.op == "constant"):
            return None
        width = math.prod(value.type.shape[1:] if value.type.rowwise else value.type.shape)
        below = [self.b.value(i) for i in node.inputs]
        if dtype == "bool":
            return np.zeros(width), np.ones(width)
        if node.op == "constant":
            return _of_numbers(node.attrs["value"], node.attrs["value"])
        if node.op == "argmax":
            last = below[0].type.shape[node.attrs["axis"]] - 1
            return np.zeros(width), np.full(width, float(last))
        if node.op == "tree_ensemble":
            return _of_trees(Ensemble.of(node.attrs))
        if node.op == "take":
            table = self.b.node(below[0]).attrs.get("value", np.zeros(0))
            if table.ndim != 1 or not table.size:
                return None
            return _of_numbers(np.full(width, table.min()), np.full(width, table.max()))
        if node.op in ("cast", "reshape") and dtype in _EXACT:
            return self.range(below[0], depth - 1)
        if node.op == "select":
            found = self.range(below[0], depth - 1)
            chosen = node.attrs["indices"]
            return None if found is None else (found[0][chosen], found[1][chosen])
        if node.op in _ENDS:
            left, right = (self.range(v, depth - 1) for v in below[-2:])
            if left is not None and right is not None:
                return _joined(node.op, left, right, width)
        return None


def _joined(op: str, left: Range, right: Range, width: int) -> Range | None:
    ends = _ENDS[op](left, right)
    made = _of_numbers(functools.reduce(np.minimum, ends), functools.reduce(np.maximum, ends))
    if made is None:
        return None
    return np.broadcast_to(made[0], width), np.broadcast_to(made[1], width)


def _of_numbers(low: Array, high: Array) -> Range | None:
    ends = [np.asarray(v).ravel() for v in (low, high)]
    if any(v.dtype.kind not in "iuf" for v in ends):
        return None
    least, most = (v.astype(np.float64) for v in ends)
    exact = all(bool((np.trunc(v) == v).all() and (np.abs(v) < _LARGEST).all()) for v in ends)
    return (least, most) if exact else None


def _of_trees(e: Ensemble) -> Range | None:
    """The least leaves of all trees together, and the greatest."""
    if _of_numbers(e.leaf_values, e.leaf_values) is None or _of_numbers(e.base, e.base) is None:
        return None
    low = e.base.astype(np.float64)
    high = low.copy()
    values = e.leaf_values.shape[1]
    columns = e.target[:, None] + np.arange(values)
    starts = first_leaves(e)
    if e.trees:
        for ends, least in ((low, np.minimum), (high, np.maximum)):
            np.add.at(ends, columns, least.reduceat(e.leaf_values, starts, axis=0))
    return _of_numbers(low, high)


def first_leaves(e: Ensemble) -> Array:
    """The first leaf of each tree, int64 (T,): the leaves of one tree follow each other."""
    inner = np.bincount(e.node_roots(), minlength=e.trees) if e.nodes else np.zeros(e.trees, int)
    return np.concatenate([[0], np.cumsum(inner + 1)[:-1]]).astype(np.int64)[: e.trees]
