"""`VmFiller`: fill an output of a Program with one call of the VM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import bind_constants
from sqlml.backends.native.kernel_calls import Call, Rows
from sqlml.backends.native.rows.column_kernels import LineKernel, call_convert, find_line_kernel
from sqlml.backends.native.vm.assemble import assemble, find_upper_bound
from sqlml.backends.native.vm.assembler import VmCode
from sqlml.backends.native.vm.register_machine import compile_machine
from sqlml.ir import reference
from sqlml.ir.program import Node, Program, freeze
from sqlml.types import Array, numpy_dtype

_NO_FLOAT32, _NO_FLOAT64 = np.empty(0, np.float32), np.empty(0, np.float64)

COPIED_ROWS = 2048
"""The number of rows that are copied at a time if the rows are not contiguous."""


class VmFiller:
    """A `Filler` of one output of a Program whose only input is a float matrix. Thread-safe.

    `node` is the input node, `name` is the input's name, and `columns` is the number of columns.
    The VM processes blocks of up to `rows` rows.
    """

    def __init__(self, node: Node, code: VmCode, dtype: np.dtype[Any], below: int | None) -> None:
        self.node = node
        self.name: str = str(node.attrs["name"])
        self.input: np.dtype[Any] = numpy_dtype(node.type.dtype)
        self.dtype = dtype
        self.columns: int = node.type.width
        self.width: int = int(code.shape[4])
        self.rows: int = int(code.shape[3])
        self.below = below
        self._reads_float32 = self.input == np.float32
        self._is_integer = dtype == np.int64
        self._is_float32 = dtype == np.float32
        self._kernel: Callable[..., Any] = compile_machine()
        self._set_arguments(code.code, code.columns, code.numbers, code.shape)
        self._line_kernel: LineKernel | None = None
        self._columns_read: tuple[Array, VmFiller] | None = None

    @classmethod
    def of(cls, program: Program, output: str) -> VmFiller | None:
        """Return a filler of `output`, or None if the VM cannot compute it; see `assemble`."""
        code = assemble(program, output)
        if code is None:
            return None
        (node,) = (program.nodes[i] for i in program.inputs.values())
        dtype = numpy_dtype(program.output_type(output).dtype)
        filler = cls(node, code, dtype, find_upper_bound(program, program.outputs[output]))
        filler._line_kernel = find_line_kernel(program, output)
        return filler

    def select_columns(self, columns: Sequence[int], width: int) -> VmFiller:
        """Return a copy that reads the columns `columns` of rows with `width` columns."""
        if list(columns) == list(range(width)):
            return self
        narrowed = copy(self)
        narrowed.columns, narrowed._line_kernel = width, None
        narrowed._columns_read = (np.array(columns, np.int64), self)
        code, column_list, numbers, shape = self._arguments
        column_list = np.concatenate([np.array(columns, np.int64), column_list[self.columns :]])
        shape = shape.copy()
        shape[6] = width
        narrowed._set_arguments(code, column_list, numbers, shape)
        return narrowed

    def _set_arguments(self, *arguments: Array) -> None:
        self._arguments = arguments
        self._run = bind_constants(self._kernel, 2, arguments)  # After the rows in both dtypes.

    def fill(self, x: Array, out: Array) -> int:
        """Write the output for rows `x` (n, k) of dtype `input` to `out` (n, width) of `dtype`.

        Returns -1 on success. If the model rejects a number, returns the index of a row at or
        before the row with that number, and `out` is invalid.
        """
        if not x.flags.c_contiguous:
            return self._fill_strided(x, out)
        numbers, flat_out = x.reshape(-1), out.reshape(-1)
        if self._line_kernel is not None:
            return 0 if self._line_kernel.fill(numbers, flat_out) else -1
        if self._is_integer:
            flat_out = flat_out.view(np.float64)
        elif self._is_float32:
            flat_out = np.empty(flat_out.size)
        single, double = (numbers, _NO_FLOAT64) if self._reads_float32 else (_NO_FLOAT32, numbers)
        failed_row: int = self._run(single, double, flat_out)
        if self._is_float32 and failed_row < 0:
            out[...] = flat_out.reshape(out.shape)
        return failed_row

    def make_calls(self, x: Rows, out: Rows, buffers: Iterator[int]) -> tuple[Call, ...]:
        """Return the calls that fill `out` from contiguous rows `x`."""
        if self._line_kernel is not None:
            return (self._line_kernel.make_call(x.flatten(), out.flatten()),)
        flat_out = out.flatten(_NO_FLOAT64.dtype if self._is_integer else None)
        if self._is_float32:
            flat_out = Rows(next(buffers), _NO_FLOAT64.dtype, self.width).flatten()
        single, double = (
            (x.flatten(), _NO_FLOAT64) if self._reads_float32 else (_NO_FLOAT32, x.flatten())
        )
        call = Call(self._kernel, (single, double, *self._arguments, flat_out))
        return (call, call_convert(flat_out, out.flatten())) if self._is_float32 else (call,)

    def _fill_strided(self, x: Array, out: Array) -> int:
        for start in range(0, x.shape[0], COPIED_ROWS):
            stop = start + COPIED_ROWS
            block, filler = x[start:stop], self
            if self._columns_read is not None:  # Copy only the columns that are read.
                columns, filler = self._columns_read
                block = block[:, columns]
            failed_row = filler.fill(np.ascontiguousarray(block), out[start:stop])
            if failed_row >= 0:
                return start + failed_row
        return -1


@dataclass(frozen=True, slots=True, eq=False)
class TreeTail:
    """Computes an output from the margins of the ensemble at node `trees`. Thread-safe.

    `program` computes its only output from the margins, and `machine` does the same.
    """

    trees: int
    program: Program
    machine: VmFiller

    def __call__(self, margins: Array) -> Array:
        out = np.empty((margins.shape[0], self.machine.width), self.machine.dtype)
        if self.machine.fill(margins, out) >= 0:
            (out,) = reference.run(self.program, {"margins": margins}).values()
        return out

    @classmethod
    def of(cls, program: Program, output: str) -> TreeTail | None:
        """Return the tail of `output`, or None if it does not depend on exactly one ensemble."""
        needed = program.find_needed_nodes([program.outputs[output]])
        ensembles = [i for i in needed if program.nodes[i].op == "tree_ensemble"]
        if len(ensembles) != 1 or ensembles[0] == needed[-1]:
            return None
        tail_program = _make_tail_program(program, ensembles[0], needed, output)
        if tail_program is None:
            return None
        filler = VmFiller.of(tail_program, output)
        return None if filler is None else cls(ensembles[0], tail_program, filler)


def _make_tail_program(
    program: Program, trees: int, needed: list[int], output: str
) -> Program | None:
    """Return a Program from margins to `output`; None if the output also depends on the rows."""
    margins_type = program.nodes[trees].type
    attrs = {"name": "margins", "dtype": margins_type.dtype, "width": margins_type.width}
    nodes = [Node("input", (), freeze(attrs), margins_type)]
    positions = {trees: 0}
    for i in needed:
        node = program.nodes[i]
        if i <= trees and node.type.rowwise:
            continue
        if node.op == "require_finite" or any(j not in positions for j in node.inputs):
            return None
        positions[i] = len(nodes)
        nodes.append(Node(node.op, tuple(positions[j] for j in node.inputs), node.attrs, node.type))
    return Program(tuple(nodes), {"margins": 0}, {output: positions[needed[-1]]})
