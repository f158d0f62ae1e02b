"""RandomTreesEmbedding: one 0/1 column per leaf of a forest of random trees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.ensemble.tree_arrays import raw_trees, sum_of_trees, tree_input
from sqlml.importers.sklearn.fitted import check
from sqlml.types import Array


def random_trees_embedding(model: Any, frame: Frame) -> Frame:
    """(n, leaves of all trees) float64, tree by tree in the order of scikit-learn's leaf numbers.

    The trees give each row the place of its leaf among the tree's columns, in one (n, trees)
    value, and each column compares that with its own place.
    """
    check(model, "estimators_", "one_hot_encoder_")
    builder = frame.builder
    trees = [tree.tree_ for tree in model.estimators_]
    raw = raw_trees(trees)
    columns = [_places(tree, seen) for tree, seen in zip(trees, _seen(model), strict=True)]
    raw = replace(raw, value=np.concatenate(columns)[:, None])
    x = tree_input(model, frame, model.estimators_[0])
    place = sum_of_trees(builder, x, raw, target=np.arange(len(trees), dtype=np.int32))
    counts = [len(seen) for seen in _seen(model)]
    tree_of = np.repeat(np.arange(len(trees), dtype=np.int64), counts)
    own = np.concatenate([np.arange(count, dtype=np.float64) for count in counts])
    hot = builder.op("eq", builder.op("select", place, indices=tree_of), own)
    value = builder.op("cast", hot, dtype="float64")
    names = [f"tree{t}_leaf{int(place)}" for t, place in zip(tree_of, own, strict=True)]
    return Frame.of(builder, value, names, bool(model.sparse_output))


def _seen(model: Any) -> list[Array]:
    return [np.asarray(seen, np.int64) for seen in model.one_hot_encoder_.categories_]


def _places(tree: Any, seen: Array) -> Array:
    """For each node of a tree: its column among the tree's columns, 0 for an inner node.

    Raises:
        UnsupportedModelError: a leaf that no training row reached, on which the source raises.
    """
    leaves = np.flatnonzero(tree.children_left == -1)
    if not np.isin(leaves, seen).all():
        raise UnsupportedModelError(
            "RandomTreesEmbedding has a leaf that no training row fell into; fit it again"
        )
    places = np.zeros(tree.node_count)
    places[seen] = np.arange(seen.size)
    return places
