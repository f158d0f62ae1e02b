"""TransformedTargetRegressor: a regressor whose answers are brought back to the target's scale.

`sklearn/compose/_target.py`. The inverse transform of the target is written here for each
transformer that has an exact one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse
from sqlml.importers.sklearn.estimator_checks import check, path_of
from sqlml.importers.sklearn.meta.members import Member, scaled
from sqlml.importers.sklearn.preprocessing.function_transformer import FUNCTIONS
from sqlml.importers.sklearn.preprocessing.numeric_transforms import NEAR, unscaled
from sqlml.ir.builder import Builder, Value

STEP = "TransformedTargetRegressor"


def transformed_target_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """(n, targets): the regressor's answers through the transformer's inverse.

    Raises:
        UnsupportedModelError: a transformer or inverse_func that is not known here.
    """
    check(model, "regressor_", "transformer_")
    member = Member.of(model, "regressor_", model.regressor_, frame, recurse, several=True)
    value = member.answer("predict")
    return Outputs({"label": inverse(frame.builder, model.transformer_, value)})


def inverse(builder: Builder, transformer: Any, value: Value) -> Value:
    """`transformer.inverse_transform` of (n, k) float64.

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


def _checked(builder: Builder, value: Value, allow_nan: bool = True) -> Value:
    names = tuple(f"prediction{i}" for i in range(value.type.width))
    return builder.op("require_finite", value, features=names, allow_nan=allow_nan, step=STEP)


def _scaler(builder: Builder, model: Any, value: Value) -> Value:
    return unscaled(builder, model, _checked(builder, value))


def _power(builder: Builder, model: Any, value: Value) -> Value:
    check(model, "lambdas_")
    value = _checked(builder, value)
    if model.standardize:
        value = _scaler(builder, model._scaler, value)
    one = INVERSE_POWERS[model.method]
    columns = [
        one(builder, builder.op("select", value, indices=np.array([i])), float(power))
        for i, power in enumerate(model.lambdas_)
    ]
    return builder.beside(columns)


def _box_cox(builder: Builder, value: Value, power: float) -> Value:
    """scipy.special.inv_boxcox: exp(log1p(power * y) / power)."""
    if power == 0:
        return builder.op("exp", value)
    log = builder.op("log1p", scaled(builder, "mul", value, power))
    return builder.op("exp", scaled(builder, "div", log, power))


def _yeo_johnson(builder: Builder, value: Value, power: float) -> Value:
    tiny = np.spacing(1.0)
    if abs(power) < tiny:
        above = scaled(builder, "sub", builder.op("exp", value), 1)
    else:
        base = scaled(builder, "add", scaled(builder, "mul", value, power), 1)
        above = scaled(builder, "sub", scaled(builder, "pow", base, 1 / power), 1)
    if abs(power - 2) > tiny:
        base = scaled(builder, "add", scaled(builder, "mul", value, -(2 - power)), 1)
        below = builder.op("sub", 1.0, scaled(builder, "pow", base, 1 / (2 - power)))
    else:
        below = builder.op("sub", 1.0, builder.op("exp", builder.op("neg", value)))
    return builder.op("where", builder.op("ge", value, 0.0), above, below)


def _quantile(builder: Builder, model: Any, value: Value) -> Value:
    """From a place between 0 and 1 (or a normal deviate) back to the training quantiles."""
    check(model, "quantiles_", "references_")
    value = _checked(builder, value)
    normal = model.output_distribution == "normal"
    share = builder.op("ndtr", value) if normal else value
    quantiles = np.asarray(model.quantiles_, np.float64).T
    columns, points = quantiles.shape
    made = builder.op(
        "interpolate",
        share,
        points=np.tile(np.asarray(model.references_, np.float64), columns),
        values=quantiles.ravel(),
        offsets=np.arange(columns + 1, dtype=np.int64) * points,
    )
    if normal:
        below = builder.op("lt", builder.op("sub", share, NEAR), 0.0)
        above = builder.op("gt", builder.op("add", share, NEAR), 1.0)
        made = builder.op("where", above, quantiles[:, -1], made)
        made = builder.op("where", below, quantiles[:, 0], made)
    return made  # of a uniform place, the ends are what the interpolation gives


def _function(builder: Builder, model: Any, value: Value) -> Value:
    """A numpy function, or the identity if none is given.

    Raises:
        UnsupportedModelError: any other function, since its Python code cannot run inside SQL.
    """
    check(model)
    if model.validate:
        value = _checked(builder, value, allow_nan=False)
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
    made = make(builder, value)
    return made if made.type.dtype == "float64" else builder.op("cast", made, dtype="float64")


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
