"""Covers and gains of trees are dropped: no score reads them. Exact.

They are kept with a model for explanations, which take them from the Program as it is stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Node, Program
from sqlml.ir.rewrite import rewrite
from sqlml.ir.trees import STATISTICS


def drop_statistics(program: Program) -> Program:
    """Return `program` whose trees have what a score needs."""
    return rewrite(program, _rule, ops=("tree_ensemble",))


def _rule(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    if not any(name in node.attrs for name in STATISTICS):
        return None
    kept = {name: value for name, value in node.attrs.items() if name not in STATISTICS}
    return b.op("tree_ensemble", inputs[0], **kept)
