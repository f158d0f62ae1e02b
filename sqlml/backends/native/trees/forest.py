"""`Forest`: an Ensemble made ready, with the kernel that is fastest for its shape and the batch.

Each kernel is built and compiled when it is first needed: opening a model stays quick, and a
batch of a few rows never waits for the kernel of large ones.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from sqlml.backends.native.trees.binned import Binned, binned
from sqlml.backends.native.trees.cursor_forest import CursorForest, cursor_forest, oblivious
from sqlml.backends.native.trees.descent_forest import DescentForest, descent_forest
from sqlml.backends.native.trees.leaf_cursor import BLOCK_BYTES
from sqlml.backends.native.trees.lockstep_forest import LockstepForest, lockstep_forest
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

FEW_ROWS = BLOCK_BYTES // 8
"""Fewer rows go down in lockstep: the other kernels work for a whole block anyway."""

NODE, WIDE_NODE, SET, STEP, BARE_STEP = 0.0075, 0.0145, 0.5, 1.0, 1.6
"""Nanoseconds a row, as measured: of a node over a block of bytes or of 16-bit numbers, of a set
of categories, of a step down with bins, and of one without."""


class Forest:
    """An Ensemble for input of dtype `source`; column j of it is column `columns[j]`."""

    def __init__(
        self, ensemble: Ensemble, source: np.dtype[Any], columns: Array | None = None
    ) -> None:
        self._ensemble = ensemble
        self._source = source
        self._columns = columns

    def __call__(self, x: Array) -> Array:
        """Score x (n, k) -> (n, outputs)."""
        if x.shape[0] < FEW_ROWS:
            return self.lockstep(x)
        return self.blocks(x)

    @cached_property
    def lockstep(self) -> LockstepForest:
        """For few rows, and for what has no bins."""
        return lockstep_forest(self._ensemble, self._source, self._columns)

    @cached_property
    def blocks(self) -> CursorForest | DescentForest | LockstepForest:
        """For blocks of rows."""
        e = self._ensemble
        tests = binned(e)
        if tests is None or tests.sets.begin.size * SET > e.depth * e.trees * BARE_STEP:
            return self.lockstep
        cut = _cut(e, tests)
        made: CursorForest | DescentForest | None
        if cut is None:
            made = cursor_forest(e, tests, self._source, self._columns)
        else:
            made = descent_forest(e, tests, cut, self._source, self._columns)
        return self.lockstep if made is None else made


def _cut(e: Ensemble, tests: Binned) -> Array | None:
    """The depth of each tree from which a step down costs less than all nodes of a level.

    None where there is no such level in any tree.
    """
    node = NODE if tests.tables.dtype == np.uint8 else WIDE_NODE
    depths, owner = e.depths().astype(np.int64), e.node_roots()
    levels = int(depths.max(initial=0)) + 1
    if levels * e.trees > 1 << 26:
        return np.zeros(e.trees, np.int64)
    nodes = np.bincount(owner * levels + depths, minlength=levels * e.trees)
    wide = nodes.reshape(e.trees, levels) * node > STEP
    wide[oblivious(e, tests)] = False
    return wide.argmax(1) + np.where(wide.any(1), 0, levels) if wide.any() else None
