"""`numbers`: a frame as the matrix that an estimator validates before it computes."""

from __future__ import annotations

from sqlml.importers.frame import Frame
from sqlml.ir.builder import Value
from sqlml.types import DType


def numbers(frame: Frame, step: str, *, allow_nan: bool = False, dtype: DType = "float64") -> Value:
    """The frame as (n, width) numbers that are finite, as sklearn's `check_array` wants them.

    The check looks at the values in `dtype`, so that what overflows float32 is refused too.

    Args:
        step: the estimator's name, for the error at scoring.
        allow_nan: whether NaN passes (`ensure_all_finite="allow-nan"`).
    """
    value = frame.matrix(dtype)
    return frame.builder.op(
        "require_finite", value, features=frame.names, allow_nan=allow_nan, step=step
    )
