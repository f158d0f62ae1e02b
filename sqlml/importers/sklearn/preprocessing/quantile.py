"""QuantileTransformer: the place of a number among the training quantiles, uniform or normal."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.fitted import check
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.normal import ndtri
from sqlml.types import Array

NEAR = 1e-7
"""scikit-learn's BOUNDS_THRESHOLD: this near to an end of the training range is the end."""


def quantile_transformer(model: Any, frame: Frame) -> Frame:
    """The mean of two interpolations, one from each side, so that repeated quantiles count half.

    NaN passes; infinity raises.
    """
    check(model, "quantiles_", "references_")
    if frame.sparse:
        raise UnsupportedModelError(
            "QuantileTransformer of a sparse matrix skips the zeros that are not stored; make it "
            "dense (sparse_threshold=0, sparse_output=False) before fit"
        )
    if model.output_distribution not in ("uniform", "normal"):
        raise UnsupportedModelError(
            f"QuantileTransformer(output_distribution={model.output_distribution!r}) is not known"
        )
    b = frame.builder
    quantiles = np.asarray(model.quantiles_, np.float64).T
    references = np.asarray(model.references_, np.float64)
    x = numbers(frame, "QuantileTransformer", allow_nan=True)
    value = _place(b, x, quantiles, references)
    lowest, highest = quantiles[:, 0], quantiles[:, -1]
    if model.output_distribution == "uniform":
        below, above = b.op("eq", x, lowest), b.op("eq", x, highest)
    else:
        below = b.op("lt", b.op("sub", x, NEAR), lowest)
        above = b.op("gt", b.op("add", x, NEAR), highest)
    value = b.op("where", above, 1.0, value)
    value = b.op("where", below, 0.0, value)
    if model.output_distribution == "normal":
        value = _normal(b, value)
    return Frame.of(b, value, frame.names)


def _place(b: Builder, x: Value, quantiles: Array, references: Array) -> Value:
    columns, points = quantiles.shape
    offsets = np.arange(columns + 1, dtype=np.int64) * points
    up = b.op(
        "interpolate",
        x,
        points=quantiles.ravel(),
        values=np.tile(references, columns),
        offsets=offsets,
    )
    down = b.op(
        "interpolate",
        b.op("neg", x),
        points=-quantiles[:, ::-1].ravel(),
        values=np.tile(-references[::-1], columns),
        offsets=offsets,
    )
    return b.op("mul", 0.5, b.op("sub", up, down))


def _normal(b: Builder, value: Value) -> Value:
    edge = NEAR - np.spacing(1)
    low, high = ndtri(np.array([edge])), ndtri(np.array([1 - edge]))
    value = b.op("maximum", b.op("ndtri", value), low)
    return b.op("minimum", value, high)
