"""Partial least squares: PLSRegression, PLSCanonical, CCA and PLSSVD."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.importers.frame import Frame, Outputs
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.fitted import check
from sqlml.ir.builder import Builder, Value


def pls(model: Any, frame: Frame) -> Outputs:
    """(x - mean) @ coef_ + intercept_, (n, T); the scores of x as transform.

    `coef_` holds the scale, so that predict only centres; transform does both.
    """
    check(model, "coef_", "intercept_", "x_rotations_", "_x_mean", "_x_std")
    builder = frame.builder
    centred = _centred(model, frame)
    weights = np.asarray(model.coef_).T
    bias = np.broadcast_to(model.intercept_, weights.shape[1:])
    scores = _scores(builder, centred, model._x_std, model.x_rotations_)
    return Outputs({"label": builder.linear(centred, weights, bias), "transform": scores})


def pls_svd(model: Any, frame: Frame) -> Frame:
    """(x - mean) / deviation @ x_weights_."""
    check(model, "x_weights_", "_x_mean", "_x_std")
    scores = _scores(frame.builder, _centred(model, frame), model._x_std, model.x_weights_)
    return Frame.of(frame.builder, scores, stem="plssvd")


def _centred(model: Any, frame: Frame) -> Value:
    mean = frame.builder.constant(np.asarray(model._x_mean, np.float64))
    return frame.builder.op("sub", numbers(frame, type(model).__name__), mean)


def _scores(builder: Builder, centred: Value, deviation: Any, rotations: Any) -> Value:
    scaled = builder.op("div", centred, np.asarray(deviation, np.float64))
    return builder.linear(scaled, rotations)
