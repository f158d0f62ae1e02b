"""KernelRidge, KernelPCA, KernelCenterer and Nystroem: linear maps of kernel values."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.importers.frame import Frame, Outputs
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.kernels.pairwise import dense, kernel_input, kernel_name, kernel_values
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array


def kernel_ridge(model: Any, frame: Frame) -> Outputs:
    """The kernel's values times dual_coef_."""
    check(model, "dual_coef_", "X_fit_")
    weights = np.asarray(model.dual_coef_, np.float64)
    weights = weights.reshape(len(weights), -1)
    name = kernel_name(model, model.kernel)
    values = kernel_values(
        frame.builder,
        kernel_input(frame, "KernelRidge", name),
        dense(model.X_fit_),
        name,
        model.gamma,
        model.degree,
        model.coef0,
    )
    return Outputs({"label": _times(frame.builder, values, weights)})


def kernel_pca(model: Any, frame: Frame) -> Frame:
    """The centred kernel's values times the eigenvectors, scaled by their eigenvalues' roots."""
    check(model, "X_fit_", "eigenvalues_", "eigenvectors_", "_centerer", "gamma_")
    name = kernel_name(model, model.kernel)
    builder = frame.builder
    values = kernel_values(
        builder,
        kernel_input(frame, "KernelPCA", name),
        dense(model.X_fit_),
        name,
        model.gamma_,
        model.degree,
        model.coef0,
    )
    eigenvalues = np.asarray(model.eigenvalues_, np.float64)
    vectors = np.asarray(model.eigenvectors_, np.float64)
    kept = eigenvalues != 0
    scaled = np.zeros_like(vectors)
    scaled[:, kept] = vectors[:, kept] / np.sqrt(eigenvalues[kept])
    made = _times(builder, _centred(builder, values, model._centerer), scaled)
    return Frame.of(builder, made)


def kernel_centerer(model: Any, frame: Frame) -> Frame:
    """Kernel values less the means of their rows and of the fitted rows."""
    check(model, "K_fit_rows_", "K_fit_all_")
    made = _centred(frame.builder, numbers(frame, "KernelCenterer"), model)
    return Frame.of(frame.builder, made, frame.names)


def nystroem(model: Any, frame: Frame) -> Frame:
    """The kernel's values at the chosen points times normalization_."""
    check(model, "components_", "normalization_")
    name = kernel_name(model, model.kernel)
    given = {**(model.kernel_params or {})}
    for key in ("gamma", "degree", "coef0"):
        if getattr(model, key) is not None:
            given[key] = getattr(model, key)
    points = dense(model.components_)
    values = kernel_values(
        frame.builder,
        kernel_input(frame, "Nystroem", name),
        points,
        name,
        given.get("gamma"),
        given.get("degree", 3),
        given.get("coef0", 1),
    )
    normal = np.asarray(model.normalization_, np.float64)
    return Frame.of(frame.builder, _times(frame.builder, values, normal.T))


def _centred(builder: Builder, values: Value, centerer: Any) -> Value:
    rows = np.asarray(centerer.K_fit_rows_, np.float64)
    size = builder.constant(np.full(1, float(rows.size)))
    mean = builder.op("div", builder.op("sum", values, axis=1), size)
    values = builder.op("sub", values, rows)
    values = builder.op("sub", values, mean)
    overall = np.full(1, float(centerer.K_fit_all_))
    return builder.op("add", values, overall)


def _times(builder: Builder, values: Value, weights: Array) -> Value:
    return builder.op("linear", values, weights=weights, bias=np.zeros(weights.shape[1]))
