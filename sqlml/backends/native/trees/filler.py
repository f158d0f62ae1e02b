"""`TreeFiller`: an output that follows from one ensemble of trees, in two calls of kernels.

The first checks the rows and goes down the trees; the second is the machine, which makes
probabilities and labels of the margins. Where the output is the margins there is no second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from sqlml.backends.native.jit.argument_kinds import reads, writes
from sqlml.backends.native.jit.specialise import specialise
from sqlml.backends.native.kernel_calls import Call, Rows
from sqlml.backends.native.operators import KERNEL_FLOATS, source
from sqlml.backends.native.rows.columns import taken
from sqlml.backends.native.rows.impute_one_hot import checker
from sqlml.backends.native.stepwise import BLOCK_BYTES, Stepwise
from sqlml.backends.native.trees import Forest
from sqlml.backends.native.trees.lockstep import ANY, FINITE, NAN_TOO
from sqlml.backends.native.vm.assemble import below
from sqlml.backends.native.vm.whole_output import Fused, TreeTail
from sqlml.types import Array, numpy_dtype


class TreeFiller:
    """One output of a Program of one input, a matrix. Thread-safe; see `Filler`.

    Args:
        columns: of the rows, which go down `forest`, as an index; None: all.
        allowed: what numbers these may be.
        tail: what follows on the margins; None: nothing.
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
        self.below = below(program, program.outputs[output])
        self._forest, self._allowed, self._tail = forest, allowed, tail
        self._margins = (forest.outputs, forest.dtype)
        self._source = forest.source
        self._fails: Callable[[Array], bool] | None = None
        if allowed != ANY:
            self._fails = checker(self._source, allowed == NAN_TOO)
        self._columns = columns
        self._rows = steps.rows
        self._cast: Callable[..., Any] | None = None
        if self._source != self.input:
            kinds = (reads(self.input, 1, "C"), writes(self._source, 1))
            self._cast = specialise(_converted, kinds)
        if self._cast is None and not isinstance(self._columns, np.ndarray):  # no copy of rows
            self._rows = max(steps.rows, BLOCK_BYTES // (16 * max(self.width, self._margins[0])))

    @classmethod
    def of(
        cls, steps: Stepwise, output: str, columns: Sequence[int], width: int
    ) -> TreeFiller | None:
        """The filler for `columns` of the `width` columns of rows; None: there is more to do."""
        program, read = steps.program, np.array(columns, np.int64)
        plan = steps.schedule_of((output,)).steps
        trees = [(step, step.function) for step in plan if isinstance(step.function, Forest)]
        if len(trees) != 1:
            return None
        ((step, forest),) = trees
        below, allowed = step.inputs[0], ANY
        check = program.nodes[below]
        if check.op == "require_finite":
            limited = "low" in check.attrs or "high" in check.attrs
            if limited or check.type.dtype not in KERNEL_FLOATS:
                return None
            found = source(program, check.inputs[0], check.type.dtype)
            below, allowed = found.node, NAN_TOO if check.attrs["allow_nan"] else FINITE
            if program.nodes[below].op == "input":
                read = read[found.columns]
        kind = program.nodes[below].type
        if program.nodes[below].op != "input" or kind.dtype not in KERNEL_FLOATS:
            return None
        last = plan[-1].function
        tail = last.machine if isinstance(last, TreeTail) else None
        if tail is None and plan[-1] is not step:
            return None
        return cls(steps, output, forest, _read(read, width), allowed, tail)

    def fill(self, x: Array, out: Array) -> int:
        """Write the scores of rows `x` into `out`, a block of rows at a time (`Filler.fill`)."""
        if x.shape[0] <= self._rows:
            return self._fill(x, out)
        for start in range(0, x.shape[0], self._rows):
            stop = start + self._rows
            if self._fill(x[start:stop], out[start:stop]) >= 0:
                return start
        return -1

    def _fill(self, x: Array, out: Array) -> int:
        if self._columns is not None:
            x = x[:, self._columns]
        if self._cast is not None:
            rows, x = x.ravel(), np.empty(x.shape, self._source)
            self._cast(rows, x.reshape(-1))
        tail = self._tail
        made = out if tail is None else np.empty((x.shape[0], self._margins[0]), self._margins[1])
        if self._forest.by_lockstep(x.shape[0]):
            if self._forest.lockstep.fill(x, made, self._allowed) >= 0:
                return 0
        else:
            if self._fails is not None and self._fails(x):
                return 0
            made = self._forest.blocks(x)
            if tail is None:
                out[...] = made
        return -1 if tail is None else tail.fill(made, out)

    def turn(self) -> float:
        """Blocks of fewer rows are filled by other calls."""
        return self._forest.few_rows

    def calls(self, x: Rows, out: Rows, places: Iterator[int], rows: int) -> tuple[Call, ...]:
        """The calls that do what `fill` does with a block of so many rows."""
        before: tuple[Call, ...] = ()
        if isinstance(self._columns, slice):
            x = x.columns(self._columns)
        elif self._columns is not None:
            whole = Rows(next(places), self._source, self._columns.size)
            before, x = (taken(x, self._columns, whole),), whole
        outputs, dtype = self._margins
        made = out if self._tail is None else Rows(next(places), dtype, outputs)
        forest = self._forest.calls(x, made, places, rows, self._allowed)
        after = () if self._tail is None else self._tail.calls(made, out, places)
        return (*before, *forest, *after)


def _converted(x: Any, out: Any) -> None:
    for i in range(x.size):
        out[i] = x[i]


def _read(columns: Array, width: int) -> Any:
    """An index of these columns of rows: None for all of them, a slice for neighbours."""
    if np.array_equal(columns, np.arange(width)):
        return None
    first = int(columns[0]) if columns.size else 0
    if np.array_equal(columns, np.arange(first, first + columns.size)):
        return slice(first, first + columns.size)
    return columns
