"""`LockstepForest`: an Ensemble as the arrays that the lockstep kernel reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.native.jit import COUNT, NOTHING, array_types, reads, specialise, writes
from sqlml.backends.native.trees.lockstep import MEMBER, MISSING, score
from sqlml.backends.native.trees.siblings import Siblings, siblings
from sqlml.ir.decisions import Decisions, decisions
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class LockstepForest:
    """An Ensemble compiled for input of one dtype. Thread-safe.

    `in_place` says that the tests read the rows where they lie.
    """

    base: Array
    in_place: bool
    empty: Array
    kernel: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __call__(self, x: Array) -> Array:
        """Score x (n, k) -> (n, outputs)."""
        out = np.empty((x.shape[0], self.base.size), self.base.dtype)
        if self.in_place:
            flat = np.ascontiguousarray(x).reshape(-1)
            self.kernel(x, flat, x.shape[1], *self.arguments, self.base, out)
        else:
            self.kernel(x, self.empty, 0, *self.arguments, self.base, out)
        return out


def lockstep_forest(
    e: Ensemble, source: np.dtype[Any], columns: Array | None = None
) -> LockstepForest:
    """Compile `e` for input of dtype `source` (float32 or float64).

    Column j of the ensemble's input is column `columns[j]` of what is passed (default: j).
    """
    tests = decisions(e)
    used = np.unique(tests.feature.astype(np.int64) * 2 + tests.negated)
    read = np.ascontiguousarray(used // 2 if columns is None else columns[used // 2], np.int64)
    one = np.ones(e.trees, np.int64)
    numbered = siblings(e.roots, one, tests.then, tests.otherwise)
    sets = _sets(e, numbered) if e.has_categories else None
    in_place = source == e.threshold.dtype and not tests.negated.any()
    column = read if in_place else np.arange(used.size)
    place = np.searchsorted(used, tests.feature.astype(np.int64) * 2 + tests.negated)
    arguments = (
        read,
        used % 2 == 1,
        numbered.begin[:-1].astype(np.uint32),
        _nodes(e, tests, column[place], numbered),
        np.where(numbered.inner, 0, ~numbered.reference).astype(np.uint32),
        sets,
        e.target.astype(np.int64),
        np.ascontiguousarray(e.leaf_values),
    )
    kernel = specialise(
        score,
        (
            reads(source, 2),
            reads(e.threshold.dtype, 1, "C"),
            COUNT,
            *(
                NOTHING
                if a is None
                else array_types(a)
                if isinstance(a, tuple)
                else reads(a.dtype, a.ndim, "C")
                for a in arguments
            ),
            reads(e.base.dtype, 1, "C"),
            writes(e.base.dtype, 2),
        ),
    )
    return LockstepForest(e.base, in_place, np.zeros(0, e.threshold.dtype), kernel, arguments)


def _nodes(e: Ensemble, tests: Decisions, column: Array, numbered: Siblings) -> Array:
    """The nodes as the kernel reads them, (places,) of records; `column` int64 (M,) by node."""
    is_inner, node = numbered.inner, numbered.reference[numbered.inner]
    nodes = np.zeros(is_inner.size, _record(e.threshold.dtype))
    # No number is up to NaN, so a leaf goes to the place behind its first child, which is its own.
    nodes["first"] = (numbered.first - ~is_inner).astype(np.uint32)
    nodes["threshold"] = np.nan
    nodes["threshold"][is_inner] = tests.threshold[node]
    if e.categorical is not None:
        bits = np.where(e.default_left, MEMBER + MISSING, MEMBER) * e.categorical
        column = column + bits
    nodes["column"][is_inner] = column[node]
    return nodes


def _record(threshold: np.dtype[Any]) -> np.dtype[Any]:
    """16 bytes, so that no node spans two cache lines."""
    spare = [("spare", "u4")] if threshold.itemsize == 4 else []
    return np.dtype([("threshold", threshold), *spare, ("first", "u4"), ("column", "u4")])


def _sets(e: Ensemble, numbered: Siblings) -> tuple[Array, Array, Array]:
    """begin, size and words of the nodes' sets."""
    if e.set_offsets is None or e.set_words is None:
        raise AssertionError("an ensemble with categories has their sets")
    is_inner, node = numbered.inner, numbered.reference[numbered.inner]
    begin, size = np.zeros(is_inner.size, np.uint32), np.zeros(is_inner.size, e.threshold.dtype)
    begin[is_inner] = e.set_offsets[node]
    size[is_inner] = (e.set_offsets[node + 1] - e.set_offsets[node]) * 32.0
    return begin, size, np.ascontiguousarray(e.set_words)
