"""Covers and gains of trees are dropped: no score reads them. Exact.

They are kept with a model for explanations, which take them from the Program as it is stored.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.program import Node, Program
from sqlml.ir.trees import STATISTICS


def drop_statistics(program: Program) -> Program:
    """Return `program` whose trees have what a score needs."""
    return rewrite(program, _drop_statistics, ops=("tree_ensemble",))


def _drop_statistics(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    if not any(name in node.attrs for name in STATISTICS):
        return None
    kept = {name: value for name, value in node.attrs.items() if name not in STATISTICS}
    return b.op("tree_ensemble", inputs[0], **kept)


# Trees after a check for NaN, or an imputer, never see NaN: all nodes get the same direction.
# Exact.
#
# A library fills a default direction into every node, even where rows with missing values are
# refused before they reach a tree. Where no NaN can come all nodes send it right, as a comparison
# that does not hold does: then kernels need not look for it, and read each column once, where
# directions that differ cost them twice.


_PASSED_ON = ("select", "concat", "cast")
"""Operators whose result is NaN only where an input is."""


def settle_missing(program: Program) -> Program:
    """Return `program` whose trees have one default direction where NaN never comes."""
    return rewrite(program, _settle_missing, ops=("tree_ensemble",))


def _settle_missing(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    left = node.attrs["default_left"]
    if not left.any() or not _never_missing(b, inputs[0]):
        return None
    return b.op("tree_ensemble", inputs[0], **{**node.attrs, "default_left": np.zeros_like(left)})


def _never_missing(b: Builder, value: Value) -> bool:
    node = b.node(value)
    if not node.type.dtype.startswith("float"):
        return True
    if node.op == "require_finite":
        return not node.attrs["allow_nan"]
    if node.op == "constant":
        return not np.isnan(node.attrs["value"]).any()
    if node.op == "impute" and node.attrs["missing"] != node.attrs["missing"]:
        return not np.isnan(node.attrs["fill"]).any()
    return node.op in _PASSED_ON and all(_never_missing(b, b.value(i)) for i in node.inputs)
