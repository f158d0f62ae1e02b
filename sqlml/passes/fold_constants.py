"""Operators on only constants are computed once, when the model is compiled. Exact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Node, Program
from sqlml.ir.rewrite import rewrite


def fold_constants(program: Program) -> Program:
    """Return `program` with a constant for each node that reads only constants."""
    constant = [node.op == "constant" for node in program.nodes]
    if not any(node.inputs and all(constant[i] for i in node.inputs) for node in program.nodes):
        return program
    return rewrite(program, _rule)


def _rule(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    sources = [b.node(v) for v in inputs]
    if not inputs or any(source.op != "constant" for source in sources):
        return None
    with np.errstate(all="ignore"):
        value = reference.FUNCTIONS[node.op]([s.attrs["value"] for s in sources], node.attrs)
    made = b.constant(value)
    return made if made.type == node.type else None
