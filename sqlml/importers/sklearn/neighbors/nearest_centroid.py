"""NearestCentroid: the nearest of one point per class, or a discriminant score with priors."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.importers.frame import Frame, Outputs, labels_of
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.classify import argmax_label, class_list, second_less_first
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.log_probability import shares_below_max
from sqlml.ir.builder import Builder, Value

_METRICS = {"euclidean": "sqeuclidean", "manhattan": "manhattan"}


def nearest_centroid(model: Any, frame: Frame) -> Outputs:
    """With equal priors the label is the nearest centroid, else the best discriminant score.

    Scores and probabilities are those of ESL, eq. (18.2), and exist for the euclidean metric.
    """
    check(model, "centroids_", "classes_", "class_prior_", "within_class_std_dev_")
    classes = class_list(model)
    builder, metric = frame.builder, _METRICS[model.metric]
    x = numbers(frame, "NearestCentroid")
    priors = np.asarray(model.class_prior_, np.float64)
    scores = _discriminant(model, builder, x, metric, priors)
    if np.isclose(priors, 1 / len(classes)).all():
        points = np.asarray(model.centroids_, np.float64)
        distance = builder.op("pairwise", x, points=points, metric=metric)
        label = argmax_label(builder, builder.op("neg", distance))
    else:
        label = argmax_label(builder, scores)
    made = {"label": label}
    if model.metric == "euclidean":
        made["proba"] = shares_below_max(builder, scores)
        made["score"] = second_less_first(builder, scores)
    return Outputs(made, labels_of(classes))


def _discriminant(model: Any, builder: Builder, x: Value, metric: str, priors: Any) -> Value:
    """-distance^2 + 2 log(prior), of columns divided by their deviation within the classes."""
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
