"""The log-density of a row under one Gaussian: score_samples of PCA and FactorAnalysis."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from sqlml.ir.builder import Builder, Value

MAX_COLUMNS = 1024
"""Widest table whose precision matrix is kept; it grows with the square of the columns."""


def log_density(model: Any, builder: Builder, x: Value) -> Value | None:
    """(n, F) -> (n, 1), -((x - mean) @ precision . (x - mean) + F log(2 pi) - log|precision|) / 2.

    None if the covariance has no inverse, so that the source fails too, or there are more than
    `MAX_COLUMNS` columns.
    """
    if x.type.width > MAX_COLUMNS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a badly conditioned matrix is the source's own result
            precision = np.asarray(model.get_precision())
    except (np.linalg.LinAlgError, ValueError):
        return None
    if not np.isfinite(precision).all():
        return None
    centred = builder.op("sub", x, np.asarray(model.mean_, np.float64))
    weights = np.ascontiguousarray(precision, np.float64)
    turned = builder.op("linear", centred, weights=weights, bias=np.zeros(len(weights)))
    distance = builder.op("sum", builder.op("mul", centred, turned), axis=1)
    sign, log_det = np.linalg.slogdet(precision)
    log_det = float(log_det) if sign > 0 else -np.inf
    offset = 0.5 * (len(precision) * math.log(2 * math.pi) - log_det)
    halved = builder.op("mul", distance, -0.5)
    return builder.op("sub", halved, offset)
