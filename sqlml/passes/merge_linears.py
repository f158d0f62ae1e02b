"""Linear models over the same columns become one with all their outputs. Exact.

Hummingbird, section 5.2, batches operators of one kind: voting, stacked and one-vs-rest linear
models then read each row once. Each output is still summed column by column, so that it keeps its
bits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Node, Program
from sqlml.ir.rewrite import rewrite


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
