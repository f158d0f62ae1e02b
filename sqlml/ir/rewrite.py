"""`rewrite`: rebuild a Program node by node, the shape of nearly every pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Node, Program

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
