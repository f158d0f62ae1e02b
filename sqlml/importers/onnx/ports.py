"""Graph inputs as features: how many columns each stands for, and their numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.onnx.document import Port
from sqlml.ir.builder import Value
from sqlml.types import INTEGERS


def width(port: Port) -> int:
    """The number of features that an input stands for.

    Raises:
        UnsupportedModelError: its width is open, or its number of rows is not.
    """
    if port.dtype is None or port.shape is None:
        raise UnsupportedModelError(
            f"input {port.name!r} of the ONNX model is not a tensor of a known shape"
        )
    if not port.shape or any(d is None for d in port.shape[1:]):
        raise UnsupportedModelError(
            f"input {port.name!r} of the ONNX model has an open shape {port.shape}; export it with "
            "a fixed number of columns"
        )
    if port.shape[0] is not None:
        raise UnsupportedModelError(
            f"input {port.name!r} of the ONNX model has a fixed shape {port.shape}, whose first "
            "axis is not plainly the rows; export it with an open first axis"
        )
    return math.prod(port.inner)


def parts(ports: Iterable[Port], frame: Frame) -> Iterator[tuple[Port, Frame]]:
    """Each input with its columns of `frame`, in order."""
    start = 0
    for port in ports:
        count = width(port)
        yield port, frame.take(range(start, start + count))
        start += count


def numbers(part: Frame, port: Port) -> Value:
    """The columns of an input of numbers, in its dtype; integers and booleans have no NULL."""
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
        value = _whole(part, port, value)
    return part.builder.cast(value, port.dtype)


def _whole(part: Frame, port: Port, value: Value) -> Value:
    """`value`, checked to be exact in the port's dtype, the only one that ONNX takes."""
    b = part.builder
    least, most = (0, 1) if port.dtype == "bool" else _LIMITS[str(port.dtype)]
    inside = b.op("minimum", value, b.constant(np.array([float(most)])))
    exact = b.op("trunc", b.op("maximum", inside, b.constant(np.array([float(least)]))))
    # How far the farthest column is from a number of that dtype: 0 where all of them are one.
    off = b.op("max", b.op("abs", b.op("sub", value, exact)), axis=1)
    return b.op(
        "require",
        value,
        b.op("eq", off, b.constant(np.zeros(1))),
        message=f"the ONNX model reads {', '.join(part.names[:12])} as {port.dtype}, and a row "
        "has a number that is not one; round it in SQL, for instance with CAST(.. AS BIGINT)",
    )


# The largest float64 within int64 is below its end.
_LIMITS = {
    d: (np.iinfo(d).min, np.iinfo(d).max if d != "int64" else 2**63 - 1024) for d in INTEGERS
}
