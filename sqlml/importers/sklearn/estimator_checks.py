"""`numbers`: a frame as the matrix that an estimator validates before it computes."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, RawColumn, Rows
from sqlml.importers.model_checks import learned, unfitted
from sqlml.ir.builder import Value
from sqlml.types import Array, DType


def numbers(
    frame: Frame,
    step: str,
    *,
    allow_nan: bool = False,
    dtype: DType = "float64",
    rows: Rows = "dense",
) -> Value:
    """The frame as (n, width) numbers that are finite, as sklearn's `check_array` wants them.

    The check looks at the values in `dtype`, so that what overflows float32 is refused too.

    Args:
        step: the estimator's name, for the error at scoring.
        allow_nan: whether NaN passes (`ensure_all_finite="allow-nan"`).
        rows: the rows that the estimator takes, as for `Frame.matrix`.
    """
    if frame.stored:
        return _checked_blocks(frame, step, allow_nan, dtype).matrix(dtype, rows)
    return within(frame, frame.matrix(dtype), step, allow_nan=allow_nan)


def within(
    frame: Frame,
    value: Value,
    step: str,
    *,
    allow_nan: bool = False,
    low: Array | None = None,
    high: Array | None = None,
) -> Value:
    """The columns of `frame` as `value`, finite and within the bounds of each column, (k,) or (1,).

    Other rows raise an error at scoring that names the column and `step`.
    """
    given = {key: end for key, end in (("low", low), ("high", high)) if end is not None}
    return frame.builder.op(
        "require_finite", value, features=frame.names, allow_nan=allow_nan, step=step, **given
    )


def _checked_blocks(frame: Frame, step: str, allow_nan: bool, dtype: DType) -> Frame:
    """The frame with each block checked by itself: of sparse rows, what they store."""
    builder = frame.builder
    blocks: list[Value] = []
    start = 0
    for block in frame.blocks:
        width = 1 if isinstance(block, RawColumn) else block.type.width
        names = frame.names[start : start + width]
        own = Frame(builder, (block,), names)
        value = own.matrix(dtype, "sparse")
        if not value.type.sparse:
            value = within(own, value, step, allow_nan=allow_nan)
        elif not allow_nan:
            feature = names[0] if names else ""
            value = builder.op("require_finite_stored", value, feature=feature, step=step)
        blocks.append(value)
        start += width
    return Frame(builder, tuple(blocks), frame.names, frame.sparse)


def stored_dtype(frame: Frame) -> DType:
    """float32 where all columns are float32 already, so that scikit-learn computes in it."""
    kinds = {b.type.dtype for b in frame.blocks if isinstance(b, Value)}
    whole = len(frame.blocks) == sum(isinstance(b, Value) for b in frame.blocks)
    return "float32" if whole and frame.stored and kinds == {"float32"} else "float64"


# `check`: whether an estimator is fitted, and made by a scikit-learn whose parameters we know.


_TEXT = (files(__package__) / "parameters.txt").read_text("utf-8")

PARAMETERS: Mapping[str, str] = MappingProxyType(
    dict(line.split(": ", 1) for line in _TEXT.splitlines())
)
"""Class path -> the names of the constructor parameters that we know, separated by blanks.

One that is not listed came with another version of scikit-learn, and may change what the model
computes, so such a model is refused until the parameter has been reviewed.
"""


def path_of(model: Any) -> str:
    """The module and the name of the object's class."""
    return f"{type(model).__module__}.{type(model).__qualname__}"


def check(model: Any, *attributes: str) -> None:
    """Refuse `model` unless it has the fitted `attributes` and no parameter unknown to us.

    Raises:
        UnsupportedModelError: not fitted, or fitted by a version of scikit-learn that has other
            parameters or attributes.
    """
    cls = type(model)
    known = set(PARAMETERS[path_of(model)].split())
    unknown = sorted(set(model.get_params(deep=False)) - known)
    if unknown:
        raise UnsupportedModelError(
            f"{cls.__name__} has parameter {', '.join(map(repr, unknown))}, which sqlml does not "
            "know: it comes from another version of scikit-learn; fit it with the version in "
            "constraints.txt or update sqlml"
        )
    missing = [name for name in attributes if not hasattr(model, name)]
    if missing and not learned(model):
        raise unfitted(model)
    if missing:
        raise UnsupportedModelError(
            f"{cls.__name__} lacks {', '.join(missing)}: it is only partly fitted, or comes from "
            "another version of scikit-learn; fit it again with the version in constraints.txt"
        )


def check_single_output(model: Any, outputs: int) -> None:
    """Refuse a model that predicts several targets at once.

    Raises:
        UnsupportedModelError: `outputs` is not 1.
    """
    if outputs != 1:
        raise UnsupportedModelError(
            f"{type(model).__name__} predicts {outputs} targets at once, where one is expected; "
            "fit one model per target"
        )
