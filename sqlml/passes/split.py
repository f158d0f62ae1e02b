"""Split a Program where strings become numbers: the first part runs as SQL, the rest as kernels.

Exact. Numbers enter the kernels as one packed (n, k) matrix, which is the fastest way through an
Arrow UDF. SQL turns categories into codes. Two kinds of strings are passed beside the matrix:
strings that are split into tokens, and strings of too many categories to write into the query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sqlml.ir.builder import Builder, Value, copy_retyped
from sqlml.ir.operators.categories import HASHING_OPERATORS
from sqlml.ir.operators.sparse_rows import ITEM_OPERATORS
from sqlml.ir.operators.text import TEXT_OPERATORS
from sqlml.ir.ops import verify
from sqlml.ir.program import Node, Program
from sqlml.passes.fold_layout import fold_layout
from sqlml.types import TEXTUAL, DType

Layout = Literal["f32", "f64"]
_DTYPE: dict[str, DType] = {"f32": "float32", "f64": "float64"}
_MIXED = frozenset({"hash_categories", "onnx_graph", "sampled_contributions", "by_partition"})
"""Operators that may read both strings and numbers."""
_TEXT_READERS = (TEXT_OPERATORS | ITEM_OPERATORS | HASHING_OPERATORS) - _MIXED
"""Operators that read strings instead of codes; lists and maps are JSON strings."""
PACKED = "x"
"""Name of the packed input of `SplitProgram.core`."""


@dataclass(frozen=True, slots=True)
class PackedColumn:
    """A column of the packed matrix: input `name`, or an output of the encoders or the lookup.

    `is_encoded` tells inputs from outputs, because an input may have any name. If `is_strict`, the
    model rejects codes below 0.
    """

    name: str
    is_encoded: bool = False
    is_looked_up: bool = False
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class SplitProgram:
    """A Program in two or three parts.

    `columns` are the columns of the packed matrix in order. `encoders` turns strings into codes in
    SQL. `lookup` does the same in the function, for encoders with too many categories. Both are
    None if not needed. `core` reads the matrix as input `PACKED`, (n, max(1, k)), and the strings
    of the inputs `texts` as inputs `text_input_name(0)`, `text_input_name(1)`, ...
    """

    columns: tuple[PackedColumn, ...]
    encoders: Program | None
    core: Program
    texts: tuple[str, ...] = ()
    lookup: Program | None = None

    @property
    def packed_columns(self) -> tuple[PackedColumn, ...]:
        """The columns that the engine packs; the batch function looks up the other columns."""
        return tuple(column for column in self.columns if not column.is_looked_up)

    @property
    def text_inputs(self) -> tuple[str, ...]:
        """The string inputs that the function receives: for the core, then for the lookup."""
        return (*self.texts, *(self.lookup.inputs if self.lookup is not None else ()))


def text_input_name(position: int) -> str:
    """Return the name of the core input for entry `position` of `SplitProgram.texts`."""
    return f"text{position}"


def split(
    program: Program, layout: Layout = "f64", max_categories: int | None = None
) -> SplitProgram:
    """Split `program` into string encoders and a core on a packed matrix of `layout`.

    If the layout is "f32", the caller guarantees that all numbers are exact in float32. Encoders
    with more than `max_categories` categories become the lookup; None means no limit.
    """
    nodes = program.nodes
    dtypes = [{node.type.dtype, *(nodes[j].type.dtype for j in node.inputs)} for node in nodes]
    is_textual = [not TEXTUAL.isdisjoint(dtypes_of_node) for dtypes_of_node in dtypes]
    text_nodes = _find_text_nodes(program)
    texts = tuple(name for name, i in program.inputs.items() if i in text_nodes)
    in_core = [i in text_nodes or not is_textual[i] for i in range(len(nodes))]
    readers = [j for i, node in enumerate(nodes) if in_core[i] for j in node.inputs]
    readers += program.outputs.values()
    # The boundary consists of the textual nodes whose numbers the core reads.
    boundary = sorted({j for j in readers if not in_core[j]})
    columns = [PackedColumn(name) for name, i in program.inputs.items() if not is_textual[i]]
    category_limit = float("inf") if max_categories is None else max_categories
    large_encoders = {i for i in boundary if _is_large_encoder(program, i, category_limit)}
    strict_encoders = _find_strict_encoders(program)
    for i in boundary:
        is_large, is_strict = i in large_encoders, i in strict_encoders
        columns.append(PackedColumn(_make_code_name(i), True, is_large, is_strict))
    core = _build_core(program, is_textual, text_nodes, columns, texts, layout)
    sql_encoders = [i for i in boundary if i not in large_encoders]
    encoders, lookup = (
        _build_encoders(program, is_textual, encoder_nodes) if encoder_nodes else None
        for encoder_nodes in (sql_encoders, sorted(large_encoders))
    )
    return SplitProgram(tuple(columns), encoders, core, texts, lookup)


def _find_strict_encoders(program: Program) -> frozenset[int]:
    """Return the encoders whose only readers are checks that reject codes below 0."""
    reader_ops: dict[int, set[str]] = {i: {"output"} for i in program.outputs.values()}
    for node in program.nodes:
        for j in node.inputs:
            reader_ops.setdefault(j, set()).add(node.op)
    encoders = (i for i, node in enumerate(program.nodes) if node.op == "encode")
    return frozenset(i for i in encoders if reader_ops.get(i) == {"require_known"})


_LOOKUP_OPERATORS = frozenset({"input", "fill", "encode"})
"""Operators that a lookup may consist of."""


def _is_large_encoder(program: Program, i: int, max_categories: float) -> bool:
    """Return whether node `i` has more than `max_categories` and only needs a lookup Program."""
    chain = list(_iterate_chain(program, i))
    counts = [node.attrs["categories"].size for node in chain if node.op == "encode"]
    return max(counts, default=0) > max_categories and {n.op for n in chain} <= _LOOKUP_OPERATORS


def _iterate_chain(program: Program, i: int) -> Iterator[Node]:
    """Yield node `i`, then repeatedly the first input of the previous node."""
    yield program.nodes[i]
    while program.nodes[i].inputs:
        i = program.nodes[i].inputs[0]
        yield program.nodes[i]


def _find_text_nodes(program: Program) -> frozenset[int]:
    """Return the nodes that read strings instead of codes, and all nodes they depend on."""
    text_nodes: set[int] = set()
    for i in range(len(program.nodes) - 1, -1, -1):
        node = program.nodes[i]
        if node.op in _MIXED and _reads_texts(program, i):
            textual_inputs = {j for j in node.inputs if program.nodes[j].type.dtype in TEXTUAL}
            text_nodes |= {i, *textual_inputs}
        elif node.op in _TEXT_READERS or i in text_nodes:
            text_nodes |= {i, *node.inputs}
    return frozenset(text_nodes)


def _reads_texts(program: Program, i: int) -> bool:
    node = program.nodes[i]
    reads_textual_input = any(program.nodes[j].type.dtype in TEXTUAL for j in node.inputs)
    return node.op in _TEXT_READERS or (node.op in _MIXED and reads_textual_input)


def _make_code_name(node: int) -> str:
    return f"code{node}"


def _build_encoders(program: Program, is_textual: list[bool], boundary: list[int]) -> Program:
    builder, values = Builder(), dict[int, Value]()
    for i, node in enumerate(program.nodes):
        if (is_textual[i] and not _reads_texts(program, i)) or node.op == "constant":
            values[i] = copy_retyped(builder, node, [values[j] for j in node.inputs])
    return verify(builder.build({_make_code_name(i): values[i] for i in boundary}))


def _build_core(
    program: Program,
    is_textual: Sequence[bool],
    text_nodes: frozenset[int],
    columns: Sequence[PackedColumn],
    texts: Sequence[str],
    layout: Layout,
) -> Program:
    builder = Builder()
    packed = builder.input(PACKED, _DTYPE[layout], max(1, len(columns)))
    position_by_column = {(column.name, column.is_encoded): k for k, column in enumerate(columns)}
    values: dict[int, Value] = {}

    def read_column(key: tuple[str, bool], dtype: DType) -> Value:
        indices = np.array([position_by_column[key]], np.int64)
        return builder.cast(builder.op("select", packed, indices=indices), dtype)

    for i, node in enumerate(program.nodes):
        name, code_column = str(node.attrs.get("name")), (_make_code_name(i), True)
        if i in text_nodes and node.op == "input":
            values[i] = builder.input(text_input_name(texts.index(name)), node.type.dtype)
        elif is_textual[i] and i not in text_nodes:
            if code_column in position_by_column:
                values[i] = read_column(code_column, node.type.dtype)
        elif node.op == "input":
            values[i] = read_column((name, False), node.type.dtype)
        else:
            values[i] = builder.copy_node(node, [values[j] for j in node.inputs])
    core = builder.build(
        {name: values[i] for name, i in program.outputs.items()},
        program.labels,
        (PACKED, *map(text_input_name, range(len(texts)))),
    )
    return verify(fold_layout(core, keep_inputs=True))
