"""`Stages`: an output as calls of the machine, of trees and over texts, one after the other.

The machine prepares the columns that an ensemble of trees reads (imputes, scales, makes one-hot
columns), the trees go down, and the machine makes the output of their margins. Votes and stacks
have several such stages. A stage reads the rows, or what one stage before it has made; where it
needs more, these lie side by side in rows of their own. A linear layer over sparse rows is a stage
that reads texts, and columns beside them; so is what makes the values of texts dense. So is what
hashes texts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.native.kernel_calls import Call, Rows
from sqlml.backends.native.operators import KERNEL_FLOATS
from sqlml.backends.native.rows.columns import converted, taken
from sqlml.backends.native.rows.combinations import combining
from sqlml.backends.native.rows.piecewise import interpolated, searched
from sqlml.backends.native.rows.sparse import added, added_products, filled
from sqlml.backends.native.stepwise import Stepwise
from sqlml.backends.native.text.city_hash import hashed_numbers, hashed_texts
from sqlml.backends.native.text.linear_of_texts import TextSums
from sqlml.backends.native.trees import Forest
from sqlml.backends.native.trees.contributions import contributed
from sqlml.backends.native.vm.whole_output import Fused
from sqlml.backends.row_blocks import Step
from sqlml.ir.program import Node, Program, freeze
from sqlml.types import ROWS, TEXTUAL, Array, TensorType, numpy_dtype


@dataclass(frozen=True, slots=True, eq=False)
class _Machine:
    """The value of `node`, made of the values of the nodes `reads`, side by side."""

    node: int
    reads: tuple[int, ...]
    kernel: Fused


@dataclass(frozen=True, slots=True, eq=False)
class _Trees:
    """The value of `node`, made of the value of the one node that it reads."""

    node: int
    reads: tuple[int]
    forest: Forest


@dataclass(frozen=True, slots=True, eq=False)
class _Kernel:
    """The value of `node`, made of the value of the one node that it reads by a kernel.

    `call` takes the rows of both; the kernel writes numbers of `dtype`.
    """

    node: int
    reads: tuple[int]
    width: int
    call: Callable[[Rows, Rows], Call]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True, eq=False)
class _Hashed:
    """The value of `node`: the hashes of the texts of node `text`."""

    node: int
    text: int
    reads: tuple[()] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Sparse:
    """The value of `node`: a linear layer over texts and the values of the nodes `reads`, or the
    values of texts, made dense.

    Each part adds its own sums to `start` (m,), in the order of the columns: those of texts, or of
    the values of a node with their weights. The bias (m,) comes last.
    """

    node: int
    reads: tuple[int, ...]
    parts: tuple[TextSums | tuple[int, Array], ...]
    start: Array
    bias: Array | None


@dataclass(frozen=True, slots=True, eq=False)
class Stages:
    """The stages of an output, whose rows are the value of node `rows`, its texts of `texts`."""

    rows: int
    texts: tuple[int, ...]
    stages: tuple[_Stage, ...]

    @classmethod
    def of(cls, steps: Stepwise, output: str) -> Stages | None:
        """None where the output needs another kernel, or the machine alone makes it."""
        program, last = steps.program, steps.program.outputs[output]
        kinds = {i: program.nodes[i].type.dtype for i in program.inputs.values()}
        rows, *others = [i for i, dtype in kinds.items() if dtype not in TEXTUAL] or [-1]
        texts = tuple(i for i, dtype in kinds.items() if dtype == "string")
        if others or rows < 0 or len(texts) + 1 < len(kinds):
            return None
        known, stages = {rows}, list[_Stage]()

        def reach(node: int) -> bool:
            if node not in known:
                made = _segment(program, node, known)
                if made is None:
                    return False
                stages.append(made)
                known.add(node)
            return True

        for step in steps.schedule_of((output,)).steps:
            stage = _own_stage(program, step)
            if stage is not None:
                if not all(map(reach, stage.reads)):
                    return None
                stages.append(stage)
                known.add(step.node)
        return cls(rows, texts, tuple(stages)) if stages and reach(last) else None

    def turn(self) -> float:
        """Blocks of fewer rows are filled by other calls."""
        trees = [s.forest.few_rows for s in self.stages if isinstance(s, _Trees)]
        return min(trees, default=0)

    def calls(
        self,
        x: Rows,
        out: Rows,
        places: Iterator[int],
        rows: int,
        texts: Sequence[tuple[Rows, Rows]] = (),
    ) -> tuple[Call, ...]:
        """The calls that fill `out` from whole rows `x`, for a block of so many rows.

        texts: the addresses where each text of a column begins, and where it ends.
        """
        made, values = list[Call](), {self.rows: x}
        ends = dict(zip(self.texts, texts, strict=True))
        for stage in self.stages:
            if isinstance(stage, _Hashed):
                own = Rows(next(places), np.dtype(np.float64), 1)
                made.append(hashed_texts(*ends[stage.text], own))
                values[stage.node] = own
                continue
            if isinstance(stage, _Sparse):
                own = Rows(next(places), stage.start.dtype, stage.start.size)
                made += _sums(stage, values, ends, own)
                values[stage.node] = own
                continue
            given, copies = _side_by_side([values[node] for node in stage.reads], places)
            made += copies
            if isinstance(stage, _Trees):
                own = Rows(next(places), stage.forest.dtype, stage.forest.outputs)
                made += stage.forest.calls(given, own, places, rows)
            elif isinstance(stage, _Kernel):
                own = Rows(next(places), stage.dtype, stage.width)
                made.append(stage.call(given, own))
            else:
                last = stage is self.stages[-1]
                own = Rows(next(places), stage.kernel.dtype, stage.kernel.width)
                own = out if last and out.dtype == own.dtype else own
                made += stage.kernel.calls(given, own, places)
            values[stage.node] = own
        if own is not out:
            made.append(converted(own.line(), out.line()))
        return tuple(made)


_Stage = _Machine | _Trees | _Kernel | _Sparse | _Hashed


def _own_stage(program: Program, step: Step) -> _Trees | _Kernel | _Sparse | _Hashed | None:
    """A step that the machine lacks, as a stage."""
    if isinstance(step.function, Forest):
        (below,) = step.inputs
        return _Trees(step.node, (below,), step.function)
    node = program.nodes[step.node]
    source = program.nodes[node.inputs[0]] if node.inputs else node
    if node.op == "hash_categories" and source.type.dtype == "string":
        return _Hashed(step.node, node.inputs[0]) if source.op == "input" else None
    kernel = _kernel(node, source.type) if node.inputs else None
    if kernel is not None:
        dtype = np.dtype(np.float32 if node.type.dtype == "float32" else np.float64)
        return _Kernel(step.node, (node.inputs[0],), node.type.width, kernel, dtype)
    if node.op == "densify":
        counts = TextSums.of(program, node.inputs[0])
        start = np.full(node.type.width, node.attrs["fill"], numpy_dtype(node.type.dtype))
        return None if counts is None else _Sparse(step.node, (), (counts,), start, None)
    if node.op != "linear" or not program.nodes[node.inputs[0]].type.sparse:
        return None
    weights, bias = node.attrs["weights"], node.attrs["bias"]
    parts: list[TextSums | tuple[int, Array]] = []
    first = 0
    for i in _side_by_side_in(program, node.inputs[0]):
        kind = program.nodes[i].type
        own = weights[first : first + kind.width]
        first += kind.width
        found = TextSums.of(program, i, own) if kind.sparse else (i, np.ascontiguousarray(own))
        if found is None or kind.dtype != node.type.dtype:
            return None
        parts.append(found)
    reads = tuple(part[0] for part in parts if isinstance(part, tuple))
    return _Sparse(step.node, reads, tuple(parts), np.zeros_like(bias), bias)


def _kernel(node: Node, x: TensorType) -> Callable[[Rows, Rows], Call] | None:
    """What calls the kernel of a node that the machine lacks, from its input's type."""
    attrs = node.attrs
    if node.op == "interpolate" and x.dtype == "float64":
        return lambda x, out: interpolated(
            x, attrs["points"], attrs["values"], attrs["offsets"], out
        )
    if node.op == "search_sorted" and x.dtype in KERNEL_FLOATS:
        return lambda x, out: searched(x, attrs["edges"], attrs["offsets"], attrs["side"], out)
    if node.op == "tree_contributions" and x.dtype in KERNEL_FLOATS:
        return lambda x, out: contributed(attrs, x, out)
    if node.op == "hash_categories":
        return hashed_numbers
    if node.op == "look_up_combinations" and node.type.dtype in KERNEL_FLOATS:
        return combining(attrs)
    return None


