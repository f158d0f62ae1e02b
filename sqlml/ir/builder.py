"""`Builder` builds a Program node by node, and `rewrite` is the framework of most passes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import ProgramError
from sqlml.ir import ops
from sqlml.ir.program import Node, Program, freeze
from sqlml.types import Array, DType, Labels, TensorType, label_sets


@dataclass(frozen=True, slots=True)
class Value:
    """The result of a node in a Builder: the index of the node, and the type."""

    index: int
    type: TensorType


class Builder:
    """A list of nodes in topological order, which `build` turns into a Program.

    >>> b = Builder()
    >>> x = b.input("x", "float64")
    >>> program = b.build({"label": b.op("add", x, 1.0)})
    >>> [node.op for node in program]
    ['input', 'constant', 'add']
    """

    def __init__(self, start: Sequence[Node] = ()) -> None:
        """Start with the nodes `start`, the first nodes of another Program."""
        self._nodes: list[Node] = list(start)
        self._first_columns: dict[int, Array] = {}
        input_nodes = [(i, node) for i, node in enumerate(start) if node.op == "input"]
        self._inputs: dict[str, int] = {str(node.attrs["name"]): i for i, node in input_nodes}

    def input(self, name: str, dtype: DType, width: int = 1, kind: str | None = None) -> Value:
        """Return the input `name`, (n, width) of `dtype`; add the input if it does not exist.

        `kind` is DATETIME if the numbers stand for dates and timestamps. Raise ProgramError if the
        input exists with another dtype, width or kind.
        """
        if name in self._inputs:
            value = self.value(self._inputs[name])
            if (value.type.dtype, value.type.width, self.input_kind(name)) != (dtype, width, kind):
                raise ProgramError(f"input {name!r} is {value.type!r}, not {dtype}[n,{width}]")
            return value
        attrs = {} if kind is None else {"kind": kind}
        value = self.op("input", name=name, dtype=dtype, width=width, **attrs)
        self._inputs[name] = value.index
        return value

    def input_dtype(self, name: str) -> DType | None:
        """Return the dtype of the input `name`, or None if the input does not exist."""
        return self._nodes[self._inputs[name]].type.dtype if name in self._inputs else None

    def input_of(self, node: Node, name: str | None = None) -> Value:
        """Add the input `node` of another Program; `name` replaces the name if given."""
        return self.input(**{**node.attrs, "name": name or str(node.attrs["name"])})

    def input_kind(self, name: str) -> str | None:
        """Return DATETIME if the numbers of the input `name` stand for dates, otherwise None."""
        return self._nodes[self._inputs[name]].attrs.get("kind") if name in self._inputs else None

    def constant(self, value: Array | float) -> Value:
        """Append a constant array; a number becomes an array without axes."""
        return self.op("constant", value=np.asarray(value))

    def op(self, name: str, /, *inputs: Value | Array | float, **attrs: Any) -> Value:
        """Append operator `name`; see `ops.TABLE` for inputs and attributes.

        Arrays and numbers become constants. Raise ProgramError if inputs or attributes are invalid.

        >>> b = Builder()
        >>> x = b.input("x", "float64")
        >>> b.op("where", b.op("lt", x, 0.0), np.array([1.0, 2.0]), x)
        Value(index=4, type=float64[n,2])
        """
        frozen = freeze(attrs)
        values = [value if isinstance(value, Value) else self.constant(value) for value in inputs]
        result_type = ops.infer(name, [value.type for value in values], frozen)
        self._nodes.append(Node(name, tuple(value.index for value in values), frozen, result_type))
        return Value(len(self._nodes) - 1, result_type)

    def concat(self, values: Sequence[Value]) -> Value:
        """Concatenate the columns of (n, k) values; return a single value unchanged."""
        return values[0] if len(values) == 1 else self.op("concat", *values)

    def linear(self, x: Value, weights: Array, bias: Array | float = 0.0) -> Value:
        """Append x @ weights + bias in float64; weights are (k, w), bias is (w,) or one number."""
        weights, bias = np.asarray(weights, np.float64), np.asarray(bias, np.float64)
        bias_vector = bias if bias.ndim else np.full(weights.shape[1], bias)
        return self.op("linear", x, weights=weights, bias=bias_vector)

    def first_columns(self, concat: Value) -> Array:
        """Return the first column of each input of `concat`, then the total width, as int64."""
        if concat.index not in self._first_columns:
            widths = [self._nodes[i].type.width for i in self._nodes[concat.index].inputs]
            self._first_columns[concat.index] = np.cumsum([0, *widths], dtype=np.int64)
        return self._first_columns[concat.index]

    def cast(self, value: Value, dtype: DType) -> Value:
        return value if value.type.dtype == dtype else self.op("cast", value, dtype=dtype)

    def copy_node(self, node: Node, inputs: Sequence[Value]) -> Value:
        """Append a copy of `node` that reads `inputs`, whose types must be unchanged."""
        if node.op == "input":
            name = str(node.attrs["name"])
            if name in self._inputs:
                return self.input_of(node)
            self._inputs[name] = len(self._nodes)
        self._nodes.append(_with_inputs(node, tuple([value.index for value in inputs])))
        return Value(len(self._nodes) - 1, node.type)

    def node(self, value: Value) -> Node:
        return self._nodes[value.index]

    def value(self, index: int) -> Value:
        return Value(index, self._nodes[index].type)

    def build(
        self,
        outputs: Mapping[str, Value],
        labels: Labels | tuple[Labels, ...] | None = None,
        order: tuple[str, ...] | None = None,
    ) -> Program:
        """Build a Program from the nodes that `outputs` need.

        `order` lists the inputs in order; unused inputs are kept. By default, the Program has only
        the used inputs, in the order in which they were added.
        """
        names = tuple(self._inputs) if order is None else order
        is_live = [False] * len(self._nodes)
        roots = [] if order is None else [self._inputs[n] for n in names]
        for i in (*(value.index for value in outputs.values()), *roots):
            is_live[i] = True
        for i in range(len(is_live) - 1, -1, -1):
            if is_live[i]:
                for j in self._nodes[i].inputs:
                    is_live[j] = True
        new_index: dict[int, int] = {}
        nodes: list[Node] = []
        for i, node in enumerate(self._nodes):
            if is_live[i]:
                new_index[i] = len(nodes)
                nodes.append(_with_inputs(node, tuple([new_index[j] for j in node.inputs])))
        inputs = {n: new_index[self._inputs[n]] for n in names if self._inputs[n] in new_index}
        return Program(
            tuple(nodes),
            MappingProxyType(inputs),
            MappingProxyType({n: new_index[value.index] for n, value in outputs.items()}),
            label_sets(labels),
        )


def _with_inputs(node: Node, inputs: tuple[int, ...]) -> Node:
    return node if inputs == node.inputs else Node(node.op, inputs, node.attrs, node.type)


Rule = Callable[[Builder, Node, Sequence[Value]], Value | None]
"""A function that receives the new builder, an old node and the node's rebuilt inputs. The function
returns the replacement, or None to copy the node."""


def rewrite(
    program: Program,
    rule: Rule,
    outputs: Sequence[str] | None = None,
    keep_inputs: bool = False,
    ops: Collection[str] | None = None,
) -> Program:
    """Return a copy of `program` in which `rule` has replaced nodes.

    Only `outputs` (default: all) and the nodes that they need remain. Inputs that are no longer
    used are dropped unless `keep_inputs`. If `ops` is given, the rule is called only for these
    operators, and `program` itself is returned if no node is replaced.
    """
    nodes = program.nodes
    first_index = 0  # Nodes with lower indices are copied.
    if ops is not None:
        first_index = next((i for i, node in enumerate(nodes) if node.op in ops), len(nodes))
    builder = Builder(nodes[:first_index])
    values = [Value(i, node.type) for i, node in enumerate(nodes[:first_index])]
    has_replaced = has_retyped = False
    for node in nodes[first_index:]:
        inputs = [values[i] for i in node.inputs]
        value = rule(builder, node, inputs) if ops is None or node.op in ops else None
        if value is not None:
            has_replaced = True
            has_retyped = has_retyped or value.type != node.type
        elif has_retyped and [v.type for v in inputs] != [nodes[i].type for i in node.inputs]:
            value = copy_retyped(builder, node, inputs)
        else:
            value = builder.copy_node(node, inputs)
        values.append(value)
    if ops is not None and outputs is None and not has_replaced:
        return program
    output_names = program.outputs if outputs is None else outputs
    return builder.build(
        {name: values[program.outputs[name]] for name in output_names},
        program.labels,
        tuple(program.inputs) if keep_inputs else None,
    )


def make_pass(*ops: str) -> Callable[[Rule], Callable[[Program], Program]]:
    """Return a decorator that turns a rule for nodes of `ops` into a pass of the same name."""

    def decorate(rule: Rule) -> Callable[[Program], Program]:
        @wraps(rule)
        def apply(program: Program) -> Program:
            return rewrite(program, rule, ops=ops)

        return apply

    return decorate


def copy_retyped(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value:
    """Append a copy of `node` that reads `inputs` of any types, and infer the result type."""
    is_input = node.op == "input"
    return builder.input_of(node) if is_input else builder.op(node.op, *inputs, **node.attrs)
