"""`LockstepForest`: an Ensemble as the arrays that the lockstep kernel reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import (
    COUNT,
    NOTHING,
    kinds_of,
    reads,
    specialise,
    writes,
)
from sqlml.backends.native.kernel_calls import Call, Rows
from sqlml.backends.native.trees.lockstep import ANY, LEVELS, MEMBER, WINDOW, score
from sqlml.backends.native.trees.siblings import Siblings, siblings
from sqlml.ir.decisions import largest_below
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class LockstepForest:
    """An Ensemble compiled for input of one dtype. Thread-safe."""

    base: Array
    in_place: bool
    kernel: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __call__(self, x: Array) -> Array:
        """Score x (n, k) -> (n, outputs)."""
        out = np.empty((x.shape[0], self.base.size), self.base.dtype)
        self.fill(x, out, ANY)
        return out

    def fill(self, x: Array, out: Array, allowed: int) -> int:
        """Write the scores of x (n, k) to out (n, outputs).

        Returns -1, or a row at or before the first with a number that is not `allowed`.
        """
        flat = x.ravel()
        tested = flat if self.in_place else None
        found: int = self.kernel(flat, tested, x.shape[1], allowed, *self.arguments, out)
        return found

    def calls(self, x: Rows, out: Rows, allowed: int) -> tuple[Call, ...]:
        """The call that does what `fill` does, for whole rows."""
        flat = x.line()
        tested = flat if self.in_place else None
        return (Call(self.kernel, (flat, tested, x.width, allowed, *self.arguments, out)),)


def lockstep_forest(
    e: Ensemble, source: np.dtype[Any], columns: Array | None = None
) -> LockstepForest:
    """Compile `e` for input of dtype `source` (float32 or float64).

    Column j of the ensemble's input is column `columns[j]` of what is passed (default: j).
    """
    used = np.unique(e.feature)
    read = np.ascontiguousarray(used if columns is None else columns[used], np.int64)
    numbered = siblings(e.roots, np.ones(e.trees, np.int64), e.left, e.right)
    in_place = source == e.threshold.dtype
    column = (read if in_place else np.arange(used.size))[np.searchsorted(used, e.feature)]
    arguments = (
        read,
        *_by_depth(e, numbered),
        _nodes(e, column, numbered),
        np.where(numbered.inner, 0, ~numbered.reference).astype(np.uint32),
        _left(e, numbered),
        _sets(e, numbered) if e.has_categories else None,
        e.target.astype(np.int64),
        np.ascontiguousarray(e.leaf_values),
        np.ascontiguousarray(e.base),
    )
    flat = reads(source, 1, "C")
    rows = (flat, flat if in_place else NOTHING, COUNT, COUNT)
    kernel = specialise(score, (*rows, *kinds_of(*arguments), writes(e.base.dtype, 2)))
    return LockstepForest(e.base, in_place, kernel, arguments)


def _by_depth(e: Ensemble, numbered: Siblings) -> tuple[Array, Array]:
    """`trees` and `moving` of the kernel."""
    depth = np.zeros(e.trees, np.int64)
    np.maximum.at(depth, e.node_roots(), e.depths() + 1)
    window = np.arange(e.trees) // WINDOW
    order = np.lexsort((-depth, window))
    place = np.empty(e.trees, np.int64)
    place[order] = np.arange(e.trees) % WINDOW
    moving = np.zeros((window[-1] + 1 if e.trees else 0, LEVELS + 1), np.uint32)
    for level in range(LEVELS + 1):
        np.add.at(moving[:, level], window[depth > level], 1)
    trees = np.stack([numbered.begin[:-1][order], depth[order], place], axis=1)
    return trees.astype(np.uint32), moving


def _nodes(e: Ensemble, column: Array, numbered: Siblings) -> Array:
    """The nodes as the kernel reads them, (places,) of records; `column` int64 (M,) by node."""
    is_inner, node = numbered.inner, numbered.reference[numbered.inner]
    nodes = np.zeros(is_inner.size, _record(e.threshold.dtype))
    # No number is up to NaN, so a leaf goes to the place after its first child, which is its own.
    nodes["first"] = (numbered.first - ~is_inner).astype(np.uint32)
    nodes["threshold"] = np.nan
    threshold = e.threshold if e.compare == "le" else largest_below(e.threshold)
    if e.categorical is not None:
        threshold = np.where(e.categorical, np.nan, threshold)
        column = column + np.where(e.categorical, MEMBER, 0)
    nodes["threshold"][is_inner] = threshold[node]
    nodes["column"][is_inner] = column[node]
    return nodes


def _left(e: Ensemble, numbered: Siblings) -> Array:
    """Where NaN goes left, uint8 by place; empty where it never does and none is in a set."""
    if not e.default_left.any() and not e.has_categories:
        return np.zeros(0, np.uint8)
    made = np.zeros(numbered.inner.size, np.uint8)
    made[numbered.inner] = e.default_left[numbered.reference[numbered.inner]]
    return made


def _record(threshold: np.dtype[Any]) -> np.dtype[Any]:
    """16 bytes, so that no node spans two cache lines."""
    spare = [("spare", "u4")] if threshold.itemsize == 4 else []
    return np.dtype([("threshold", threshold), *spare, ("first", "u4"), ("column", "u4")])


def _sets(e: Ensemble, numbered: Siblings) -> tuple[Array, Array, Array]:
    """begin, size and words of the nodes' sets."""
    if e.set_offsets is None or e.set_words is None:
        raise AssertionError("an ensemble with categories must have their sets")
    is_inner, node = numbered.inner, numbered.reference[numbered.inner]
    begin, size = np.zeros(is_inner.size, np.uint32), np.zeros(is_inner.size, e.threshold.dtype)
    begin[is_inner] = e.set_offsets[node]
    size[is_inner] = (e.set_offsets[node + 1] - e.set_offsets[node]) * 32.0
    return begin, size, np.ascontiguousarray(e.set_words)
