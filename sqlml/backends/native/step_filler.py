"""`StepFiller`: an output of a Program that runs step by step, written where it shall be.

A row of a model takes some microseconds, and what stands around the kernels counts: no names, no
copies of the rows, no result that is copied into another.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from sqlml.backends.native.follow_calls import Follower
from sqlml.backends.native.kernel_calls import INPUT, RESULT, SCRATCH, KernelCalls, Rows
from sqlml.backends.native.stages import Stages
from sqlml.backends.native.stepwise import Stepwise
from sqlml.backends.native.vm.assemble import below
from sqlml.errors import SqlmlError
from sqlml.types import Array, numpy_dtype

MANY = 2048
"""Rows of a batch that is not small."""


class StepFiller:
    """One output of a Program of one input, a matrix. Thread-safe; see `Filler`.

    Args:
        columns, width: the input's columns are these of the `width` columns of the rows.
    """

    def __init__(self, steps: Stepwise, output: str, columns: Sequence[int], width: int) -> None:
        program = steps.program
        (node,) = program.inputs.values()
        kind = program.output_type(output)
        self.input = numpy_dtype(program.nodes[node].type.dtype)
        self.dtype = numpy_dtype(kind.dtype)
        self.width = kind.width
        self.below = below(program, program.outputs[output])
        self._node = node
        self._made = program.outputs[output]
        self._plan = steps.schedule_of((output,))
        self._constants = steps.constants
        self._rows = steps.rows
        start = columns[0] if columns else 0
        self._slice: slice | None = None
        if list(columns) == list(range(start, start + len(columns))):
            self._slice = slice(start, start + len(columns))
        self._columns = np.array(columns, np.int64)

    def fill(self, x: Array, out: Array) -> int:
        """Write what the steps make of rows `x` into `out`, block by block (`Filler.fill`)."""
        for start in range(0, x.shape[0], self._rows):
            block = x[start : start + self._rows]
            values = dict(self._constants)
            if self._slice is not None:
                values[self._node] = block[:, self._slice]
            else:
                values[self._node] = block.take(self._columns, axis=1)
            try:
                with np.errstate(all="ignore"):
                    self._plan.run(values)
            except SqlmlError:
                return start
            out[start : start + self._rows] = values[self._made]
        return -1


class TextFiller:
    """One output of a matrix and columns of texts, as calls of kernels alone. Thread-safe.

    Attributes:
        input, columns: dtype and width of the matrix; dtype, width: of the output.
        rows, texts: the Program's nodes of the matrix and of the texts; reads_rows: whether the
            output needs the matrix.
    """

    def __init__(self, steps: Stepwise, output: str, stages: Stages) -> None:
        program = steps.program
        kind = program.output_type(output)
        self.input = numpy_dtype(program.nodes[stages.rows].type.dtype)
        self.dtype, self.width = numpy_dtype(kind.dtype), kind.width
        self.rows, self.texts = stages.rows, stages.texts
        self.reads_rows = stages.rows in steps.schedule_of((output,)).inputs.values()
        self.turn, self.calls = stages.turn, stages.calls
        self.columns = program.nodes[stages.rows].type.width
        self._made: dict[bool, Follower | None] = {}

    def follower(self, rows: int) -> Follower | None:
        """What scores a batch of so many rows; None where numba itself runs a kernel.

        Raises:
            NotReady: a kernel is being compiled, and the caller need not wait.
        """
        few = rows < self.turn()
        if few not in self._made:
            places = itertools.count(SCRATCH)
            flat = [Rows(next(places), np.dtype(np.int64), 1, flat=True) for _ in 2 * self.texts]
            ends = list(zip(flat[::2], flat[1::2], strict=True))
            x, out = Rows(INPUT, self.input, self.columns), Rows(RESULT, self.dtype, self.width)
            calls = KernelCalls(self.calls(x, out, places, 1 if few else MANY, ends))
            table = calls.words()
            self._made[few] = None if table is None else Follower(calls, table, len(flat))
        return self._made[few]


class StagedFiller(StepFiller):
    """A `StepFiller` that can write down its steps as calls of kernels."""

    def __init__(
        self, steps: Stepwise, output: str, columns: Sequence[int], width: int, stages: Stages
    ) -> None:
        super().__init__(steps, output, columns, width)
        self.turn, self.calls = stages.turn, stages.calls
