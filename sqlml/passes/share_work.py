"""Equal work done once: nodes with the same operator, inputs and attributes become one. Exact.

Members of an ensemble that each scale the same columns, and trees that each check them, share it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np

from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.program import Node, Program


def share_work(program: Program) -> Program:
    """Return `program` without repeated nodes."""
    made: dict[Hashable, Value] = {}

    def rule(b: Builder, node: Node, inputs: Sequence[Value]) -> Value:
        # Equal nodes have equal results, so a node's inputs keep the types that they had.
        attrs = tuple((key, _identity(node.attrs[key])) for key in sorted(node.attrs))
        key = (node.op, tuple(v.index for v in inputs), attrs)
        if key not in made:
            made[key] = b.again(node, inputs)
        return made[key]

    return rewrite(program, rule)


def _identity(value: object) -> Hashable:
    """Equal for attributes of equal type and content; floats by their bits, so that NaN is NaN."""
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return ("strings", value.shape, tuple(value.ravel().tolist()))
        digest = hashlib.sha256(np.ascontiguousarray(value).data).digest()
        return (value.dtype.name, value.shape, digest)
    if isinstance(value, float):
        return ("float", value.hex())
    if isinstance(value, tuple):
        return ("tuple", tuple(_identity(item) for item in value))
    return (type(value).__name__, value)


# Linear models over the same columns become one with all their outputs. Exact.
#
# Hummingbird, section 5.2, batches operators of one kind: voting, stacked and one-vs-rest linear
# models then read each row once. Each output is still summed column by column, so that it keeps
# its bits.


def merge_linears(program: Program) -> Program:
    """Return `program` with one `linear` per input value and dtype."""
    groups: dict[int, list[Node]] = defaultdict(list)
    for node in program.nodes:
        if node.op == "linear":
            groups[node.inputs[0]].append(node)
    merged: dict[int, Value] = {}

    def rule(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
        group = groups[node.inputs[0]]
        if len(group) == 1:
            return None
        if node.inputs[0] not in merged:
            weights = np.concatenate([n.attrs["weights"] for n in group], axis=1)
            bias = np.concatenate([n.attrs["bias"] for n in group])
            merged[node.inputs[0]] = b.op("linear", inputs[0], weights=weights, bias=bias)
        place = next(i for i, n in enumerate(group) if n is node)
        start = sum(n.type.width for n in group[:place])
        indices = np.arange(start, start + node.type.width)
        return b.op("select", merged[node.inputs[0]], indices=indices)

    return rewrite(program, rule, ops=("linear",))


# Operators on only constants are computed once, when the model is compiled. Exact.


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
