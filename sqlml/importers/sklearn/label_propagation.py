"""LabelPropagation and LabelSpreading: the labels of the training rows, weighted by a kernel.

`sklearn/semi_supervised/_label_propagation.py`: rbf (Zhu and Ghahramani, 2002) weighs all training
rows, knn takes the nearest ones alike. A row so far from all that every weight is 0 has NaN for
probabilities and the first class for a label, as in the source.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, labels_of
from sqlml.importers.sklearn.classify import argmax_label, class_list
from sqlml.importers.sklearn.estimator_checks import check, numbers
from sqlml.importers.sklearn.kernel_models import dense, kernel_values
from sqlml.importers.sklearn.neighbors import nearest
from sqlml.ir.builder import Value
from sqlml.types import Array


def label_propagation(model: Any, frame: Frame) -> Outputs:
    """The mean of the training rows' distributions over the classes, by weight.

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
        summed = _of_nearest(model, frame, shares)
    else:
        raise UnsupportedModelError(
            f"{type(model).__name__} has a Python function as its kernel, which cannot run inside "
            "SQL; use kernel='rbf' or 'knn'"
        )
    proba = builder.op("div", summed, builder.op("sum", summed, axis=1))
    return Outputs({"label": argmax_label(builder, proba), "proba": proba}, labels_of(classes))


def _of_nearest(model: Any, frame: Frame, shares: Array) -> Value:
    """(n, K): the distributions of the nearest training rows added up."""
    builder = frame.builder
    _, index = nearest(model.nn_fit, frame, int(model.n_neighbors))
    gathered = builder.op("take", shares, index)
    summed = builder.op("sum", gathered, axis=1)
    return builder.op("reshape", summed, shape=(shares.shape[1],))
