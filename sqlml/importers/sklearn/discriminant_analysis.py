"""LinearDiscriminantAnalysis and QuadraticDiscriminantAnalysis."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.importers.frame import Frame, Outputs, labels_of
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.classify import (
    argmax_label,
    class_list,
    score_label,
    score_proba,
    second_less_first,
)
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.log_probability import by_group, shares_below_max
from sqlml.ir.builder import Builder, Value


def linear_discriminant(model: Any, frame: Frame) -> Outputs:
    """x @ coef_ + intercept_ as score; sigmoid for two classes, softmax for more.

    The projection on the discriminants is `transform`; the solver "lsqr" has none.
    """
    check(model, "coef_", "intercept_", "classes_")
    builder, x = frame.builder, numbers(frame, "LinearDiscriminantAnalysis")
    score = builder.linear(x, np.atleast_2d(model.coef_).T, model.intercept_)
    values = {
        "label": score_label(builder, score),
        "score": score,
        "proba": score_proba(builder, score),
    }
    if model.solver != "lsqr":
        check(model, "scalings_", "_max_components")
        values["transform"] = _discriminants(model, builder, x)
    return Outputs(values, labels_of(class_list(model)))


def _discriminants(model: Any, builder: Builder, x: Value) -> Value:
    if model.solver == "svd":
        check(model, "xbar_")
        x = builder.op("sub", x, np.asarray(model.xbar_, np.float64))
    return builder.linear(x, np.asarray(model.scalings_)[:, : int(model._max_components)])


def quadratic_discriminant(model: Any, frame: Frame) -> Outputs:
    """-(|(x - mean) R S^-1/2|^2 + log|S|) / 2 + log prior for each class.

    The label is the first of the largest, for two classes too; the score of two classes is the
    difference of theirs.
    """
    check(model, "means_", "scalings_", "rotations_", "priors_", "classes_")
    builder, x = frame.builder, numbers(frame, "QuadraticDiscriminantAnalysis")
    means = np.asarray(model.means_, np.float64)
    classes, width = means.shape
    scalings = [np.asarray(s) for s in model.scalings_]
    rotations = [
        np.asarray(r) * s ** (-0.5) for r, s in zip(model.rotations_, scalings, strict=True)
    ]
    x = builder.op("reshape", x, shape=(1, width))

    def norms(group: slice) -> Value:
        centred = builder.op("sub", x, means[group])
        turn = np.stack(rotations[group]).astype(np.float64)
        turned = builder.op("batch_matmul", centred, turn)
        norm = builder.op("sum", builder.op("square", turned), axis=2)
        return builder.op("reshape", norm, shape=(len(turn),))

    norm = by_group(builder, classes, width, norms)
    log_det = np.array([np.log(s).sum() for s in scalings], np.float64)
    halved = builder.op("mul", builder.op("add", norm, log_det), -0.5)
    with np.errstate(divide="ignore"):  # a prior may be 0
        prior = np.log(np.asarray(model.priors_, np.float64))
    joint = builder.op("add", halved, prior)
    values = {
        "label": argmax_label(builder, joint),
        "score": second_less_first(builder, joint),
        "proba": shares_below_max(builder, joint),
    }
    return Outputs(values, labels_of(class_list(model)))
