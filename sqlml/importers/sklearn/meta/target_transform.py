"""TransformedTargetRegressor: a regressor whose predictions are scaled back to the target.

`sklearn/compose/_target.py`. Each transformer with an exact inverse has its inverse here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse
from sqlml.importers.sklearn.estimator_checks import check, path_of
from sqlml.importers.sklearn.meta.members import Member, apply_number
from sqlml.importers.sklearn.preprocessing.function_transformer import FUNCTIONS
from sqlml.importers.sklearn.preprocessing.numeric_transforms import NEAR, unscale
from sqlml.ir.builder import Builder, Value

STEP = "TransformedTargetRegressor"


def transformed_target_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Apply the transformer's inverse to the regressor's predictions, (n, targets).

    Raises:
        UnsupportedModelError: a transformer or inverse_func that is not known here.
    """
    check(model, "regressor_", "transformer_")
    member = Member.of(model, "regressor_", model.regressor_, frame, recurse, several=True)
    value = member.output_of("predict")
    return Outputs({"label": inverse(frame.builder, model.transformer_, value)})


def inverse(builder: Builder, transformer: Any, value: Value) -> Value:
    """Return `transformer.inverse_transform` of (n, k) float64.

    Raises:
        UnsupportedModelError: none is known for its class.
    """
    path = path_of(transformer)
    if path not in INVERSES:
        known = ", ".join(sorted(name.rsplit(".", 1)[1] for name in INVERSES))
        raise UnsupportedModelError(
            f"the inverse transform of {type(transformer).__name__} is not known to sqlml; use one "
            f"of {known}"
        )
    return INVERSES[path](builder, transformer, value)


def _check_finite(builder: Builder, value: Value, allow_nan: bool = True) -> Value:
    names = tuple(f"prediction{i}" for i in range(value.type.width))
    return builder.op("require_finite", value, features=names, allow_nan=allow_nan, step=STEP)


def _scaler(builder: Builder, model: Any, value: Value) -> Value:
    return unscale(builder, model, _check_finite(builder, value))


def _power(builder: Builder, model: Any, value: Value) -> Value:
    check(model, "lambdas_")
    value = _check_finite(builder, value)
    if model.standardize:
        value = _scaler(builder, model._scaler, value)
    one = INVERSE_POWERS[model.method]
    columns = [
        one(builder, builder.op("select", value, indices=np.array([i])), float(power))
        for i, power in enumerate(model.lambdas_)
    ]
    return builder.concat(columns)


def _box_cox(builder: Builder, value: Value, power: float) -> Value:
    """Return exp(log1p(power * y) / power), like scipy.special.inv_boxcox."""
    if power == 0:
        return builder.op("exp", value)
    log = builder.op("log1p", apply_number(builder, "mul", value, power))
    return builder.op("exp", apply_number(builder, "div", log, power))


def _yeo_johnson(builder: Builder, value: Value, power: float) -> Value:
    tiny = np.spacing(1.0)
    if abs(power) < tiny:
        above = apply_number(builder, "sub", builder.op("exp", value), 1)
    else:
        base = apply_number(builder, "add", apply_number(builder, "mul", value, power), 1)
        above = apply_number(builder, "sub", apply_number(builder, "pow", base, 1 / power), 1)
    if abs(power - 2) > tiny:
        base = apply_number(builder, "add", apply_number(builder, "mul", value, -(2 - power)), 1)
        below = builder.op("sub", 1.0, apply_number(builder, "pow", base, 1 / (2 - power)))
    else:
        below = builder.op("sub", 1.0, builder.op("exp", builder.op("neg", value)))
    return builder.op("where", builder.op("ge", value, 0.0), above, below)


def _quantile(builder: Builder, model: Any, value: Value) -> Value:
    """Map positions between 0 and 1 (or normal deviates) back to the training quantiles."""
    check(model, "quantiles_", "references_")
    value = _check_finite(builder, value)
    normal = model.output_distribution == "normal"
    share = builder.op("ndtr", value) if normal else value
    quantiles = np.asarray(model.quantiles_, np.float64).T
    columns, points = quantiles.shape
    result = builder.op(
        "interpolate",
        share,
        points=np.tile(np.asarray(model.references_, np.float64), columns),
        values=quantiles.ravel(),
        offsets=np.arange(columns + 1, dtype=np.int64) * points,
    )
    if normal:
        below = builder.op("lt", builder.op("sub", share, NEAR), 0.0)
        above = builder.op("gt", builder.op("add", share, NEAR), 1.0)
        result = builder.op("where", above, quantiles[:, -1], result)
        result = builder.op("where", below, quantiles[:, 0], result)
    return result  # of a uniform place, the ends are what the interpolation gives


def _function(builder: Builder, model: Any, value: Value) -> Value:
    """Apply a numpy function, or the identity if there is none.

    Raises:
        UnsupportedModelError: any other function, since its Python code cannot run inside SQL.
    """
    check(model)
    if model.validate:
        value = _check_finite(builder, value, allow_nan=False)
    function = model.inverse_func
    if function is None:
        return value
    make = FUNCTIONS.get(function) if isinstance(function, Hashable) else None
    if make is None or model.inv_kw_args:
        name = getattr(function, "__name__", repr(function))
        raise UnsupportedModelError(
            f"{STEP} calls the Python function {name}, which cannot run inside SQL; use one of "
            "numpy's elementary functions (np.exp, np.expm1, np.square ...), or a transformer"
        )
    result = make(builder, value)
    return result if result.type.dtype == "float64" else builder.op("cast", result, dtype="float64")


INVERSE_POWERS: Mapping[str, Callable[[Builder, Value, float], Value]] = MappingProxyType(
    {"box-cox": _box_cox, "yeo-johnson": _yeo_johnson}
)

INVERSES: Mapping[str, Callable[[Builder, Any, Value], Value]] = MappingProxyType(
    {
        "sklearn.preprocessing._data.MaxAbsScaler": _scaler,
        "sklearn.preprocessing._data.MinMaxScaler": _scaler,
        "sklearn.preprocessing._data.PowerTransformer": _power,
        "sklearn.preprocessing._data.QuantileTransformer": _quantile,
        "sklearn.preprocessing._data.RobustScaler": _scaler,
        "sklearn.preprocessing._data.StandardScaler": _scaler,
        "sklearn.preprocessing._function_transformer.FunctionTransformer": _function,
    }
)
