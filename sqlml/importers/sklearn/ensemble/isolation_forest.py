"""IsolationForest: how deep a row lies in random trees (Liu, Ting and Zhou, 2008).

`sklearn/ensemble/_iforest.py`: each tree adds the depth of the row's leaf and the average path
length of the training rows in it; the score of a row is -2^-(sum / (trees * c(max_samples_))).
Nothing is checked: NaN goes by each node's missing direction, and infinity is compared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.importers.frame import Frame, Outputs
from sqlml.importers.sklearn.classify import binary_label, outlier_outputs
from sqlml.importers.sklearn.ensemble.tree_arrays import raw_trees, sum_of_trees
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.meta.members import scaled
from sqlml.ir.builder import Value
from sqlml.types import Array


def isolation_forest(model: Any, frame: Frame) -> Outputs:
    """Label -1 or 1, score (negative: an outlier) and samples (score + offset_)."""
    check(model, "estimators_", "estimators_features_", "offset_", "_max_samples")
    builder = frame.builder
    depth = _depth(model, frame)
    denominator = len(model.estimators_) * average_path_length(np.array([model._max_samples]))[0]
    if denominator:
        share = scaled(builder, "div", depth, denominator)
    else:
        share = scaled(builder, "add", scaled(builder, "mul", depth, 0.0), 1.0)
    samples = builder.op("neg", builder.op("exp2", builder.op("neg", share)))
    score = scaled(builder, "sub", samples, model.offset_)
    shallow = _least_inlier_depth(denominator, float(model.offset_))
    return outlier_outputs(binary_label(builder, depth, "ge", shallow), score, samples)


def _depth(model: Any, frame: Frame) -> Value:
    """(n, 1) float64: the depths in all trees added up."""
    trees = [tree.tree_ for tree in model.estimators_]
    raw = raw_trees(trees)
    counts = [tree.node_count for tree in trees]
    if model._max_features != model.n_features_in_:
        chosen = np.stack([np.asarray(f, np.int64) for f in model.estimators_features_])
        owner = np.repeat(np.arange(len(trees)), counts)
        raw = replace(raw, feature=np.where(raw.leaf, 0, chosen[owner, raw.feature]))
    depths = np.concatenate(
        [
            np.asarray(path, np.float64) + np.asarray(rest, np.float64) - 1.0
            for path, rest in zip(
                model._decision_path_lengths, model._average_path_length_per_tree, strict=True
            )
        ]
    )
    x = frame.matrix("float32", "wide")
    return sum_of_trees(frame.builder, x, replace(raw, value=depths[:, None]))


def average_path_length(samples: Array) -> Array:
    """The average path length of a tree that isolates each number of `samples` rows."""
    n = np.asarray(samples, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        long = 2.0 * (np.log(n - 1.0) + np.euler_gamma) - 2.0 * (n - 1.0) / n
    return np.where(n <= 1, 0.0, np.where(n == 2, 1.0, long))


def _least_inlier_depth(denominator: float, offset: float) -> float:
    """The least sum of depths that is an inlier; infinity where none is.

    The score rises with the depth, and the training row at the quantile that `contamination`
    asks for has a score of exactly 0; so the label is decided by depth, which is exact.
    """

    def inlier(depth: float) -> bool:
        share = depth / denominator if denominator else 1.0
        return not -(2 ** -np.float64(share)) - offset < 0

    low, high = 0.0, np.finfo(np.float64).max
    if inlier(low):
        return -np.inf
    if not inlier(high):
        return np.inf
    bits = [int(np.float64(edge).view(np.int64)) for edge in (low, high)]
    while bits[1] - bits[0] > 1:  # positive floats are ordered as their bits are
        middle = (bits[0] + bits[1]) // 2
        bits[inlier(float(np.int64(middle).view(np.float64)))] = middle
    return float(np.int64(bits[1]).view(np.float64))
