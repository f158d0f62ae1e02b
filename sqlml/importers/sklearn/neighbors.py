"""Nearest neighbours: sklearn.neighbors, and sklearn.semi_supervised's label propagation.

LabelPropagation and LabelSpreading weight the labels of training rows by a kernel (Zhu and
Ghahramani, 2002), or the labels of the nearest rows equally.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, build_labels
from sqlml.importers.sklearn import classify
from sqlml.importers.sklearn.estimator_checks import (
    check_array,
    check_estimator,
    make_callable_error,
)
from sqlml.importers.sklearn.generative_models import compute_shifted_softmax
from sqlml.importers.sklearn.kernel_models import compute_kernel, to_dense
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

_METRICS: Mapping[str, str] = {
    **dict.fromkeys(("euclidean", "l2", "sqeuclidean", "seuclidean"), "sqeuclidean"),
    **dict.fromkeys(("manhattan", "l1", "cityblock"), "manhattan"),
    **dict.fromkeys(("chebyshev", "infinity"), "chebyshev"),
    **dict.fromkeys(("minkowski", "p"), "minkowski"),
    **{name: name for name in ("hamming", "canberra", "braycurtis", "cosine", "mahalanobis")},
}
"""Maps each metric of scikit-learn to the metric of the operator `nearest`."""

_HEAP_METRICS = frozenset(_METRICS) - {"hamming", "cosine", "mahalanobis"}
"""Metrics for which scikit-learn's brute-force search keeps a heap instead of sorting all rows."""


