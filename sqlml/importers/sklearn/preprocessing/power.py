"""PowerTransformer: Yeo-Johnson and Box-Cox powers per column, then perhaps a StandardScaler.

Order of operations: `scipy.stats._morestats._yeojohnson_transform` and `scipy.special.boxcox`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.checked import numbers, within
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.preprocessing.scale import scaler
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

_EPS = float(np.finfo(np.float64).eps)
_SMALLEST = 5e-324
_LOG_MAX = 709.78
"""Above it boxcox leaves expm1, which would overflow."""


def power_transformer(model: Any, frame: Frame) -> Frame:
    """NaN passes; infinity raises, and with Box-Cox a number that is not positive."""
    check(model, "lambdas_")
    b = frame.builder
    lambdas = np.asarray(model.lambdas_, np.float64)
    x = numbers(frame, "PowerTransformer", allow_nan=True)
    if model.method == "yeo-johnson":
        value = yeo_johnson(b, x, lambdas)
    elif model.method == "box-cox":
        low, step = np.full(x.type.width, _SMALLEST), "PowerTransformer(method='box-cox')"
        x = within(frame, x, step, allow_nan=True, low=low)
        value = box_cox(b, x, lambdas)
    else:
        raise UnsupportedModelError(f"PowerTransformer(method={model.method!r}) is not known")
    made = Frame.of(b, value, frame.names)
    return scaler(model._scaler, made) if model.standardize else made


def yeo_johnson(b: Builder, x: Value, lambdas: Array) -> Value:
    """Yeo-Johnson's powers of columns (n, k), one each."""
    positive = _scaled_power(b, b.op("log1p", x), lambdas, np.abs(lambdas) < _EPS)
    rest = 2 - lambdas
    below = b.op("log1p", b.op("neg", x))
    negative = b.op("neg", _scaled_power(b, below, rest, np.abs(lambdas - 2) <= _EPS))
    is_positive = b.op("ge", x, 0.0)
    return b.op("where", is_positive, positive, negative)


def _scaled_power(b: Builder, log: Value, power: Array, is_zero: Array) -> Value:
    """expm1(power * log) / power, or the log itself in columns where the power is as good as 0."""
    c = np.where(is_zero, 1.0, power)
    value = b.op("div", b.op("expm1", b.op("mul", c, log)), c)
    return b.op("where", is_zero, log, value) if is_zero.any() else value


def box_cox(b: Builder, x: Value, lambdas: Array) -> Value:
    """Box-Cox's powers of positive columns (n, k), one each."""
    is_zero = np.abs(lambdas) < 1e-19
    power = np.where(is_zero, 1.0, lambdas)
    log = b.op("log", x)
    raised = b.op("mul", power, log)
    usual = b.op("div", b.op("expm1", raised), power)
    size = b.op("exp", b.op("sub", raised, np.log(np.abs(power))))
    huge = b.op("sub", b.op("mul", np.sign(power), size), 1 / power)
    value = b.op("where", b.op("lt", raised, _LOG_MAX), usual, huge)
    return b.op("where", is_zero, log, value) if is_zero.any() else value
