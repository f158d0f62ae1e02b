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

_START_SHARE = 0.2
"""The share of a full block's time that does not depend on the block's rows. With AVX-512, 64 of
512 rows took 0.24 to 0.34 of the time of all, for 100 trees of depth 4 to 8."""


class Forest:
    """An Ensemble compiled for input of dtype `source_dtype`.

    Column j of the ensemble is column columns[j] of the input (default: j). The first batch
    raises BackendError if the kernel named by `strategy` cannot run the trees.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        source_dtype: np.dtype[Any],
        columns: Array | None = None,
        strategy: str = "traverse",
    ) -> None:
        self.source_dtype = source_dtype
        self.outputs: int = ensemble.outputs
        self.dtype: np.dtype[Any] = ensemble.base.dtype
        self._ensemble = narrow_thresholds(ensemble) if source_dtype == np.float32 else ensemble
        self._columns = columns
        self._strategy = strategy

    def __call__(self, x: Array) -> Array:
        return self.lockstep_kernel(x) if self.uses_lockstep(len(x)) else self.block_kernel(x)

    def make_calls(
        self, x: Rows, out: Rows, buffers: Iterator[int], row_count: int, allowed: int = ANY
    ) -> tuple[Call, ...]:
        """Return the calls that write the scores of rows `x` to `out`, for a block of rows.

        Execution stops at the first number that is not `allowed`, which is `lockstep.ANY`, FINITE
        or FINITE_OR_NAN. `buffers` yields the numbers of free buffers.
        """
        first_calls: tuple[Call, ...] = ()
        uses_lockstep = self.uses_lockstep(row_count)
        if x.dtype != self.source_dtype or (uses_lockstep and not x.is_contiguous):
            copy = Rows(next(buffers), self.source_dtype, x.width)
            first_calls, x = (call_take(x, np.arange(x.width), copy),), copy
        if uses_lockstep:
            return (*first_calls, self.lockstep_kernel.make_call(x, out, allowed))
        if allowed != ANY:
            first_calls += (call_check(x, allowed == FINITE_OR_NAN),)
        assert isinstance(self.block_kernel, RowKernel)
        return (*first_calls, self.block_kernel.make_call(x, out))

    def uses_lockstep(self, row_count: int) -> bool:
        return row_count < self.lockstep_limit or isinstance(self.block_kernel, LockstepForest)

    @cached_property
    def lockstep_kernel(self) -> LockstepForest:
        """The kernel for few rows, and for trees without bins."""
        return compile_lockstep_forest(self._ensemble, self.source_dtype, self._columns)

    @cached_property
    def block_kernel(self) -> RowKernel | LockstepForest:
        """The kernel for many rows: cursor, descent, or the lockstep kernel if that is faster."""
        kernel = self._compile_block_kernel()
        if kernel is None and self._strategy != "traverse":
            raise BackendError(
                f"strategy {self._strategy!r} cannot run these trees: they have too many leaves, "
                "thresholds or categories; use strategy 'traverse'"
            )
        return self.lockstep_kernel if kernel is None else kernel

    @cached_property
    def _shape(self) -> TreeShape:
        return measure_tree_shape(self._ensemble)

    @cached_property
    def _costs(self) -> TreeCosts:
        return estimate_tree_costs(self._shape, current_costs())

    @cached_property
    def lockstep_limit(self) -> float:
        """The row count below which the lockstep kernel is faster than one for whole blocks."""
        if self._strategy != "traverse":
            return np.inf if self._strategy == "lockstep" else 0
        costs = self._costs
        uses_bytes = self._shape.thresholds <= BYTE_BINS or costs.paged
        rows = BLOCK_BYTES if uses_bytes else BLOCK_BYTES // 2
        block_cost = rows * min(costs.cursor, costs.descent)
        start_cost = _START_SHARE * block_cost + costs.batch
        row_cost = (1 - _START_SHARE) * block_cost / rows

        def find_limit(lockstep_cost: float) -> float:
            limit = start_cost / max(lockstep_cost - row_cost, 1e-3)
            return limit if limit < rows else (block_cost + costs.batch) / max(lockstep_cost, 1e-3)

        limit = find_limit(costs.lockstep)
        if limit < LANES:
            return limit
        return max(LANES, find_limit(costs.choose_lockstep_cost(LANES)))

    def _compile_block_kernel(self) -> RowKernel | None:
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
            return compile_cursor_forest(ensemble, tests, self.source_dtype, self._columns)
        return compile_descent_forest(ensemble, tests, costs.cut, self.source_dtype, self._columns)
