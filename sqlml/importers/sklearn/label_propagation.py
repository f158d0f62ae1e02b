"""LabelPropagation and LabelSpreading: the labels of the training rows, weighted by a kernel.

`sklearn/semi_supervised/_label_propagation.py`: rbf (Zhu and Ghahramani, 2002) weights all training
rows, knn only the nearest ones, equally. If all weights of a row are 0, its probabilities are NaN
and its label is the first class, as in the source.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, build_labels
from sqlml.importers.sklearn.classify import argmax_label, class_list
from sqlml.importers.sklearn.estimator_checks import check, numbers
from sqlml.importers.sklearn.kernel_models import dense, kernel_values
from sqlml.importers.sklearn.neighbors import find_nearest
from sqlml.ir.builder import Value
from sqlml.types import Array


def label_propagation(model: Any, frame: Frame) -> Outputs:
    """Return the weighted mean of the training rows' class distributions.

    Raises:
        UnsupportedModelError: a Python function as kernel.
    """
    check(model, "X_", "classes_", "label_distributions_")
    classes = class_list(model)
    builder = frame.builder
    shares = np.asarray(model.label_distributions_, np.float64)
    if model.kernel == "rbf":
        x = numbers(frame, type(model).__name__)
        weights = kernel_values(builder, x, dense(model.X_), "rbf", float(model.gamma))
        summed = builder.linear(weights, shares)
    elif model.kernel == "knn":
        summed = _sum_nearest(model, frame, shares)
    else:
        raise UnsupportedModelError(
            f"{type(model).__name__} has a Python function as its kernel, which cannot run inside "
            "SQL; use kernel='rbf' or 'knn'"
        )
    proba = builder.op("div", summed, builder.op("sum", summed, axis=1))
    return Outputs({"label": argmax_label(builder, proba), "proba": proba}, build_labels(classes))


def _sum_nearest(model: Any, frame: Frame, shares: Array) -> Value:
    """Sum the class distributions (n, K) of the nearest training rows."""
    builder = frame.builder
    _, index = find_nearest(model.nn_fit, frame, int(model.n_neighbors))
    gathered = builder.op("take", shares, index)
    summed = builder.op("sum", gathered, axis=1)
    return builder.op("reshape", summed, shape=(shares.shape[1],))
