"""Import the results of statsmodels' linear models: OLS, WLS, GLS, GLM, Logit, Poisson, ...

`label` is the predicted mean, and `score` is the linear predictor before the link. The constant
column becomes the intercept. `expressions/formula.py` computes the columns of formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.expressions.formula import FormulaDesign
from sqlml.importers.frame import Frame, Leaf, Outputs, Schema, index_by_class
from sqlml.ir.builder import Builder, Value

_REGRESSION = "statsmodels.regression.linear_model"
CONSTANT_COLUMNS = frozenset({"const", "Intercept"})


def _exponentiate_twice(builder: Builder, x: Value) -> Value:
    return builder.op("exp", builder.op("neg", builder.op("exp", x)))


LINKS: Mapping[str, Callable[[Builder, Value], Value]] = {
    "Identity": lambda builder, x: x,
    "Log": lambda builder, x: builder.op("exp", x),
    "Logit": lambda builder, x: builder.op("sigmoid", x),
    "Probit": lambda builder, x: builder.op("ndtr", x),
    "InversePower": lambda builder, x: builder.op("div", np.ones(1), x),
    "InverseSquared": lambda builder, x: builder.op("div", np.ones(1), builder.op("sqrt", x)),
    "Sqrt": lambda builder, x: builder.op("square", x),
    "LogC": lambda builder, x: builder.op("sub", np.ones(1), builder.op("exp", x)),
    "CLogLog": lambda builder, x: builder.op("sub", np.ones(1), _exponentiate_twice(builder, x)),
    "LogLog": lambda builder, x: _exponentiate_twice(builder, builder.op("neg", x)),
}
"""Maps the class name of a GLM's link to a function that computes the inverse of the link."""

BINARY = ("Logit", "Probit")


def read_coefficients(results: Any) -> dict[str, float]:
    model = results.model
    names = [str(name) for name in model.exog_names]
    frame = getattr(model.data, "frame", None)
    if _has_formula(model) and frame is not None and find_design(model) is None:
        computed = [n for n in names if n not in CONSTANT_COLUMNS and n not in frame.columns]
        if computed:
            raise UnsupportedModelError(
                f"the formula of this model computes {computed[0]!r} from other columns, which "
                "is supported only with patsy: install it, and fit the model again"
            )
    weights = np.asarray(results.params, np.float64)
    if weights.shape != (len(names),):
        raise UnsupportedModelError(
            f"this {type(model).__name__} has {weights.shape} parameters for {len(names)} columns; "
            "models with several equations or a dispersion are not supported"
        )
    return dict(zip(names, weights.tolist(), strict=True))


def _has_formula(model: Any) -> bool:
    return getattr(model, "formula", None) is not None


def find_design(model: Any) -> FormulaDesign | None:
    """Return the design of a model's formula, or None if patsy did not parse a formula."""
    data = model.data
    design_info = getattr(data, "model_spec", None) or getattr(data, "design_info", None)
    class_path = f"{type(design_info).__module__}.{type(design_info).__qualname__}"
    frame = getattr(data, "frame", None)
    if not _has_formula(model) or class_path != "patsy.design_info.DesignInfo" or frame is None:
        return None
    columns = {str(n): getattr(dtype, "kind", "") == "b" for n, dtype in frame.dtypes.items()}
    return FormulaDesign(design_info, columns)


def read_schema(results: Any) -> Schema:
    """Return the columns that the formula or the design matrix reads."""
    design = find_design(results.model)
    if design is not None:
        names = design.list_columns()
        return Schema(names, len(names))
    names = tuple(name for name in read_coefficients(results) if name not in CONSTANT_COLUMNS)
    is_named = type(results.model.data).__name__ != "ModelData"
    return Schema(names if is_named else None, len(names))


def import_results(results: Any, frame: Frame) -> Outputs:
    inverse_link = LINKS[_read_link_name(results)]
    score = _compute_linear_predictor(frame.builder, results, frame)
    return Outputs({"label": inverse_link(frame.builder, score), "score": score})


def _read_link_name(results: Any) -> str:
    model = results.model
    model_name = type(model).__name__
    match _MODEL_KINDS[f"{type(results).__module__}.{type(results).__qualname__}"]:
        case "regularized" if not type(model).__module__.startswith(_REGRESSION):
            raise UnsupportedModelError(
                f"fit_regularized of {model_name} is not supported; use its fit"
            )
        case "counts":
            return "Log"
        case "binary" if model_name in BINARY:
            return model_name
        case "binary":
            raise UnsupportedModelError(
                f"statsmodels' {model_name} is not supported; supported: {', '.join(BINARY)}"
            )
        case "glm":
            link = type(model.family.link).__name__
            if link not in LINKS:
                raise UnsupportedModelError(
                    f"the link {link} of this GLM is not supported; supported: {', '.join(LINKS)}"
                )
            return link
    return "Identity"


def _compute_linear_predictor(builder: Builder, results: Any, frame: Frame) -> Value:
    weights = read_coefficients(results)
    design = find_design(results.model)
    if design is not None:
        values, slopes, constant = design.compute_terms(frame, np.array([*weights.values()]))
    else:
        constant = sum(weight for name, weight in weights.items() if name in CONSTANT_COLUMNS)
        slopes = [weight for name, weight in weights.items() if name not in CONSTANT_COLUMNS]
        values = [frame.matrix()] if slopes else []
    if not values:
        raise UnsupportedModelError("this model has only a constant and reads no columns")
    slope_column = np.array(slopes).reshape(-1, 1)
    return builder.linear(builder.concat(values), slope_column, np.array([constant]))


_MODEL_KINDS: Mapping[str, str] = index_by_class(
    "statsmodels",
    {
        "least squares": (
            "regression.linear_model.RegressionResultsWrapper OLSResults RegressionResults"
        ),
        "regularized": "base.elastic_net.RegularizedResultsWrapper",
        "binary": "discrete.discrete_model.BinaryResultsWrapper LogitResults ProbitResults",
        "counts": "discrete.discrete_model.PoissonResultsWrapper PoissonResults",
        "glm": "genmod.generalized_linear_model.GLMResultsWrapper GLMResults",
    },
)
"""Maps the class path of a model's results to the kind of the model."""

IMPORTERS: Mapping[str, Leaf] = dict.fromkeys(_MODEL_KINDS, import_results)

SCHEMAS: Mapping[str, Callable[[Any], Schema]] = dict.fromkeys(IMPORTERS, read_schema)
