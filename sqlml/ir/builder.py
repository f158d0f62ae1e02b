"""`Builder`: the one way to make a Program, node by node, with types inferred at each step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import ProgramError
from sqlml.ir import ops
from sqlml.ir.program import Node, Program, freeze
from sqlml.types import Array, DType, Labels, TensorType, label_sets


@dataclass(frozen=True, slots=True)
class Value:
    """The result of a node under construction."""

    index: int
    type: TensorType


class Builder:
    """Collects nodes in topological order; `build` closes them into a Program.

    >>> b = Builder()
    >>> x = b.input("x", "float64")
    >>> program = b.build({"label": b.op("add", x, 1.0)})
    >>> [node.op for node in program]
    ['input', 'constant', 'add']
    """

    def __init__(self, start: Sequence[Node] = ()) -> None:
        """Go on from the nodes that a Program starts with."""
        self._nodes: list[Node] = list(start)
        self._starts: dict[int, Array] = {}
        self._inputs: dict[str, int] = {
            str(node.attrs["name"]): i for i, node in enumerate(start) if node.op == "input"
        }

    def input(self, name: str, dtype: DType, width: int = 1, kind: str | None = None) -> Value:
        """The input `name`, made at its first use; (n, width) of `dtype`.

        Args:
            kind: DATETIME, where the numbers stand for dates and timestamps.

        Raises:
            ProgramError: it was made before with another dtype, width or kind.
        """
        if name in self._inputs:
            index = self._inputs[name]
            known = self._nodes[index].type
            if known.dtype != dtype or known.width != width or self.kind(name) != kind:
                raise ProgramError(f"input {name!r} is {known!r}, not {dtype}[n,{width}]")
            return Value(index, known)
        attrs = {} if kind is None else {"kind": kind}
        value = self.op("input", name=name, dtype=dtype, width=width, **attrs)
        self._inputs[name] = value.index
        return value

    def known(self, name: str) -> DType | None:
        """The dtype of input `name`; None if it does not exist yet."""
        return self._nodes[self._inputs[name]].type.dtype if name in self._inputs else None

    def input_of(self, node: Node, name: str | None = None) -> Value:
        """The input that a node of another Program is, here under `name` (default: its own).

        Raises:
            ProgramError: it was made before with another dtype, width or kind.
        """
        a = node.attrs
        return self.input(name or str(a["name"]), a["dtype"], a["width"], a.get("kind"))

    def kind(self, name: str) -> str | None:
        """DATETIME where the numbers of input `name` stand for dates and timestamps, else None."""
        return self._nodes[self._inputs[name]].attrs.get("kind") if name in self._inputs else None

    def constant(self, value: Array | float) -> Value:
        """A constant array; a number is an array of one."""
        return self.op("constant", value=np.asarray(value))

    def op(self, name: str, /, *inputs: Value | Array | float, **attrs: Any) -> Value:
        """Append operator `name`; see `ops.TABLE` for inputs and attributes.

        An array or a number among the inputs becomes a constant.

        >>> b = Builder()
        >>> x = b.input("x", "float64")
        >>> b.op("where", b.op("lt", x, 0.0), np.array([1.0, 2.0]), x)
        Value(index=4, type=float64[n,2])

        Raises:
            ProgramError: the inputs or attributes break the operator's rule.
        """
        frozen = freeze(attrs)
        values = [v if isinstance(v, Value) else self.constant(v) for v in inputs]
        result = ops.infer(name, [v.type for v in values], frozen)
        self._nodes.append(Node(name, tuple(v.index for v in values), frozen, result))
        return Value(len(self._nodes) - 1, result)

    def beside(self, parts: Sequence[Value]) -> Value:
        """(n, k) values side by side; a single one as it is."""
        return parts[0] if len(parts) == 1 else self.op("concat", *parts)

    def linear(self, x: Value, weights: Array, bias: Array | float = 0.0) -> Value:
        """x (n, k) @ weights (k, w) + bias, (w,) or one for all, in float64."""
        weights, bias = np.asarray(weights, np.float64), np.asarray(bias, np.float64)
        each = bias if bias.ndim else np.full(weights.shape[1], bias)
        return self.op("linear", x, weights=weights, bias=each)

    def starts(self, concat: Value) -> Array:
        """int64 (inputs + 1,): the first column of each input of a concat, and the width of all.

        It is computed once: passes look up single columns of thousands.
        """
        if concat.index not in self._starts:
            widths = [self._nodes[i].type.width for i in self._nodes[concat.index].inputs]
            self._starts[concat.index] = np.cumsum([0, *widths], dtype=np.int64)
        return self._starts[concat.index]

    def cast(self, value: Value, dtype: DType) -> Value:
        """`value` in `dtype`; itself where it has that already."""
        return value if value.type.dtype == dtype else self.op("cast", value, dtype=dtype)

    def again(self, node: Node, inputs: Sequence[Value]) -> Value:
        """Append `node` on inputs of the very types that it had, whose rule was checked then."""
        if node.op == "input":
            name = str(node.attrs["name"])
            if name in self._inputs:
                return self.input_of(node)
            self._inputs[name] = len(self._nodes)
        reads = tuple([v.index for v in inputs])
        same = reads == node.inputs
        self._nodes.append(node if same else Node(node.op, reads, node.attrs, node.type))
        return Value(len(self._nodes) - 1, node.type)

    def node(self, value: Value) -> Node:
        """The node that makes `value`."""
        return self._nodes[value.index]

    def value(self, index: int) -> Value:
        """The value that node `index` makes."""
        return Value(index, self._nodes[index].type)

    def build(
        self,
        outputs: Mapping[str, Value],
        labels: Labels | tuple[Labels, ...] | None = None,
        order: tuple[str, ...] | None = None,
    ) -> Program:
        """Close the Program; nodes that no output needs are left out.

        `order` is the order of the inputs (default: of their first use); inputs that nobody
        reads are kept only when named there, so that a model's schema survives.
        """
        names = tuple(self._inputs) if order is None else order
        live = [False] * len(self._nodes)
        stack = [v.index for v in outputs.values()]
        if order is not None:
            stack += [self._inputs[n] for n in names]
        while stack:
            i = stack.pop()
            if not live[i]:
                live[i] = True
                stack += self._nodes[i].inputs
        place: dict[int, int] = {}
        nodes: list[Node] = []
        for i, node in enumerate(self._nodes):
            if live[i]:
                place[i] = len(nodes)
                moved = tuple([place[j] for j in node.inputs])
                same = moved == node.inputs
                nodes.append(node if same else Node(node.op, moved, node.attrs, node.type))
        return Program(
            tuple(nodes),
            MappingProxyType(
                {n: place[self._inputs[n]] for n in names if self._inputs[n] in place}
            ),
            MappingProxyType({n: place[v.index] for n, v in outputs.items()}),
            label_sets(labels),
        )


# `rewrite`: rebuild a Program node by node, the shape of nearly every pass.


Rule = Callable[[Builder, Node, Sequence[Value]], Value | None]
"""Given the new builder, an old node and its rebuilt inputs: the replacement, or None to copy."""


def rewrite(
    program: Program,
    rule: Rule,
    outputs: Sequence[str] | None = None,
    keep_inputs: bool = False,
    ops: Collection[str] | None = None,
) -> Program:
    """A copy of `program` in which `rule` has replaced the nodes that it wants to.

    Only `outputs` (default: all) and what they need remain; inputs that nobody reads any more
    are dropped unless `keep_inputs`. A rule that concerns only `ops` is asked about no others; if
    it replaces nothing, the Program is returned as it is.
    """
    nodes = program.nodes
    first = 0  # nodes before it stay as they are
    if ops is not None:
        first = next((i for i, node in enumerate(nodes) if node.op in ops), len(nodes))
    builder = Builder(nodes[:first])
    values = [Value(i, node.type) for i, node in enumerate(nodes[:first])]
    replaced = retyped = False
    for node in nodes[first:]:
        inputs = [values[i] for i in node.inputs]
        value = rule(builder, node, inputs) if ops is None or node.op in ops else None
        if value is not None:
            replaced = True
            retyped = retyped or value.type != node.type
        elif retyped and [v.type for v in inputs] != [nodes[i].type for i in node.inputs]:
            value = copy(builder, node, inputs)
        else:
            value = builder.again(node, inputs)
        values.append(value)
    if ops is not None and outputs is None and not replaced:
        return program
    wanted = program.outputs if outputs is None else outputs
    return builder.build(
        {name: values[program.outputs[name]] for name in wanted},
        program.labels,
        tuple(program.inputs) if keep_inputs else None,
    )


def copy(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value:
    """Append the operator of `node` to `builder`, on other inputs."""
    if node.op == "input":
        return builder.input_of(node)
    return builder.op(node.op, *inputs, **node.attrs)
