"""Clustering: assignment of new rows to centres, and FeatureAgglomeration.

Distances expand |x - c|^2 to |x|^2 - 2 x.c + |c|^2. scikit-learn's functions add these terms in
different orders, which decides ties. Each importer follows the function of the estimator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import MAX_DENSE, Frame, Outputs, Rows
from sqlml.importers.sklearn.estimator_checks import check_array, check_estimator
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array, Labels


def build_cluster_labels(count: int) -> Labels:
    return Labels("int64", tuple(range(count)))


def compute_distances(builder: Builder, x: Value, centres: Array) -> Value:
    """Return the distances of rows to centres, (n, K), like `euclidean_distances`."""
    op = builder.op
    squared_distances = op("add", builder.linear(x, -2.0 * centres.T), _sum_squares(builder, x))
    squared_distances = op("add", squared_distances, compute_squared_norms(centres))
    return op("sqrt", op("maximum", squared_distances, 0.0))


def assign_nearest(builder: Builder, x: Value, centres: Array) -> Value:
    """Return the index of the nearest centre, (n, 1), like `pairwise_distances_argmin`.

    Adding |x|^2 loses digits, so a row that is far away from all centres has ties.
    """
    op = builder.op
    squared_distances = op("add", _sum_squares(builder, x), builder.linear(x, -2.0 * centres.T))
    squared_distances = op("add", squared_distances, compute_squared_norms(centres))
    return _find_argmin(builder, op("maximum", squared_distances, 0.0))


def assign_like_k_means(builder: Builder, x: Value, centres: Array) -> Value:
    """Return the index of the nearest centre, (n, 1), like KMeans, without adding |x|^2."""
    return _find_argmin(builder, compute_relative_distances(builder, x, centres))


def compute_relative_distances(builder: Builder, x: Value, centres: Array) -> Value:
    """Return |c|^2 - 2 x.c, the squared distance to each centre c minus |x|^2."""
    return builder.linear(x, -2.0 * centres.T, compute_squared_norms(centres))


def compute_squared_norms(centres: Array) -> Array:
    return np.asarray(np.einsum("kf,kf->k", centres, centres))


def _sum_squares(builder: Builder, x: Value) -> Value:
    return builder.op("sum", builder.op("square", x), axis=1)


def _find_argmin(builder: Builder, distances: Value) -> Value:
    return builder.op("argmax", builder.op("neg", distances), axis=1)


_REDUCTIONS: Mapping[Callable[..., Any], str] = {
    np.max: "max",
    np.amax: "max",
    np.min: "min",
    np.amin: "min",
    np.sum: "sum",
}


def import_feature_agglomeration(model: Any, frame: Frame) -> Frame:
    """Return the mean, maximum, minimum or sum of the columns of each cluster."""
    check_estimator(model, "labels_")
    x = check_array(frame, "FeatureAgglomeration")
    builder = frame.builder
    labels = np.asarray(model.labels_).astype(np.int64)
    if model.pooling_func == np.mean:
        sizes = np.bincount(labels).astype(np.float64)
        total = builder.linear(x, labels[:, None] == np.arange(sizes.size))
        return Frame.from_value(builder, builder.op("div", total, sizes))
    if model.pooling_func not in _REDUCTIONS:
        name = getattr(model.pooling_func, "__name__", repr(model.pooling_func))
        raise UnsupportedModelError(
            f"FeatureAgglomeration pools with the Python function {name}, which cannot run inside "
            "SQL; use pooling_func=np.mean, np.max, np.min or np.sum"
        )
    columns_of_clusters = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    groups = [builder.op("select", x, indices=columns) for columns in columns_of_clusters]
    pooled = [builder.op(_REDUCTIONS[model.pooling_func], group, axis=1) for group in groups]
    return Frame.from_value(builder, builder.concat(pooled))


def import_k_means(model: Any, frame: Frame) -> Outputs:
    """Return the nearest centre of KMeans or MiniBatchKMeans; `transform` has the distances."""
    check_estimator(model, "cluster_centers_")
    x, centres = _read_centres(model, frame, "sparse")
    label = assign_like_k_means(frame.builder, x, centres)
    return _build_outputs(frame.builder, x, centres, label)


def import_nearest_centre(model: Any, frame: Frame) -> Outputs:
    """Return the nearest centre of MeanShift or AffinityPropagation."""
    check_estimator(model, "labels_")
    if getattr(model, "affinity", "") == "precomputed":
        raise UnsupportedModelError(
            "AffinityPropagation(affinity='precomputed') stores no coordinates, so it has no "
            "predict; fit it with affinity='euclidean'"
        )
    check_estimator(model, "cluster_centers_")
    x, centres = _read_centres(model, frame)
    builder = frame.builder
    if not len(centres):  # Training did not converge, so every row gets the label -1.
        zeros = builder.linear(x, np.zeros((x.type.width, 1)))
        return Outputs({"label": builder.op("argmax", zeros, axis=1)}, Labels("int64", (-1,)))
    label = assign_nearest(builder, x, centres)
    return Outputs({"label": label}, build_cluster_labels(len(centres)))


def import_birch(model: Any, frame: Frame) -> Outputs:
    """Return the label of the nearest subcluster; `transform` has the distances."""
    check_estimator(model, "subcluster_centers_", "subcluster_labels_")
    x = check_array(frame, "Birch")
    builder = frame.builder
    centres = np.asarray(model.subcluster_centers_, np.float64)
    labels, indices = np.unique(np.asarray(model.subcluster_labels_), return_inverse=True)
    label = assign_nearest(builder, x, centres)
    if not np.array_equal(indices, np.arange(indices.size)):
        label = builder.op("take", indices.ravel().astype(np.int64), label)
        label = builder.op("reshape", label, shape=(1,))
    values = {"label": label, "transform": compute_distances(builder, x, centres)}
    return Outputs(values, Labels("int64", tuple(int(v) for v in labels)))


def import_bisecting_k_means(model: Any, frame: Frame) -> Outputs:
    """Descend the bisection tree; at each node, go to the child with the nearer centre.

    All nodes are evaluated for each row. The leaf that the row reaches has the largest score.
    """
    check_estimator(model, "cluster_centers_", "_bisecting_tree")
    x, centres = _read_centres(model, frame, "sparse")
    builder = frame.builder
    op = builder.op
    centre_pairs, paths, offsets = _flatten_bisecting_tree(model, len(centres))
    score = compute_relative_distances(builder, x, centres)
    if len(centre_pairs):  # If both centres are equally near, the row goes left.
        centres_of_pairs = centre_pairs.reshape(-1, centre_pairs.shape[2])
        distances = compute_relative_distances(builder, x, centres_of_pairs)
        columns = (np.arange(side, 2 * len(centre_pairs), 2) for side in (0, 1))
        left, right = (op("select", distances, indices=indices) for indices in columns)
        score = builder.linear(builder.cast(op("lt", right, left), "float64"), paths, offsets)
    return _build_outputs(builder, x, centres, op("argmax", score, axis=1))


def _flatten_bisecting_tree(model: Any, num_clusters: int) -> tuple[Array, Array, Array]:
    """Return `centre_pairs` (M, 2, F), `paths` (M, K) and `offsets` (K,) of M nodes and K leaves.

    A pair has the centres of a node's children. Decisions, (n, M), are 1 for right and 0 for left.
    Then decisions @ paths + offsets is 0 for the leaf that a row reaches, otherwise negative.
    """
    mean = np.asarray(getattr(model, "_X_mean", 0.0))
    centre_pairs: list[Array] = []
    leaves: list[tuple[int, list[tuple[int, bool]]]] = []
    stack: list[tuple[Any, list[tuple[int, bool]]]] = [(model._bisecting_tree, [])]
    while stack:
        node, path_to_node = stack.pop()
        if node.left is None:
            leaves.append((int(node.label), path_to_node))
            continue
        centre_pairs.append(np.vstack((node.left.center, node.right.center)) + mean)
        stack.append((node.left, [*path_to_node, (len(centre_pairs) - 1, False)]))
        stack.append((node.right, [*path_to_node, (len(centre_pairs) - 1, True)]))
    paths, offsets = np.zeros((len(centre_pairs), num_clusters)), np.zeros(num_clusters)
    for label, path_to_node in leaves:
        for node_index, goes_right in path_to_node:
            paths[node_index, label] = 1.0 if goes_right else -1.0
            offsets[label] -= goes_right
    return np.asarray(centre_pairs, np.float64), paths, offsets


def _build_outputs(builder: Builder, x: Value, centres: Array, label: Value) -> Outputs:
    """Return the label and, unless `x` has too many sparse columns, the distances."""
    values = {"label": label}
    if x.type.sparse and x.type.width <= MAX_DENSE:
        x = builder.op("densify", x, fill=0.0)
    if not x.type.sparse:
        values["transform"] = compute_distances(builder, x, centres)
    return Outputs(values, build_cluster_labels(len(centres)))


def _read_centres(model: Any, frame: Frame, rows: Rows = "dense") -> tuple[Value, Array]:
    centres = np.asarray(model.cluster_centers_, np.float64)
    return check_array(frame, type(model).__name__, rows=rows), centres
