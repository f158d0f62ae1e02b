"""Drop statistics of trees, and default directions that NaN never takes. Exact.

Libraries set a default direction in every node, even if rows with missing values are rejected
before they reach a tree. In such trees, all nodes are set to send NaN right, like a comparison that
does not hold. Kernels then need no test for NaN, and read each column only once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.ir.builder import Builder, Value, make_pass
from sqlml.ir.program import Node
from sqlml.ir.trees import STATISTICS


@make_pass("tree_ensemble")
def drop_statistics(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    attrs = {name: value for name, value in node.attrs.items() if name not in STATISTICS}
    has_changed = len(attrs) < len(node.attrs)
    return builder.op("tree_ensemble", inputs[0], **attrs) if has_changed else None


_NAN_PRESERVING = ("select", "concat", "cast")
"""Operators whose results are NaN only if an input is NaN."""


@make_pass("tree_ensemble")
def settle_missing(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    """Give all nodes the same default direction in trees that NaN never reaches."""
    default_left = node.attrs["default_left"]
    if not default_left.any() or not _is_never_missing(builder, inputs[0]):
        return None
    attrs = {**node.attrs, "default_left": np.zeros_like(default_left)}
    return builder.op("tree_ensemble", inputs[0], **attrs)


def _is_never_missing(builder: Builder, value: Value) -> bool:
    node = builder.node(value)
    if not node.type.dtype.startswith("float"):
        return True
    if node.op == "require_finite":
        return not node.attrs["allow_nan"]
    if node.op == "constant":
        return not np.isnan(node.attrs["value"]).any()
    if node.op == "impute" and node.attrs["missing"] != node.attrs["missing"]:
        return not np.isnan(node.attrs["fill"]).any()
    operands = [builder.value(i) for i in node.inputs]
    return node.op in _NAN_PRESERVING and all(_is_never_missing(builder, x) for x in operands)
