"""`Forest`: an Ensemble made ready, with the kernel that is fastest for its shape and the batch.

Each kernel is built and compiled when it is first needed: opening a model stays quick, and a
batch of a few rows never waits for the kernel of large ones.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from sqlml.backends.native.cursor_forest import CursorForest, cursor_forest
from sqlml.backends.native.leaf_cursor import BLOCK_BYTES
from sqlml.backends.native.traversal_forest import TraversalForest, traversal_forest
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

FEW_ROWS = BLOCK_BYTES // 8
"""Fewer rows go down by traversal: the leaf-cursor kernel works for a whole block anyway."""

NODE, WIDE_NODE, SET, STEP = 0.0075, 0.0145, 0.5, 0.7
"""Nanoseconds a row, as measured: of a node over a block of bytes or of 16-bit numbers, of a set
of categories, and of a step of a traversal."""


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
        if x.shape[0] < FEW_ROWS or self._by_cursor is None:
            return self._by_traversal(x)
        return self._by_cursor(x)

    @cached_property
    def _by_traversal(self) -> TraversalForest:
        return traversal_forest(self._ensemble, self._source, self._columns)

    @cached_property
    def _by_cursor(self) -> CursorForest | None:
        """None where traversal is the faster way for large batches too."""
        e = self._ensemble
        steps = np.zeros(e.trees)
        np.maximum.at(steps, e.node_roots(), e.depths() + 1)
        sets = 0 if e.categorical is None else int(e.categorical.sum())
        others = steps.sum() * STEP - sets * SET
        if e.nodes * NODE > others:
            return None
        made = cursor_forest(e, self._source, self._columns)
        if made is None or (made.wide and e.nodes * WIDE_NODE > others):
            return None
        return made
