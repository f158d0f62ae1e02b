"""Importers of the results of statsmodels' linear models: OLS, WLS, GLS, GLM, Logit, Poisson ...

`label` is what their `predict` returns, the mean of the answer, and `score` the linear predictor
before the link. The constant that `add_constant` or a formula brings is no column of a table: it
becomes the intercept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Schema
from sqlml.ir.builder import Builder, Value

_REGRESSION = "statsmodels.regression.linear_model"

CONSTANTS = frozenset({"const", "Intercept"})
"""What add_constant and formulas call the column of ones."""

LINKS: Mapping[str, str | None] = MappingProxyType(
    {"Identity": None, "Log": "exp", "Logit": "sigmoid"}
)
"""The class of a GLM's link -> the operator of its inverse; None for the number itself."""


def coefficients(results: Any) -> dict[str, float]:
    """The weight of each column of the design, the constant included.

    Raises:
        UnsupportedModelError: a formula makes a column of others.
    """
    model = results.model
    names = [str(name) for name in model.exog_names]
    frame = getattr(model.data, "frame", None)
    if getattr(model, "formula", None) is not None and frame is not None:
        made = [n for n in names if n not in CONSTANTS and n not in frame.columns]
        if made:
            raise UnsupportedModelError(
                f"the formula of this model makes {made[0]!r} of other columns; make that column "
                "in the frame and in the query, and name it in the formula"
            )
    weights = np.asarray(results.params, np.float64)
    if weights.shape != (len(names),):
        raise UnsupportedModelError(
            f"this {type(model).__name__} has {weights.shape} parameters for {len(names)} columns; "
            "models with several equations or a dispersion are not covered"
        )
    return dict(zip(names, weights.tolist(), strict=True))


def schema(results: Any) -> Schema:
    """The columns of the design without its constant; named where it was fitted on a frame."""
    names = tuple(name for name in coefficients(results) if name not in CONSTANTS)
    is_named = type(results.model.data).__name__ != "ModelData"
    return Schema(names if is_named else None, len(names))


def identity(results: Any, frame: Frame) -> Outputs:
    """Least squares: the linear predictor is what it predicts."""
    return _linked(results, frame, None)


def regularised(results: Any, frame: Frame) -> Outputs:
    """fit_regularized of least squares."""
    if not type(results.model).__module__.startswith(_REGRESSION):
        raise UnsupportedModelError(
            f"fit_regularized of {type(results.model).__name__} is not covered; use its fit"
        )
    return identity(results, frame)


def exponential(results: Any, frame: Frame) -> Outputs:
    """Models of counts: the mean is exp of the linear predictor."""
    return _linked(results, frame, "exp")


def logistic(results: Any, frame: Frame) -> Outputs:
    """Logit: predict gives the probability of 1."""
    kind = type(results.model).__name__
    if kind != "Logit":
        raise UnsupportedModelError(f"statsmodels' {kind} is not covered; covered: Logit")
    return _linked(results, frame, "sigmoid")


def generalised(results: Any, frame: Frame) -> Outputs:
    """GLM: the inverse of its link."""
    link = type(results.model.family.link).__name__
    if link not in LINKS:
        raise UnsupportedModelError(
            f"the link {link} of this GLM is not covered; covered: {', '.join(LINKS)}"
        )
    return _linked(results, frame, LINKS[link])


def _linked(results: Any, frame: Frame, inverse: str | None) -> Outputs:
    builder = frame.builder
    score = _linear_predictor(builder, results, frame)
    label = score if inverse is None else builder.op(inverse, score)
    return Outputs({"label": label, "score": score})


def _linear_predictor(builder: Builder, results: Any, frame: Frame) -> Value:
    weights = coefficients(results)
    intercept = sum(weight for name, weight in weights.items() if name in CONSTANTS)
    slopes = [weight for name, weight in weights.items() if name not in CONSTANTS]
    if not slopes:
        raise UnsupportedModelError("this model has a constant and reads no columns")
    columns = np.array(slopes).reshape(-1, 1)
    return builder.linear(frame.matrix(), columns, np.array([intercept]))


_DISCRETE = "statsmodels.discrete.discrete_model"

IMPORTERS: Mapping[str, Callable[[Any, Frame], Outputs]] = MappingProxyType(
    {
        f"{_REGRESSION}.RegressionResultsWrapper": identity,
        f"{_REGRESSION}.OLSResults": identity,
        f"{_REGRESSION}.RegressionResults": identity,
        "statsmodels.base.elastic_net.RegularizedResultsWrapper": regularised,
        f"{_DISCRETE}.BinaryResultsWrapper": logistic,
        f"{_DISCRETE}.LogitResults": logistic,
        f"{_DISCRETE}.PoissonResultsWrapper": exponential,
        f"{_DISCRETE}.PoissonResults": exponential,
        "statsmodels.genmod.generalized_linear_model.GLMResultsWrapper": generalised,
        "statsmodels.genmod.generalized_linear_model.GLMResults": generalised,
    }
)

SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(dict.fromkeys(IMPORTERS, schema))
