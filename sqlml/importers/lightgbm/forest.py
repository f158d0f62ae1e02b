"""Convert LightGBM's trees to an Ensemble, in which `default_left` says where NaN goes.

The nodes of LightGBM (include/LightGBM/tree.h, NumericalDecision and CategoricalDecision) differ:

* Missing type None: NaN counts as 0, so `default_left` is `0 <= threshold`.
* Missing type Zero: NaN and |x| <= ZERO take the default branch. These nodes read a copy of the
  column in which such values are NaN.
* Missing type NaN: NaN takes the default branch, as in an Ensemble.
* Categorical: NaN and negative numbers go right. LightGBM truncates first, so -0.5 is category 0.
  These nodes read a truncated copy of the column.

LightGBM treats |x| <= ZERO in every row as 0. A threshold inside that range is moved to the edge of
the range, which gives the same branches without changing the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sqlml.errors import ArtifactError, ProgramError
from sqlml.importers.lightgbm.document import Nodes
from sqlml.ir.trees import Ensemble, RawTrees, build_ensemble
from sqlml.types import Array

ZERO = float(np.float32(1e-35))
"""LightGBM's kZeroThreshold, a float32."""

PLAIN, ZERO_MISSING, TRUNCATED = 0, 1, 2
"""Ways to prepare a column for nodes: unchanged, zeros as NaN, or truncated to integers."""


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """An Ensemble over `columns`: pairs (feature, treatment), sorted by treatment.

    If leaves have linear models, the outputs are the indices of the reached leaves.
    """

    ensemble: Ensemble
    columns: tuple[tuple[int, int], ...]


def build_forest(
    nodes: Nodes, num_features: int, num_outputs: int, encoded_features: frozenset[int]
) -> Forest:
    """Build the Ensemble. `encoded_features` hold codes or NaN, and need no truncation."""
    is_categorical = (nodes.decision & 1).astype(bool)
    default_left = (nodes.decision & 2).astype(bool)
    missing_type = (nodes.decision >> 2) & 3
    if (missing_type[~is_categorical] == 3).any():
        raise ArtifactError("a node of the LightGBM model has an unknown missing type")
    threshold = np.where(is_categorical, 0.0, nodes.threshold)
    threshold[(threshold >= -ZERO) & (threshold < 0)] = np.nextafter(-ZERO, -1)
    threshold[(threshold >= 0) & (threshold < ZERO)] = ZERO
    default_left = np.where(missing_type == 0, threshold >= 0, default_left) & ~is_categorical
    treatment = np.zeros(nodes.feature.size, np.int8)  # PLAIN
    treatment[missing_type == 1] = ZERO_MISSING
    treatment[is_categorical] = TRUNCATED
    treatment[np.isin(nodes.feature, list(encoded_features)) & is_categorical] = PLAIN
    if not treatment.any():
        columns = [(feature, PLAIN) for feature in range(num_features)]
        column_index = nodes.feature
    else:
        keys = treatment.astype(np.int64) * num_features + nodes.feature
        used_keys = np.unique(keys)
        columns = [(int(key % num_features), int(key // num_features)) for key in used_keys]
        column_index = np.searchsorted(used_keys, keys).astype(np.int32)
    num_trees = nodes.leaf_counts.size
    if nodes.linear is not None:
        nodes = replace(nodes, value=np.arange(nodes.value.size, dtype=np.float64))
        num_outputs = num_trees
    raw_trees = _build_raw_trees(nodes, column_index, threshold, default_left)
    target, base = np.arange(num_trees) % num_outputs, np.zeros(num_outputs)
    try:
        ensemble = build_ensemble(raw_trees, target=target, base=base, compare="le")
    except ProgramError as error:
        raise ArtifactError(f"the LightGBM model is damaged: {error}") from None
    return Forest(ensemble, tuple(columns))


def _build_raw_trees(
    nodes: Nodes, feature: Array, threshold: Array, default_left: Array
) -> RawTrees:
    """Concatenate the inner nodes and leaves of all trees, with node indices across all trees."""
    leaf_counts, inner_counts = nodes.leaf_counts, nodes.leaf_counts - 1
    sizes = inner_counts + leaf_counts
    starts, num_nodes = np.cumsum(sizes) - sizes, int(sizes.sum())
    if num_nodes > np.iinfo(np.int32).max:
        raise ArtifactError("the LightGBM model has more nodes than sqlml can number")
    roots = starts.astype(np.int32)
    first_inner = np.repeat(roots, inner_counts)
    first_leaf = np.repeat(roots + inner_counts.astype(np.int32), leaf_counts)
    # The indices of the file's inner nodes and leaves among all nodes.
    inner_indices = first_inner + _concatenate_ranges(inner_counts)
    leaf_indices = first_leaf + _concatenate_ranges(leaf_counts)

    def scatter_inner(values: Array, dtype: str) -> Array:
        scattered = np.zeros(num_nodes, dtype)
        scattered[inner_indices] = values
        return scattered

    def index_children(child: Array) -> Array:
        leaf_child = np.repeat(inner_counts.astype(np.int32), inner_counts) + ~child
        return first_inner + np.where(child >= 0, child, leaf_child)

    is_leaf = np.zeros(num_nodes, bool)
    is_leaf[leaf_indices] = True
    value = np.zeros((num_nodes, 1))
    value[leaf_indices, 0] = nodes.value
    number = np.zeros(num_nodes, np.int32)
    number[leaf_indices] = _concatenate_ranges(leaf_counts)
    cover = None
    if nodes.count is not None and nodes.leaf_count is not None:
        cover = scatter_inner(nodes.count, "float64")
        cover[leaf_indices] = nodes.leaf_count
    return RawTrees(
        roots=starts,
        feature=scatter_inner(feature, "int32"),
        threshold=scatter_inner(threshold, "float64"),
        left=scatter_inner(index_children(nodes.left), "int32"),
        right=scatter_inner(index_children(nodes.right), "int32"),
        leaf=is_leaf,
        default_left=scatter_inner(default_left, "bool"),
        value=value,
        sets={int(inner_indices[i]): members for i, members in nodes.sets.items()} or None,
        cover=cover,
        gain=None if nodes.gain is None else scatter_inner(nodes.gain, "float64"),
        number=number,
    )


def _concatenate_ranges(sizes: Array) -> Array:
    """Return the integers from 0 to size - 1 for each size, concatenated."""
    starts = np.cumsum(sizes) - sizes
    return np.arange(int(sizes.sum()), dtype=np.int32) - np.repeat(starts.astype(np.int32), sizes)
