"""`Stages`: an output as calls of the register machine, of tree kernels and of text kernels.

The machine prepares the columns that an ensemble reads (imputes, scales, makes one-hot columns),
the tree kernel computes margins, and the machine makes the output from them. Votes and stacks have
several such stages. A stage reads the rows or the result of one earlier stage; if it needs more,
these are first copied side by side. Linear layers over sparse rows, hashes of texts, and values of
texts that become dense are stages that read texts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.native.kernel_calls import Call, RowKernel, Rows
from sqlml.backends.native.operators import KERNEL_FLOATS
from sqlml.backends.native.rows.column_kernels import call_convert, call_take
from sqlml.backends.native.rows.piecewise_kernels import searcher
from sqlml.backends.native.rows.sparse import call_add, call_add_products, call_fill
from sqlml.backends.native.stepwise import Stepwise
from sqlml.backends.native.text.city_hash import call_hash_texts
from sqlml.backends.native.text.linear_of_texts import TextSums
from sqlml.backends.native.trees.native_forest import Forest
from sqlml.backends.native.vm.whole_output import Fused
from sqlml.backends.row_blocks import Step
from sqlml.ir.program import Node, Program, freeze
from sqlml.types import ROWS, TEXTUAL, Array, TensorType, numpy_dtype


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """A block of `rows` rows with its texts by node, and scratch places for its numbers."""

    places: Iterator[int]
    rows: int
    texts: Mapping[int, tuple[Rows, Rows]]


_MakeCalls = Callable[[Sequence[Rows], Rows, _Block], Iterable[Call]]


@dataclass(frozen=True, slots=True, eq=False)
class _Stage:
    """The value (n, width) of `node`, made by calls from the values of the nodes `reads`."""

    node: int
    reads: tuple[int, ...]
    width: int
    dtype: np.dtype[Any]
    make_calls: _MakeCalls
    forest: Forest | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Stages:
    """The stages of an output; `rows` and `texts` are the nodes of its inputs."""

    rows: int
    texts: tuple[int, ...]
    stages: tuple[_Stage, ...]

    @classmethod
    def of(cls, steps: Stepwise, output: str) -> Stages | None:
        """Return None if the output needs another kernel, or the machine alone makes it."""
        program, last = steps.program, steps.program.outputs[output]
        dtypes = {i: program.nodes[i].type.dtype for i in program.inputs.values()}
        rows, *others = [i for i, dtype in dtypes.items() if dtype not in TEXTUAL] or [-1]
        texts = tuple(i for i, dtype in dtypes.items() if dtype == "string")
        if others or rows < 0 or len(texts) + 1 < len(dtypes):
            return None
        computed, stages = {rows}, list[_Stage]()

        def add(stage: _Stage | None) -> bool:
            if stage is None:
                return False
            stages.append(stage)
            computed.add(stage.node)
            return True

        def compute(node: int) -> bool:
            return node in computed or add(_make_machine_stage(program, node, computed))

        for step in steps.schedule_of((output,)).steps:
            stage = _make_stage(program, step)
            if stage is not None and not (all(map(compute, stage.reads)) and add(stage)):
                return None
        return cls(rows, texts, tuple(stages)) if stages and compute(last) else None

    def turn(self) -> float:
        """Return the rows below which a block is filled by other calls."""
        return min((s.forest.few_rows for s in self.stages if s.forest is not None), default=0)

    def calls(
        self,
        x: Rows,
        out: Rows,
        places: Iterator[int],
        rows: int,
        texts: Sequence[tuple[Rows, Rows]] = (),
    ) -> tuple[Call, ...]:
        """Return the calls that fill `out` from contiguous rows `x`, for a block of so many rows.

        texts: the addresses where each text of a column begins, and where it ends.
        """
        block = _Block(places, rows, dict(zip(self.texts, texts, strict=True)))
        values, calls, result = {self.rows: x}, list[Call](), x
        for stage in self.stages:
            is_output = stage is self.stages[-1] and stage.dtype == out.dtype
            result = out if is_output else Rows(next(places), stage.dtype, stage.width)
            calls += stage.make_calls([values[node] for node in stage.reads], result, block)
            values[stage.node] = result
        if result is not out:
            calls.append(call_convert(result.line(), out.line()))
        return tuple(calls)


_BY_KERNEL = frozenset(
    "hash_categories interpolate look_up_combinations search_sorted tree_contributions".split()
)
"""Operators that the machine lacks, with kernels from row to row."""


def _make_stage(program: Program, step: Step) -> _Stage | None:
    """Return a step that the machine cannot do as a stage, if kernels can."""
    i, forest = step.node, step.function
    if isinstance(forest, Forest):
        return _Stage(i, step.inputs, forest.outputs, forest.dtype, _tree_calls(forest), forest)
    node = program.nodes[i]
    if not node.inputs:
        return None
    below = node.inputs[0]
    source = program.nodes[below]
    if node.op == "hash_categories" and source.type.dtype == "string":
        if source.op != "input":
            return None
        double = np.dtype(np.float64)
        return _Stage(i, (), 1, double, lambda _, out, b: [call_hash_texts(*b.texts[below], out)])
    kernel = step.function
    if node.op == "search_sorted" and source.type.dtype in KERNEL_FLOATS:
        attrs, double = node.attrs, np.dtype(np.float64)
        kernel = searcher(attrs["edges"], attrs["offsets"], attrs["side"], double)
    runs_kernel = node.op in _BY_KERNEL
    if runs_kernel and isinstance(kernel, RowKernel) and kernel.dtype.name in KERNEL_FLOATS:
        return _Stage(i, (below,), kernel.width, kernel.dtype, _kernel_calls(kernel))
    if node.op == "densify":
        counts = TextSums.of(program, below)
        start = np.full(node.type.width, node.attrs["fill"], numpy_dtype(node.type.dtype))
        return None if counts is None else _make_sparse_stage(i, (counts,), start, None)
    if node.op == "linear" and source.type.sparse:
        return _make_sparse_linear_stage(program, i)
    return None


def _tree_calls(forest: Forest) -> _MakeCalls:
    return lambda values, out, block: forest.calls(values[0], out, block.places, block.rows)


def _kernel_calls(kernel: RowKernel) -> _MakeCalls:
    return lambda values, out, block: [kernel.call(values[0], out)]


_Part = TextSums | tuple[int, Array]
"""Summands of a sparse layer: those of texts, or a node and the weights of its columns."""


def _make_sparse_linear_stage(program: Program, i: int) -> _Stage | None:
    node = program.nodes[i]
    weights, bias = node.attrs["weights"], node.attrs["bias"]
    below = program.nodes[node.inputs[0]]
    parts: list[_Part] = []
    first = 0
    for j in below.inputs if below.op == "concat" else node.inputs[:1]:
        kind = program.nodes[j].type
        part_weights = weights[first : first + kind.width]
        first += kind.width
        part: _Part | None = (j, np.ascontiguousarray(part_weights))
        if kind.sparse:
            part = TextSums.of(program, j, part_weights)
        if part is None or kind.dtype != node.type.dtype:
            return None
        parts.append(part)
    return _make_sparse_stage(i, parts, np.zeros_like(bias), bias)


def _make_sparse_stage(
    node: int, parts: Sequence[_Part], start: Array, bias: Array | None
) -> _Stage:
    """Return a stage that adds the parts to `start` (m,) in order, and the bias (m,) last."""
    reads = tuple(part[0] for part in parts if isinstance(part, tuple))

    def make_calls(values: Sequence[Rows], out: Rows, block: _Block) -> Iterator[Call]:
        dense = iter(values)
        yield call_fill(start, out)
        for part in parts:
            if isinstance(part, TextSums):
                yield from part.calls(*block.texts[part.node], out)
            else:
                yield call_add_products(next(dense), part[1], out)
        if bias is not None:
            yield call_add(bias, out)

    return _Stage(node, reads, start.size, start.dtype, make_calls)


def _make_machine_stage(program: Program, node: int, computed: Collection[int]) -> _Stage | None:
    """Return the machine's code from computed values to a node; None if it lacks an operator."""
    live, reads, missing = {node}, set[int](), list[int]()
    for i in range(node, -1, -1):
        if i not in live:
            continue
        if i in computed:
            reads.add(i)
        elif program.nodes[i].op == "input":
            return None
        else:
            missing.append(i)
            live.update(program.nodes[i].inputs)
    if not reads:
        return None
    order = tuple(sorted(reads))
    nodes, inputs = _make_inputs([program.nodes[i].type for i in order])
    positions = dict(zip(order, inputs, strict=True))
    for i in reversed(missing):
        old = program.nodes[i]
        positions[i] = len(nodes)
        nodes.append(Node(old.op, tuple(positions[j] for j in old.inputs), old.attrs, old.type))
    segment = Program(tuple(nodes), {_NAME: 0}, {_NAME: positions[node]})
    kernel = Fused.of(segment, _NAME, single=True)
    if kernel is None:
        return None

    def make_calls(values: Sequence[Rows], out: Rows, block: _Block) -> Iterable[Call]:
        x, copies = _concatenate(values, block.places)
        return (*copies, *kernel.calls(x, out, block.places))

    return _Stage(node, order, kernel.width, kernel.dtype, make_calls)


