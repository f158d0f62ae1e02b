"""KernelRidge, KernelPCA, KernelCenterer and Nystroem: linear maps of kernel values."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.importers.frame import Frame, Outputs
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.kernels.pairwise import kernel_of
from sqlml.ir.builder import Builder, Value


def kernel_ridge(model: Any, frame: Frame) -> Outputs:
    """The kernel's values times dual_coef_."""
    check(model, "dual_coef_", "X_fit_")
    weights = np.asarray(model.dual_coef_)
    values = kernel_of(model, frame, model.X_fit_, model.gamma, model.degree, model.coef0)
    return Outputs({"label": frame.builder.linear(values, weights.reshape(len(weights), -1))})


def kernel_pca(model: Any, frame: Frame) -> Frame:
    """The centred kernel's values times the eigenvectors, scaled by their eigenvalues' roots."""
    check(model, "X_fit_", "eigenvalues_", "eigenvectors_", "_centerer", "gamma_")
    builder = frame.builder
    values = kernel_of(model, frame, model.X_fit_, model.gamma_, model.degree, model.coef0)
    eigenvalues = np.asarray(model.eigenvalues_, np.float64)
    vectors = np.asarray(model.eigenvectors_, np.float64)
    kept = eigenvalues != 0
    scaled = np.zeros_like(vectors)
    scaled[:, kept] = vectors[:, kept] / np.sqrt(eigenvalues[kept])
    centred = _centred(builder, values, model._centerer)
    return Frame.of(builder, builder.linear(centred, scaled))


def kernel_centerer(model: Any, frame: Frame) -> Frame:
    """Kernel values less the means of their rows and of the fitted rows."""
    check(model, "K_fit_rows_", "K_fit_all_")
    made = _centred(frame.builder, numbers(frame, "KernelCenterer"), model)
    return Frame.of(frame.builder, made, frame.names)


def nystroem(model: Any, frame: Frame) -> Frame:
    """The kernel's values at the chosen points times normalization_."""
    check(model, "components_", "normalization_")
    given = {**(model.kernel_params or {})}
    for key in ("gamma", "degree", "coef0"):
        if getattr(model, key) is not None:
            given[key] = getattr(model, key)
    gamma, degree, coef0 = given.get("gamma"), given.get("degree", 3), given.get("coef0", 1)
    values = kernel_of(model, frame, model.components_, gamma, degree, coef0)
    normal = np.asarray(model.normalization_)
    return Frame.of(frame.builder, frame.builder.linear(values, normal.T))


def _centred(builder: Builder, values: Value, centerer: Any) -> Value:
    rows = np.asarray(centerer.K_fit_rows_, np.float64)
    mean = builder.op("div", builder.op("sum", values, axis=1), float(rows.size))
    values = builder.op("sub", values, rows)
    values = builder.op("sub", values, mean)
    overall = np.full(1, float(centerer.K_fit_all_))
    return builder.op("add", values, overall)
