"""Checks of an estimator (fitted, known parameters) and of the input (finite numbers)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, RawColumn, Rows
from sqlml.importers.model_checks import has_fitted_attributes, make_unfitted_error
from sqlml.ir.builder import Value
from sqlml.types import Array, DType


def check_array(
    frame: Frame,
    step: str,
    *,
    allow_nan: bool = False,
    dtype: DType = "float64",
    rows: Rows = "dense",
) -> Value:
    """Return the frame as (n, width) finite numbers, like scikit-learn's `check_array`.

    Infinity raises an error while scoring, which names the estimator `step`. NaN also raises an
    error unless `allow_nan` is true. Numbers are checked in `dtype`, so float32 may overflow.
    `rows` is the argument of `Frame.matrix`.
    """
    if frame.has_sparse_rows:
        return _check_blocks(frame, step, allow_nan, dtype).matrix(dtype, rows)
    return check_bounds(frame, frame.matrix(dtype), step, allow_nan=allow_nan)


def check_bounds(
    frame: Frame,
    value: Value,
    step: str,
    *,
    allow_nan: bool = False,
    low: Array | None = None,
    high: Array | None = None,
) -> Value:
    """Return `value` with a check that rejects numbers that are not finite or out of bounds."""
    bounds = {key: bound for key, bound in (("low", low), ("high", high)) if bound is not None}
    attrs = {"features": frame.names, "allow_nan": allow_nan, "step": step}
    return frame.builder.op("require_finite", value, **attrs, **bounds)


def _check_blocks(frame: Frame, step: str, allow_nan: bool, dtype: DType) -> Frame:
    """Check each block of the frame; in sparse rows, check only the stored values."""
    builder = frame.builder
    blocks = list[Value]()
    start = 0
    for block in frame.blocks:
        width = 1 if isinstance(block, RawColumn) else block.type.width
        block_frame = Frame(builder, (block,), frame.names[start : start + width])
        checked = block_frame.matrix(dtype, "sparse")
        if not checked.type.sparse:
            checked = check_bounds(block_frame, checked, step, allow_nan=allow_nan)
        elif not allow_nan:
            feature = "".join(block_frame.names[:1])
            checked = builder.op("require_finite_stored", checked, feature=feature, step=step)
        blocks.append(checked)
        start += width
    return Frame(builder, tuple(blocks), frame.names, frame.sparse)


def choose_dtype(frame: Frame) -> DType:
    """Return the dtype in which scikit-learn computes: float32 for sparse float32 rows."""
    is_float32 = all(isinstance(b, Value) and b.type.dtype == "float32" for b in frame.blocks)
    return "float32" if is_float32 and frame.has_sparse_rows else "float64"


PARAMETERS: Mapping[str, str] = dict(
    line.split(": ", 1)
    for line in (files(__package__) / "parameters.txt").read_text("utf-8").splitlines()
)
"""Maps each class path to the class's known constructor parameters, separated by spaces.

Other parameters come from another version of scikit-learn, and may change what the model computes.
"""


def get_class_path(model: Any) -> str:
    return f"{type(model).__module__}.{type(model).__qualname__}"


def check_estimator(model: Any, *attributes: str) -> None:
    """Reject a model that lacks one of the fitted `attributes` or has an unknown parameter."""
    class_name = type(model).__name__
    known = PARAMETERS[get_class_path(model)].split()
    unknown = sorted(set(model.get_params(deep=False)).difference(known))
    if unknown:
        raise UnsupportedModelError(
            f"{class_name} has parameter {', '.join(map(repr, unknown))}, which sqlml does not "
            "know: it comes from another version of scikit-learn; fit it with the version in "
            "constraints.txt or update sqlml"
        )
    missing = [attribute for attribute in attributes if not hasattr(model, attribute)]
    if missing and not has_fitted_attributes(model):
        raise make_unfitted_error(model)
    if missing:
        raise UnsupportedModelError(
            f"{class_name} lacks {', '.join(missing)}: it is only partly fitted, or comes from "
            "another version of scikit-learn; fit it again with the version in constraints.txt"
        )


def make_option_error(model: Any, option: str, advice: str = "") -> UnsupportedModelError:
    call = f"{type(model).__name__}({option}={getattr(model, option)!r})"
    return UnsupportedModelError(f"{call} is not known to sqlml{advice and '; use '}{advice}")


def make_callable_error(model: Any, use: str, advice: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{type(model).__name__} has a Python function as its {use}, which cannot run inside SQL; "
        f"use {advice}"
    )


def check_single_output(model: Any, num_outputs: int) -> None:
    if num_outputs != 1:
        raise UnsupportedModelError(
            f"{type(model).__name__} predicts {num_outputs} targets at once, but only one is "
            "supported; fit one model per target"
        )
