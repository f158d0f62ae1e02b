"""Checks of an estimator (fitted, known parameters) and of its input (finite numbers)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, RawColumn, Rows
from sqlml.importers.model_checks import explain_unfitted, has_fitted_attributes
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
    """Return the frame as (n, width) finite numbers, as scikit-learn's `check_array` does.

    Infinity and, unless `allow_nan` is true, NaN raise an error while scoring, which names the
    estimator `step`. The numbers are checked in `dtype`, so overflow in float32 is an error, too.
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
    """Return `value` with a check: a number that is not finite or out of bounds is an error."""
    bounds = {key: bound for key, bound in (("low", low), ("high", high)) if bound is not None}
    return frame.builder.op(
        "require_finite", value, features=frame.names, allow_nan=allow_nan, step=step, **bounds
    )


def _check_blocks(frame: Frame, step: str, allow_nan: bool, dtype: DType) -> Frame:
    """Check each block of the frame separately; of sparse rows, check only the stored values."""
    b, blocks, start = frame.builder, list[Value](), 0
    for block in frame.blocks:
        width = 1 if isinstance(block, RawColumn) else block.type.width
        block_frame = Frame(b, (block,), frame.names[start : start + width])
        value = block_frame.matrix(dtype, "sparse")
        if not value.type.sparse:
            value = check_bounds(block_frame, value, step, allow_nan=allow_nan)
        elif not allow_nan:
            feature = "".join(block_frame.names[:1])
            value = b.op("require_finite_stored", value, feature=feature, step=step)
        blocks.append(value)
        start += width
    return Frame(b, tuple(blocks), frame.names, frame.sparse)


def choose_dtype(frame: Frame) -> DType:
    """Return the dtype in which scikit-learn computes: float32 for sparse float32 rows only."""
    is_float32 = all(isinstance(b, Value) and b.type.dtype == "float32" for b in frame.blocks)
    return "float32" if is_float32 and frame.has_sparse_rows else "float64"


PARAMETERS: Mapping[str, str] = dict(
    line.split(": ", 1)
    for line in (files(__package__) / "parameters.txt").read_text("utf-8").splitlines()
)
"""Maps each class path to the class's known constructor parameters, separated by spaces.

Other parameters come from another version of scikit-learn, and may change what the model computes.
"""


def path_of(model: Any) -> str:
    return f"{type(model).__module__}.{type(model).__qualname__}"


def check_estimator(model: Any, *attributes: str) -> None:
    """Reject a model that lacks one of the fitted `attributes`, or has an unknown parameter."""
    class_name = type(model).__name__
    unknown = sorted(set(model.get_params(deep=False)) - set(PARAMETERS[path_of(model)].split()))
    if unknown:
        raise UnsupportedModelError(
            f"{class_name} has parameter {', '.join(map(repr, unknown))}, which sqlml does not "
            "know: it comes from another version of scikit-learn; fit it with the version in "
            "constraints.txt or update sqlml"
        )
    missing = [attribute for attribute in attributes if not hasattr(model, attribute)]
    if missing and not has_fitted_attributes(model):
        raise explain_unfitted(model)
    if missing:
        raise UnsupportedModelError(
            f"{class_name} lacks {', '.join(missing)}: it is only partly fitted, or comes from "
            "another version of scikit-learn; fit it again with the version in constraints.txt"
        )


def explain_option(model: Any, option: str, advice: str = "") -> UnsupportedModelError:
    call = f"{type(model).__name__}({option}={getattr(model, option)!r})"
    return UnsupportedModelError(f"{call} is not known to sqlml{advice and '; use '}{advice}")


def explain_function(model: Any, use: str, advice: str) -> UnsupportedModelError:
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
