"""`TreeFiller`: an output of one ensemble of trees, in two kernel calls.

The first checks the rows and computes margins; the second is the register machine, which makes
probabilities and labels of the margins. If the output is the margins, there is no second call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sqlml.backends.native.kernel_calls import Call, Rows
from sqlml.backends.native.operators import KERNEL_FLOATS, find_source
from sqlml.backends.native.rows.column_kernels import call_take, checker, converter
from sqlml.backends.native.stepwise import BLOCK_BYTES, Stepwise
from sqlml.backends.native.trees.lockstep import ANY, FINITE, NAN_TOO
from sqlml.backends.native.trees.native_forest import Forest
from sqlml.backends.native.vm.assemble import find_upper_bound
from sqlml.backends.native.vm.whole_output import Fused, TreeTail
from sqlml.types import Array, numpy_dtype


class TreeFiller:
    """One output of a Program of one input, a matrix. Thread-safe; see `Filler`.

    Args:
        columns: the index of the rows' columns that `forest` reads; None: all.
        allowed: the numbers that these may be (`lockstep.ANY`, ...).
        tail: makes the output from the margins; None: the output is the margins.
    """

    def __init__(
        self,
        steps: Stepwise,
        output: str,
        forest: Forest,
        columns: Any,
        allowed: int,
        tail: Fused | None,
    ) -> None:
        program = steps.program
        (node,) = program.inputs.values()
        kind = program.output_type(output)
        self.input = numpy_dtype(program.nodes[node].type.dtype)
        self.dtype = numpy_dtype(kind.dtype)
        self.width = kind.width
        self.below = find_upper_bound(program, program.outputs[output])
        self._forest, self._columns, self._allowed, self._tail = forest, columns, allowed, tail
        self._has_refused = None if allowed == ANY else checker(forest.source, allowed == NAN_TOO)
        self._convert = (
            None if forest.source == self.input else converter(self.input, forest.source)
        )
        self._rows = steps.rows
        if self._convert is None and not isinstance(columns, np.ndarray):  # rows are not copied
            self._rows = max(steps.rows, BLOCK_BYTES // (16 * max(self.width, forest.outputs)))

    @classmethod
    def of(
        cls, steps: Stepwise, output: str, columns: Sequence[int], width: int
    ) -> TreeFiller | None:
        """Return a filler for `columns` of the `width` columns of rows, or None.

        None if the output needs more than one ensemble, a check and a tail.
        """
        program, columns_read = steps.program, np.array(columns, np.int64)
        plan = steps.schedule_of((output,)).steps
        trees = [(step, step.function) for step in plan if isinstance(step.function, Forest)]
        if len(trees) != 1:
            return None
        ((step, forest),) = trees
        below, allowed = step.inputs[0], ANY
        check = program.nodes[below]
        if check.op == "require_finite":
            has_limits = "low" in check.attrs or "high" in check.attrs
            if has_limits or check.type.dtype not in KERNEL_FLOATS:
                return None
            source = find_source(program, check.inputs[0], check.type.dtype)
            below, allowed = source.node, NAN_TOO if check.attrs["allow_nan"] else FINITE
            if program.nodes[below].op == "input":
                columns_read = columns_read[source.columns]
        kind = program.nodes[below].type
        if program.nodes[below].op != "input" or kind.dtype not in KERNEL_FLOATS:
            return None
        last = plan[-1].function
        tail = last.machine if isinstance(last, TreeTail) else None
        if tail is None and plan[-1] is not step:
            return None
        return cls(steps, output, forest, _simplify_index(columns_read, width), allowed, tail)

    def fill(self, x: Array, out: Array) -> int:
        """Write the scores of rows `x` into `out`, a block of rows at a time (`Filler.fill`)."""
        if x.shape[0] <= self._rows:
            return self._fill_block(x, out)
        for start in range(0, x.shape[0], self._rows):
            stop = start + self._rows
            if self._fill_block(x[start:stop], out[start:stop]) >= 0:
                return start
        return -1

    def _fill_block(self, x: Array, out: Array) -> int:
        forest, tail = self._forest, self._tail
        if self._columns is not None:
            x = x[:, self._columns]
        if self._convert is not None:
            rows, x = x.ravel(), np.empty(x.shape, forest.source)
            self._convert(rows, x.reshape(-1))
        margins = out if tail is None else np.empty((x.shape[0], forest.outputs), forest.dtype)
        if forest.uses_lockstep(x.shape[0]):
            if forest.lockstep.fill(x, margins, self._allowed) >= 0:
                return 0
        else:
            if self._has_refused is not None and self._has_refused(x):
                return 0
            margins = forest.blocks(x)
            if tail is None:
                out[...] = margins
        return -1 if tail is None else tail.fill(margins, out)

    def turn(self) -> float:
        """Return the rows below which a block is filled by other calls."""
        return self._forest.few_rows

    def calls(self, x: Rows, out: Rows, places: Iterator[int], rows: int) -> tuple[Call, ...]:
        """Return the calls that do what `fill` does with a block of so many rows."""
        forest, tail = self._forest, self._tail
        copies: tuple[Call, ...] = ()
        if isinstance(self._columns, slice):
            x = x.select(self._columns)
        elif self._columns is not None:
            copy = Rows(next(places), forest.source, self._columns.size)
            copies, x = (call_take(x, self._columns, copy),), copy
        margins = out if tail is None else Rows(next(places), forest.dtype, forest.outputs)
        tree_calls = forest.calls(x, margins, places, rows, self._allowed)
        tail_calls = () if tail is None else tail.calls(margins, out, places)
        return (*copies, *tree_calls, *tail_calls)


def _simplify_index(columns: Array, width: int) -> Any:
    """Return an index of these columns: None for all of them, a slice for adjacent ones."""
    if np.array_equal(columns, np.arange(width)):
        return None
    first = int(columns[0]) if columns.size else 0
    if np.array_equal(columns, np.arange(first, first + columns.size)):
        return slice(first, first + columns.size)
    return columns
