"""EllipticEnvelope: outliers by the Mahalanobis distance under a robust covariance."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.importers.frame import Frame, Outputs
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.classify import binary_label, outlier_outputs
from sqlml.importers.sklearn.fitted import check


def elliptic_envelope(model: Any, frame: Frame) -> Outputs:
    """Outputs of an EllipticEnvelope: label 1 where the Mahalanobis distance is at most -offset_,
    else -1; score_samples is the negated distance.

    The root is taken and squared again, as the source does by way of SciPy.
    """
    check(model, "location_", "offset_", "covariance_")
    builder, x = frame.builder, numbers(frame, "EllipticEnvelope")
    delta = builder.op("sub", x, np.asarray(model.location_, np.float64))
    turned = builder.linear(delta, np.asarray(model.get_precision()).T)
    squared = builder.op("sum", builder.op("mul", delta, turned), axis=1)
    squared = builder.op("square", builder.op("sqrt", squared))
    samples = builder.op("neg", squared)
    score = builder.op("sub", samples, float(model.offset_))
    return outlier_outputs(binary_label(builder, score, "ge"), score, samples)
