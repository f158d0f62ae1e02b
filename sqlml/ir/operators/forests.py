"""Ensembles of trees, and the sum of their leaf values in the source's order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.ir.operators.op import Op, Types, array, floating, need
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
    base, target = array(attrs, "base"), array(attrs, "target")
    x = types[0]
    floating(x.dtype)
    need(x.rowwise and len(x.shape) == 3, "accumulate takes (n, trees, values)")
    need(base.ndim == 1 and dtype_of(base) == x.dtype, "base must have the values' dtype")
    need(target.shape == (x.shape[1],) and target.dtype == np.int32, "one target a tree")
    need(
        target.size == 0 or (target.min() >= 0 and int(target.max()) + x.shape[2] <= base.size),
        "a target reaches outside base",
    )
    return matrix(x.dtype, base.size)


def _linear_leaves_type(types: Types, attrs: Attrs) -> TensorType:
    leaves, x = types
    dtype = floating(x.dtype)
    need(leaves.dtype == "int64" and leaves.rowwise, "linear_leaves takes numbers of leaves")
    need(len(leaves.shape) == 2 and len(x.shape) == 2 and x.rowwise, "linear_leaves takes (n, k)")
    value, const, begin = (array(attrs, name) for name in ("value", "const", "begin"))
    feature, weights = array(attrs, "feature"), array(attrs, "weights")
    base, target = array(attrs, "base"), array(attrs, "target")
    floats = (value, const, weights, base)
    need(all(a.ndim == 1 and dtype_of(a) == dtype for a in floats), f"arrays must be {dtype}")
    need(value.size > 0 and const.size == value.size, "one value and one constant a leaf")
    need(
        begin.dtype == np.int32 and begin.shape == (value.size + 1,) and feature.ndim == 1,
        "begin must be int32, one more than there are leaves",
    )
    need(
        bool(begin[0] == 0 and begin[-1] == feature.size and (np.diff(begin) >= 0).all())
        and weights.size == feature.size,
        "begin does not fit the weights",
    )
    need(
        feature.dtype == np.int32
        and (feature.size == 0 or (feature.min() >= 0 and feature.max() < x.width)),
        f"a feature reaches outside {x!r}",
    )
    need(target.shape == (leaves.width,) and target.dtype == np.int32, "one target a tree")
    need(
        target.size == 0 or (target.min() >= 0 and target.max() < base.size),
        "a target reaches outside base",
    )
    return matrix(dtype, base.size)


def exit_leaves(e: Ensemble, x: Array) -> Array:
    """The exit leaf of each row in each tree, (n, trees)."""
    n = x.shape[0]
    at = np.broadcast_to(e.roots.astype(np.int64), (n, e.trees)).copy()
    rows = np.arange(n)[:, None]
    while (at >= 0).any():
        node = np.maximum(at, 0)
        value = x[rows, e.feature[node]] if e.nodes else np.zeros(at.shape, x.dtype)
        below = np.where(goes_left(e, node, value), e.left[node], e.right[node])
        at = np.where(at < 0, at, below)
    return ~at


def goes_left(e: Ensemble, node: Array, value: Array) -> Array:
    """Whether a row with `value` in the column that a node tests goes left there."""
    threshold = e.threshold[node]
    left = value < threshold if e.compare == "lt" else value <= threshold
    if e.categorical is not None:
        left = np.where(e.categorical[node], _is_member(e, node, value), left)
    return np.where(np.isnan(value), e.default_left[node], left)


def _is_member(e: Ensemble, node: Array, value: Array) -> Array:
    """Whether trunc(value) is a member of the categorical node's set; NaN is not."""
    if e.set_offsets is None or e.set_words is None or not e.set_words.size:
        return np.zeros(value.shape, bool)
    begin, end = e.set_offsets[node], e.set_offsets[node + 1]
    whole = np.trunc(np.where(np.isnan(value), -1, value))
    inside = (whole >= 0) & (value >= 0) & (whole < (end - begin).astype(np.int64) * 32)
    code = np.where(inside, whole, 0).astype(np.int64)
    words = e.set_words[np.minimum(begin + code // 32, e.set_words.size - 1)]
    member: Array = inside & ((words >> (code % 32).astype(np.uint32)) & 1).astype(bool)
    return member


def _tree_ensemble(args: Sequence[Array], attrs: Attrs) -> Array:
    e = Ensemble.of(attrs)
    leaves = exit_leaves(e, args[0])
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
    """Leaf l gives `const[l] + weights[k] * x[feature[k]] + ..` for k from begin[l] to begin[l+1],
    and `value[l]` where one of these features is NaN; tree t adds that to output target[t].

    A number outside the leaves counts as the nearest leaf.
    """
    leaves, x = args
    value, begin = attrs["value"], attrs["begin"]
    leaf = np.clip(leaves, 0, value.size - 1)
    counts = np.diff(begin)[leaf]
    out: Array = attrs["const"][leaf]
    gone = np.zeros(leaf.shape, bool)
    for k in range(int(counts.max(initial=0))):
        more = k < counts
        place = np.where(more, begin[leaf] + k, 0)
        term = np.take_along_axis(x, attrs["feature"][place].astype(np.int64), axis=1)
        gone |= more & np.isnan(term)
        out = np.where(more, out + attrs["weights"][place] * term, out)
    out = np.where(gone, value[leaf], out)
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
