"""Importers of the results of statsmodels' linear models: OLS, WLS, GLS, GLM, Logit, Poisson ...

`label` is what their `predict` returns, the mean of the answer, and `score` the linear predictor
before the link. The constant that `add_constant` or a formula brings is no column of a table: it
becomes the intercept. What a formula makes of columns is in `formula.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.formula import FormulaDesign
from sqlml.importers.frame import Frame, Outputs, Schema
from sqlml.ir.builder import Builder, Value

_REGRESSION = "statsmodels.regression.linear_model"

CONSTANTS = frozenset({"const", "Intercept"})
"""What add_constant and formulas call the column of ones."""

Inverse = Callable[[Builder, Value], Value]


def _of(op: str) -> Inverse:
    return lambda b, x: b.op(op, x)


def _doubly_exponential(b: Builder, x: Value, sign: float) -> Value:
    """exp(-exp(sign * x))."""
    return b.op("exp", b.op("neg", b.op("exp", x if sign > 0 else b.op("neg", x))))


LINKS: Mapping[str, Inverse] = MappingProxyType(
    {
        "Identity": lambda b, x: x,
        "Log": _of("exp"),
        "Logit": _of("sigmoid"),
        "Probit": _of("ndtr"),
        "InversePower": lambda b, x: b.op("div", np.ones(1), x),
        "InverseSquared": lambda b, x: b.op("div", np.ones(1), b.op("sqrt", x)),
        "Sqrt": _of("square"),
        "LogC": lambda b, x: b.op("sub", np.ones(1), b.op("exp", x)),
        "CLogLog": lambda b, x: b.op("sub", np.ones(1), _doubly_exponential(b, x, 1.0)),
        "LogLog": lambda b, x: _doubly_exponential(b, x, -1.0),
    }
)
"""The class of a GLM's link -> its inverse."""

BINARY: Mapping[str, str] = MappingProxyType({"Logit": "Logit", "Probit": "Probit"})
"""The model of two classes -> its link."""


def coefficients(results: Any) -> dict[str, float]:
    """The weight of each column of the design, the constant included.

    Raises:
        UnsupportedModelError: a formula that patsy did not read makes a column of others.
    """
    model = results.model
    names = [str(name) for name in model.exog_names]
    frame = getattr(model.data, "frame", None)
    if _has_formula(model) and frame is not None and design_of(model) is None:
        made = [n for n in names if n not in CONSTANTS and n not in frame.columns]
        if made:
            raise UnsupportedModelError(
                f"the formula of this model makes {made[0]!r} of other columns, which is covered "
                "where patsy reads formulas: install it, and fit the model again"
            )
    weights = np.asarray(results.params, np.float64)
    if weights.shape != (len(names),):
        raise UnsupportedModelError(
            f"this {type(model).__name__} has {weights.shape} parameters for {len(names)} columns; "
            "models with several equations or a dispersion are not covered"
        )
    return dict(zip(names, weights.tolist(), strict=True))


def _has_formula(model: Any) -> bool:
    return getattr(model, "formula", None) is not None


def design_of(model: Any) -> FormulaDesign | None:
    """What the formula of a model makes; None without one, or if not patsy has read it.

    Raises:
        UnsupportedModelError: something in it is not covered.
    """
    data = model.data
    info = getattr(data, "model_spec", None) or getattr(data, "design_info", None)
    path = f"{type(info).__module__}.{type(info).__qualname__}"
    frame = getattr(data, "frame", None)
    if not _has_formula(model) or path != "patsy.design_info.DesignInfo" or frame is None:
        return None
    truths = {str(name): getattr(kind, "kind", "") == "b" for name, kind in frame.dtypes.items()}
    return FormulaDesign(info, truths)


def schema(results: Any) -> Schema:
    """The columns that a formula reads, or those of the design without its constant; named where it
    was fitted on a frame."""
    design = design_of(results.model)
    if design is not None:
        names = design.names()
        return Schema(names, len(names))
    names = tuple(name for name in coefficients(results) if name not in CONSTANTS)
    is_named = type(results.model.data).__name__ != "ModelData"
    return Schema(names if is_named else None, len(names))


def identity(results: Any, frame: Frame) -> Outputs:
    """Least squares: the linear predictor is what it predicts."""
    return _linked(results, frame, LINKS["Identity"])


def regularised(results: Any, frame: Frame) -> Outputs:
    """fit_regularized of least squares."""
    if not type(results.model).__module__.startswith(_REGRESSION):
        raise UnsupportedModelError(
            f"fit_regularized of {type(results.model).__name__} is not covered; use its fit"
        )
    return identity(results, frame)


def exponential(results: Any, frame: Frame) -> Outputs:
    """Models of counts: the mean is exp of the linear predictor."""
    return _linked(results, frame, LINKS["Log"])


def logistic(results: Any, frame: Frame) -> Outputs:
    """Logit and Probit: predict gives the probability of 1."""
    kind = type(results.model).__name__
    if kind not in BINARY:
        raise UnsupportedModelError(
            f"statsmodels' {kind} is not covered; covered: {', '.join(BINARY)}"
        )
    return _linked(results, frame, LINKS[BINARY[kind]])


def generalised(results: Any, frame: Frame) -> Outputs:
    """GLM: the inverse of its link."""
    link = type(results.model.family.link).__name__
    if link not in LINKS:
        raise UnsupportedModelError(
            f"the link {link} of this GLM is not covered; covered: {', '.join(LINKS)}"
        )
    return _linked(results, frame, LINKS[link])


def _linked(results: Any, frame: Frame, inverse: Inverse) -> Outputs:
    score = _linear_predictor(frame.builder, results, frame)
    return Outputs({"label": inverse(frame.builder, score), "score": score})


def _linear_predictor(builder: Builder, results: Any, frame: Frame) -> Value:
    weights = coefficients(results)
    design = design_of(results.model)
    if design is not None:
        values, used, constant = design.weighted(frame, np.array([*weights.values()]))
        if not values:
            raise _reads_nothing()
        columns = np.array(used).reshape(-1, 1)
        return builder.linear(builder.beside(values), columns, np.array([constant]))
    intercept = sum(weight for name, weight in weights.items() if name in CONSTANTS)
    slopes = [weight for name, weight in weights.items() if name not in CONSTANTS]
    if not slopes:
        raise _reads_nothing()
    columns = np.array(slopes).reshape(-1, 1)
    return builder.linear(frame.matrix(), columns, np.array([intercept]))


def _reads_nothing() -> UnsupportedModelError:
    return UnsupportedModelError("this model has a constant and reads no columns")


_DISCRETE = "statsmodels.discrete.discrete_model"

IMPORTERS: Mapping[str, Callable[[Any, Frame], Outputs]] = MappingProxyType(
    {
        f"{_REGRESSION}.RegressionResultsWrapper": identity,
        f"{_REGRESSION}.OLSResults": identity,
        f"{_REGRESSION}.RegressionResults": identity,
        "statsmodels.base.elastic_net.RegularizedResultsWrapper": regularised,
        f"{_DISCRETE}.BinaryResultsWrapper": logistic,
        f"{_DISCRETE}.LogitResults": logistic,
        f"{_DISCRETE}.ProbitResults": logistic,
        f"{_DISCRETE}.PoissonResultsWrapper": exponential,
        f"{_DISCRETE}.PoissonResults": exponential,
        "statsmodels.genmod.generalized_linear_model.GLMResultsWrapper": generalised,
        "statsmodels.genmod.generalized_linear_model.GLMResults": generalised,
    }
)

SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(dict.fromkeys(IMPORTERS, schema))
