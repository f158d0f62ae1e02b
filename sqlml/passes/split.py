"""Split a Program where strings become numbers: the first part runs as SQL, the rest as kernels.

Only numbers cross into the kernels, packed as one (n, k) matrix: that is the fastest way through
an Arrow UDF, and strings in UDFs gave wrong results in DuckDB up to 1.5 (duckdb#20606). Exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Program
from sqlml.ir.rewrite import copy
from sqlml.ir.spec import verify
from sqlml.passes.fold_layout import fold_layout
from sqlml.types import DType

Layout = Literal["f32", "f64"]
_DTYPE: dict[str, DType] = {"f32": "float32", "f64": "float64"}
PACKED = "x"
"""Name of the packed input of `Split.core`."""


@dataclass(frozen=True, slots=True)
class PackedColumn:
    """A column of the packed matrix: input `name`, or (`encoded`) output `name` of the encoders.

    Two namespaces: a feature may have any name, that of an encoder's output too.
    """

    name: str
    encoded: bool = False


@dataclass(frozen=True, slots=True)
class Split:
    """A Program in two parts.

    `columns` are the columns of the packed matrix in order. `encoders` (None when the model reads
    no strings) turns string inputs into codes; `core` reads the matrix as input `PACKED`,
    (n, max(1, k)).
    """

    columns: tuple[PackedColumn, ...]
    encoders: Program | None
    core: Program


def split(program: Program, layout: Layout = "f64") -> Split:
    """Cut `program` into string encoders and a core over a packed matrix of `layout`.

    The core computes in the dtypes of `program`; with layout "f32" the caller promises that all
    numbers are exact in float32.
    """
    nodes = program.nodes
    textual = [False] * len(nodes)
    for i, node in enumerate(nodes):
        touches = [nodes[j].type.dtype == "string" for j in node.inputs]
        textual[i] = node.type.dtype == "string" or any(touches)
    boundary = _boundary(program, textual)
    columns = [PackedColumn(name) for name, i in program.inputs.items() if not textual[i]]
    columns += [PackedColumn(_code(i), True) for i in boundary]
    encoders = _encoders(program, textual, boundary) if boundary else None
    return Split(tuple(columns), encoders, _core(program, textual, columns, layout))


def _code(node: int) -> str:
    """Name of the encoders' output that node `node` of the whole Program becomes."""
    return f"code{node}"


def _boundary(program: Program, textual: Sequence[bool]) -> list[int]:
    """Textual nodes whose numbers the rest of the Program reads, in order."""
    readers = [
        j for i, node in enumerate(program.nodes) if not textual[i] for j in node.inputs
    ] + list(program.outputs.values())
    return sorted({j for j in readers if textual[j]})


def _encoders(program: Program, textual: Sequence[bool], boundary: Sequence[int]) -> Program:
    b = Builder()
    values: dict[int, Value] = {}
    for i, node in enumerate(program.nodes):
        if textual[i] or node.op == "constant":
            values[i] = copy(b, node, [values[j] for j in node.inputs])
    return verify(b.build({_code(i): values[i] for i in boundary}))


def _core(
    program: Program, textual: Sequence[bool], columns: Sequence[PackedColumn], layout: Layout
) -> Program:
    b = Builder()
    packed = b.input(PACKED, _DTYPE[layout], max(1, len(columns)))
    place = {column: k for k, column in enumerate(columns)}
    values: dict[int, Value] = {}

    def read(column: PackedColumn, dtype: DType) -> Value:
        picked = b.op("select", packed, indices=np.array([place[column]], np.int64))
        return picked if picked.type.dtype == dtype else b.op("cast", picked, dtype=dtype)

    for i, node in enumerate(program.nodes):
        if textual[i]:
            code = PackedColumn(_code(i), True)
            if code in place:
                values[i] = read(code, node.type.dtype)
        elif node.op == "input":
            values[i] = read(PackedColumn(str(node.attrs["name"])), node.type.dtype)
        else:
            values[i] = copy(b, node, [values[j] for j in node.inputs])
    built = b.build(
        {name: values[i] for name, i in program.outputs.items()}, program.labels, (PACKED,)
    )
    return verify(fold_layout(built))
