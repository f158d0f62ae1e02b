"""KBinsDiscretizer: the number of the bin, as a number or as 0/1 columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.fitted import check
from sqlml.types import DType


def k_bins_discretizer(model: Any, frame: Frame) -> Frame:
    """How many of a column's inner edges are not above the value (all strategies alike)."""
    check(model, "bin_edges_", "n_bins_")
    b = frame.builder
    single = model.dtype is not None and np.dtype(model.dtype) == np.float32
    dtype: DType = "float32" if single else "float64"
    x = numbers(frame, "KBinsDiscretizer", dtype=dtype)
    if dtype != "float64":
        x = b.op("cast", x, dtype="float64")
    inner = [np.asarray(edges, np.float64)[1:-1] for edges in model.bin_edges_]
    offsets = np.cumsum([0, *(edges.size for edges in inner)]).astype(np.int64)
    codes = b.op("search_sorted", x, edges=np.concatenate(inner), offsets=offsets, side="right")
    if model.encode == "ordinal":
        return Frame.of(b, b.op("cast", codes, dtype="float64"), frame.names)
    parts: list[Frame] = []
    for i, bins in enumerate(int(n) for n in model.n_bins_):
        code = b.op("select", codes, indices=np.full(1, i, np.int64))
        hot = b.op("one_hot", code, width=bins, dtype="float64")
        parts.append(Frame.of(b, hot, [f"{frame.names[i]}_{float(j)}" for j in range(bins)]))
    return replace(Frame.hstack(b, parts), sparse=model.encode == "onehot")
