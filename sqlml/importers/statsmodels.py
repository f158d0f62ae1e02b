"""Import the results of statsmodels' linear models: OLS, WLS, GLS, GLM, Logit, Poisson, ...

`label` is the mean that their `predict` returns, and `score` the linear predictor before the link.
The constant column of `add_constant` or a formula becomes the intercept. `formula.py` computes the
columns of formulas.
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
"""The names of the column of ones in add_constant and formulas."""

Inverse = Callable[[Builder, Value], Value]


def _apply(op: str) -> Inverse:
    return lambda b, x: b.op(op, x)


def _doubly_exponential(b: Builder, x: Value, sign: float) -> Value:
    """Return exp(-exp(sign * x))."""
    return b.op("exp", b.op("neg", b.op("exp", x if sign > 0 else b.op("neg", x))))


LINKS: Mapping[str, Inverse] = MappingProxyType(
    {
        "Identity": lambda b, x: x,
        "Log": _apply("exp"),
        "Logit": _apply("sigmoid"),
        "Probit": _apply("ndtr"),
        "InversePower": lambda b, x: b.op("div", np.ones(1), x),
        "InverseSquared": lambda b, x: b.op("div", np.ones(1), b.op("sqrt", x)),
        "Sqrt": _apply("square"),
        "LogC": lambda b, x: b.op("sub", np.ones(1), b.op("exp", x)),
        "CLogLog": lambda b, x: b.op("sub", np.ones(1), _doubly_exponential(b, x, 1.0)),
        "LogLog": lambda b, x: _doubly_exponential(b, x, -1.0),
    }
)
"""The inverse of each link of GLM, by class."""

BINARY: Mapping[str, str] = MappingProxyType({"Logit": "Logit", "Probit": "Probit"})
"""The link of each model of two classes."""


def coefficients(results: Any) -> dict[str, float]:
    """Return the weight of each column of the design, including the constant.

    Raises:
        UnsupportedModelError: a formula computes columns, but patsy did not parse it.
    """
    model = results.model
    names = [str(name) for name in model.exog_names]
    frame = getattr(model.data, "frame", None)
    if _has_formula(model) and frame is not None and design_of(model) is None:
        computed = [n for n in names if n not in CONSTANTS and n not in frame.columns]
        if computed:
            raise UnsupportedModelError(
                f"the formula of this model makes {computed[0]!r} of other columns, which is "
                "covered if patsy reads formulas: install it, and fit the model again"
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
    """Return the design of a model's formula; None without a formula that patsy has parsed.

    Raises:
        UnsupportedModelError: a part of the formula is not covered.
    """
    data = model.data
    info = getattr(data, "model_spec", None) or getattr(data, "design_info", None)
    path = f"{type(info).__module__}.{type(info).__qualname__}"
    frame = getattr(data, "frame", None)
    if not _has_formula(model) or path != "patsy.design_info.DesignInfo" or frame is None:
        return None
    is_boolean = {
        str(name): getattr(kind, "kind", "") == "b" for name, kind in frame.dtypes.items()
    }
    return FormulaDesign(info, is_boolean)


def schema(results: Any) -> Schema:
    """Return the columns that a formula reads, or those of the design without its constant.

    They have names if the model was fitted on a frame.
    """
    design = design_of(results.model)
    if design is not None:
        names = design.names()
        return Schema(names, len(names))
    names = tuple(name for name in coefficients(results) if name not in CONSTANTS)
    is_named = type(results.model.data).__name__ != "ModelData"
    return Schema(names if is_named else None, len(names))


def import_least_squares(results: Any, frame: Frame) -> Outputs:
    """Import least squares, which predicts the linear predictor."""
    return _apply_link(results, frame, LINKS["Identity"])


def import_regularized(results: Any, frame: Frame) -> Outputs:
    """Import the result of fit_regularized of least squares."""
    if not type(results.model).__module__.startswith(_REGRESSION):
        raise UnsupportedModelError(
            f"fit_regularized of {type(results.model).__name__} is not covered; use its fit"
        )
    return import_least_squares(results, frame)


def import_counts(results: Any, frame: Frame) -> Outputs:
    """Import a model of counts, whose mean is exp of the linear predictor."""
    return _apply_link(results, frame, LINKS["Log"])


def import_binary(results: Any, frame: Frame) -> Outputs:
    """Import Logit or Probit, whose predict returns the probability of 1."""
    kind = type(results.model).__name__
    if kind not in BINARY:
        raise UnsupportedModelError(
            f"statsmodels' {kind} is not covered; covered: {', '.join(BINARY)}"
        )
    return _apply_link(results, frame, LINKS[BINARY[kind]])


def import_glm(results: Any, frame: Frame) -> Outputs:
    """Import GLM, which applies the inverse of its link."""
    link = type(results.model.family.link).__name__
    if link not in LINKS:
        raise UnsupportedModelError(
            f"the link {link} of this GLM is not covered; covered: {', '.join(LINKS)}"
        )
    return _apply_link(results, frame, LINKS[link])


def _apply_link(results: Any, frame: Frame, inverse: Inverse) -> Outputs:
    score = _compute_predictor(frame.builder, results, frame)
    return Outputs({"label": inverse(frame.builder, score), "score": score})


def _compute_predictor(builder: Builder, results: Any, frame: Frame) -> Value:
    weights = coefficients(results)
    design = design_of(results.model)
    if design is not None:
        values, slopes, constant = design.compute_terms(frame, np.array([*weights.values()]))
        if not values:
            raise _explain_no_columns()
        columns = np.array(slopes).reshape(-1, 1)
        return builder.linear(builder.concat(values), columns, np.array([constant]))
    intercept = sum(weight for name, weight in weights.items() if name in CONSTANTS)
    slopes = [weight for name, weight in weights.items() if name not in CONSTANTS]
    if not slopes:
        raise _explain_no_columns()
    columns = np.array(slopes).reshape(-1, 1)
    return builder.linear(frame.matrix(), columns, np.array([intercept]))


def _explain_no_columns() -> UnsupportedModelError:
    return UnsupportedModelError("this model has a constant and reads no columns")


_DISCRETE = "statsmodels.discrete.discrete_model"

IMPORTERS: Mapping[str, Callable[[Any, Frame], Outputs]] = MappingProxyType(
    {
        f"{_REGRESSION}.RegressionResultsWrapper": import_least_squares,
        f"{_REGRESSION}.OLSResults": import_least_squares,
        f"{_REGRESSION}.RegressionResults": import_least_squares,
        "statsmodels.base.elastic_net.RegularizedResultsWrapper": import_regularized,
        f"{_DISCRETE}.BinaryResultsWrapper": import_binary,
        f"{_DISCRETE}.LogitResults": import_binary,
        f"{_DISCRETE}.ProbitResults": import_binary,
        f"{_DISCRETE}.PoissonResultsWrapper": import_counts,
        f"{_DISCRETE}.PoissonResults": import_counts,
        "statsmodels.genmod.generalized_linear_model.GLMResultsWrapper": import_glm,
        "statsmodels.genmod.generalized_linear_model.GLMResults": import_glm,
    }
)

SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(dict.fromkeys(IMPORTERS, schema))
