"""Checks of rows that are part of an exported graph: what the model refuses stops the runtime.

ONNX has no operator that fails. So the graph looks the check's result up in a table of one entry: a
bad row is an index outside it, and the name of that node says what was wrong.
"""

from __future__ import annotations

import numpy as np

from sqlml.backends.onnxruntime.functions import Args, Types
from sqlml.backends.onnxruntime.graph import Graph
from sqlml.ir.program import Node
from sqlml.types import FLOATS, DType


def require_finite(g: Graph, node: Node, args: Args, types: Types) -> str:
    """The numbers; a row with NaN, infinity or a number out of bounds stops the runtime."""
    (x,), dtype = args, types[0].dtype
    bad = g.add("Equal", g.add("Abs", x), g.scalar(np.inf, dtype))
    what = "infinity"
    if not node.attrs["allow_nan"]:
        bad = g.add("Or", bad, g.add("IsNaN", x))
        what = "NULL, NaN or infinity"
    for bound, op in (("low", "Less"), ("high", "Greater")):
        if bound in node.attrs:
            bad = g.add("Or", bad, g.add(op, x, g.constant(node.attrs[bound])))
            what = "such a value"
    name = f"{node.attrs['step']} does not take {what} in {', '.join(node.attrs['features'])}"
    return g.add("Add", x, _refusing(g, bad, name, dtype))


def require_known(g: Graph, node: Node, args: Args, types: Types) -> str:
    """The codes; a category that the model does not know stops the runtime."""
    x, dtype = args[0], types[0].dtype
    bad = g.add("Less", x, g.scalar(0, dtype))
    name = f"{node.attrs['step']} has never seen a category of {node.attrs['feature']}"
    return g.add("Add", x, _refusing(g, bad, name, dtype))


def _refusing(g: Graph, bad: str, name: str, dtype: DType) -> str:
    """Zeros that change nothing (-0.0), where no entry of `bad` is set; else the runtime stops."""
    zero = g.constant(np.array([-0.0 if dtype in FLOATS else 0]).astype(dtype))
    return g.add("Gather", zero, g.cast(bad, "int64"), name=name[:200])
