"""KNNImputer: means of the nearest training rows, which the model carries along."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.impute.indicator import added_indicator, nan_where_missing


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
    x = nan_where_missing(model, frame)
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
    return Frame.hstack(b, [made, *added_indicator(model, frame, x)])
