"""Graph inputs as features: how many columns each stands for, and their numbers."""

from __future__ import annotations

import math

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.onnx.model import Port
from sqlml.ir.builder import Value
from sqlml.types import INTEGERS


def width(port: Port) -> int:
    """The number of features that an input stands for.

    Raises:
        UnsupportedModelError: its width is open, or its number of rows is not.
    """
    if port.dtype is None or port.shape is None:
        raise UnsupportedModelError(
            f"input {port.name!r} of the ONNX model is no tensor of a known shape"
        )
    if not port.shape or any(d is None for d in port.shape[1:]):
        raise UnsupportedModelError(
            f"input {port.name!r} of the ONNX model has an open shape {port.shape}; export it with "
            "a fixed number of columns"
        )
    if port.shape[0] is not None:
        raise UnsupportedModelError(
            f"input {port.name!r} of the ONNX model has a fixed number of rows "
            f"({port.shape[0]}); export it with an open first axis"
        )
    return math.prod(d for d in port.shape[1:] if d is not None)


def numbers(part: Frame, port: Port) -> Value:
    """The columns of an input of numbers, in its dtype; whole numbers and booleans have no NULL."""
    assert port.dtype is not None
    value = part.matrix("float64")
    if port.dtype in INTEGERS or port.dtype == "bool":
        value = part.builder.op(
            "require_finite",
            value,
            features=part.names,
            allow_nan=False,
            step=f"the ONNX model ({port.dtype})",
        )
    return value if port.dtype == "float64" else part.builder.op("cast", value, dtype=port.dtype)
