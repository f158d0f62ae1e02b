"""What estimators do to each column before they compute: checks and imputation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.errors import MissingValueError
from sqlml.ir.operators.op import Op, Types, array, floating, need
from sqlml.ir.program import Attrs
from sqlml.types import Array, TensorType, dtype_of


def _require_finite_type(types: Types, attrs: Attrs) -> TensorType:
    floating(types[0].dtype)
    features = attrs["features"]
    need(
        isinstance(features, tuple) and len(features) == types[0].width,
        "require_finite names each column",
    )
    for bound in ("low", "high"):
        if bound in attrs:
            value = array(attrs, bound)
            need(
                dtype_of(value) == types[0].dtype and value.shape == (types[0].width,),
                f"{bound} must have a number of the columns' dtype for each",
            )
            need(not np.isnan(value).any(), f"{bound} must not be NaN")
    return types[0]


def _impute_type(types: Types, attrs: Attrs) -> TensorType:
    fill = array(attrs, "fill")
    need(dtype_of(fill) == floating(types[0].dtype), "fill must have the dtype of the columns")
    need(fill.shape == (types[0].width,), "one fill a column")
    return types[0]


def _require_type(types: Types, attrs: Attrs) -> TensorType:
    x, fine = types
    need(fine.rowwise and fine.dtype == "bool" and fine.shape[1:] == (1,), "require tests a row")
    need(x.rowwise, "require passes rows on")
    need(bool(attrs["message"]), "require says what is wrong")
    return x


def _require(args: Sequence[Array], attrs: Attrs) -> Array:
    """The first input, where the second is true of every row."""
    x, fine = args
    if not fine.all():
        raise MissingValueError(str(attrs["message"]))
    return x


def _require_finite(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    bad = np.isinf(x) if attrs["allow_nan"] else ~np.isfinite(x)
    if "low" in attrs:
        bad |= x < attrs["low"]
    if "high" in attrs:
        bad |= x > attrs["high"]
    if bad.any():
        row, col = np.argwhere(bad)[0]
        raise not_finite(attrs["features"][col], attrs["step"], bool(np.isnan(x[row, col])))
    return x


def not_finite(feature: str, step: str, missing: bool) -> MissingValueError:
    """The error of `require_finite`; `missing`: about NaN, else about infinity."""
    what = "NULL or NaN" if missing else "infinity (or a value too large)"
    fix = (
        "put an imputer before it, fill the column in SQL (coalesce), or filter such rows"
        if missing
        else "filter such rows or clip the column"
    )
    return MissingValueError(f"column {feature!r} has {what}, which {step} does not take; {fix}")


def _impute(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    missing: float = attrs["missing"]
    gone = np.isnan(x) if missing != missing else x == missing
    return np.where(gone, attrs["fill"], x).astype(x.dtype)


OPERATORS: tuple[Op, ...] = (
    Op("require", "both", "injective", _require_type, _require, {"message": "str"}, arity=(2, 2)),
    Op(
        "require_finite",
        "model",
        "injective",
        _require_finite_type,
        _require_finite,
        {
            "features": "tuple",
            "allow_nan": "bool",
            "step": "str",
            "low": "array?",
            "high": "array?",
        },
    ),
    Op(
        "impute", "model", "injective", _impute_type, _impute, {"fill": "array", "missing": "float"}
    ),
)
