"""Split a Program where strings become numbers: the first part runs as SQL, the rest as kernels.

Numbers cross into the kernels packed as one (n, k) matrix: that is the fastest way through an
Arrow UDF. Categories become codes on the way; where an encoder has very many of them, which would
all be written into the query, their texts cross next to the matrix, and the function looks them up.
So do texts that are cut into tokens. Exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sqlml.ir.builder import Builder, Value, copy
from sqlml.ir.operators.categories import HASHED
from sqlml.ir.operators.sparse_rows import ITEMS
from sqlml.ir.operators.text import TEXT
from sqlml.ir.ops import verify
from sqlml.ir.program import Node, Program
from sqlml.passes.fold_layout import fold_layout
from sqlml.types import TEXTUAL, DType

Layout = Literal["f32", "f64"]
_DTYPE: dict[str, DType] = {"f32": "float32", "f64": "float64"}
_MIXED = frozenset({"hash_categories", "onnx_graph", "sampled_contributions"})
"""Operators that may read texts themselves, and numbers too."""
_WHOLE = (TEXT | ITEMS | HASHED) - _MIXED
"""Operators that read texts themselves; lists and maps are texts of JSON."""
PACKED = "x"
"""Name of the packed input of `Split.core`."""


@dataclass(frozen=True, slots=True)
class PackedColumn:
    """A column of the packed matrix: input `name`, or (`encoded`) output `name` of the encoders, or
    (`found`, too) of the look-up. The model refuses codes below 0 of a `strict` column.

    Two namespaces: a feature may have any name, that of an encoder's output too.
    """

    name: str
    encoded: bool = False
    found: bool = False
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Split:
    """A Program in two parts, or three.

    `columns` are the columns of the packed matrix in order. `encoders` (None when the model needs
    no codes) turns string inputs into codes in SQL, and `lookup` those whose categories are too
    many for that; `core` reads the matrix as input `PACKED`, (n, max(1, k)), and the texts that no
    look-up replaces, inputs `texts` of the whole Program, as inputs `text_input(0)`,
    `text_input(1)` ..
    """

    columns: tuple[PackedColumn, ...]
    encoders: Program | None
    core: Program
    texts: tuple[str, ...] = ()
    lookup: Program | None = None

    @property
    def given(self) -> tuple[PackedColumn, ...]:
        """The columns that the engine packs; the function finds the others."""
        return tuple(c for c in self.columns if not c.found)

    @property
    def whole(self) -> tuple[str, ...]:
        """The inputs of which the function is given the texts: the core's, then the look-up's."""
        return (*self.texts, *(self.lookup.inputs if self.lookup is not None else ()))


def text_input(place: int) -> str:
    """Name of the core's input for the column of `Split.texts` at `place`."""
    return f"text{place}"


def split(program: Program, layout: Layout = "f64", most: int | None = None) -> Split:
    """Cut `program` into string encoders and a core over a packed matrix of `layout`.

    The core computes in the dtypes of `program`; with layout "f32" the caller promises that all
    numbers are exact in float32. Encoders of more than `most` categories (None: none) become the
    look-up.
    """
    nodes = program.nodes
    textual = [False] * len(nodes)
    for i, node in enumerate(nodes):
        touches = [nodes[j].type.dtype in TEXTUAL for j in node.inputs]
        textual[i] = node.type.dtype in TEXTUAL or any(touches)
    whole = _read_whole(program)
    texts = tuple(name for name, i in program.inputs.items() if i in whole)
    boundary = _boundary(program, textual)
    columns = [PackedColumn(name) for name, i in program.inputs.items() if not textual[i]]
    large = _large(program, boundary, most)
    strict = _strict(program)
    columns += [PackedColumn(_code(i), True, i in large, i in strict) for i in boundary]
    core = _core(program, textual, whole, columns, texts, layout)
    in_sql = [i for i in boundary if i not in large]
    encoders, lookup = (
        _encoders(program, textual, part) if part else None for part in (in_sql, sorted(large))
    )
    return Split(tuple(columns), encoders, core, texts, lookup)


def _strict(program: Program) -> frozenset[int]:
    """Encoders whose codes nobody reads but what refuses those below 0."""
    readers: dict[int, set[str]] = {i: {"output"} for i in program.outputs.values()}
    for node in program.nodes:
        for j in node.inputs:
            readers.setdefault(j, set()).add(node.op)
    return frozenset(
        i
        for i, node in enumerate(program.nodes)
        if node.op == "encode" and readers.get(i) == {"require_known"}
    )


