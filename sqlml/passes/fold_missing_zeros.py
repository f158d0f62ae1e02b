"""Fold missing zeros of one-hot columns into the tests of trees. Exact.

XGBoost treats the cells that a sparse matrix does not store as missing values. So where a one-hot
encoder precedes XGBoost, an imported pipeline replaces zeros by NaN. A one-hot column is 0 or 1, so
a test can send a 0 where it sends NaN, and the trees read the one-hot columns themselves. Then
`fold_one_hot` makes them read codes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.ir.builder import Builder, Value, make_pass
from sqlml.ir.program import Node
from sqlml.ir.trees import Ensemble
from sqlml.passes.fold_one_hot import find_one_hot_sources, find_sides_of_zero_and_one
from sqlml.passes.selection import push_down
from sqlml.types import FLOATS, Array


@make_pass("tree_ensemble")
def fold_missing_zeros(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    """Let trees read one-hot columns whose zeros were NaN before."""
    (x,) = inputs
    # One cast to floats keeps NaN, 0 and 1, and each part can repeat it. Two casts may round twice.
    is_cast = builder.node(x).op == "cast" and x.type.dtype in FLOATS
    with_nan = builder.value(builder.node(x).inputs[0]) if is_cast else x
    source = _find_numbers_before_nan(builder, with_nan)
    if source is None or "categorical" in node.attrs:
        return None
    is_one_hot = find_one_hot_sources(builder, source, np.arange(source.type.width)).codes >= 0
    if not is_one_hot.any():
        return None
    others, one_hots = np.flatnonzero(~is_one_hot), np.flatnonzero(is_one_hot)
    parts = [push_down(builder, source, one_hots)]
    if others.size:
        parts.insert(0, push_down(builder, with_nan, others))
    new_columns = np.empty(source.type.width, np.int32)
    new_columns[others] = np.arange(others.size)
    new_columns[one_hots] = others.size + np.arange(one_hots.size)
    attrs = {**node.attrs, **_test_zeros(Ensemble.of(node.attrs), is_one_hot)}
    attrs["feature"] = new_columns[attrs["feature"]]
    features = builder.concat([builder.cast(part, x.type.dtype) for part in parts])
    return builder.op("tree_ensemble", features, **attrs)


def _find_numbers_before_nan(builder: Builder, x: Value) -> Value | None:
    """Return the numbers whose zeros are NaN in `x`, or None if `x` is computed otherwise."""
    node = builder.node(x)
    if node.op != "where":
        return None
    test, missing, numbers = (builder.value(i) for i in node.inputs)
    test_node, missing_node = builder.node(test), builder.node(missing)
    if test_node.op != "eq" or missing_node.op != "constant" or x.type != numbers.type:
        return None
    compared, zero = (builder.value(i) for i in test_node.inputs)
    zero_node = builder.node(zero)
    if zero_node.op != "constant" or compared.index != numbers.index:
        return None
    is_match = not zero_node.attrs["value"].any() and np.isnan(missing_node.attrs["value"]).all()
    return numbers if is_match else None


def _test_zeros(ensemble: Ensemble, is_one_hot: Array) -> dict[str, Array]:
    """Return the attributes of `ensemble` that send a 0 of a one-hot column where NaN went."""
    tests_one_hot = is_one_hot[ensemble.feature]
    _, left_at_one = find_sides_of_zero_and_one(ensemble)
    left_at_zero = ensemble.default_left
    is_swapped = tests_one_hot & left_at_one & ~left_at_zero
    # The threshold 2 sends both numbers left, -1 sends both right, and 0.5 sends a 1 right.
    constant_threshold = np.where(left_at_one, 2.0, -1.0)
    threshold = np.where(left_at_zero == left_at_one, constant_threshold, 0.5)
    return {
        "feature": ensemble.feature,
        "threshold": np.where(tests_one_hot, threshold, ensemble.threshold).astype(
            ensemble.threshold.dtype
        ),
        "left": np.where(is_swapped, ensemble.right, ensemble.left),
        "right": np.where(is_swapped, ensemble.left, ensemble.right),
        "default_left": ensemble.default_left & ~tests_one_hot,
    }