_NAME = "rows"


def _make_inputs(kinds: Sequence[TensorType]) -> tuple[list[Node], list[int]]:
    """Return the nodes of a segment's input, and those that are values of these types."""

    def make_input(kind: TensorType) -> Node:
        attrs = {"name": _NAME, "dtype": kind.dtype, "width": kind.width}
        return Node("input", (), freeze(attrs), kind)

    if len(kinds) == 1 and kinds[0].dtype in KERNEL_FLOATS:
        return [make_input(kinds[0])], [0]
    # A float32 is exact as a float64, and so is an integer of a search.
    width = sum(kind.width for kind in kinds)
    nodes, first = [make_input(TensorType("float64", (ROWS, width)))], 0
    for kind in kinds:
        columns = freeze({"indices": np.arange(first, first + kind.width)})
        nodes.append(Node("select", (0,), columns, kind))
        first += kind.width
    return nodes, list(range(1, len(nodes)))


def _concatenate(parts: Sequence[Rows], places: Iterator[int]) -> tuple[Rows, list[Call]]:
    """Return rows with the columns of several rows, and the calls that copy them there."""
    if len(parts) == 1:
        return parts[0], []
    combined = Rows(next(places), np.dtype(np.float64), sum(part.width for part in parts))
    calls, first = list[Call](), 0
    for part in parts:
        target = combined.select(slice(first, first + part.width))
        calls.append(call_take(part, np.arange(part.width), target))
        first += part.width
    return combined, calls