_LOOKED_UP = frozenset({"input", "fill", "encode"})
"""What a look-up may consist of."""


def _large(program: Program, boundary: Sequence[int], most: int | None) -> frozenset[int]:
    """Those of `boundary` that encode more than `most` categories."""
    if most is None:
        return frozenset()
    looked_up = [i for i in boundary if _looked_up(program, i)]
    return frozenset(i for i in looked_up if _categories(program, i) > most)


def _looked_up(program: Program, i: int) -> bool:
    return all(node.op in _LOOKED_UP for node in _chain(program, i))


def _categories(program: Program, i: int) -> int:
    """Of the largest encoder at node `i` or below."""
    encoders = [node for node in _chain(program, i) if node.op == "encode"]
    return max((node.attrs["categories"].size for node in encoders), default=0)


def _chain(program: Program, i: int) -> Iterator[Node]:
    """Node `i`, its first input, the first input of that, and so on."""
    yield program.nodes[i]
    while program.nodes[i].inputs:
        i = program.nodes[i].inputs[0]
        yield program.nodes[i]


def _read_whole(program: Program) -> frozenset[int]:
    """Operators of `_WHOLE`, and all below them: what needs the texts themselves."""
    whole: set[int] = set()
    for i in range(len(program.nodes) - 1, -1, -1):
        node = program.nodes[i]
        if node.op in _MIXED and _takes_texts(program, i):
            texts = {j for j in node.inputs if program.nodes[j].type.dtype in TEXTUAL}
            whole |= {i, *texts}
        elif node.op in _WHOLE or i in whole:
            whole |= {i, *node.inputs}
    return frozenset(whole)


def _takes_texts(program: Program, i: int) -> bool:
    """Whether node `i` reads texts themselves, and makes no codes of them."""
    node = program.nodes[i]
    reads = any(program.nodes[j].type.dtype in TEXTUAL for j in node.inputs)
    return node.op in _WHOLE or (node.op in _MIXED and reads)


def _code(node: int) -> str:
    """Name of the encoders' output that node `node` of the whole Program becomes."""
    return f"code{node}"


def _boundary(program: Program, textual: Sequence[bool]) -> list[int]:
    """Textual nodes whose numbers the rest of the Program reads, in order."""
    readers = [
        j for i, node in enumerate(program.nodes) if not textual[i] for j in node.inputs
    ] + list(program.outputs.values())
    return sorted({j for j in readers if textual[j] and not _takes_texts(program, j)})


def _encoders(program: Program, textual: Sequence[bool], boundary: Sequence[int]) -> Program:
    b = Builder()
    values: dict[int, Value] = {}
    for i, node in enumerate(program.nodes):
        if (textual[i] and not _takes_texts(program, i)) or node.op == "constant":
            values[i] = copy(b, node, [values[j] for j in node.inputs])
    return verify(b.build({_code(i): values[i] for i in boundary}))


def _core(
    program: Program,
    textual: Sequence[bool],
    whole: frozenset[int],
    columns: Sequence[PackedColumn],
    texts: Sequence[str],
    layout: Layout,
) -> Program:
    b = Builder()
    packed = b.input(PACKED, _DTYPE[layout], max(1, len(columns)))
    place = {(column.name, column.encoded): k for k, column in enumerate(columns)}
    values: dict[int, Value] = {}

    def read(column: tuple[str, bool], dtype: DType) -> Value:
        picked = b.op("select", packed, indices=np.array([place[column]], np.int64))
        return picked if picked.type.dtype == dtype else b.op("cast", picked, dtype=dtype)

    for i, node in enumerate(program.nodes):
        if i in whole and node.op == "input":
            place_of = texts.index(str(node.attrs["name"]))
            values[i] = b.input(text_input(place_of), node.type.dtype)
        elif i in whole:
            values[i] = b.again(node, [values[j] for j in node.inputs])
        elif textual[i]:
            code = (_code(i), True)
            if code in place:
                values[i] = read(code, node.type.dtype)
        elif node.op == "input":
            values[i] = read((str(node.attrs["name"]), False), node.type.dtype)
        else:
            values[i] = b.again(node, [values[j] for j in node.inputs])
    built = b.build(
        {name: values[i] for name, i in program.outputs.items()},
        program.labels,
        (PACKED, *map(text_input, range(len(texts)))),
    )
    return verify(fold_layout(built, keep_inputs=True))
