"""Clusterers that can place new rows: the label is the number of the cluster.

DBSCAN and its relatives know only the rows that they were fitted on, so they have no predict.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import MAX_DENSE, Frame, Outputs, Rows
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.cluster.centres import (
    assigned,
    component_labels,
    euclidean,
    nearest,
    relative,
)
from sqlml.importers.sklearn.fitted import check
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array, Labels


def k_means(model: Any, frame: Frame) -> Outputs:
    """KMeans and MiniBatchKMeans: the nearest centre, and the distances to all as transform."""
    check(model, "cluster_centers_")
    x, centres = _read(model, frame, "sparse")
    label = assigned(frame.builder, x, centres)
    return _with_distances(frame.builder, x, centres, label)


def nearest_centre(model: Any, frame: Frame) -> Outputs:
    """MeanShift and AffinityPropagation: the nearest centre, within any distance.

    Raises:
        UnsupportedModelError: AffinityPropagation of precomputed similarities.
    """
    check(model, "labels_")
    if getattr(model, "affinity", "") == "precomputed":
        raise UnsupportedModelError(
            "AffinityPropagation(affinity='precomputed') stores no coordinates, so it has no "
            "predict; fit it with affinity='euclidean'"
        )
    check(model, "cluster_centers_")
    x, centres = _read(model, frame)
    builder = frame.builder
    if not len(centres):  # it did not converge: every row is labelled -1
        none = builder.linear(x, np.zeros((x.type.width, 1)))
        return Outputs({"label": builder.op("argmax", none, axis=1)}, Labels("int64", (-1,)))
    return Outputs({"label": nearest(builder, x, centres)}, component_labels(len(centres)))


def birch(model: Any, frame: Frame) -> Outputs:
    """The label of the nearest subcluster, and the distances to all of them as transform."""
    check(model, "subcluster_centers_", "subcluster_labels_")
    x = numbers(frame, "Birch")
    builder, centres = frame.builder, np.asarray(model.subcluster_centers_, np.float64)
    found, places = np.unique(np.asarray(model.subcluster_labels_), return_inverse=True)
    label = nearest(builder, x, centres)
    if not np.array_equal(places, np.arange(places.size)):
        label = builder.op("take", places.ravel().astype(np.int64), label)
        label = builder.op("reshape", label, shape=(1,))
    values = {"label": label, "transform": euclidean(builder, x, centres)}
    return Outputs(values, Labels("int64", tuple(int(v) for v in found)))


def bisecting_k_means(model: Any, frame: Frame) -> Outputs:
    """Down the tree of bisections, at each node to the nearer of two centres.

    All nodes are decided at once; the leaf is the one whose whole path agrees.
    """
    check(model, "cluster_centers_", "_bisecting_tree")
    x, centres = _read(model, frame, "sparse")
    builder = frame.builder
    pairs, path, target = _bisections(model, len(centres))
    if len(pairs):
        right = _nearer_is_right(builder, x, pairs)
        score = builder.linear(right, path, target)
    else:
        score = relative(builder, x, centres)
    return _with_distances(builder, x, centres, builder.op("argmax", score, axis=1))


def _bisections(model: Any, clusters: int) -> tuple[Array, Array, Array]:
    """The tree as centres (M, 2, F) of its inner nodes, paths (M, K) and offsets (K,).

    decisions @ paths + offsets is 0 for the leaf that a row reaches and negative for the others.
    """
    mean = np.asarray(getattr(model, "_X_mean", 0.0))
    pairs: list[Array] = []
    leaves: list[tuple[int, list[tuple[int, bool]]]] = []
    stack: list[tuple[Any, list[tuple[int, bool]]]] = [(model._bisecting_tree, [])]
    while stack:
        node, way = stack.pop()
        if node.left is None:
            leaves.append((int(node.label), way))
            continue
        pairs.append(np.vstack((node.left.center, node.right.center)) + mean)
        stack.append((node.left, [*way, (len(pairs) - 1, False)]))
        stack.append((node.right, [*way, (len(pairs) - 1, True)]))
    path, target = np.zeros((len(pairs), clusters)), np.zeros(clusters)
    for label, way in leaves:
        for inner, right in way:
            path[inner, label] = 1.0 if right else -1.0
            target[label] -= right
    return np.asarray(pairs, np.float64), path, target


def _nearer_is_right(builder: Builder, x: Value, pairs: Array) -> Value:
    """(n, M) float64 of 0 and 1: whether the right centre of each pair is nearer; a tie is left."""
    both = relative(builder, x, pairs.reshape(-1, pairs.shape[2]))
    left, right = (
        builder.op("select", both, indices=np.arange(side, 2 * len(pairs), 2)) for side in (0, 1)
    )
    return builder.op("cast", builder.op("lt", right, left), dtype="float64")


def _with_distances(builder: Builder, x: Value, centres: Array, label: Value) -> Outputs:
    """The label, and the distances unless they would make very wide sparse rows dense."""
    values = {"label": label}
    if x.type.sparse and x.type.width <= MAX_DENSE:
        x = builder.op("densify", x, fill=0.0)
    if not x.type.sparse:
        values["transform"] = euclidean(builder, x, centres)
    return Outputs(values, component_labels(len(centres)))


def _read(model: Any, frame: Frame, rows: Rows = "dense") -> tuple[Value, Array]:
    centres = np.asarray(model.cluster_centers_, np.float64)
    return numbers(frame, type(model).__name__, rows=rows), centres
