"""Operators that score tree ensembles and sum leaf values in the order of the source library."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.ir.operators.op import Op, Types, array_attribute, require, require_float
from sqlml.ir.program import Attrs
from sqlml.ir.trees import STATISTICS, Ensemble
from sqlml.types import Array, TensorType, dtype_of, matrix

TREES = {
    **dict.fromkeys(("roots", "feature", "threshold", "left", "right", "default_left"), "array"),
    **dict.fromkeys(("leaf_values", "target", "base"), "array"),
    "compare": "str",
    **dict.fromkeys(("categorical", "set_offsets", "set_words", *STATISTICS), "array?"),
}
"""The attributes that describe an Ensemble."""


def _tree_ensemble_type(types: Types, attrs: Attrs) -> TensorType:
    ensemble = Ensemble.of(attrs)
    ensemble.check(types[0])
    return matrix(dtype_of(ensemble.base), ensemble.base.size)


def _accumulate_type(types: Types, attrs: Attrs) -> TensorType:
    base, target = array_attribute(attrs, "base"), array_attribute(attrs, "target")
    x = types[0]
    require_float(x.dtype)
    require(x.rowwise and len(x.shape) == 3, "accumulate takes (n, trees, values)")
    require(base.ndim == 1 and dtype_of(base) == x.dtype, "base must have the values' dtype")
    require(target.shape == (x.shape[1],) and target.dtype == np.int32, "one target a tree")
    require(
        target.size == 0 or (target.min() >= 0 and int(target.max()) + x.shape[2] <= base.size),
        "a target reaches outside base",
    )
    return matrix(x.dtype, base.size)


def _linear_leaves_type(types: Types, attrs: Attrs) -> TensorType:
    leaves, x = types
    dtype = require_float(x.dtype)
    require(leaves.dtype == "int64" and leaves.rowwise, "linear_leaves takes numbers of leaves")
    require(
        len(leaves.shape) == 2 and len(x.shape) == 2 and x.rowwise, "linear_leaves takes (n, k)"
    )
    value, const, begin = (array_attribute(attrs, name) for name in ("value", "const", "begin"))
    feature, weights = array_attribute(attrs, "feature"), array_attribute(attrs, "weights")
    base, target = array_attribute(attrs, "base"), array_attribute(attrs, "target")
    floats = (value, const, weights, base)
    require(all(a.ndim == 1 and dtype_of(a) == dtype for a in floats), f"arrays must be {dtype}")
    require(value.size > 0 and const.size == value.size, "one value and one constant a leaf")
    require(
        begin.dtype == np.int32 and begin.shape == (value.size + 1,) and feature.ndim == 1,
        "begin must be int32, one more than there are leaves",
    )
    require(
        bool(begin[0] == 0 and begin[-1] == feature.size and (np.diff(begin) >= 0).all())
        and weights.size == feature.size,
        "begin does not fit the weights",
    )
    require(
        feature.dtype == np.int32
        and (feature.size == 0 or (feature.min() >= 0 and feature.max() < x.width)),
        f"a feature reaches outside {x!r}",
    )
    require(target.shape == (leaves.width,) and target.dtype == np.int32, "one target a tree")
    require(
        target.size == 0 or (target.min() >= 0 and target.max() < base.size),
        "a target reaches outside base",
    )
    return matrix(dtype, base.size)


def find_exit_leaves(e: Ensemble, x: Array) -> Array:
    """Return the exit leaf of each row in each tree, int64 (n, trees)."""
    n = x.shape[0]
    position = np.broadcast_to(e.roots.astype(np.int64), (n, e.trees)).copy()
    rows = np.arange(n)[:, None]
    while (position >= 0).any():
        node = np.maximum(position, 0)
        value = x[rows, e.feature[node]] if e.nodes else np.zeros(position.shape, x.dtype)
        child = np.where(goes_left(e, node, value), e.left[node], e.right[node])
        position = np.where(position < 0, position, child)
    return ~position


def goes_left(e: Ensemble, node: Array, value: Array) -> Array:
    """Return whether a row goes left at `node`, whose column has `value` in that row."""
    threshold = e.threshold[node]
    left = value < threshold if e.compare == "lt" else value <= threshold
    if e.categorical is not None:
        left = np.where(e.categorical[node], _is_member(e, node, value), left)
    return np.where(np.isnan(value), e.default_left[node], left)


def _is_member(e: Ensemble, node: Array, value: Array) -> Array:
    """Return whether trunc(value) is a member of the categorical node's set; NaN is not."""
    if e.set_offsets is None or e.set_words is None or not e.set_words.size:
        return np.zeros(value.shape, bool)
    begin, end = e.set_offsets[node], e.set_offsets[node + 1]
    category = np.trunc(np.where(np.isnan(value), -1, value))
    inside = (category >= 0) & (value >= 0) & (category < (end - begin).astype(np.int64) * 32)
    code = np.where(inside, category, 0).astype(np.int64)
    words = e.set_words[np.minimum(begin + code // 32, e.set_words.size - 1)]
    member: Array = inside & ((words >> (code % 32).astype(np.uint32)) & 1).astype(bool)
    return member


def _tree_ensemble(args: Sequence[Array], attrs: Attrs) -> Array:
    e = Ensemble.of(attrs)
    leaves = find_exit_leaves(e, args[0])
    out = np.repeat(e.base[None, :], args[0].shape[0], axis=0)
    values = e.leaf_values.shape[1]
    for t in range(e.trees):
        start = int(e.target[t])
        out[:, start : start + values] += e.leaf_values[leaves[:, t]]
    return out


def _accumulate(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    base: Array = attrs["base"]
    target: Array = attrs["target"]
    out = np.repeat(base[None, :], x.shape[0], axis=0)
    for t in range(x.shape[1]):
        out[:, target[t] : target[t] + x.shape[2]] += x[:, t]
    return out


def _linear_leaves(args: Sequence[Array], attrs: Attrs) -> Array:
    """Return the sum of linear models in the leaves of trees.

    Leaf l has the value `const[l]` plus the sum of `weights[k] * x[feature[k]]` for k from begin[l]
    to begin[l+1] - 1, or `value[l]` if one of these features is NaN. Tree t adds it to output
    target[t]. A number outside the leaves counts as the nearest leaf.
    """
    leaves, x = args
    value, begin = attrs["value"], attrs["begin"]
    leaf = np.clip(leaves, 0, value.size - 1)
    counts = np.diff(begin)[leaf]
    out: Array = attrs["const"][leaf]
    is_missing = np.zeros(leaf.shape, bool)
    for k in range(int(counts.max(initial=0))):
        has_term = k < counts
        index = np.where(has_term, begin[leaf] + k, 0)
        term = np.take_along_axis(x, attrs["feature"][index].astype(np.int64), axis=1)
        is_missing |= has_term & np.isnan(term)
        out = np.where(has_term, out + attrs["weights"][index] * term, out)
    out = np.where(is_missing, value[leaf], out)
    return _accumulate([out[:, :, None]], attrs)


_LINEAR_LEAVES = dict.fromkeys(
    ("value", "const", "begin", "feature", "weights", "base", "target"), "array"
)

OPERATORS: tuple[Op, ...] = (
    Op("tree_ensemble", "model", "opaque", _tree_ensemble_type, _tree_ensemble, TREES),
    Op(
        "linear_leaves",
        "model",
        "opaque",
        _linear_leaves_type,
        _linear_leaves,
        _LINEAR_LEAVES,
        arity=(2, 2),
    ),
    Op(
        "accumulate",
        "tensor",
        "reduction",
        _accumulate_type,
        _accumulate,
        {"base": "array", "target": "array"},
    ),
)
