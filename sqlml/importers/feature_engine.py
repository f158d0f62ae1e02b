"""Importers of feature_engine: encoders, imputers, cappers, and steps that drop columns.

Those of numbers are in `feature_engine_numbers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.calendar_parts import Moment
from sqlml.importers.category_encoders import encoded
from sqlml.importers.feature_engine_numbers import (
    changed,
    check_fitted,
    cyclical,
    discretiser,
    math_features,
    place,
    relative_features,
    transformer,
    tree_discretiser,
)
from sqlml.importers.frame import Frame, Outputs, Recurse, category_array
from sqlml.importers.model_checks import unfitted
from sqlml.ir.builder import Builder, Value


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


COMPOSITES: Mapping[str, Callable[[Any, Frame, Recurse], Frame | Outputs]] = MappingProxyType(
    {"feature_engine.discretisation.decision_tree.DecisionTreeDiscretiser": tree_discretiser}
)


# Importers of feature_engine's steps for dates and timestamps.


Part = Callable[[Builder, Moment], Value]

_UNIX_ORDINAL = 719_163
"""Python's `toordinal` of 1970-01-01."""


def datetime_features(model: Any, frame: Frame) -> Frame:
    """`features_to_extract_` of each of `variables_`, behind all other columns.

    Where pandas has no number for a missing date, feature_engine takes what its comparisons make
    of it: 0, but 1 for weekend and 2 for semester; week and days_in_month are refused, as there.
    """
    _fitted(model, "variables_", "features_to_extract_")
    if model.variables == "index":
        raise UnsupportedModelError(
            "DatetimeFeatures reads the index of the frame, and rows in SQL have none; fit it on a "
            "column"
        )
    parts = [_others(model, frame, model.variables_)]
    for variable in map(str, model.variables_):
        moment = _moment(model, frame, variable)
        for feature in model.features_to_extract_:
            made = _FEATURES[feature](frame.builder, moment)
            if feature in _REFUSING:
                made = _required(frame.builder, made, variable, f"DatetimeFeatures ({feature})")
            parts.append(Frame.of(frame.builder, made, (f"{variable}_{feature}",)))
    return Frame.hstack(frame.builder, parts)


def datetime_subtraction(model: Any, frame: Frame) -> Frame:
    """Each of `variables_` minus each of `reference_`, in `output_unit`."""
    _fitted(model, "variables_", "reference_")
    b = frame.builder
    dates = [*map(str, model.variables_), *map(str, model.reference_)]
    moments = {name: _moment(model, frame, name) for name in dates}
    # numpy divides nanoseconds, as floats
    unit = np.timedelta64(1, model.output_unit).astype("timedelta64[ns]").astype(np.float64)
    parts = [_others(model, frame, dates)]
    names = [f"{v}_sub_{r}" for r in model.reference_ for v in model.variables_]
    pairs = [(v, r) for r in map(str, model.reference_) for v in map(str, model.variables_)]
    for name, (variable, reference) in zip(model.new_variables_names or names, pairs, strict=True):
        a, c = moments[variable].microseconds, moments[reference].microseconds
        nanoseconds = b.op("mul", b.op("sub", a, c), 1_000.0)
        parts.append(Frame.of(b, b.op("div", nanoseconds, float(unit)), (str(name),)))
    return Frame.hstack(b, parts)


def datetime_ordinal(model: Any, frame: Frame) -> Frame:
    """The number of the day of each of `variables_`, behind all other columns."""
    _fitted(model, "variables_")
    b = frame.builder
    start = getattr(model, "start_date_ordinal_", None)
    shift = _UNIX_ORDINAL if start is None else _UNIX_ORDINAL - int(start) + 1
    parts = [_others(model, frame, model.variables_)]
    for variable in map(str, model.variables_):
        made = b.op("add", _moment(model, frame, variable).days, float(shift))
        parts.append(Frame.of(b, made, (f"{variable}_ordinal",)))
    return Frame.hstack(b, parts)


def _moment(model: Any, frame: Frame, name: str) -> Moment:
    """A column of dates, without missing ones where the step refuses these."""
    if name not in frame.names:
        raise UnsupportedModelError(f"column {name!r} is not among those that this step gets")
    moments = frame.moments(frame.names.index(name))
    if model.missing_values == "raise":
        moments = _required(frame.builder, moments, name, type(model).__name__)
    return Moment(frame.builder, moments)


def _required(b: Builder, value: Value, name: str, step: str) -> Value:
    return b.op("require_finite", value, features=(name,), step=step, allow_nan=False)


def _others(model: Any, frame: Frame, dates: Any) -> Frame:
    """The columns that the step hands on."""
    gone = set(map(str, dates)) if model.drop_original else set()
    return frame.take([i for i, name in enumerate(frame.names) if name not in gone])


def _fitted(model: Any, *attributes: str) -> None:
    if not all(hasattr(model, name) for name in attributes):
        raise unfitted(model)


def _flag(condition: Callable[[Moment], Value]) -> Part:
    return lambda b, m: b.op("where", condition(m), 1.0, 0.0)


def _both(b: Builder, first: Value, second: Value) -> Value:
    return b.op("where", b.op("and", first, second), 1.0, 0.0)


_REFUSING = frozenset({"week", "days_in_month"})
"""Parts that feature_engine makes integers of, which pandas refuses of a missing date."""

_FEATURES: Mapping[str, Part] = MappingProxyType(
    {
        "month": lambda b, m: m.month,
        "quarter": lambda b, m: m.quarter,
        "semester": lambda b, m: b.op("where", b.op("le", m.month, 6.0), 1.0, 2.0),
        "year": lambda b, m: m.year,
        "week": lambda b, m: m.week,
        "day_of_week": lambda b, m: m.weekday,
        "day_of_month": lambda b, m: m.day,
        "day_of_year": lambda b, m: m.day_of_year,
        "weekend": lambda b, m: b.op("where", b.op("le", m.weekday, 4.0), 0.0, 1.0),
        "month_start": _flag(lambda m: m.is_month_start),
        "month_end": _flag(lambda m: m.is_month_end),
        "quarter_start": lambda b, m: _both(b, m.is_month_start, m.is_month(1, 4, 7, 10)),
        "quarter_end": lambda b, m: _both(b, m.is_month_end, m.is_month(3, 6, 9, 12)),
        "year_start": lambda b, m: _both(b, m.is_month_start, m.is_month(1)),
        "year_end": lambda b, m: _both(b, m.is_month_end, m.is_month(12)),
        "leap_year": _flag(lambda m: m.is_leap_year),
        "days_in_month": lambda b, m: m.days_in_month,
        "hour": lambda b, m: m.hour,
        "minute": lambda b, m: m.minute,
        "second": lambda b, m: m.second,
    }
)


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
        "feature_engine.datetime.datetime.DatetimeFeatures": datetime_features,
        "feature_engine.datetime.datetime_ordinal.DatetimeOrdinal": datetime_ordinal,
        "feature_engine.datetime.datetime_subtraction.DatetimeSubtraction": datetime_subtraction,
    }
)
