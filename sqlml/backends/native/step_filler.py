"""`StepFiller`: an output of a Program that runs step by step, written where it shall be.

A row of a model takes some microseconds, and what stands around the kernels counts: no names, no
copies of the rows, no result that is copied into another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.backends.native.stages import Stages
from sqlml.backends.native.stepwise import Stepwise
from sqlml.backends.native.vm.assemble import below
from sqlml.errors import SqlmlError
from sqlml.types import Array, numpy_dtype


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
        input: dtype of the matrix; dtype: of the output.
    """

    def __init__(self, steps: Stepwise, output: str, stages: Stages) -> None:
        program = steps.program
        self.input = numpy_dtype(program.nodes[stages.rows].type.dtype)
        self.dtype = numpy_dtype(program.output_type(output).dtype)
        self.turn, self.calls = stages.turn, stages.calls


class StagedFiller(StepFiller):
    """A `StepFiller` that can write down its steps as calls of kernels."""

    def __init__(
        self, steps: Stepwise, output: str, columns: Sequence[int], width: int, stages: Stages
    ) -> None:
        super().__init__(steps, output, columns, width)
        self.turn, self.calls = stages.turn, stages.calls
