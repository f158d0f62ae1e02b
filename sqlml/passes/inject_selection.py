"""Feature selection injected: keep only the columns that trees test and weights touch.

Exact on every row that the source library scores. It raises on a NULL, infinity or unknown
category in a column that the model then ignores; that check goes with the column.

Hummingbird, section 5.2 ("feature selection injection"). A tree ensemble that never tests a column,
or a linear model whose weights for it are all zero, gets a select in front; `push_selection`
then moves it down to the inputs, so that unused columns are never read. A check for NULL or
infinity on a column that nobody reads any more goes with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Node, Program
from sqlml.ir.rewrite import rewrite
from sqlml.types import Array


def inject_selection(program: Program) -> Program:
    """Return `program` with a select before each operator that ignores some columns."""
    return rewrite(program, _rule, ops=("tree_ensemble", "linear"))


def _reaches_words(b: Builder, x: Value) -> bool:
    """Whether a select in front of a linear model pays off: one that stays above sparse rows costs
    as much as what it saves, since a row's product reads few weights anyway."""
    if not x.type.sparse:
        return True
    node = b.node(x)
    if node.op in ("concat", "scale_stored", "map_stored", "require_finite_stored", "cast"):
        return any(_reaches_words(b, b.value(i)) for i in node.inputs)
    return node.op in ("count_tokens", "has_items")


def _rule(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    if node.op == "tree_ensemble":
        feature: Array = node.attrs["feature"]
        used = np.unique(feature).astype(np.int64)
        if used.size == inputs[0].type.width:
            return None
        renamed = np.searchsorted(used, feature).astype(np.int32)
        x = b.op("select", inputs[0], indices=used)
        return b.op("tree_ensemble", x, **{**node.attrs, "feature": renamed})
    weights: Array = node.attrs["weights"]
    used = np.flatnonzero(weights.any(axis=1)).astype(np.int64)
    if used.size == inputs[0].type.width or not _reaches_words(b, inputs[0]):
        return None
    x = b.op("select", inputs[0], indices=used)
    return b.op("linear", x, **{**node.attrs, "weights": weights[used]})
