"""LightGBM's trees as an Ensemble, with its three missing types reduced to one.

The IR has one rule: `default_left` directs NaN. LightGBM's nodes (include/LightGBM/tree.h,
NumericalDecision and CategoricalDecision) are converted to that rule:

* missing type None: NaN counts as 0, so `default_left` is `0 <= threshold`;
* missing type Zero: the node's default directs NaN and |x| <= ZERO. Such nodes read a copy of the
  column in which those values are NaN;
* missing type NaN: the same rule;
* categorical: NaN and negative numbers go right. -0.5 is truncated first and becomes category 0,
  so such nodes read a truncated copy.

LightGBM treats |x| <= ZERO in every row as 0. A threshold inside that range is moved to its edge,
which gives the same branches without changing the rows.
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
"""The treatments of a column, by which nodes read it."""


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """An Ensemble over `columns`: pairs of a feature and a treatment, sorted by treatment.

    If leaves have linear models, the outputs are the number of the exit leaf of each tree.
    """

    ensemble: Ensemble
    columns: tuple[tuple[int, int], ...]


def build_forest(nodes: Nodes, features: int, outputs: int, encoded: frozenset[int]) -> Forest:
    """Build the Ensemble of `nodes`; `encoded` are features that are already codes or NaN."""
    categorical = (nodes.decision & 1).astype(bool)
    default_left = (nodes.decision & 2).astype(bool)
    missing = (nodes.decision >> 2) & 3
    if (missing[~categorical] == 3).any():
        raise ArtifactError("a node of the LightGBM model has an unknown missing type")
    threshold = np.where(categorical, 0.0, nodes.threshold)
    threshold[(threshold >= -ZERO) & (threshold < 0)] = np.nextafter(-ZERO, -1)
    threshold[(threshold >= 0) & (threshold < ZERO)] = ZERO
    default_left = np.where(missing == 0, threshold >= 0, default_left) & ~categorical
    treatment = np.zeros(nodes.feature.size, np.int8)  # PLAIN
    treatment[missing == 1] = ZERO_MISSING
    treatment[categorical] = TRUNCATED
    treatment[np.isin(nodes.feature, list(encoded)) & categorical] = PLAIN
    if not treatment.any():
        columns = [(f, PLAIN) for f in range(features)]
        column = nodes.feature
    else:
        keys = treatment.astype(np.int64) * features + nodes.feature
        used = np.unique(keys)
        columns = [(int(k % features), int(k // features)) for k in used]
        column = np.searchsorted(used, keys).astype(np.int32)
    trees = np.arange(nodes.leaves.size)
    if nodes.linear is not None:
        nodes = replace(nodes, value=np.arange(nodes.value.size, dtype=np.float64))
        outputs = trees.size
    raw = _build_raw_trees(nodes, column, threshold, default_left)
    try:
        result = build_ensemble(
            raw, target=trees % outputs, base=np.zeros(outputs, np.float64), compare="le"
        )
    except ProgramError as error:
        raise ArtifactError(f"the LightGBM model is damaged: {error}") from None
    return Forest(result, tuple(columns))


def _build_raw_trees(
    nodes: Nodes, feature: Array, threshold: Array, default_left: Array
) -> RawTrees:
    """Concatenate the inner nodes and leaves of all trees, with absolute numbers."""
    leaves, inner = nodes.leaves, nodes.leaves - 1
    starts = np.cumsum(inner + leaves) - (inner + leaves)
    total = int((inner + leaves).sum())
    if total > np.iinfo(np.int32).max:
        raise ArtifactError("the LightGBM model has more nodes than sqlml can number")
    roots = starts.astype(np.int32)
    first_inner = np.repeat(roots, inner)
    first_leaf = np.repeat(roots + inner.astype(np.int32), leaves)
    # The numbers of the file's inner nodes and leaves among all nodes.
    inner_at = first_inner + _count_up(inner)
    leaf_at = first_leaf + _count_up(leaves)

    def spread_inner(values: Array, dtype: str) -> Array:
        spread = np.zeros(total, dtype)
        spread[inner_at] = values
        return spread

    def number_children(child: Array) -> Array:
        leaf = np.repeat(inner.astype(np.int32), inner) + ~child
        numbers: Array = first_inner + np.where(child >= 0, child, leaf)
        return numbers

    leaf = np.zeros(total, bool)
    leaf[leaf_at] = True
    value = np.zeros((total, 1))
    value[leaf_at, 0] = nodes.value
    cover = None
    if nodes.count is not None and nodes.leaf_count is not None:
        cover = spread_inner(nodes.count, "float64")
        cover[leaf_at] = nodes.leaf_count
    return RawTrees(
        roots=starts,
        feature=spread_inner(feature, "int32"),
        threshold=spread_inner(threshold, "float64"),
        left=spread_inner(number_children(nodes.left), "int32"),
        right=spread_inner(number_children(nodes.right), "int32"),
        leaf=leaf,
        default_left=spread_inner(default_left, "bool"),
        value=value,
        sets={int(inner_at[i]): members for i, members in nodes.sets.items()} or None,
        cover=cover,
        gain=None if nodes.gain is None else spread_inner(nodes.gain, "float64"),
    )


def _count_up(sizes: Array) -> Array:
    """Return 0 ... size-1 for each size, concatenated, int32."""
    first: Array = np.repeat((np.cumsum(sizes) - sizes).astype(np.int32), sizes)
    return np.arange(int(sizes.sum()), dtype=np.int32) - first
