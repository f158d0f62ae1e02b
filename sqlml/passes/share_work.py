"""Compute equal values once: share equal nodes, merge linear models, fold constants. Exact.

`merge_linears` follows Hummingbird, section 5.2. Each output of a merged model is still summed
column by column, so results do not change by a bit.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import takewhile

import numpy as np

from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.program import Node, Program


def share_work(program: Program) -> Program:
    """Return `program` with each group of equal nodes replaced by a single node."""
    value_by_key: dict[Hashable, Value] = {}

    def rule(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value:
        # Equal nodes have equal types, so the types of a node's inputs do not change.
        attrs = tuple((key, _make_key(node.attrs[key])) for key in sorted(node.attrs))
        key = (node.op, tuple(value.index for value in inputs), attrs)
        if key not in value_by_key:
            value_by_key[key] = builder.copy_node(node, inputs)
        return value_by_key[key]

    return rewrite(program, rule)


def _make_key(value: object) -> Hashable:
    """Return a key that compares types and contents, and floats bit for bit."""
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return ("strings", value.shape, tuple(value.ravel().tolist()))
        digest = hashlib.sha256(np.ascontiguousarray(value).data).digest()
        return (value.dtype.name, value.shape, digest)
    if isinstance(value, float):
        return ("float", value.hex())
    if isinstance(value, tuple):
        return ("tuple", tuple(_make_key(element) for element in value))
    return (type(value).__name__, value)


def merge_linears(program: Program) -> Program:
    """Return `program` with all `linear` operators that read the same value merged into one."""
    groups: dict[int, list[Node]] = defaultdict(list)
    for node in program.nodes:
        if node.op == "linear":
            groups[node.inputs[0]].append(node)
    merged: dict[int, Value] = {}

    def rule(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
        group = groups[node.inputs[0]]
        if len(group) == 1:
            return None
        if node.inputs[0] not in merged:
            weights = np.concatenate([n.attrs["weights"] for n in group], axis=1)
            bias = np.concatenate([n.attrs["bias"] for n in group])
            merged[node.inputs[0]] = builder.op("linear", inputs[0], weights=weights, bias=bias)
        start = sum(n.type.width for n in takewhile(lambda n: n is not node, group))
        indices = np.arange(start, start + node.type.width)
        return builder.op("select", merged[node.inputs[0]], indices=indices)

    return rewrite(program, rule, ops=("linear",))


def fold_constants(program: Program) -> Program:
    """Return `program` with each node that reads only constants replaced by a constant."""
    is_constant = [node.op == "constant" for node in program.nodes]
    if not any(node.inputs and all(is_constant[i] for i in node.inputs) for node in program.nodes):
        return program
    return rewrite(program, _fold_constant)


def _fold_constant(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    sources = [builder.node(v) for v in inputs]
    if not inputs or any(source.op != "constant" for source in sources):
        return None
    with np.errstate(all="ignore"):
        value = reference.FUNCTIONS[node.op]([s.attrs["value"] for s in sources], node.attrs)
    constant = builder.constant(value)
    return constant if constant.type == node.type else None
