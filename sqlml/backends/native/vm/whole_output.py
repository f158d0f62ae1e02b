"""`Fused`: an output of a Program that the machine makes in one go, written where it shall be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.native.kernel_calls import Call, Rows
from sqlml.backends.native.rows.columns import ColumnMap, MapKernel, RowNorms, converted
from sqlml.backends.native.vm.assemble import assemble, below
from sqlml.backends.native.vm.assembler import Code
from sqlml.backends.native.vm.run import machine
from sqlml.ir.program import Node, Program, freeze
from sqlml.types import Array, numpy_dtype

_SINGLE, _DOUBLE = np.empty(0, np.float32), np.empty(0, np.float64)

COPIED = 2048
"""Rows that are copied at a time where they do not lie one after the other."""


class Fused:
    """One output of a Program of one input, a matrix of floats. Thread-safe.

    Attributes:
        node, name: the input.
        input, dtype: of the rows, and of the output.
        columns: how many columns the rows have; width: those of the output.
        rows: the most that lie in one block.
        below: the output's integers are from 0 to less than this, where that is known.
    """

    def __init__(self, node: Node, code: Code, dtype: np.dtype[Any], below: int | None) -> None:
        self.node = node
        self.name = str(node.attrs["name"])
        self.input = numpy_dtype(node.type.dtype)
        self.dtype = dtype
        self.columns = node.type.width
        self.width = int(code.shape[4])
        self.rows = int(code.shape[3])
        self.below = below
        self._single = self.input == np.float32
        self._whole = dtype == np.int64
        self._narrow = dtype == np.float32
        self._arguments = (code.code, code.columns, code.numbers, code.shape)
        self._kernel: Callable[..., Any] = machine()
        self._map: MapKernel | RowNorms | None = None
        self._chosen: tuple[Array, Fused] | None = None

    @classmethod
    def of(cls, program: Program, output: str, single: bool = False) -> Fused | None:
        """The output, where the machine has all operators that it needs; `single`: `assemble`."""
        code = assemble(program, output, single)
        if code is None:
            return None
        (node,) = (program.nodes[i] for i in program.inputs.values())
        dtype = numpy_dtype(program.output_type(output).dtype)
        made = cls(node, code, dtype, below(program, program.outputs[output]))
        found = ColumnMap.of(program, output)
        if found is not None and found.a.size:
            made._map = MapKernel(found, made.input)
        else:
            made._map = RowNorms.of(program, output)
        return made

    def reading(self, columns: Sequence[int], width: int) -> Fused:
        """Return this kernel for rows with `width` columns, of which it reads `columns`."""
        if list(columns) == list(range(width)):
            return self
        made = copy(self)
        made.columns, made._map = width, None
        made._chosen = (np.array(columns, np.int64), self)
        code, listed, numbers, shape = self._arguments
        listed = np.concatenate([np.array(columns, np.int64), listed[self.columns :]])
        shape = shape.copy()
        shape[6] = width
        made._arguments = (code, listed, numbers, shape)
        return made

    def fill(self, x: Array, out: Array) -> int:
        """Write the output for rows `x` (n, k) of dtype `input` to `out` (n, width) of `dtype`.

        Returns -1, or a row at or before the first with a number that the model refuses: `out` is
        then invalid.
        """
        if not x.flags.c_contiguous:
            return self._fill_strided(x, out)
        rows = x.reshape(-1)
        if self._map is not None:
            return 0 if self._map.fill(rows, out.reshape(-1)) else -1
        to = out.reshape(-1)
        if self._whole:
            to = to.view(np.float64)
        elif self._narrow:
            to = np.empty(to.size)
        single, double = (rows, _DOUBLE) if self._single else (_SINGLE, rows)
        found: int = self._kernel(single, double, *self._arguments, to)
        if self._narrow and found < 0:
            out[...] = to.reshape(out.shape)
        return found

    def calls(self, x: Rows, out: Rows, places: Iterator[int]) -> tuple[Call, ...]:
        """The calls that fill `out` from whole rows `x`; `places` are free for what is between."""
        if self._map is not None:
            return self._map.calls(x.line(), out.line())
        to = out.line()
        if self._whole:
            to = out.line(_DOUBLE.dtype)
        elif self._narrow:
            to = Rows(next(places), _DOUBLE.dtype, self.width).line()
        single, double = (x.line(), _DOUBLE) if self._single else (_SINGLE, x.line())
        made = Call(self._kernel, (single, double, *self._arguments, to))
        return (made, converted(to, out.line())) if self._narrow else (made,)

    def _fill_strided(self, x: Array, out: Array) -> int:
        for start in range(0, x.shape[0], COPIED):
            stop = start + COPIED
            part, reader = x[start:stop], self
            if self._chosen is not None:  # the columns that are read are all that is copied
                chosen, reader = self._chosen
                part = part[:, chosen]
            failed = reader.fill(np.ascontiguousarray(part), out[start:stop])
            if failed >= 0:
                return start + failed
        return -1


# `TreeTail`: what follows from the margins of an ensemble of trees, in one call of the machine.


@dataclass(frozen=True, slots=True, eq=False)
class TreeTail:
    """An output as a function of the margins, the value of node `trees`. Thread-safe."""

    trees: int
    machine: Fused

    def __call__(self, margins: Array) -> Array:
        """The output (n, width) of margins (n, k)."""
        out = np.empty((margins.shape[0], self.machine.width), self.machine.dtype)
        self.machine.fill(margins, out)
        return out

    @classmethod
    def of(cls, program: Program, output: str) -> TreeTail | None:
        """None if the output is not a function of one ensemble, or the machine cannot compute
        it."""
        live = program.find_needed([program.outputs[output]])
        found = [i for i in live if program.nodes[i].op == "tree_ensemble"]
        if len(found) != 1 or found[0] == live[-1]:
            return None
        after = _after(program, found[0], live, output)
        machine = None if after is None else Fused.of(after, output, single=True)
        return None if machine is None else cls(found[0], machine)


def _after(program: Program, trees: int, live: list[int], output: str) -> Program | None:
    """The output as a Program of the margins; None if it needs anything else from the rows."""
    kind = program.nodes[trees].type
    margins = {"name": "margins", "dtype": kind.dtype, "width": kind.width}
    nodes = [Node("input", (), freeze(margins), kind)]
    place = {trees: 0}
    for i in live:
        node = program.nodes[i]
        if i <= trees and node.type.rowwise:
            continue
        if node.op == "require_finite" or any(j not in place for j in node.inputs):
            return None
        place[i] = len(nodes)
        nodes.append(Node(node.op, tuple(place[j] for j in node.inputs), node.attrs, node.type))
    return Program(tuple(nodes), {"margins": 0}, {output: place[live[-1]]})
