"""Equal work done once: nodes with the same operator, inputs and attributes become one. Exact.

Members of an ensemble that each scale the same columns, and trees that each check them, share it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Node, Program
from sqlml.ir.rewrite import rewrite


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
