"""Importers of feature_engine: encoders, imputers, cappers, and steps that drop columns.

Those of numbers are in `feature_engine_numbers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlml.errors import UnsupportedModelError
from sqlml.importers.asked_encoder import encoded
from sqlml.importers.categories import category_array
from sqlml.importers.feature_engine_numbers import (
    cyclical,
    discretiser,
    math_features,
    relative_features,
    transformer,
    tree_discretiser,
)
from sqlml.importers.frame import Frame, Outputs, Recurse
from sqlml.importers.named_columns import changed, check_fitted, place
from sqlml.ir.builder import Value


def encoder(model: Any, frame: Frame) -> Frame:
    """Each column of `variables_` by its table in `encoder_dict_`."""
    check_fitted(model, "encoder_dict_")
    known = {
        name: category_array(list(table), str(name)) for name, table in model.encoder_dict_.items()
    }
    return encoded(model, frame, known)


def imputer(model: Any, frame: Frame) -> Frame:
    """A number of its own for what is missing in each column of `imputer_dict_`."""
    check_fitted(model, "imputer_dict_")
    b = frame.builder

    def filled(x: Value, value: float) -> Value:
        return b.op("where", b.op("isnan", x), value, x)

    return changed(frame, {str(n): float(v) for n, v in model.imputer_dict_.items()}, filled)


def categorical_imputer(model: Any, frame: Frame) -> Frame:
    """A text of its own for what is missing in each column of `imputer_dict_`."""
    check_fitted(model, "imputer_dict_")
    b, parts = frame.builder, []
    for i, name in enumerate(frame.names):
        value = model.imputer_dict_.get(name)
        if value is None:
            parts.append(frame.take([i]))
        elif isinstance(value, str):
            parts.append(Frame.of(b, b.op("fill", frame.strings(i), value=value), (name,)))
        else:
            x = frame.numbers(i)
            parts.append(Frame.of(b, b.op("where", b.op("isnan", x), float(value), x), (name,)))
    return Frame.hstack(b, parts)


def missing_indicator(model: Any, frame: Frame) -> Frame:
    """A column of 0 and 1 for each column of `variables_`, behind all others."""
    check_fitted(model, "variables_")
    b = frame.builder
    parts = [frame]
    for name in map(str, model.variables_):
        gone = b.op("cast", b.op("isnan", frame.numbers(place(frame, name))), dtype="float64")
        parts.append(Frame.of(b, gone, (f"{name}_na",)))
    return Frame.hstack(b, parts)


def capper(model: Any, frame: Frame) -> Frame:
    """No number above `right_tail_caps_` or below `left_tail_caps_`; missing ones are refused, as
    feature_engine does unless told otherwise."""
    check_fitted(model, "right_tail_caps_", "left_tail_caps_")
    if getattr(model, "add_indicators", False):
        raise UnsupportedModelError(
            f"add_indicators of {type(model).__name__} is not covered; fit it without"
        )
    b, step, refuses = frame.builder, type(model).__name__, model.missing_values == "raise"
    most, least = model.right_tail_caps_, model.left_tail_caps_

    def capped(x: Value, name: str) -> Value:
        if refuses:
            x = b.op("require_finite", x, features=(name,), step=step, allow_nan=False)
        if name in most:
            x = b.op("where", b.op("gt", x, float(most[name])), float(most[name]), x)
        if name in least:
            x = b.op("where", b.op("lt", x, float(least[name])), float(least[name]), x)
        return x

    return changed(frame, {str(name): str(name) for name in model.variables_}, capped)


def dropper(model: Any, frame: Frame) -> Frame:
    """The columns that are not in `features_to_drop_`."""
    check_fitted(model, "features_to_drop_")
    gone = {str(name) for name in model.features_to_drop_}
    return frame.take([i for i, name in enumerate(frame.names) if name not in gone])


def _paths(package: str, names: str) -> list[str]:
    return [f"feature_engine.{package}.{name}" for name in names.split()]


IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame]] = MappingProxyType(
    {
        **dict.fromkeys(
            _paths(
                "encoding",
                "count_frequency.CountFrequencyEncoder decision_tree.DecisionTreeEncoder "
                "mean_encoding.MeanEncoder one_hot.OneHotEncoder ordinal.OrdinalEncoder "
                "woe.WoEEncoder",
            ),
            encoder,
        ),
        **dict.fromkeys(
            _paths(
                "imputation",
                "arbitrary_number.ArbitraryNumberImputer end_tail.EndTailImputer "
                "mean_median.MeanMedianImputer",
            ),
            imputer,
        ),
        "feature_engine.imputation.categorical.CategoricalImputer": categorical_imputer,
        "feature_engine.imputation.missing_indicator.AddMissingIndicator": missing_indicator,
        **dict.fromkeys(
            _paths(
                "transformation",
                "arcsin.ArcsinTransformer arcsinh.ArcSinhTransformer boxcox.BoxCoxTransformer "
                "log.LogTransformer log.LogCpTransformer power.PowerTransformer "
                "reciprocal.ReciprocalTransformer yeojohnson.YeoJohnsonTransformer",
            ),
            transformer,
        ),
        "feature_engine.scaling.mean_normalization.MeanNormalizationScaler": transformer,
        **dict.fromkeys(
            _paths(
                "discretisation",
                "arbitrary.ArbitraryDiscretiser equal_frequency.EqualFrequencyDiscretiser "
                "equal_width.EqualWidthDiscretiser geometric_width.GeometricWidthDiscretiser",
            ),
            discretiser,
        ),
        "feature_engine.creation.cyclical_features.CyclicalFeatures": cyclical,
        "feature_engine.creation.math_features.MathFeatures": math_features,
        "feature_engine.creation.relative_features.RelativeFeatures": relative_features,
        **dict.fromkeys(
            _paths("outliers", "artbitrary.ArbitraryOutlierCapper winsorizer.Winsorizer"), capper
        ),
        **dict.fromkeys(
            _paths(
                "selection",
                "drop_constant_features.DropConstantFeatures "
                "drop_correlated_features.DropCorrelatedFeatures "
                "drop_duplicate_features.DropDuplicateFeatures drop_features.DropFeatures "
                "drop_psi_features.DropHighPSIFeatures information_value.SelectByInformationValue "
                "mrmr.MRMR probe_feature_selection.ProbeFeatureSelection "
                "recursive_feature_addition.RecursiveFeatureAddition "
                "recursive_feature_elimination.RecursiveFeatureElimination "
                "shuffle_features.SelectByShuffling "
                "single_feature_performance.SelectBySingleFeaturePerformance "
                "smart_correlation_selection.SmartCorrelatedSelection "
                "target_mean_selection.SelectByTargetMeanPerformance",
            ),
            dropper,
        ),
    }
)

COMPOSITES: Mapping[str, Callable[[Any, Frame, Recurse], Frame | Outputs]] = MappingProxyType(
    {"feature_engine.discretisation.decision_tree.DecisionTreeDiscretiser": tree_discretiser}
)
