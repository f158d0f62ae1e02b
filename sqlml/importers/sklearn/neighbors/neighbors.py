"""KNeighbors and RadiusNeighbors, classifiers and regressors, and LocalOutlierFactor."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, labels_of
from sqlml.importers.sklearn.classify import (
    argmax_labels,
    binary_label,
    class_lists,
    of_targets,
    outlier_outputs,
)
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.neighbors.search import inverse_distances, nearest, weighting, within
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

_FITTED = ("_fit_X", "_fit_method", "effective_metric_", "effective_metric_params_")


def k_neighbors_classifier(model: Any, frame: Frame) -> Outputs:
    """Votes of the k nearest, each 1 or the inverse of its distance; the first of equal classes.

    Of several targets, the votes for the classes of each stand side by side.
    """
    check(model, *_FITTED, "classes_", "_y")
    classes = class_lists(model)
    distance, index = nearest(model, frame, int(model.n_neighbors))
    builder = frame.builder
    votes = builder.op("take", _one_hot(model, classes), index)
    if weighting(model) == "distance":
        weights = inverse_distances(builder, distance)
        votes = builder.op("mul", votes, _as_cube(builder, weights))
    return _voted(builder, _summed(builder, votes), classes)


def k_neighbors_regressor(model: Any, frame: Frame) -> Outputs:
    """The mean of the k nearest targets, weighted by the inverse of the distances if asked for."""
    check(model, *_FITTED, "_y")
    distance, index = nearest(model, frame, int(model.n_neighbors))
    builder = frame.builder
    targets = builder.op("take", _targets(model._y), index)
    if weighting(model) != "distance":
        mean = builder.op("div", _summed(builder, targets), float(model.n_neighbors))
        return Outputs({"label": mean})
    weights = inverse_distances(builder, distance)
    total = _summed(builder, builder.op("mul", targets, _as_cube(builder, weights)))
    return Outputs({"label": builder.op("div", total, builder.op("sum", weights, axis=1))})


def radius_neighbors_classifier(model: Any, frame: Frame) -> Outputs:
    """Votes of all points within the radius; without any, outlier_label or an error.

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
    return _voted(builder, votes, classes)


def radius_neighbors_regressor(model: Any, frame: Frame) -> Outputs:
    """The mean target of all points within the radius, weighted if asked for; NaN without any."""
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
    """Novelty detection: minus the mean ratio of the neighbours' density to the row's own."""
    check(model, *_FITTED, "n_neighbors_", "_lrd", "_distances_fit_X_", "offset_")
    if not model.novelty:
        raise UnsupportedModelError(
            "LocalOutlierFactor with novelty=False scores only its training rows; fit it with "
            "novelty=True"
        )
    k, builder = int(model.n_neighbors_), frame.builder
    distance, index = nearest(model, frame, k)
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
    """(n, m) weights of all fitted points, 0 outside the radius, and where no point is inside."""
    builder = frame.builder
    distance, inside = within(model, frame)
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
    """(m, classes of all targets): the classes of the fitted rows."""
    codes = np.asarray(model._y, np.int64).reshape(-1, len(classes))
    hot = [np.eye(len(known))[codes[:, t]] for t, known in enumerate(classes)]
    return np.concatenate(hot, axis=1)


def _voted(builder: Builder, votes: Value, classes: list[list[Any]]) -> Outputs:
    """What the votes (n, classes of all targets) say of each target."""
    sizes = [len(known) for known in classes]
    shares = [
        builder.op("div", own, builder.op("sum", own, axis=1))
        for own in of_targets(builder, votes, sizes)
    ]
    values = {"label": argmax_labels(builder, votes, sizes), "proba": builder.beside(shares)}
    return Outputs(values, tuple(labels_of(known) for known in classes))


def _targets(y: Array) -> Array:
    y = np.asarray(y, np.float64)
    return y.reshape(len(y), -1)


def _as_cube(builder: Builder, weights: Value) -> Value:
    return builder.op("reshape", weights, shape=(weights.type.width, 1))


def _summed(builder: Builder, cube: Value) -> Value:
    """(n, T): the sum of (n, k, T) over the neighbours."""
    total = builder.op("sum", cube, axis=1)
    return builder.op("reshape", total, shape=(cube.type.shape[2],))


def _mean(builder: Builder, x: Value, k: int) -> Value:
    return builder.op("div", builder.op("sum", x, axis=1), float(k))
