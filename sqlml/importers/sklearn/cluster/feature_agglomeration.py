"""FeatureAgglomeration: each cluster of columns pooled into one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.fitted import check

_REDUCTIONS: Mapping[Callable[..., Any], str] = MappingProxyType(
    {np.max: "max", np.amax: "max", np.min: "min", np.amin: "min", np.sum: "sum"}
)


def feature_agglomeration(model: Any, frame: Frame) -> Frame:
    """The mean, maximum, minimum or sum of the columns of each cluster.

    Raises:
        UnsupportedModelError: another `pooling_func`.
    """
    check(model, "labels_")
    x, builder = numbers(frame, "FeatureAgglomeration"), frame.builder
    labels = np.asarray(model.labels_).astype(np.int64)
    if model.pooling_func == np.mean:
        sizes = np.bincount(labels).astype(np.float64)
        total = builder.linear(x, labels[:, None] == np.arange(sizes.size))
        return Frame.of(builder, builder.op("div", total, sizes))
    if model.pooling_func not in _REDUCTIONS:
        name = getattr(model.pooling_func, "__name__", repr(model.pooling_func))
        raise UnsupportedModelError(
            f"FeatureAgglomeration pools with the Python function {name}, which cannot run inside "
            "SQL; use pooling_func=np.mean, np.max, np.min or np.sum"
        )
    reduce = _REDUCTIONS[model.pooling_func]
    pooled = [
        builder.op(reduce, builder.op("select", x, indices=np.flatnonzero(labels == k)), axis=1)
        for k in np.unique(labels)
    ]
    return Frame.of(builder, builder.beside(pooled))