def _side_by_side_in(program: Program, i: int) -> tuple[int, ...]:
    """The nodes whose columns, side by side, are those of node i."""
    node = program.nodes[i]
    return node.inputs if node.op == "concat" else (i,)


def _sums(
    stage: _Sparse, values: Mapping[int, Rows], texts: Mapping[int, tuple[Rows, Rows]], out: Rows
) -> Iterator[Call]:
    """The calls that write a layer over sparse rows to `out`."""
    yield filled(stage.start, out)
    for part in stage.parts:
        if isinstance(part, TextSums):
            yield from part.calls(*texts[part.node], out)
        else:
            node, weights = part
            yield added_products(values[node], weights, out)
    if stage.bias is not None:
        yield added(stage.bias, out)


def _segment(program: Program, node: int, known: Collection[int]) -> _Machine | None:
    """The machine's part from known values to a node; None where it lacks an operator."""
    live, reads, found = {node}, set[int](), list[int]()
    for i in range(node, -1, -1):
        if i not in live:
            continue
        if i in known:
            reads.add(i)
        elif program.nodes[i].op == "input":
            return None
        else:
            found.append(i)
            live.update(program.nodes[i].inputs)
    if not reads:
        return None
    order = tuple(sorted(reads))
    nodes, place = _inputs([program.nodes[i].type for i in order])
    where = dict(zip(order, place, strict=True))
    for i in reversed(found):
        own = program.nodes[i]
        where[i] = len(nodes)
        nodes.append(Node(own.op, tuple(where[j] for j in own.inputs), own.attrs, own.type))
    part = Program(tuple(nodes), {_NAME: 0}, {_NAME: where[node]})
    kernel = Fused.of(part, _NAME, single=True)
    return None if kernel is None else _Machine(node, order, kernel)


