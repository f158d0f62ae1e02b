"""Decision trees as one tree ensemble: single trees, forests, leaf embeddings, isolation forests.

A forest adds its trees' float64 values in order and divides by their number
(`sklearn/ensemble/_forest.py`); ties go to the first class. Trees with several targets have the
values of all targets in each leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, build_labels
from sqlml.importers.sklearn import classify
from sqlml.importers.sklearn.estimator_checks import check, numbers, path_of
from sqlml.importers.sklearn.meta.members import apply_number
from sqlml.ir.builder import Builder, Value
from sqlml.ir.trees import RawTrees, build_ensemble
from sqlml.types import Array

NO_CHILD = -1


def raw_trees(trees: Sequence[Any], sizes: Sequence[int] | None = None) -> RawTrees:
    """Concatenate all nodes of `trees` (sklearn.tree._tree.Tree).

    `value` is (nodes, classes or 1) float64: class fractions or means. `sizes` are the numbers of
    classes of each target (1 for a regressor's), whose values are side by side. scikit-learn
    compares float32 with float64 thresholds, so these become the largest float32 not above them.
    """

    def join(attribute: str) -> Array:
        return np.concatenate([getattr(tree, attribute) for tree in trees])

    counts = np.array([t.node_count for t in trees], np.int64)
    roots = np.cumsum(counts) - counts
    shift = np.repeat(roots, counts)
    leaf = join("children_left") == NO_CHILD
    left = np.where(leaf, 0, join("children_left") + shift)
    right = np.where(leaf, 0, join("children_right") + shift)
    cover = join("weighted_n_node_samples")
    impure = cover * join("impurity")
    if sizes is None:
        value = np.concatenate([tree.value[:, 0, :] for tree in trees])
    else:  # Targets with fewer classes than others are padded with zeros.
        padded = np.concatenate([tree.value for tree in trees])
        value = np.concatenate([padded[:, t, :size] for t, size in enumerate(sizes)], axis=1)
    return RawTrees(
        roots=roots,
        feature=np.where(leaf, 0, join("feature")),
        threshold=float32_floor(np.where(leaf, 0.0, join("threshold"))),
        left=left,
        right=right,
        leaf=leaf,
        default_left=join("missing_go_to_left").astype(bool),
        value=value,
        cover=cover,
        gain=np.where(leaf, 0.0, impure - impure[left] - impure[right]),
    )


def float32_floor(thresholds: Array) -> Array:
    """Return the largest float32 <= each float64, so that x32 <= floor is x32 <= threshold.

    >>> float32_floor(np.array([0.1, 0.5])).tolist()
    [0.09999999403953552, 0.5]
    """
    with np.errstate(over="ignore"):
        nearest = np.asarray(thresholds, np.float64).astype(np.float32)
    below = np.nextafter(nearest, np.float32(-np.inf))
    return np.where(nearest.astype(np.float64) > thresholds, below, nearest)


def tree_input(owner: Any, frame: Frame, tree: Any) -> Value:
    """Return the columns as float32; NaN passes in dense rows if `tree`, a member, accepts it."""
    allow_nan = takes_nan(tree) and not frame.sparse
    return numbers(frame, type(owner).__name__, allow_nan=allow_nan, dtype="float32", rows="wide")


def takes_nan(tree: Any) -> bool:
    tags = getattr(tree, "__sklearn_tags__", None)
    if tags is None:
        raise UnsupportedModelError(
            f"{type(tree).__name__} comes from scikit-learn before 1.6; update it and fit again"
        )
    return bool(tags().input_tags.allow_nan)


def sum_of_trees(
    b: Builder, x: Value, raw: RawTrees, target: Array | None = None, base: Array | None = None
) -> Value:
    """Add the leaf values of all trees to `base`, tree by tree: (n, outputs) float64.

    `target` is the first output of each tree; by default all trees add to all outputs.
    """
    target = np.zeros(len(raw.roots), np.int32) if target is None else target
    if base is None:
        base = np.zeros(int(target.max()) + raw.value.shape[1])
    trees = build_ensemble(raw, target=target, base=base, compare="le")
    return b.op("tree_ensemble", x, **trees.attrs())


def all_trees(members: Sequence[Any]) -> bool:
    """Return whether all members are plain decision trees of one target that treat NaN alike."""
    return all(
        path_of(m).startswith("sklearn.tree._classes.")
        and getattr(m, "n_outputs_", 0) == 1
        and takes_nan(m) == takes_nan(members[0])
        for m in members
    )


def tree_sum(owner: Any, frame: Frame, members: Sequence[tuple[Any, Sequence[int]]]) -> Value:
    """Sum the leaf values of all trees, each on its own columns of `frame`: (n, V)."""
    raw = member_trees([tree for tree, _ in members])
    columns = [
        np.asarray(features, np.int64)[np.maximum(tree.tree_.feature, 0)]
        for tree, features in members
    ]
    raw = replace(raw, feature=np.where(raw.leaf, 0, np.concatenate(columns)))
    return sum_of_trees(frame.builder, tree_input(owner, frame, members[0][0]), raw)


def member_trees(trees: Sequence[Any]) -> RawTrees:
    for tree in trees:
        check(tree, "tree_")
    return raw_trees([tree.tree_ for tree in trees])


def tree_classifier(model: Any, frame: Frame) -> Outputs:
    """Return the mean of the class fractions in the leaves of a forest or a single tree."""
    trees = _fitted_trees(model, "classes_")
    classes = classify.class_lists(model)
    sizes = [len(known) for known in classes]
    proba = _average(model, frame, trees, sizes)
    label = classify.argmax_labels(frame.builder, proba, sizes)
    labels = tuple(build_labels(known) for known in classes)
    return Outputs({"label": label, "proba": proba}, labels)


def tree_regressor(model: Any, frame: Frame) -> Outputs:
    """Return the mean of the leaves' values of a forest or a single tree."""
    trees = _fitted_trees(model)
    return Outputs({"label": _average(model, frame, trees, [1] * int(model.n_outputs_))})


def _fitted_trees(model: Any, *attributes: str) -> Sequence[Any]:
    is_forest = type(model).__module__ == "sklearn.ensemble._forest"
    check(model, "estimators_" if is_forest else "tree_", *attributes)
    return model.estimators_ if is_forest else [model]


def _average(model: Any, frame: Frame, trees: Sequence[Any], sizes: Sequence[int]) -> Value:
    """Sum the trees' values and divide by their number: (n, sum of sizes) float64."""
    raw = raw_trees([tree.tree_ for tree in trees], sizes)
    total = sum_of_trees(frame.builder, tree_input(model, frame, trees[0]), raw)
    return total if trees[0] is model else frame.builder.op("div", total, float(len(trees)))


def random_trees_embedding(model: Any, frame: Frame) -> Frame:
    """Return one 0/1 column per leaf, (n, leaves of all trees) float64, in scikit-learn's order.

    The trees return the position of each row's leaf, and each column compares that with its own.
    """
    check(model, "estimators_", "one_hot_encoder_")
    b = frame.builder
    trees = [tree.tree_ for tree in model.estimators_]
    leaves_of = [np.asarray(leaves, np.int64) for leaves in model.one_hot_encoder_.categories_]
    columns = [np.zeros(tree.node_count) for tree in trees]
    for tree, leaves, column in zip(trees, leaves_of, columns, strict=True):
        if not np.isin(np.flatnonzero(tree.children_left == NO_CHILD), leaves).all():
            raise UnsupportedModelError(
                "RandomTreesEmbedding has a leaf that no training row fell into; fit it again"
            )
        column[leaves] = np.arange(leaves.size)
    raw = replace(raw_trees(trees), value=np.concatenate(columns)[:, None])
    x = tree_input(model, frame, model.estimators_[0])
    leaf = sum_of_trees(b, x, raw, target=np.arange(len(trees), dtype=np.int32))
    counts = [leaves.size for leaves in leaves_of]
    tree_of = np.repeat(np.arange(len(trees), dtype=np.int64), counts)
    positions = np.concatenate([np.arange(count, dtype=np.float64) for count in counts])
    value = b.cast(b.op("eq", b.op("select", leaf, indices=tree_of), positions), "float64")
    names = [f"tree{t}_leaf{int(i)}" for t, i in zip(tree_of, positions, strict=True)]
    return Frame.from_value(b, value, names, bool(model.sparse_output))


def isolation_forest(model: Any, frame: Frame) -> Outputs:
    """Return label -1 or 1, score (negative for outliers) and samples (score + offset_).

    Liu, Ting and Zhou (2008), `sklearn/ensemble/_iforest.py`: each tree adds the depth of the row's
    leaf and the average path length of its training rows to the sum in -2^-(sum / (trees *
    c(max_samples_))). NaN follows each node's missing direction.
    """
    check(model, "estimators_", "estimators_features_", "offset_", "_max_samples")
    b = frame.builder
    depth = _depth(model, frame)
    denominator = len(model.estimators_) * average_path_length(np.array([model._max_samples]))[0]
    if denominator:
        share = apply_number(b, "div", depth, denominator)
    else:
        share = apply_number(b, "add", apply_number(b, "mul", depth, 0.0), 1.0)
    samples = b.op("neg", b.op("exp2", b.op("neg", share)))
    score = apply_number(b, "sub", samples, model.offset_)
    shallow = _least_inlier_depth(denominator, float(model.offset_))
    return classify.outlier_outputs(classify.binary_label(b, depth, "ge", shallow), score, samples)


def _depth(model: Any, frame: Frame) -> Value:
    trees = [tree.tree_ for tree in model.estimators_]
    raw = raw_trees(trees)
    if model._max_features != model.n_features_in_:
        chosen = np.stack([np.asarray(f, np.int64) for f in model.estimators_features_])
        owner = np.repeat(np.arange(len(trees)), [tree.node_count for tree in trees])
        raw = replace(raw, feature=np.where(raw.leaf, 0, chosen[owner, raw.feature]))
    to_leaf, below = (
        np.concatenate([np.asarray(lengths, np.float64) for lengths in lengths_of_trees])
        for lengths_of_trees in (model._decision_path_lengths, model._average_path_length_per_tree)
    )
    raw = replace(raw, value=(to_leaf + below - 1.0)[:, None])
    return sum_of_trees(frame.builder, frame.matrix("float32", "wide"), raw)


def average_path_length(samples: Array) -> Array:
    n = np.asarray(samples, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        long = 2.0 * (np.log(n - 1.0) + np.euler_gamma) - 2.0 * (n - 1.0) / n
    return np.where(n <= 1, 0.0, np.where(n == 2, 1.0, long))


def _least_inlier_depth(denominator: float, offset: float) -> float:
    """Return the smallest sum of depths that is an inlier; infinity if none is.

    The row at the quantile of `contamination` has a score of exactly 0; depths decide exactly.
    """

    def is_inlier(depth: float) -> bool:
        share = depth / denominator if denominator else 1.0
        return not -(2 ** -np.float64(share)) - offset < 0

    low, high = 0.0, np.finfo(np.float64).max
    if is_inlier(low):
        return -np.inf
    if not is_inlier(high):
        return np.inf
    bits = [int(np.float64(edge).view(np.int64)) for edge in (low, high)]
    while bits[1] - bits[0] > 1:  # Positive floats are ordered as their bits are.
        middle = (bits[0] + bits[1]) // 2
        bits[is_inlier(float(np.int64(middle).view(np.float64)))] = middle
    return float(np.int64(bits[1]).view(np.float64))
