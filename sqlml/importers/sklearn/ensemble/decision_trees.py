"""Decision trees as one tree ensemble: single trees, forests, leaf embeddings, isolation forests.

A forest adds the float64 values of the trees in order and divides by the number of trees
(`sklearn/ensemble/_forest.py`). Ties go to the first class. With several targets, a leaf has the
values of all targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, build_labels
from sqlml.importers.sklearn import classify
from sqlml.importers.sklearn.estimator_checks import check_array, check_estimator, get_class_path
from sqlml.importers.sklearn.meta.members import apply_constant
from sqlml.ir.builder import Builder, Value
from sqlml.ir.trees import RawTrees, build_ensemble
from sqlml.types import Array

NO_CHILD = -1


def join_trees(trees: Sequence[Any], sizes: Sequence[int] | None = None) -> RawTrees:
    """Concatenate the nodes of all `trees` (sklearn.tree._tree.Tree).

    The values, (nodes, classes or 1) float64, are class fractions or means. `sizes` has the number
    of classes of each target, or 1 for a regressor; with `sizes`, a node has the values of all
    targets. scikit-learn compares float32 inputs with float64 thresholds, so thresholds are rounded
    down.
    """

    def join(attribute: str) -> Array:
        return np.concatenate([getattr(tree, attribute) for tree in trees])

    node_counts = np.array([t.node_count for t in trees], np.int64)
    roots = np.cumsum(node_counts) - node_counts
    shift = np.repeat(roots, node_counts)
    is_leaf = join("children_left") == NO_CHILD
    left = np.where(is_leaf, 0, join("children_left") + shift)
    right = np.where(is_leaf, 0, join("children_right") + shift)
    cover = join("weighted_n_node_samples")
    impurity = cover * join("impurity")
    if sizes is None:
        value = np.concatenate([tree.value[:, 0, :] for tree in trees])
    else:  # scikit-learn pads a target that has fewer classes than others with zeros.
        padded_values = np.concatenate([tree.value for tree in trees])
        value = np.concatenate([padded_values[:, t, :size] for t, size in enumerate(sizes)], axis=1)
    return RawTrees(
        roots=roots,
        feature=np.where(is_leaf, 0, join("feature")),
        threshold=round_down_to_float32(np.where(is_leaf, 0.0, join("threshold"))),
        left=left,
        right=right,
        leaf=is_leaf,
        default_left=join("missing_go_to_left").astype(bool),
        value=value,
        cover=cover,
        gain=np.where(is_leaf, 0.0, impurity - impurity[left] - impurity[right]),
        number=np.arange(is_leaf.size) - shift,
    )


def round_down_to_float32(thresholds: Array) -> Array:
    """Round each float64 threshold down to the largest float32 that is not above it.

    For a float32 x, `x <= rounded` is then the same as `x <= threshold`.

    >>> round_down_to_float32(np.array([0.1, 0.5])).tolist()
    [0.09999999403953552, 0.5]
    """
    with np.errstate(over="ignore"):
        rounded = np.asarray(thresholds, np.float64).astype(np.float32)
    next_below = np.nextafter(rounded, np.float32(-np.inf))
    return np.where(rounded.astype(np.float64) > thresholds, next_below, rounded)


def read_tree_input(owner: Any, frame: Frame, tree: Any) -> Value:
    """Return the frame as float32; NaN is allowed in dense rows if `tree` accepts NaN."""
    step = type(owner).__name__
    allow_nan = accepts_nan(tree) and not frame.sparse
    return check_array(frame, step, allow_nan=allow_nan, dtype="float32", rows="wide")


def accepts_nan(tree: Any) -> bool:
    tags = getattr(tree, "__sklearn_tags__", None)
    if tags is None:
        raise UnsupportedModelError(
            f"{type(tree).__name__} comes from scikit-learn before 1.6; update it and fit again"
        )
    return bool(tags().input_tags.allow_nan)


def sum_trees(
    builder: Builder,
    x: Value,
    raw_trees: RawTrees,
    first_outputs: Array | None = None,
    base: Array | None = None,
    stage_size: int | None = None,
    is_mean: bool = False,
) -> Value:
    """Add the leaf values of the trees, one tree after the other, to `base`: (n, outputs) float64.

    `first_outputs` has the first output of each tree, by default 0. `stage_size` is the number of
    trees that a stage adds, or None if scikit-learn cannot score with the first trees. If
    `is_mean`, the caller divides the sum by the number of stages.
    """
    first_outputs = (
        np.zeros(len(raw_trees.roots), np.int32) if first_outputs is None else first_outputs
    )
    if base is None:
        base = np.zeros(int(first_outputs.max()) + raw_trees.value.shape[1])
    ensemble = build_ensemble(raw_trees, target=first_outputs, base=base, compare="le")
    if stage_size is not None:
        stage_ends = np.arange(stage_size, ensemble.trees + 1, stage_size)
        ensemble = ensemble.with_stages(stage_ends, is_mean)
    return builder.op("tree_ensemble", x, **ensemble.attrs())


def are_plain_trees(members: Sequence[Any]) -> bool:
    """Return whether all members are single-target decision trees that treat NaN alike."""
    return all(
        get_class_path(member).startswith("sklearn.tree._classes.")
        and getattr(member, "n_outputs_", 0) == 1
        and accepts_nan(member) == accepts_nan(members[0])
        for member in members
    )


def sum_members(owner: Any, frame: Frame, members: Sequence[tuple[Any, Sequence[int]]]) -> Value:
    """Sum the leaf values of `members`, which are pairs of a tree and column indices."""
    raw_trees = join_member_trees([tree for tree, _ in members])
    columns = [np.asarray(i, np.int64)[np.maximum(tree.tree_.feature, 0)] for tree, i in members]
    raw_trees = replace(raw_trees, feature=np.where(raw_trees.leaf, 0, np.concatenate(columns)))
    return sum_trees(frame.builder, read_tree_input(owner, frame, members[0][0]), raw_trees)


def join_member_trees(trees: Sequence[Any]) -> RawTrees:
    for tree in trees:
        check_estimator(tree, "tree_")
    return join_trees([tree.tree_ for tree in trees])


def import_tree_classifier(model: Any, frame: Frame) -> Outputs:
    """Return the mean over all trees of the class fractions in the leaves."""
    trees = _require_fitted_trees(model, "classes_")
    classes = classify.read_class_lists(model)
    sizes = [len(target_classes) for target_classes in classes]
    proba = _average_trees(model, frame, trees, sizes)
    label = classify.label_targets_by_argmax(frame.builder, proba, sizes)
    labels = tuple(build_labels(target_classes) for target_classes in classes)
    return Outputs({"label": label, "proba": proba}, labels)


def import_tree_regressor(model: Any, frame: Frame) -> Outputs:
    """Return the mean over all trees of the leaf values."""
    trees = _require_fitted_trees(model)
    return Outputs({"label": _average_trees(model, frame, trees, [1] * int(model.n_outputs_))})


def _require_fitted_trees(model: Any, *attributes: str) -> Sequence[Any]:
    is_forest = type(model).__module__ == "sklearn.ensemble._forest"
    check_estimator(model, "estimators_" if is_forest else "tree_", *attributes)
    return model.estimators_ if is_forest else [model]


def _average_trees(model: Any, frame: Frame, trees: Sequence[Any], sizes: Sequence[int]) -> Value:
    raw_trees = join_trees([tree.tree_ for tree in trees], sizes)
    x = read_tree_input(model, frame, trees[0])
    if trees[0] is model:
        return sum_trees(frame.builder, x, raw_trees)
    total = sum_trees(frame.builder, x, raw_trees, stage_size=1, is_mean=True)
    return frame.builder.op("div", total, float(len(trees)))


def import_random_trees_embedding(model: Any, frame: Frame) -> Frame:
    """Return one column per leaf of each tree: 1 in rows that reach the leaf, otherwise 0.

    Each tree returns the position of the row's leaf, which is compared with all leaf positions.
    """
    check_estimator(model, "estimators_", "one_hot_encoder_")
    builder = frame.builder
    trees = [tree.tree_ for tree in model.estimators_]
    leaves_by_tree = [np.asarray(leaves, np.int64) for leaves in model.one_hot_encoder_.categories_]
    columns = [np.zeros(tree.node_count) for tree in trees]
    for tree, leaves, column in zip(trees, leaves_by_tree, columns, strict=True):
        if not np.isin(np.flatnonzero(tree.children_left == NO_CHILD), leaves).all():
            raise UnsupportedModelError(
                "RandomTreesEmbedding has a leaf that no training row fell into; fit it again"
            )
        column[leaves] = np.arange(leaves.size)
    raw_trees = replace(join_trees(trees), value=np.concatenate(columns)[:, None])
    x = read_tree_input(model, frame, model.estimators_[0])
    first_outputs = np.arange(len(trees), dtype=np.int32)
    leaf_positions = sum_trees(builder, x, raw_trees, first_outputs=first_outputs)
    leaf_counts = [leaves.size for leaves in leaves_by_tree]
    tree_of_leaf = np.repeat(np.arange(len(trees), dtype=np.int64), leaf_counts)
    positions = np.concatenate([np.arange(count, dtype=np.float64) for count in leaf_counts])
    reached_positions = builder.op("select", leaf_positions, indices=tree_of_leaf)
    indicators = builder.cast(builder.op("eq", reached_positions, positions), "float64")
    names = [f"tree{t}_leaf{int(i)}" for t, i in zip(tree_of_leaf, positions, strict=True)]
    return Frame.from_value(builder, indicators, names, bool(model.sparse_output))


def import_isolation_forest(model: Any, frame: Frame) -> Outputs:
    """Return label -1 or 1, score (negative for outliers) and samples (score + offset_).

    As in Liu, Ting and Zhou (2008), samples is -2^-(sum / (trees * c(max_samples_))), where c is
    the average path length. Each tree adds the depth of the row's leaf plus c(m) to the sum, where
    m is the number of training rows in the leaf.
    """
    check_estimator(model, "estimators_", "estimators_features_", "offset_", "_max_samples")
    builder = frame.builder
    depth = _sum_depths(model, frame)
    path_length = compute_average_path_length(np.array([model._max_samples]))[0]
    denominator = len(model.estimators_) * path_length
    if denominator:
        share = apply_constant(builder, "div", depth, denominator)
    else:
        share = apply_constant(builder, "add", apply_constant(builder, "mul", depth, 0.0), 1.0)
    samples = builder.op("neg", builder.op("exp2", builder.op("neg", share)))
    score = apply_constant(builder, "sub", samples, model.offset_)
    min_inlier_depth = _find_min_inlier_depth(denominator, float(model.offset_))
    label = classify.label_by_threshold(builder, depth, "ge", min_inlier_depth)
    return classify.build_outlier_outputs(label, score, samples)


def _sum_depths(model: Any, frame: Frame) -> Value:
    trees = [tree.tree_ for tree in model.estimators_]
    raw_trees = join_trees(trees)
    if model._max_features != model.n_features_in_:
        features_of_tree = np.stack([np.asarray(f, np.int64) for f in model.estimators_features_])
        tree_of_node = np.repeat(np.arange(len(trees)), [tree.node_count for tree in trees])
        feature = features_of_tree[tree_of_node, raw_trees.feature]
        raw_trees = replace(raw_trees, feature=np.where(raw_trees.leaf, 0, feature))
    depths, path_lengths = (
        np.concatenate([np.asarray(lengths, np.float64) for lengths in lengths_of_trees])
        for lengths_of_trees in (model._decision_path_lengths, model._average_path_length_per_tree)
    )
    raw_trees = replace(raw_trees, value=(depths + path_lengths - 1.0)[:, None])
    return sum_trees(frame.builder, frame.matrix("float32", "wide"), raw_trees)


def compute_average_path_length(n_samples: Array) -> Array:
    n = np.asarray(n_samples, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        long_path = 2.0 * (np.log(n - 1.0) + np.euler_gamma) - 2.0 * (n - 1.0) / n
    return np.where(n <= 1, 0.0, np.where(n == 2, 1.0, long_path))


def _find_min_inlier_depth(denominator: float, offset: float) -> float:
    """Return the smallest sum of depths that makes a row an inlier; it may be infinite."""

    def is_inlier(depth: float) -> bool:
        share = depth / denominator if denominator else 1.0
        return not -(2 ** -np.float64(share)) - offset < 0

    low, high = 0.0, np.finfo(np.float64).max
    if is_inlier(low):
        return -np.inf
    if not is_inlier(high):
        return np.inf
    bits = [int(np.float64(edge).view(np.int64)) for edge in (low, high)]
    while bits[1] - bits[0] > 1:  # The bits of positive floats have the order of the floats.
        middle = (bits[0] + bits[1]) // 2
        bits[is_inlier(float(np.int64(middle).view(np.float64)))] = middle
    return float(np.int64(bits[1]).view(np.float64))
