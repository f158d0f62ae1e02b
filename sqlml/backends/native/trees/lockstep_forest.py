"""`LockstepForest`: an Ensemble as the arrays that the lockstep kernel reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.native.jit import NOTHING, array_types, reads, specialise, writes
from sqlml.backends.native.trees.lockstep import MEMBER, MISSING, score
from sqlml.backends.native.trees.siblings import Siblings, siblings
from sqlml.ir.decisions import Decisions, decisions
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class LockstepForest:
    """An Ensemble compiled for input of one dtype. Thread-safe."""

    base: Array
    kernel: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __call__(self, x: Array) -> Array:
        """Score x (n, k) -> (n, outputs)."""
        out = np.empty((x.shape[0], self.base.size), self.base.dtype)
        self.kernel(x, *self.arguments, self.base, out)
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
    arguments = (
        read,
        used % 2 == 1,
        numbered.begin[:-1].astype(np.uint32),
        _nodes(e, tests, used, numbered),
        np.where(numbered.inner, 0, ~numbered.reference).astype(np.uint32),
        sets,
        e.target.astype(np.int64),
        np.ascontiguousarray(e.leaf_values),
    )
    kernel = specialise(
        score,
        (
            reads(source, 2),
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
    return LockstepForest(e.base, kernel, arguments)


def _nodes(e: Ensemble, tests: Decisions, used: Array, numbered: Siblings) -> Array:
    """The nodes as the kernel reads them, (places,) of records."""
    is_inner, node = numbered.inner, numbered.reference[numbered.inner]
    nodes = np.zeros(is_inner.size, _record(e.threshold.dtype))
    nodes["first"] = numbered.first
    nodes["threshold"] = np.inf
    nodes["threshold"][is_inner] = tests.threshold[node]
    column = np.searchsorted(used, tests.feature.astype(np.int64) * 2 + tests.negated)[node] + 1
    if e.categorical is not None:
        column += np.where(e.default_left[node], MEMBER + MISSING, MEMBER) * e.categorical[node]
    nodes["column"][is_inner] = column
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
