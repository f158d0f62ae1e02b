"""KNNImputer: means of the nearest training rows, which the model carries along."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.impute.indicator import means_null
from sqlml.ir.builder import Value


def knn_imputer(model: Any, frame: Frame) -> Frame:
    """Columns that were all missing in training are dropped, or 0 with keep_empty_features.

    Raises:
        UnsupportedModelError: not fitted, or weights or a metric that are Python functions.
    """
    check(model, "_fit_X", "_mask_fit_X", "_valid_mask", "indicator_")
    if model.metric != "nan_euclidean" or model.weights not in ("uniform", "distance"):
        raise UnsupportedModelError(
            f"KNNImputer(metric={model.metric!r}, weights={model.weights!r}) calls a Python "
            "function, which cannot run inside SQL; use 'nan_euclidean', and 'uniform' or "
            "'distance'"
        )
    b = frame.builder
    x = nan_where_missing(model, frame, "KNNImputer")
    rows = np.where(model._mask_fit_X, np.nan, np.asarray(model._fit_X, np.float64))
    value = b.op(
        "knn_impute",
        x,
        rows=rows,
        neighbours=int(model.n_neighbors),
        weights=model.weights,
        order="C" if model._fit_X.flags.c_contiguous else "F",
    )
    valid = np.asarray(model._valid_mask, bool)
    names = frame.names
    if not valid.all() and model.keep_empty_features:
        value = b.op("where", valid, value, 0.0)
    elif not valid.all():
        if not valid.any():
            raise UnsupportedModelError(
                "KNNImputer drops every column, since all were NULL in training; leave the step "
                "out, or set keep_empty_features=True"
            )
        value = b.op("select", value, indices=np.flatnonzero(valid).astype(np.int64))
        names = tuple(name for name, ok in zip(names, valid, strict=True) if ok)
    made = Frame.of(b, value, names)
    return Frame.hstack(b, [made, *indicator(model, frame, x)])


def nan_where_missing(model: Any, frame: Frame, step: str) -> Value:
    """The columns as numbers, with NaN for what the imputer calls missing."""
    if means_null(model.missing_values):
        return numbers(frame, step, allow_nan=True)
    x = numbers(frame, step)
    nothing = np.full(frame.width, np.nan)
    return frame.builder.op("impute", x, fill=nothing, missing=float(model.missing_values))


def indicator(model: Any, frame: Frame, x: Value) -> list[Frame]:
    """The 0/1 columns of add_indicator, for the columns that missed values in training."""
    if model.indicator_ is None or not len(model.indicator_.features_):
        return []
    b = frame.builder
    marked = np.asarray(model.indicator_.features_, np.int64)
    gone = b.op("isnan", b.op("select", x, indices=marked))
    names = [f"missingindicator_{frame.names[i]}" for i in marked]
    return [Frame.of(b, b.op("cast", gone, dtype="float64"), names)]