def build_metric_attrs(model: Any, metric: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    step = type(model).__name__
    if callable(metric) or not isinstance(metric, str):
        raise UnsupportedModelError(
            f"{step} has a Python object as its metric, which cannot run inside SQL; use a metric "
            "by name"
        )
    if metric == "precomputed":
        raise UnsupportedModelError(
            f"{step} has metric='precomputed': its input is a matrix of distances, not a table "
            "of features; use a metric by name"
        )
    if metric not in _METRICS:
        raise UnsupportedModelError(
            f"{step} has metric {metric!r}, which sqlml does not support; it supports "
            + ", ".join(sorted(_METRICS))
        )
    attrs: dict[str, Any] = {"metric": _METRICS[metric]}
    remaining_params = {key: value for key, value in params.items() if value is not None}
    if attrs["metric"] == "minkowski":
        attrs |= _build_minkowski_attrs(float(remaining_params.pop("p", 2)))
        if "w" in remaining_params and attrs["metric"] in ("minkowski", "sqeuclidean"):
            attrs["weights"] = np.asarray(remaining_params.pop("w"), np.float64)
    if metric == "seuclidean" and "V" in remaining_params:
        attrs["weights"] = 1.0 / np.asarray(remaining_params.pop("V"), np.float64)
    if metric == "mahalanobis" and remaining_params.keys() & {"V", "VI"}:
        covariance, inverse = (remaining_params.pop(key, None) for key in ("V", "VI"))
        matrix = np.linalg.inv(covariance) if inverse is None else inverse
        attrs["inverse"] = np.asarray(matrix, np.float64)
    elif metric == "mahalanobis":
        raise _make_missing_inverse_error(step)
    if remaining_params or (metric == "seuclidean" and "weights" not in attrs):
        raise UnsupportedModelError(
            f"{step} has metric {metric!r} with metric_params {sorted(params)}, which sqlml does "
            "not support"
        )
    return attrs


def _make_missing_inverse_error(step: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{step} has metric 'mahalanobis' and raises on every row, because its search needs the "
        "inverse of the covariance; fit it with metric_params={'VI': numpy.linalg.inv(V)}"
    )


def _build_minkowski_attrs(p: float) -> dict[str, Any]:
    if p == 2:
        return {"metric": "sqeuclidean"}
    if p == 1:
        return {"metric": "manhattan"}
    return {"metric": "chebyshev"} if np.isinf(p) else {"metric": "minkowski", "p": p}


def build_search_attrs(model: Any) -> dict[str, Any]:
    """Return the attributes with which the operator `nearest` searches like the model.

    They decide the order of equally near points and the rounding of distances.
    """
    metric = model.effective_metric_
    attrs = build_metric_attrs(model, metric, model.effective_metric_params_)
    attrs["points"] = to_dense(model._fit_X)
    if model._fit_method in ("kd_tree", "ball_tree"):
        if metric == "braycurtis":
            # The metric breaks the triangle inequality, so the tree skips nearby points.
            raise UnsupportedModelError(
                f"{type(model).__name__} searches a tree with metric 'braycurtis', which does not "
                "find the nearest points; fit it with algorithm='brute'"
            )
        return attrs | _build_tree_attrs(model._tree, model._fit_method)
    if metric == "mahalanobis" and set(model.effective_metric_params_) != {"VI"}:
        raise _make_missing_inverse_error(type(model).__name__)  # SciPy accepts only the inverse.
    # scikit-learn searches integers and float32 differently than float64.
    is_float64 = np.dtype(getattr(model._fit_X, "dtype", np.float64)) == np.float64
    is_sparse = hasattr(model._fit_X, "toarray")
    uses_heap = metric in _HEAP_METRICS and is_float64 and not is_sparse
    attrs["ties"] = "heap" if uses_heap else "partition"
    if metric == "sqeuclidean":
        attrs["squared"] = True
    is_expanded_euclidean = metric in ("euclidean", "sqeuclidean") and uses_heap
    if is_expanded_euclidean or (metric == "cosine" and not is_sparse):
        attrs["expanded"] = True  # "l2" and weighted "minkowski" are computed directly.
    return attrs


def find_nearest(model: Any, frame: Frame, k: int) -> tuple[Value, Value]:
    """Return the distances and the indices of the `k` nearest fitted points, both (n, k)."""
    attrs = build_search_attrs(model)
    num_points = len(attrs["points"])
    if k > num_points:
        raise UnsupportedModelError(
            f"{type(model).__name__} needs {k} neighbours, but was fitted on {num_points} rows; "
            "it raises on every row, so fit it with a smaller n_neighbors"
        )
    op = frame.builder.op
    neighbours = op("nearest", check_array(frame, type(model).__name__), k=k, **attrs)
    distance = op("select", neighbours, indices=np.arange(k))
    index = op("select", neighbours, indices=np.arange(k, 2 * k))
    return distance, op("cast", index, dtype="int64")


def find_within_radius(model: Any, frame: Frame) -> tuple[Value, Value]:
    """Return the distances to all m points and a mask of points in the radius, both (n, m)."""
    attrs = build_search_attrs(model)
    op = frame.builder.op
    keys = ("points", "metric", "p", "weights", "inverse", "expanded")
    distance_attrs = {key: attrs[key] for key in keys if key in attrs}
    reduced_distance = op("pairwise", check_array(frame, type(model).__name__), **distance_attrs)
    radius = float(model.radius)
    if attrs["metric"] == "sqeuclidean" and "squared" not in attrs:
        distance, radius = op("sqrt", reduced_distance), radius * radius
    elif attrs["metric"] == "mahalanobis":
        distance = op("sqrt", reduced_distance)
        if attrs["ties"] == "partition":  # SciPy compares the distances themselves.
            reduced_distance = distance
        else:
            radius = radius * radius
    elif attrs["metric"] == "minkowski":
        p = attrs["p"]
        distance, radius = op("pow", reduced_distance, 1.0 / p), radius**p
    else:
        distance = reduced_distance
    return distance, op("le", reduced_distance, radius)


def invert_distances(builder: Builder, distance: Value) -> Value:
    """Return 1 / distance; in a row with a distance of 0, return 1 for zeros and 0 otherwise."""
    op = builder.op
    weights = op("div", 1.0, distance)
    is_infinite = op("cast", op("eq", weights, np.inf), dtype="float64")
    return op("where", op("gt", op("max", is_infinite, axis=1), 0.0), is_infinite, weights)


def read_weighting(model: Any) -> str:
    if callable(model.weights):
        raise make_callable_error(model, "weights", "weights='uniform' or 'distance'")
    return str(model.weights or "uniform")


def _build_tree_attrs(tree: Any, tree_type: str) -> dict[str, Any]:
    _, order, nodes, bounds = tree.get_arrays()
    bound_arrays = list(np.asarray(bounds, np.float64))
    if tree_type == "ball_tree":
        bound_arrays = [bound_arrays[0], np.asarray(nodes["radius"], np.float64)[:, None]]
    return {
        "order": np.asarray(order, np.int64),
        "leaves": np.stack([nodes["idx_start"], nodes["idx_end"]], axis=1).astype(np.int64),
        "bounds": np.concatenate(bound_arrays, axis=1),
        "ties": tree_type,
    }


_SEARCH_STATE = ("_fit_X", "_fit_method", "effective_metric_", "effective_metric_params_")


def import_k_neighbors_classifier(model: Any, frame: Frame) -> Outputs:
    """Return the class with the most votes of the k nearest points; the first wins a tie."""
    check_estimator(model, *_SEARCH_STATE, "classes_", "_y")
    classes = classify.read_class_lists(model)
    distance, index = find_nearest(model, frame, int(model.n_neighbors))
    builder = frame.builder
    votes = builder.op("take", _build_one_hot_labels(model, classes), index)
    if read_weighting(model) == "distance":
        votes = builder.op("mul", votes, _append_axis(builder, invert_distances(builder, distance)))
    return _build_vote_outputs(builder, _sum_neighbours(builder, votes), classes)


def import_k_neighbors_regressor(model: Any, frame: Frame) -> Outputs:
    """Return the mean target of the k nearest points, optionally weighted by distance."""
    check_estimator(model, *_SEARCH_STATE, "_y")
    distance, index = find_nearest(model, frame, int(model.n_neighbors))
    builder = frame.builder
    op = builder.op
    targets = op("take", _build_target_columns(model._y), index)
    if read_weighting(model) != "distance":
        mean = op("div", _sum_neighbours(builder, targets), float(model.n_neighbors))
        return Outputs({"label": mean})
    weights = invert_distances(builder, distance)
    total = _sum_neighbours(builder, op("mul", targets, _append_axis(builder, weights)))
    return Outputs({"label": op("div", total, op("sum", weights, axis=1))})


def import_radius_neighbors_classifier(model: Any, frame: Frame) -> Outputs:
    """Return the class with the most votes of the points within the radius.

    A row without such points gets the `outlier_label` or, without this label, raises an error.
    """
    check_estimator(model, *_SEARCH_STATE, "classes_", "_y", "outlier_label_")
    classes = classify.read_class_lists(model)
    outlier_votes = _build_outlier_votes(model, classes)
    op = frame.builder.op
    weights, has_no_neighbour = _compute_radius_weights(model, frame)
    votes = frame.builder.linear(weights, _build_one_hot_labels(model, classes))
    if outlier_votes is None:
        votes = op("require", votes, op("not", has_no_neighbour), message=_NO_NEIGHBOURS)
    else:
        votes = op("where", has_no_neighbour, outlier_votes, votes)
    return _build_vote_outputs(frame.builder, votes, classes)


def import_radius_neighbors_regressor(model: Any, frame: Frame) -> Outputs:
    """Return the mean target of the points within the radius, or NaN without such points."""
    check_estimator(model, *_SEARCH_STATE, "_y")
    weights, has_no_neighbour = _compute_radius_weights(model, frame)
    total = frame.builder.linear(weights, _build_target_columns(model._y))
    mean = frame.builder.op("div", total, frame.builder.op("sum", weights, axis=1))
    # scikit-learn casts NaN to the dtype of the targets, even to an integer dtype.
    with np.errstate(invalid="ignore"):
        empty_mean = np.full(1, np.nan).astype(np.asarray(model._y).dtype).astype(np.float64)
    return Outputs({"label": frame.builder.op("where", has_no_neighbour, empty_mean, mean)})


def import_local_outlier_factor(model: Any, frame: Frame) -> Outputs:
    """Score rows by the negated ratio of the neighbours' mean density to the row's density."""
    check_estimator(model, *_SEARCH_STATE, "n_neighbors_", "_lrd", "_distances_fit_X_", "offset_")
    if not model.novelty:
        raise UnsupportedModelError(
            "LocalOutlierFactor with novelty=False scores only its training rows; fit it with "
            "novelty=True"
        )
    k = int(model.n_neighbors_)
    builder = frame.builder
    op = builder.op
    distance, index = find_nearest(model, frame, k)
    k_distance = np.asarray(model._distances_fit_X_, np.float64)[:, k - 1]
    reachability = op("maximum", distance, op("take", k_distance, index))
    mean_reachability = _average_neighbours(builder, reachability, k)
    # Like scikit-learn, add 1e-10 so that the division never has a zero divisor.
    density = op("div", 1.0, op("add", mean_reachability, 1e-10))
    neighbour_densities = op("take", np.asarray(model._lrd, np.float64), index)
    samples = op("neg", _average_neighbours(builder, op("div", neighbour_densities, density), k))
    score = op("sub", samples, float(model.offset_))
    label = classify.label_by_threshold(builder, score, "ge")
    return classify.build_outlier_outputs(label, score, samples)


def _compute_radius_weights(model: Any, frame: Frame) -> tuple[Value, Value]:
    """Return the weights of the points and a mask of the rows without neighbours."""
    op = frame.builder.op
    distance, is_inside = find_within_radius(model, frame)
    weights = op("cast", is_inside, dtype="float64")
    has_no_neighbour = op("eq", op("max", weights, axis=1), 0.0)
    if read_weighting(model) == "distance":
        inverse_distance = invert_distances(frame.builder, op("where", is_inside, distance, np.inf))
        weights = op("where", is_inside, inverse_distance, 0.0)
    return op("where", has_no_neighbour, 1.0, weights), has_no_neighbour


_NO_NEIGHBOURS = (
    "a row has no neighbour within the radius, which RadiusNeighborsClassifier does not accept "
    "without an outlier_label; filter such rows, or fit it with a larger radius or with "
    "outlier_label='most_frequent'"
)


def _build_outlier_votes(model: Any, classes: list[list[Any]]) -> Array | None:
    """Return a vote for the outlier class of each target, or None if outliers are errors."""
    if model.outlier_label_ is None:
        return None
    votes = []
    for target_classes, outlier_label in zip(classes, model.outlier_label_, strict=True):
        if outlier_label not in target_classes:
            raise UnsupportedModelError(
                f"RadiusNeighborsClassifier has outlier_label {outlier_label!r}, not one of "
                "its classes; choose one of them, or 'most_frequent'"
            )
        votes.append(np.eye(len(target_classes))[target_classes.index(outlier_label)])
    return np.concatenate(votes)


def _build_one_hot_labels(model: Any, classes: list[list[Any]]) -> Array:
    codes = np.asarray(model._y, np.int64).reshape(-1, len(classes))
    indicators = [np.eye(len(labels))[codes[:, i]] for i, labels in enumerate(classes)]
    return np.concatenate(indicators, axis=1)


def _build_vote_outputs(builder: Builder, votes: Value, classes: list[list[Any]]) -> Outputs:
    sizes = [len(target_classes) for target_classes in classes]
    votes_by_target = classify.split_targets(builder, votes, sizes)
    proba = [builder.op("div", v, builder.op("sum", v, axis=1)) for v in votes_by_target]
    label = classify.label_targets_by_argmax(builder, votes, sizes)
    values = {"label": label, "proba": builder.concat(proba)}
    return Outputs(values, tuple(build_labels(target_classes) for target_classes in classes))


def _build_target_columns(y: Array) -> Array:
    y = np.asarray(y, np.float64)
    return y.reshape(len(y), -1)


def _append_axis(builder: Builder, weights: Value) -> Value:
    return builder.op("reshape", weights, shape=(weights.type.width, 1))


def _sum_neighbours(builder: Builder, values: Value) -> Value:
    return builder.op("reshape", builder.op("sum", values, axis=1), shape=(values.type.shape[2],))


def _average_neighbours(builder: Builder, x: Value, k: int) -> Value:
    return builder.op("div", builder.op("sum", x, axis=1), float(k))


_CENTROID_METRICS = {"euclidean": "sqeuclidean", "manhattan": "manhattan"}


def import_nearest_centroid(model: Any, frame: Frame) -> Outputs:
    """Return the class with the nearest centroid or, for unequal priors, the top discriminant."""
    check_estimator(model, "centroids_", "classes_", "class_prior_", "within_class_std_dev_")
    classes = classify.read_classes(model)
    builder = frame.builder
    metric = _CENTROID_METRICS[model.metric]
    x = check_array(frame, "NearestCentroid")
    priors = np.asarray(model.class_prior_, np.float64)
    scores = _build_discriminant(model, builder, x, metric, priors)
    if np.isclose(priors, 1 / len(classes)).all():
        centroids = np.asarray(model.centroids_, np.float64)
        distance = builder.op("pairwise", x, points=centroids, metric=metric)
        label = classify.label_by_argmax(builder, builder.op("neg", distance))
    else:
        label = classify.label_by_argmax(builder, scores)
    values = {"label": label}
    if model.metric == "euclidean":
        values["proba"] = compute_shifted_softmax(builder, scores)
        values["score"] = classify.collapse_two_scores(builder, scores)
    return Outputs(values, build_labels(classes))


def _build_discriminant(model: Any, builder: Builder, x: Value, metric: str, priors: Any) -> Value:
    op = builder.op
    deviation = np.asarray(model.within_class_std_dev_, np.float64)
    deviation = np.where(deviation == 0, 1.0, deviation)
    centroids = np.asarray(model.centroids_, np.float64) / deviation
    distance = op("pairwise", op("div", x, deviation), points=centroids, metric=metric)
    if metric == "manhattan":
        distance = op("square", distance)
    with np.errstate(divide="ignore"):
        shift = 2.0 * np.log(priors)
    return op("add", op("neg", distance), shift)


MAX_RELATIVE_TOLERANCE = 1e-9
"""The largest `rtol` for which KernelDensity's approximate sum is treated as the exact sum."""


def import_kernel_density(model: Any, frame: Frame) -> Outputs:
    """Return the log of the density, a weighted sum of kernels."""
    check_estimator(model, "tree_", "bandwidth_")
    if model.atol > 0 or model.rtol > MAX_RELATIVE_TOLERANCE:
        raise UnsupportedModelError(
            f"KernelDensity with atol={model.atol} and rtol={model.rtol} stops searching its tree "
            "before the sum is exact; fit it with atol=0 and rtol=0"
        )
    op = frame.builder.op
    tree = model.tree_
    bandwidth = model.bandwidth_
    points = np.asarray(tree.data, np.float64)
    attrs = build_metric_attrs(model, model.metric, model.metric_params or {})
    distance = op("pairwise", check_array(frame, "KernelDensity"), points=points, **attrs)
    if attrs["metric"] in ("sqeuclidean", "mahalanobis"):
        distance = op("sqrt", distance)
    elif attrs["metric"] == "minkowski":
        distance = op("pow", distance, 1.0 / attrs["p"])
    log_kernel = _compute_log_kernel(frame.builder, model.kernel, distance, bandwidth)
    sum_weight = float(len(points))
    if tree.sample_weight is not None:
        weights = np.asarray(tree.sample_weight, np.float64)
        sum_weight = float(tree.sum_weight)
        with np.errstate(divide="ignore"):
            log_kernel = op("add", log_kernel, np.log(weights))
    max_log = op("max", log_kernel, axis=1)
    max_log = op("where", op("eq", max_log, -np.inf), 0.0, max_log)
    scaled_sum = op("sum", op("exp", op("sub", log_kernel, max_log)), axis=1)
    log_density = op("add", op("log", scaled_sum), max_log)
    norm = _compute_log_norm(model.kernel, float(bandwidth), points.shape[1]) - math.log(sum_weight)
    return Outputs({"samples": op("add", log_density, norm)})


def _compute_log_kernel(builder: Builder, kernel: str, distance: Value, width: float) -> Value:
    """Return the log of the kernel; a bounded kernel is 0 from the distance `width`."""
    op = builder.op
    match kernel:
        case "gaussian":
            return op("div", op("mul", op("mul", distance, distance), -0.5), width * width)
        case "exponential":
            return op("div", op("neg", distance), width)
        case "tophat":
            log_kernel: Value | float = 0.0
        case "epanechnikov":
            squared_ratio = op("div", op("mul", distance, distance), width * width)
            log_kernel = op("log", op("sub", 1.0, squared_ratio))
        case "linear":
            log_kernel = op("log", op("sub", 1.0, op("div", distance, width)))
        case _:
            log_kernel = op("log", op("cos", op("div", op("mul", distance, 0.5 * math.pi), width)))
    return op("where", op("lt", distance, width), log_kernel, -np.inf)


def _compute_log_norm(kernel: str, bandwidth: float, dimension: int) -> float:
    """Return the log of the factor that makes the kernel integrate to 1."""

    def log_volume(n: int) -> float:
        return 0.5 * n * math.log(math.pi) - math.lgamma(0.5 * n + 1)

    log_surface = math.log(2 * math.pi) + log_volume(dimension - 2)
    match kernel:
        case "gaussian":
            log_factor = 0.5 * dimension * math.log(2 * math.pi)
        case "tophat":
            log_factor = log_volume(dimension)
        case "epanechnikov":
            log_factor = log_volume(dimension) + math.log(2.0 / (dimension + 2.0))
        case "exponential":
            log_factor = log_surface + math.lgamma(dimension)
        case "linear":
            log_factor = log_volume(dimension) - math.log(dimension + 1.0)
        case _:
            total, term = 0.0, 2.0 / math.pi
            for k in range(1, dimension + 1, 2):
                total += term
                term *= -(dimension - k) * (dimension - k - 1) * (2.0 / math.pi) ** 2
            log_factor = math.log(total) + log_surface
    return -log_factor - dimension * math.log(bandwidth)


def import_label_propagation(model: Any, frame: Frame) -> Outputs:
    check_estimator(model, "X_", "classes_", "label_distributions_")
    classes = classify.read_classes(model)
    builder = frame.builder
    label_distributions = np.asarray(model.label_distributions_, np.float64)
    if model.kernel == "rbf":
        x = check_array(frame, type(model).__name__)
        kernel = compute_kernel(builder, x, to_dense(model.X_), "rbf", float(model.gamma))
        votes = builder.linear(kernel, label_distributions)
    elif model.kernel == "knn":
        _, index = find_nearest(model.nn_fit, frame, int(model.n_neighbors))
        votes = _sum_neighbours(builder, builder.op("take", label_distributions, index))
    else:
        raise make_callable_error(model, "kernel", "kernel='rbf' or 'knn'")
    proba = builder.op("div", votes, builder.op("sum", votes, axis=1))
    values = {"label": classify.label_by_argmax(builder, proba), "proba": proba}
    return Outputs(values, build_labels(classes))
