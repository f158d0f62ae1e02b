"""`rewrite`: rebuild a Program node by node, the shape of nearly every pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Node, Program

Rule = Callable[[Builder, Node, Sequence[Value]], Value | None]
"""Given the new builder, an old node and its rebuilt inputs: the replacement, or None to copy."""


def rewrite(
    program: Program, rule: Rule, outputs: Sequence[str] | None = None, keep_inputs: bool = False
) -> Program:
    """A copy of `program` in which `rule` has replaced the nodes that it wants to.

    Only `outputs` (default: all) and what they need remain; inputs that nobody reads any more
    are dropped unless `keep_inputs`.
    """
    builder = Builder()
    values: list[Value] = []
    for node in program.nodes:
        inputs = [values[i] for i in node.inputs]
        value = rule(builder, node, inputs)
        values.append(copy(builder, node, inputs) if value is None else value)
    wanted = program.outputs if outputs is None else outputs
    return builder.build(
        {name: values[program.outputs[name]] for name in wanted},
        program.labels,
        tuple(program.inputs) if keep_inputs else None,
    )


def copy(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value:
    """The same operator on other inputs."""
    if node.op == "input":
        name, dtype, width = node.attrs["name"], node.attrs["dtype"], node.attrs["width"]
        return builder.input(name, dtype, width)
    return builder.op(node.op, *inputs, **node.attrs)