_NAME = "rows"


def _inputs(kinds: Sequence[TensorType]) -> tuple[list[Node], list[int]]:
    """The input of a part, and the nodes of it that are values of these types."""
    if len(kinds) == 1 and kinds[0].dtype in KERNEL_FLOATS:
        return [_input(kinds[0])], [0]
    width = sum(kind.width for kind in kinds)
    nodes, first = [_input(TensorType("float64", (ROWS, width)))], 0
    for kind in kinds:  # a float32 is exact as a float64, and so is a whole number of a search
        columns = freeze({"indices": np.arange(first, first + kind.width)})
        nodes.append(Node("select", (0,), columns, kind))
        first += kind.width
    return nodes, list(range(1, len(nodes)))


def _input(kind: TensorType) -> Node:
    attrs = {"name": _NAME, "dtype": kind.dtype, "width": kind.width}
    return Node("input", (), freeze(attrs), kind)


def _side_by_side(parts: Sequence[Rows], places: Iterator[int]) -> tuple[Rows, list[Call]]:
    """Rows that hold several rows' numbers, and the calls that copy them there."""
    if len(parts) == 1:
        return parts[0], []
    whole = Rows(next(places), np.dtype(np.float64), sum(part.width for part in parts))
    calls, first = list[Call](), 0
    for part in parts:
        own = whole.columns(slice(first, first + part.width))
        calls.append(taken(part, np.arange(part.width), own))
        first += part.width
    return whole, calls
