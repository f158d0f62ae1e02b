"""`Forest`: run an Ensemble with the fastest kernel for the ensemble and the batch.

Each kernel is built and compiled when it is first needed. So a model opens quickly, and a batch of
a few rows never waits for the kernel for large batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from sqlml.backends.costs import BYTE_BINS, LANES, TreeCosts, current_costs, estimate_tree_costs
from sqlml.backends.native.kernel_calls import Call, RowKernel, Rows
from sqlml.backends.native.rows.column_kernels import call_check, call_take
from sqlml.backends.native.trees.binned import bin_tests
from sqlml.backends.native.trees.cursor_forest import compile_cursor_forest
from sqlml.backends.native.trees.descent_forest import compile_descent_forest
from sqlml.backends.native.trees.lockstep import ANY, FINITE_OR_NAN
from sqlml.backends.native.trees.lockstep_forest import LockstepForest, compile_lockstep_forest
from sqlml.backends.native.trees.walk import BLOCK_BYTES
from sqlml.errors import BackendError
from sqlml.ir.tree_shape import TreeShape, measure_tree_shape, narrow_thresholds
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


class Forest:
    """An Ensemble for input of dtype `source`; its column j is the input's column `columns[j]`.

    The first batch raises BackendError if the kernel named by `strategy` cannot run the trees.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        source: np.dtype[Any],
        columns: Array | None = None,
        strategy: str = "traverse",
    ) -> None:
        self.source = source
        self.outputs: int = ensemble.outputs
        self.dtype: np.dtype[Any] = ensemble.base.dtype
        self._ensemble = narrow_thresholds(ensemble) if source == np.float32 else ensemble
        self._columns = columns
        self._strategy = strategy

    def __call__(self, x: Array) -> Array:
        return self.lockstep(x) if self.uses_lockstep(x.shape[0]) else self.blocks(x)

    def calls(
        self, x: Rows, out: Rows, places: Iterator[int], rows: int, allowed: int = ANY
    ) -> tuple[Call, ...]:
        """Return the calls that write the scores of rows `x` to `out`, for a block of `rows` rows.

        A number that is not `allowed` (`lockstep.ANY`, ...) ends the calls. `places` yields scratch
        places.
        """
        first_calls: tuple[Call, ...] = ()
        uses_lockstep = self.uses_lockstep(rows)
        if x.dtype != self.source or (uses_lockstep and not x.is_contiguous):
            copy = Rows(next(places), self.source, x.width)
            first_calls, x = (call_take(x, np.arange(x.width), copy),), copy
        if uses_lockstep:
            return (*first_calls, self.lockstep.call(x, out, allowed))
        if allowed != ANY:
            first_calls += (call_check(x, allowed == FINITE_OR_NAN),)
        assert isinstance(self.blocks, RowKernel)
        return (*first_calls, self.blocks.call(x, out))

    def uses_lockstep(self, rows: int) -> bool:
        return rows < self.few_rows or isinstance(self.blocks, LockstepForest)

    @cached_property
    def lockstep(self) -> LockstepForest:
        """The kernel for few rows, and for trees without bins."""
        return compile_lockstep_forest(self._ensemble, self.source, self._columns)

    @cached_property
    def blocks(self) -> RowKernel | LockstepForest:
        """The kernel for many rows: cursor or descent, or lockstep if that is faster."""
        block_forest = self._make_block_forest()
        if block_forest is None and self._strategy != "traverse":
            raise BackendError(
                f"strategy {self._strategy!r} cannot run these trees: they have too many leaves, "
                "thresholds or categories; use strategy 'traverse'"
            )
        return self.lockstep if block_forest is None else block_forest

    @cached_property
    def _shape(self) -> TreeShape:
        return measure_tree_shape(self._ensemble)

    @cached_property
    def _costs(self) -> TreeCosts:
        return estimate_tree_costs(self._shape, current_costs())

    @cached_property
    def few_rows(self) -> float:
        """The row count below which `lockstep` is faster than the kernel for whole blocks."""
        if self._strategy != "traverse":
            return np.inf if self._strategy == "lockstep" else 0
        costs = self._costs
        uses_bytes = self._shape.thresholds <= BYTE_BINS or costs.paged
        rows = BLOCK_BYTES if uses_bytes else BLOCK_BYTES // 2
        block_cost = rows * min(costs.cursor, costs.descent) + costs.batch
        few_rows = block_cost / max(costs.lockstep, 1e-3)
        if few_rows < LANES:
            return few_rows
        return max(LANES, block_cost / max(costs.choose_lockstep_cost(LANES), 1e-3))

    def _make_block_forest(self) -> RowKernel | None:
        costs, ensemble = self._costs, self._ensemble
        tests = bin_tests(ensemble)
        if tests is None:
            return None
        block_cost = min(costs.cursor, costs.descent)
        if self._strategy == "traverse" and costs.choose_lockstep_cost(BLOCK_BYTES) < block_cost:
            return None
        is_cursor_cheaper = self._strategy == "traverse" and costs.cursor <= costs.descent
        if self._strategy == "cursor" or is_cursor_cheaper:
            tests = (bin_tests(ensemble, paged=True) if costs.paged else None) or tests
            return compile_cursor_forest(ensemble, tests, self.source, self._columns)
        return compile_descent_forest(ensemble, tests, costs.cut, self.source, self._columns)
