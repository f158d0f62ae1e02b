"""`forest_of`: LightGBM's trees as an Ensemble, with its three missing types made one.

The IR knows one rule: NaN goes by `default_left`. LightGBM's nodes (include/LightGBM/tree.h,
NumericalDecision and CategoricalDecision) become it so:

* missing type None: NaN counts as 0, so `default_left` is `0 <= threshold`;
* missing type Zero: NaN and |x| <= ZERO go by the node's default. Such nodes read a copy of the
  column in which those values are NaN;
* missing type NaN: the rule itself;
* categorical: NaN and negatives go right. -0.5 is truncated first and is category 0, so such
  nodes read a truncated copy.

Prediction drops |x| <= ZERO from every row, so that it counts as 0. A threshold inside that range
is moved to its edge, which gives the same branches without touching the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sqlml.errors import ArtifactError, ProgramError
from sqlml.importers.lightgbm.document import Nodes
from sqlml.ir.trees import Ensemble, RawTrees, ensemble
from sqlml.types import Array

ZERO = float(np.float32(1e-35))
"""LightGBM's kZeroThreshold, a float32."""

PLAIN, ZERO_MISSING, TRUNCATED = 0, 1, 2
"""How a node wants its column."""


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """An Ensemble over `columns`: pairs of a feature and PLAIN, ZERO_MISSING or TRUNCATED.

    Where leaves have linear models its outputs are the numbers of each tree's exit leaf.

    The columns are sorted by treatment, so that each treatment is one run.
    """

    ensemble: Ensemble
    columns: tuple[tuple[int, int], ...]


def forest_of(nodes: Nodes, features: int, outputs: int, encoded: frozenset[int]) -> Forest:
    """The trees of `nodes`; `encoded` are features that are codes or NaN already.

    Raises:
        ArtifactError: child numbers that make no tree.
    """
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
        place = nodes.feature
    else:
        keys = treatment.astype(np.int64) * features + nodes.feature
        used = np.unique(keys)
        columns = [(int(k % features), int(k // features)) for k in used]
        place = np.searchsorted(used, keys).astype(np.int32)
    trees = np.arange(nodes.leaves.size)
    if nodes.linear is not None:
        nodes = replace(nodes, value=np.arange(nodes.value.size, dtype=np.float64))
        outputs = trees.size
    raw = _raw(nodes, place, threshold, default_left)
    try:
        made = ensemble(
            raw,
            target=trees % outputs,
            base=np.zeros(outputs, np.float64),
            compare="le",
        )
    except ProgramError as error:
        raise ArtifactError(f"the LightGBM model is damaged: {error}") from None
    return Forest(made, tuple(columns))


def _raw(nodes: Nodes, feature: Array, threshold: Array, default_left: Array) -> RawTrees:
    """Inner nodes and leaves of all trees, concatenated, with absolute numbers."""
    leaves, inner = nodes.leaves, nodes.leaves - 1
    starts = np.cumsum(inner + leaves) - (inner + leaves)
    total = int((inner + leaves).sum())
    if total > np.iinfo(np.int32).max:
        raise ArtifactError("the LightGBM model has more nodes than sqlml can number")
    narrow = starts.astype(np.int32)
    first_inner = np.repeat(narrow, inner)
    first_leaf = np.repeat(narrow + inner.astype(np.int32), leaves)
    # Where each inner node and each leaf of the file stands among all nodes.
    inner_at = first_inner + _counting(inner)
    leaf_at = first_leaf + _counting(leaves)

    def spread(values: Array, dtype: str) -> Array:
        out = np.zeros(total, dtype)
        out[inner_at] = values
        return out

    def absolute(child: Array) -> Array:
        leaf = np.repeat(inner.astype(np.int32), inner) + ~child
        numbers: Array = first_inner + np.where(child >= 0, child, leaf)
        return numbers

    leaf = np.zeros(total, bool)
    leaf[leaf_at] = True
    value = np.zeros((total, 1))
    value[leaf_at, 0] = nodes.value
    cover = None
    if nodes.count is not None and nodes.leaf_count is not None:
        cover = spread(nodes.count, "float64")
        cover[leaf_at] = nodes.leaf_count
    return RawTrees(
        roots=starts,
        feature=spread(feature, "int32"),
        threshold=spread(threshold, "float64"),
        left=spread(absolute(nodes.left), "int32"),
        right=spread(absolute(nodes.right), "int32"),
        leaf=leaf,
        default_left=spread(default_left, "bool"),
        value=value,
        sets={int(inner_at[i]): members for i, members in nodes.sets.items()} or None,
        cover=cover,
        gain=None if nodes.gain is None else spread(nodes.gain, "float64"),
    )


def _counting(sizes: Array) -> Array:
    """0 .. size-1 for each size, concatenated, int32."""
    first: Array = np.repeat((np.cumsum(sizes) - sizes).astype(np.int32), sizes)
    return np.arange(int(sizes.sum()), dtype=np.int32) - first
