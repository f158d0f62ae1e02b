"""Nearest neighbours: `sklearn.neighbors` classifiers and regressors, and NearestCentroid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, build_labels
from sqlml.importers.sklearn.classify import (
    argmax_label,
    argmax_labels,
    binary_label,
    class_list,
    class_lists,
    collapse_two_scores,
    outlier_outputs,
    split_targets,
)
from sqlml.importers.sklearn.estimator_checks import check, numbers
from sqlml.importers.sklearn.generative_models import shares_below_max
from sqlml.importers.sklearn.kernel_models import dense
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

_METRICS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("euclidean", "l2", "sqeuclidean", "seuclidean"), "sqeuclidean"),
        **dict.fromkeys(("manhattan", "l1", "cityblock"), "manhattan"),
        **dict.fromkeys(("chebyshev", "infinity"), "chebyshev"),
        **dict.fromkeys(("minkowski", "p"), "minkowski"),
        **{name: name for name in ("hamming", "canberra", "braycurtis", "cosine", "mahalanobis")},
    }
)
"""scikit-learn's metric -> the operator's."""

_IN_ORDER = frozenset(_METRICS) - {"hamming", "cosine", "mahalanobis"}
"""Metrics whose brute search keeps a heap; the others' partition all distances."""


def metric_attrs(model: Any, metric: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operator's attributes for a metric of scikit-learn.

    Raises:
        UnsupportedModelError: a metric that we do not cover.
    """
    step = type(model).__name__
    if callable(metric) or not isinstance(metric, str):
        raise UnsupportedModelError(
            f"{step} has a Python object as its metric, which cannot run inside SQL; "
            "use a metric by name"
        )
    if metric == "precomputed":
        raise UnsupportedModelError(
            f"{step} has metric='precomputed': its input is a matrix of distances, not a table "
            "of features; use a metric by name"
        )
    if metric not in _METRICS:
        raise UnsupportedModelError(
            f"{step} has metric {metric!r}, which sqlml does not cover; it covers "
            + ", ".join(sorted(_METRICS))
        )
    attrs: dict[str, Any] = {"metric": _METRICS[metric]}
    remaining = {key: value for key, value in params.items() if value is not None}
    if attrs["metric"] == "minkowski":
        attrs |= _minkowski(float(remaining.pop("p", 2)))
        if "w" in remaining and attrs["metric"] in ("minkowski", "sqeuclidean"):
            attrs["weights"] = np.asarray(remaining.pop("w"), np.float64)
    if metric == "seuclidean" and "V" in remaining:
        attrs["weights"] = 1.0 / np.asarray(remaining.pop("V"), np.float64)
    if metric == "mahalanobis" and remaining.keys() & {"V", "VI"}:
        covariance, inverse = remaining.pop("V", None), remaining.pop("VI", None)
        matrix = np.linalg.inv(covariance) if inverse is None else inverse
        attrs["inverse"] = np.asarray(matrix, np.float64)
    elif metric == "mahalanobis":
        raise _without_inverse(step)
    if remaining or (metric == "seuclidean" and "weights" not in attrs):
        raise UnsupportedModelError(
            f"{step} has metric {metric!r} with metric_params {sorted(params)}, which sqlml does "
            "not cover"
        )
    return attrs


def _without_inverse(step: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{step} has metric 'mahalanobis' and raises on every row: its search takes only the "
        "inverse of the covariance; fit it with metric_params={'VI': numpy.linalg.inv(V)}"
    )


def _minkowski(p: float) -> dict[str, Any]:
    if p == 2:
        return {"metric": "sqeuclidean"}
    if p == 1:
        return {"metric": "manhattan"}
    return {"metric": "chebyshev"} if np.isinf(p) else {"metric": "minkowski", "p": p}


def search_attrs(model: Any) -> dict[str, Any]:
    """Return points, metric and tie rule of a fitted model with `_fit_method`."""
    metric = model.effective_metric_
    attrs = metric_attrs(model, metric, model.effective_metric_params_)
    attrs["points"] = dense(model._fit_X)
    if model._fit_method in _TREES:
        if metric == "braycurtis":
            # It breaks the triangle inequality, so the tree skips points that are near.
            raise UnsupportedModelError(
                f"{type(model).__name__} searches a tree with metric 'braycurtis', which does not "
                "find the nearest points; fit it with algorithm='brute'"
            )
        attrs |= _TREES[model._fit_method](model._tree)
        attrs["ties"] = model._fit_method
        return attrs
    if metric == "mahalanobis" and set(model.effective_metric_params_) != {"VI"}:
        raise _without_inverse(type(model).__name__)  # scipy takes nothing else
    # A search among integers or float32 goes another way than one among float64.
    native = np.dtype(getattr(model._fit_X, "dtype", np.float64)) == np.float64
    sparse = hasattr(model._fit_X, "toarray")
    attrs["ties"] = "heap" if metric in _IN_ORDER and native and not sparse else "partition"
    if metric == "sqeuclidean":
        attrs["squared"] = True
    by_product = metric in ("euclidean", "sqeuclidean") and attrs["ties"] == "heap"
    if by_product or (metric == "cosine" and not sparse):
        attrs["expanded"] = True  # "l2" and "minkowski" with weights are computed directly
    return attrs


def find_nearest(model: Any, frame: Frame, k: int) -> tuple[Value, Value]:
    """Return distances (n, k) and numbers (n, k) int64 of the nearest fitted points.

    Raises:
        UnsupportedModelError: fewer points than k were fitted.
    """
    attrs = search_attrs(model)
    points = len(attrs["points"])
    if k > points:
        raise UnsupportedModelError(
            f"{type(model).__name__} asks for {k} neighbours, but was fitted on {points} rows; "
            "it raises on every row, so fit it with a smaller n_neighbors"
        )
    builder = frame.builder
    neighbours = builder.op("nearest", numbers(frame, type(model).__name__), k=k, **attrs)
    distance = builder.op("select", neighbours, indices=np.arange(k))
    index = builder.op("select", neighbours, indices=np.arange(k, 2 * k))
    return distance, builder.op("cast", index, dtype="int64")


def find_within_radius(model: Any, frame: Frame) -> tuple[Value, Value]:
    """Return distances to all fitted points and whether each is within the radius, (n, m)."""
    attrs = search_attrs(model)
    builder = frame.builder
    names = ("points", "metric", "p", "weights", "inverse", "expanded")
    distance_attrs = {key: attrs[key] for key in names if key in attrs}
    reduced = builder.op("pairwise", numbers(frame, type(model).__name__), **distance_attrs)
    radius = float(model.radius)
    if attrs["metric"] == "sqeuclidean" and "squared" not in attrs:
        distance, radius = builder.op("sqrt", reduced), radius * radius
    elif attrs["metric"] == "mahalanobis":
        distance = builder.op("sqrt", reduced)
        if attrs["ties"] == "partition":  # scipy has no squares
            reduced = distance
        else:
            radius = radius * radius
    elif attrs["metric"] == "minkowski":
        p = attrs["p"]
        distance, radius = builder.op("pow", reduced, 1.0 / p), radius**p
    else:
        distance = reduced
    return distance, builder.op("le", reduced, radius)


def inverse_distances(builder: Builder, distance: Value) -> Value:
    """Return 1 / distance; in a row with distances of 0, 1 for these and 0 for the others."""
    weights = builder.op("div", 1.0, distance)
    touching = builder.op("eq", weights, np.inf)
    touching = builder.op("cast", touching, dtype="float64")
    any_touching = builder.op("max", touching, axis=1)
    some = builder.op("gt", any_touching, 0.0)
    return builder.op("where", some, touching, weights)


def weighting(model: Any) -> str:
    """Return "uniform" or "distance".

    Raises:
        UnsupportedModelError: the weights are a function.
    """
    if callable(model.weights):
        raise UnsupportedModelError(
            f"{type(model).__name__} has a Python function as its weights, which cannot run "
            "inside SQL; use weights='uniform' or 'distance'"
        )
    return str(model.weights or "uniform")


def _nodes(tree: Any) -> tuple[Array, Array, Array, Array]:
    _, order, nodes, bounds = tree.get_arrays()
    ranges = np.stack([nodes["idx_start"], nodes["idx_end"]], axis=1).astype(np.int64)
    radius = np.asarray(nodes["radius"], np.float64)
    return np.asarray(order, np.int64), ranges, radius, np.asarray(bounds, np.float64)


def _kd_tree(tree: Any) -> dict[str, Any]:
    order, leaves, _, bounds = _nodes(tree)
    return {"order": order, "leaves": leaves, "bounds": np.concatenate(list(bounds), axis=1)}


def _ball_tree(tree: Any) -> dict[str, Any]:
    order, leaves, radius, bounds = _nodes(tree)
    joined = np.concatenate([bounds[0], radius[:, None]], axis=1)
    return {"order": order, "leaves": leaves, "bounds": joined}


_TREES: Mapping[str, Callable[[Any], dict[str, Any]]] = MappingProxyType(
    {"kd_tree": _kd_tree, "ball_tree": _ball_tree}
)


_FITTED = ("_fit_X", "_fit_method", "effective_metric_", "effective_metric_params_")


def k_neighbors_classifier(model: Any, frame: Frame) -> Outputs:
    """Count votes of the k nearest, each 1 or the inverse distance; the first of equal classes.

    With several targets, the votes for the classes of each are side by side.
    """
    check(model, *_FITTED, "classes_", "_y")
    classes = class_lists(model)
    distance, index = find_nearest(model, frame, int(model.n_neighbors))
    builder = frame.builder
    votes = builder.op("take", _one_hot(model, classes), index)
    if weighting(model) == "distance":
        weights = inverse_distances(builder, distance)
        votes = builder.op("mul", votes, _as_cube(builder, weights))
    return _vote_outputs(builder, _sum_neighbours(builder, votes), classes)


def k_neighbors_regressor(model: Any, frame: Frame) -> Outputs:
    """Return the mean of the k nearest targets, optionally weighted by inverse distances."""
    check(model, *_FITTED, "_y")
    distance, index = find_nearest(model, frame, int(model.n_neighbors))
    builder = frame.builder
    targets = builder.op("take", _targets(model._y), index)
    if weighting(model) != "distance":
        mean = builder.op("div", _sum_neighbours(builder, targets), float(model.n_neighbors))
        return Outputs({"label": mean})
    weights = inverse_distances(builder, distance)
    total = _sum_neighbours(builder, builder.op("mul", targets, _as_cube(builder, weights)))
    return Outputs({"label": builder.op("div", total, builder.op("sum", weights, axis=1))})


def radius_neighbors_classifier(model: Any, frame: Frame) -> Outputs:
    """Count votes of all points within the radius; without any, outlier_label or an error.

    Raises:
        UnsupportedModelError: the outlier_label is not a class.
    """
    check(model, *_FITTED, "classes_", "_y", "outlier_label_")
    classes = class_lists(model)
    outliers = [_outlier_class(model, known, t) for t, known in enumerate(classes)]
    builder = frame.builder
    weights, none = _radius_weights(model, frame)
    votes = builder.linear(weights, _one_hot(model, classes))
    if model.outlier_label_ is None:
        votes = builder.op("require", votes, builder.op("not", none), message=_NO_NEIGHBOURS)
    else:
        pairs = zip(classes, outliers, strict=True)
        alone = np.concatenate([np.eye(len(known))[outlier] for known, outlier in pairs])
        votes = builder.op("where", none, alone, votes)
    return _vote_outputs(builder, votes, classes)


def radius_neighbors_regressor(model: Any, frame: Frame) -> Outputs:
    """Return the optionally weighted mean target of points within the radius; NaN without any."""
    check(model, *_FITTED, "_y")
    builder = frame.builder
    weights, none = _radius_weights(model, frame)
    total = builder.linear(weights, _targets(model._y))
    mean = builder.op("div", total, builder.op("sum", weights, axis=1))
    # The source writes NaN in the targets' own dtype: integers have none.
    with np.errstate(invalid="ignore"):
        empty = np.full(1, np.nan).astype(np.asarray(model._y).dtype).astype(np.float64)
    return Outputs({"label": builder.op("where", none, empty, mean)})


def local_outlier_factor(model: Any, frame: Frame) -> Outputs:
    """Return minus the mean ratio of the neighbours' density to the row's own (novelty)."""
    check(model, *_FITTED, "n_neighbors_", "_lrd", "_distances_fit_X_", "offset_")
    if not model.novelty:
        raise UnsupportedModelError(
            "LocalOutlierFactor with novelty=False scores only its training rows; fit it with "
            "novelty=True"
        )
    k, builder = int(model.n_neighbors_), frame.builder
    distance, index = find_nearest(model, frame, k)
    reach = np.asarray(model._distances_fit_X_, np.float64)[:, k - 1]
    reached = builder.op("take", reach, index)
    mean = _mean(builder, builder.op("maximum", distance, reached), k)
    # 1e-10 is the source's own, against division by zero.
    density = builder.op("div", 1.0, builder.op("add", mean, 1e-10))
    others = builder.op("take", np.asarray(model._lrd, np.float64), index)
    ratios = builder.op("div", others, density)
    samples = builder.op("neg", _mean(builder, ratios, k))
    score = builder.op("sub", samples, float(model.offset_))
    return outlier_outputs(binary_label(builder, score, "ge"), score, samples)


def _radius_weights(model: Any, frame: Frame) -> tuple[Value, Value]:
    """Return weights (n, m), 0 outside the radius, and where no point is inside."""
    builder = frame.builder
    distance, inside = find_within_radius(model, frame)
    counted = builder.op("cast", inside, dtype="float64")
    none = builder.op("eq", builder.op("max", counted, axis=1), 0.0)
    if weighting(model) == "distance":
        inverse = inverse_distances(builder, builder.op("where", inside, distance, np.inf))
        counted = builder.op("where", inside, inverse, 0.0)
    return builder.op("where", none, 1.0, counted), none


_NO_NEIGHBOURS = (
    "a row has no neighbour within the radius, which RadiusNeighborsClassifier does not accept "
    "without an outlier_label; filter such rows, or fit it with a larger radius or with "
    "outlier_label='most_frequent'"
)


def _outlier_class(model: Any, classes: list[Any], target: int) -> int | None:
    if model.outlier_label_ is None:
        return None
    outlier = model.outlier_label_[target]
    if outlier not in classes:
        raise UnsupportedModelError(
            f"RadiusNeighborsClassifier has outlier_label {outlier!r}, which is not one of its "
            "classes; choose one of them, or 'most_frequent'"
        )
    return classes.index(outlier)


def _one_hot(model: Any, classes: list[list[Any]]) -> Array:
    """Return the classes of the fitted rows as (m, classes of all targets)."""
    codes = np.asarray(model._y, np.int64).reshape(-1, len(classes))
    hot = [np.eye(len(known))[codes[:, t]] for t, known in enumerate(classes)]
    return np.concatenate(hot, axis=1)


def _vote_outputs(builder: Builder, votes: Value, classes: list[list[Any]]) -> Outputs:
    """Return label and probabilities of each target from the votes (n, classes of all targets)."""
    sizes = [len(known) for known in classes]
    shares = [
        builder.op("div", part, builder.op("sum", part, axis=1))
        for part in split_targets(builder, votes, sizes)
    ]
    values = {"label": argmax_labels(builder, votes, sizes), "proba": builder.concat(shares)}
    return Outputs(values, tuple(build_labels(known) for known in classes))


def _targets(y: Array) -> Array:
    y = np.asarray(y, np.float64)
    return y.reshape(len(y), -1)


def _as_cube(builder: Builder, weights: Value) -> Value:
    return builder.op("reshape", weights, shape=(weights.type.width, 1))


def _sum_neighbours(builder: Builder, cube: Value) -> Value:
    """Sum (n, k, T) over the neighbours, (n, T)."""
    total = builder.op("sum", cube, axis=1)
    return builder.op("reshape", total, shape=(cube.type.shape[2],))


def _mean(builder: Builder, x: Value, k: int) -> Value:
    return builder.op("div", builder.op("sum", x, axis=1), float(k))


_CENTROID_METRICS = {"euclidean": "sqeuclidean", "manhattan": "manhattan"}


def nearest_centroid(model: Any, frame: Frame) -> Outputs:
    """Return the nearest centroid, or with priors the class with the best discriminant score.

    Scores and probabilities are those of ESL, eq. (18.2), and exist for the euclidean metric.
    """
    check(model, "centroids_", "classes_", "class_prior_", "within_class_std_dev_")
    classes = class_list(model)
    builder, metric = frame.builder, _CENTROID_METRICS[model.metric]
    x = numbers(frame, "NearestCentroid")
    priors = np.asarray(model.class_prior_, np.float64)
    scores = _discriminant(model, builder, x, metric, priors)
    if np.isclose(priors, 1 / len(classes)).all():
        points = np.asarray(model.centroids_, np.float64)
        distance = builder.op("pairwise", x, points=points, metric=metric)
        label = argmax_label(builder, builder.op("neg", distance))
    else:
        label = argmax_label(builder, scores)
    values = {"label": label}
    if model.metric == "euclidean":
        values["proba"] = shares_below_max(builder, scores)
        values["score"] = collapse_two_scores(builder, scores)
    return Outputs(values, build_labels(classes))


def _discriminant(model: Any, builder: Builder, x: Value, metric: str, priors: Any) -> Value:
    """Return -distance^2 + 2 log(prior) of columns divided by their within-class deviation."""
    deviation = np.asarray(model.within_class_std_dev_, np.float64)
    deviation = np.where(deviation == 0, 1.0, deviation)
    points = np.asarray(model.centroids_, np.float64) / deviation
    scaled = builder.op("div", x, deviation)
    distance = builder.op("pairwise", scaled, points=points, metric=metric)
    if metric == "manhattan":
        distance = builder.op("square", distance)
    with np.errstate(divide="ignore"):
        shift = 2.0 * np.log(priors)
    return builder.op("add", builder.op("neg", distance), shift)
