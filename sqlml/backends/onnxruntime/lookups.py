"""Lookups in the form that onnxruntime runs fastest, in place of the plain Gather of `functions`.

onnxruntime's Gather copies entry by entry with a call each, 5 to 6 ns; GatherElements is one loop,
0.6 ns. With 100 trees TT (8 levels) became 2.5 times as fast, PTT 2.7, GEMM (3 levels) 1.6. Files
that are exported keep the plain form, which says the same in fewer nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from sqlml.backends.onnxruntime.functions import FUNCTIONS, Args, Emit, Types
from sqlml.backends.onnxruntime.graph import Graph
from sqlml.ir.program import Node
from sqlml.types import Array

FEW = 4
"""Columns that Gather picks as fast."""


def _take(g: Graph, node: Node, args: Args, types: Types) -> str:
    table, index = types
    plain = table.dtype == "string" or int(np.prod(table.shape[1:], dtype=np.int64)) != 1
    if plain or 0 in (*table.shape, *index.shape[1:]):
        return FUNCTIONS["take"](g, node, args, types)
    at = args[1] if index.dtype in ("int32", "int64") else g.cast(args[1], "int64")
    flat = g.add("Reshape", at, g.ints(-1))
    taken = g.add("GatherElements", g.add("Reshape", args[0], g.ints(-1)), flat, axis=0)
    return g.add("Reshape", taken, g.ints(-1, *node.type.shape[1:]))


def _select(g: Graph, node: Node, args: Args, types: Types) -> str:
    indices: Array = node.attrs["indices"]
    start, size = int(indices[0]) if indices.size else 0, indices.size
    following = np.array_equal(indices, np.arange(start, start + size))
    if following or size <= FEW or len(types[0].shape) != 2 or types[0].dtype == "string":
        return FUNCTIONS["select"](g, node, args, types)
    rows = g.add("Shape", args[0], start=0, end=1)
    shape = g.add("Concat", rows, g.ints(size), axis=0)
    chosen = g.add("Expand", g.constant(indices.reshape(1, -1).astype(np.int32)), shape)
    return g.add("GatherElements", args[0], chosen, axis=1)


EMIT: Mapping[str, Emit] = MappingProxyType({**FUNCTIONS, "take": _take, "select": _select})
"""`functions.FUNCTIONS` with these lookups: what a session is made of."""
