"""Operators that score tree ensembles and add leaf values in the order of the source library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from sqlml.ir.operators.op import Op, Types, array_attribute, require, require_float, require_matrix
from sqlml.ir.program import Attrs
from sqlml.ir.trees import STATISTICS, Ensemble
from sqlml.types import Array, DType, TensorType, dtype_of, matrix

TREES = (
    "roots, feature, threshold, left, right, default_left, leaf_values, target, base, "
    f"compare: str, categorical?, set_offsets?, set_words?, {'?, '.join(STATISTICS)}: bool?"
)
"""The attributes that describe an Ensemble."""


def _tree_ensemble_type(types: Types, attrs: Attrs) -> TensorType:
    ensemble = Ensemble.of(attrs)
    ensemble.check(types[0])
    return matrix(dtype_of(ensemble.base), ensemble.base.size)


def _accumulate_type(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    require(x.rowwise and len(x.shape) == 3, "accumulate takes (n, trees, values)")
    return _sum_type(require_float(x.dtype), attrs, x.shape[1], x.shape[2])


def _sum_type(dtype: DType, attrs: Attrs, num_trees: int, num_values: int) -> TensorType:
    """Infer the type of a sum in which each tree adds `num_values` values, from the target on."""
    base = array_attribute(attrs, "base", dtype, (None,))
    target = array_attribute(attrs, "target", "int32", (num_trees,))
    fits = target.size == 0 or (target.min() >= 0 and int(target.max()) + num_values <= base.size)
    require(fits, "a target reaches outside base")
    return matrix(dtype, base.size)


def _linear_leaves_type(types: Types, attrs: Attrs) -> TensorType:
    leaves, x = types
    require_matrix(leaves, "int64")
    dtype = require_float(require_matrix(x).dtype)
    missing_values = array_attribute(attrs, "value", dtype, (None,))
    array_attribute(attrs, "const", dtype, missing_values.shape)
    begin = array_attribute(attrs, "begin", "int32", (missing_values.size + 1,))
    feature = array_attribute(attrs, "feature", "int32", (None,))
    array_attribute(attrs, "weights", dtype, feature.shape)
    require(missing_values.size > 0, "linear_leaves needs at least one leaf")
    is_valid = begin[0] == 0 and begin[-1] == feature.size and (np.diff(begin) >= 0).all()
    require(is_valid, "begin does not fit the weights")
    is_column = feature.size == 0 or (feature.min() >= 0 and feature.max() < x.width)
    require(is_column, f"a feature reaches outside {x!r}")
    return _sum_type(dtype, attrs, leaves.width, 1)


def find_exit_leaves(ensemble: Ensemble, x: Array) -> Array:
    """Return the index of each row's exit leaf in each tree, int64 (n, trees)."""
    num_rows = x.shape[0]
    positions = np.broadcast_to(ensemble.roots.astype(np.int64), (num_rows, ensemble.trees)).copy()
    rows = np.arange(num_rows)[:, None]
    while (positions >= 0).any():
        nodes = np.maximum(positions, 0)
        is_left = goes_left(ensemble, nodes, x[rows, ensemble.feature[nodes]])
        children = np.where(is_left, ensemble.left[nodes], ensemble.right[nodes])
        positions = np.where(positions < 0, positions, children)
    return ~positions


def goes_left(ensemble: Ensemble, node: Array, value: Array) -> Array:
    """Return whether a row with `value` in the tested column goes left at `node`."""
    threshold = ensemble.threshold[node]
    is_left = value < threshold if ensemble.compare == "lt" else value <= threshold
    if ensemble.categorical is not None:
        is_left = np.where(ensemble.categorical[node], _is_member(ensemble, node, value), is_left)
    return np.where(np.isnan(value), ensemble.default_left[node], is_left)


def _is_member(ensemble: Ensemble, node: Array, value: Array) -> Array:
    """Return whether trunc(value) is in the category set of `node`; false for NaN."""
    is_member = _is_in_words(ensemble, node, value)
    if ensemble.single is None:
        return is_member
    is_the_member = (value >= 0) & (np.trunc(value) == ensemble.threshold[node])
    return np.where(ensemble.single[node], is_the_member, is_member)


def _is_in_words(ensemble: Ensemble, node: Array, value: Array) -> Array:
    if ensemble.set_offsets is None or ensemble.set_words is None or not ensemble.set_words.size:
        return np.zeros(value.shape, bool)
    begin, end = ensemble.set_offsets[node], ensemble.set_offsets[node + 1]
    category = np.trunc(np.where(np.isnan(value), -1, value))
    is_in_range = (category >= 0) & (value >= 0) & (category < (end - begin).astype(np.int64) * 32)
    code = np.where(is_in_range, category, 0).astype(np.int64)
    words = ensemble.set_words[np.minimum(begin + code // 32, ensemble.set_words.size - 1)]
    return np.asarray(is_in_range & ((words >> (code % 32).astype(np.uint32)) & 1).astype(bool))


def _tree_ensemble(args: Sequence[Array], attrs: Attrs) -> Array:
    ensemble = Ensemble.of(attrs)
    leaves = find_exit_leaves(ensemble, args[0])
    return _add_trees((ensemble.leaf_values[leaf] for leaf in leaves.T), args[0].shape[0], attrs)


def _accumulate(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    return _add_trees(np.moveaxis(x, 1, 0), x.shape[0], attrs)


def _add_trees(values_of_trees: Iterable[Array], num_rows: int, attrs: Attrs) -> Array:
    totals: Array = np.repeat(attrs["base"][None, :], num_rows, axis=0)
    for values, start in zip(values_of_trees, attrs["target"].tolist(), strict=True):
        totals[:, start : start + values.shape[1]] += values
    return totals


def _linear_leaves(args: Sequence[Array], attrs: Attrs) -> Array:
    """Return the sum of linear models in the leaves of trees.

    The result of leaf l is `const[l]` plus the sum of `weights[k] * x[feature[k]]` for k from
    begin[l] to begin[l + 1] - 1, or `value[l]` if one of these features is NaN.
    """
    leaves, x = args
    missing_values, begin = attrs["value"], attrs["begin"]
    leaf_indices = np.clip(leaves, 0, missing_values.size - 1)
    term_counts = np.diff(begin)[leaf_indices]
    leaf_outputs: Array = attrs["const"][leaf_indices]
    is_missing = np.zeros(leaf_indices.shape, bool)
    for k in range(int(term_counts.max(initial=0))):
        has_term = k < term_counts
        term_index = np.where(has_term, begin[leaf_indices] + k, 0)
        terms = np.take_along_axis(x, attrs["feature"][term_index].astype(np.int64), axis=1)
        is_missing |= has_term & np.isnan(terms)
        sums = leaf_outputs + attrs["weights"][term_index] * terms
        leaf_outputs = np.where(has_term, sums, leaf_outputs)
    leaf_outputs = np.where(is_missing, missing_values[leaf_indices], leaf_outputs)
    return _accumulate([leaf_outputs[:, :, None]], attrs)


_LINEAR_LEAVES = "value, const, begin, feature, weights, base, target"

OPERATORS: tuple[Op, ...] = (
    Op("tree_ensemble", "opaque", _tree_ensemble_type, _tree_ensemble, f"{TREES}, single?"),
    Op("linear_leaves", "opaque", _linear_leaves_type, _linear_leaves, _LINEAR_LEAVES, (2, 2)),
    Op("accumulate", "reduction", _accumulate_type, _accumulate, "base, target"),
)
