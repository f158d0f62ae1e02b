"""Normalizer and Binarizer: rows of length one, and numbers above a threshold."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.fitted import check
from sqlml.ir.builder import Builder, Value


def normalizer(model: Any, frame: Frame) -> Frame:
    """x divided by the l1, l2 or max norm of its row; a row of (nearly) zeros stays as it is."""
    check(model)
    b = frame.builder
    x = numbers(frame, "Normalizer")
    norm = _norm(b, x, model.norm)
    if frame.sparse:
        tiny = b.op("eq", norm, 0.0)
    else:
        tiny = b.op("lt", norm, 10 * np.finfo(np.float64).eps)
    norm = b.op("where", tiny, 1.0, norm)
    return Frame(b, (b.op("div", x, norm),), frame.names, frame.sparse)


def _norm(b: Builder, x: Value, kind: str) -> Value:
    if kind == "l1":
        return b.op("sum", b.op("abs", x), axis=1)
    if kind == "l2":
        return b.op("sqrt", b.op("sum", b.op("square", x), axis=1))
    if kind == "max":
        return b.op("max", b.op("abs", x), axis=1)
    raise UnsupportedModelError(f"Normalizer(norm={kind!r}) is not known to sqlml")


def binarizer(model: Any, frame: Frame) -> Frame:
    """1 where x is above the threshold, else 0."""
    check(model)
    b = frame.builder
    x = numbers(frame, "Binarizer")
    above = b.op("gt", x, float(model.threshold))
    return Frame(b, (b.op("cast", above, dtype="float64"),), frame.names, frame.sparse)
