"""Import feature_engine's encoders, imputers, cappers, selectors, and steps for dates.

Its steps for numbers are in `feature_engine_numbers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.calendar_parts import Moment
from sqlml.importers.category_encoders import apply_encoder
from sqlml.importers.feature_engine_numbers import (
    change_columns,
    check_fitted,
    find_column,
    import_cyclical,
    import_discretiser,
    import_math_features,
    import_relative_features,
    import_transformer,
    import_tree_discretiser,
)
from sqlml.importers.frame import Frame, Outputs, Recurse, to_category_array
from sqlml.importers.model_checks import explain_unfitted
from sqlml.ir.builder import Builder, Value


def import_encoder(model: Any, frame: Frame) -> Frame:
    """Encode each column of `variables_` by its table in `encoder_dict_`."""
    check_fitted(model, "encoder_dict_")
    categories = {
        name: to_category_array(list(table), str(name))
        for name, table in model.encoder_dict_.items()
    }
    return apply_encoder(model, frame, categories)


def import_imputer(model: Any, frame: Frame) -> Frame:
    """Replace missing values of each column of `imputer_dict_` by its number."""
    check_fitted(model, "imputer_dict_")
    b = frame.builder

    def fill(x: Value, value: float) -> Value:
        return b.op("where", b.op("isnan", x), value, x)

    return change_columns(frame, {str(n): float(v) for n, v in model.imputer_dict_.items()}, fill)


def import_categorical_imputer(model: Any, frame: Frame) -> Frame:
    """Replace missing values of each column of `imputer_dict_` by its text."""
    check_fitted(model, "imputer_dict_")
    b, blocks = frame.builder, []
    for i, name in enumerate(frame.names):
        value = model.imputer_dict_.get(name)
        if value is None:
            blocks.append(frame.select([i]))
        elif isinstance(value, str):
            blocks.append(Frame.from_value(b, b.op("fill", frame.strings(i), value=value), (name,)))
        else:
            x = frame.numbers(i)
            blocks.append(
                Frame.from_value(b, b.op("where", b.op("isnan", x), float(value), x), (name,))
            )
    return Frame.hstack(b, blocks)


def import_missing_indicator(model: Any, frame: Frame) -> Frame:
    """Append a column of 0 and 1 for each column of `variables_`."""
    check_fitted(model, "variables_")
    b = frame.builder
    blocks = [frame]
    for name in map(str, model.variables_):
        is_missing = b.op(
            "cast", b.op("isnan", frame.numbers(find_column(frame, name))), dtype="float64"
        )
        blocks.append(Frame.from_value(b, is_missing, (f"{name}_na",)))
    return Frame.hstack(b, blocks)


def import_capper(model: Any, frame: Frame) -> Frame:
    """Limit numbers to `right_tail_caps_` and `left_tail_caps_`.

    Missing values are errors, as in feature_engine, unless it is set to ignore them.
    """
    check_fitted(model, "right_tail_caps_", "left_tail_caps_")
    if getattr(model, "add_indicators", False):
        raise UnsupportedModelError(
            f"add_indicators of {type(model).__name__} is not covered; fit it without"
        )
    b, step, refuses = frame.builder, type(model).__name__, model.missing_values == "raise"
    most, least = model.right_tail_caps_, model.left_tail_caps_

    def cap(x: Value, name: str) -> Value:
        if refuses:
            x = b.op("require_finite", x, features=(name,), step=step, allow_nan=False)
        if name in most:
            x = b.op("where", b.op("gt", x, float(most[name])), float(most[name]), x)
        if name in least:
            x = b.op("where", b.op("lt", x, float(least[name])), float(least[name]), x)
        return x

    return change_columns(frame, {str(name): str(name) for name in model.variables_}, cap)


def import_selector(model: Any, frame: Frame) -> Frame:
    """Return the columns that are not in `features_to_drop_`."""
    check_fitted(model, "features_to_drop_")
    dropped = {str(name) for name in model.features_to_drop_}
    return frame.select([i for i, name in enumerate(frame.names) if name not in dropped])


def _paths(package: str, names: str) -> list[str]:
    return [f"feature_engine.{package}.{name}" for name in names.split()]


COMPOSITES: Mapping[str, Callable[[Any, Frame, Recurse], Frame | Outputs]] = MappingProxyType(
    {"feature_engine.discretisation.decision_tree.DecisionTreeDiscretiser": import_tree_discretiser}
)


Part = Callable[[Builder, Moment], Value]

_UNIX_ORDINAL = 719_163
"""The result of Python's `toordinal` for 1970-01-01."""


def import_datetime_features(model: Any, frame: Frame) -> Frame:
    """Append `features_to_extract_` of each of `variables_`.

    For missing dates, feature_engine returns what comparisons with NaT give: 0, but 1 for weekend
    and 2 for semester. For week and days_in_month missing dates are errors, as there.
    """
    _fitted(model, "variables_", "features_to_extract_")
    if model.variables == "index":
        raise UnsupportedModelError(
            "DatetimeFeatures reads the index of the frame, and rows in SQL have none; fit it on a "
            "column"
        )
    blocks = [_keep_others(model, frame, model.variables_)]
    for variable in map(str, model.variables_):
        moment = _read_moment(model, frame, variable)
        for feature in model.features_to_extract_:
            value = _FEATURES[feature](frame.builder, moment)
            if feature in _NOT_FOR_MISSING:
                value = _require_finite(
                    frame.builder, value, variable, f"DatetimeFeatures ({feature})"
                )
            blocks.append(Frame.from_value(frame.builder, value, (f"{variable}_{feature}",)))
    return Frame.hstack(frame.builder, blocks)


def import_datetime_subtraction(model: Any, frame: Frame) -> Frame:
    """Subtract each of `reference_` from each of `variables_`, in `output_unit`."""
    _fitted(model, "variables_", "reference_")
    b = frame.builder
    dates = [*map(str, model.variables_), *map(str, model.reference_)]
    moments = {name: _read_moment(model, frame, name) for name in dates}
    # numpy divides nanoseconds as floats.
    unit = np.timedelta64(1, model.output_unit).astype("timedelta64[ns]").astype(np.float64)
    blocks = [_keep_others(model, frame, dates)]
    names = [f"{v}_sub_{r}" for r in model.reference_ for v in model.variables_]
    pairs = [(v, r) for r in map(str, model.reference_) for v in map(str, model.variables_)]
    for name, (variable, reference) in zip(model.new_variables_names or names, pairs, strict=True):
        a, c = moments[variable].microseconds, moments[reference].microseconds
        nanoseconds = b.op("mul", b.op("sub", a, c), 1_000.0)
        blocks.append(Frame.from_value(b, b.op("div", nanoseconds, float(unit)), (str(name),)))
    return Frame.hstack(b, blocks)


def import_datetime_ordinal(model: Any, frame: Frame) -> Frame:
    """Append the number of the day of each of `variables_`."""
    _fitted(model, "variables_")
    b = frame.builder
    start = getattr(model, "start_date_ordinal_", None)
    shift = _UNIX_ORDINAL if start is None else _UNIX_ORDINAL - int(start) + 1
    blocks = [_keep_others(model, frame, model.variables_)]
    for variable in map(str, model.variables_):
        ordinal = b.op("add", _read_moment(model, frame, variable).days, float(shift))
        blocks.append(Frame.from_value(b, ordinal, (f"{variable}_ordinal",)))
    return Frame.hstack(b, blocks)


def _read_moment(model: Any, frame: Frame, name: str) -> Moment:
    """Return a column of dates; missing ones are errors if the step rejects them."""
    if name not in frame.names:
        raise UnsupportedModelError(f"column {name!r} is not among those that this step gets")
    moments = frame.moments(frame.names.index(name))
    if model.missing_values == "raise":
        moments = _require_finite(frame.builder, moments, name, type(model).__name__)
    return Moment(frame.builder, moments)


def _require_finite(b: Builder, value: Value, name: str, step: str) -> Value:
    return b.op("require_finite", value, features=(name,), step=step, allow_nan=False)


def _keep_others(model: Any, frame: Frame, dates: Any) -> Frame:
    dropped = set(map(str, dates)) if model.drop_original else set()
    return frame.select([i for i, name in enumerate(frame.names) if name not in dropped])


def _fitted(model: Any, *attributes: str) -> None:
    if not all(hasattr(model, name) for name in attributes):
        raise explain_unfitted(model)


def _to_flag(condition: Callable[[Moment], Value]) -> Part:
    return lambda b, m: b.op("where", condition(m), 1.0, 0.0)


def _both_flag(b: Builder, first: Value, second: Value) -> Value:
    return b.op("where", b.op("and", first, second), 1.0, 0.0)


_NOT_FOR_MISSING = frozenset({"week", "days_in_month"})
"""The features that feature_engine converts to integers, which pandas rejects for NaT."""

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
        "month_start": _to_flag(lambda m: m.is_month_start),
        "month_end": _to_flag(lambda m: m.is_month_end),
        "quarter_start": lambda b, m: _both_flag(b, m.is_month_start, m.is_month(1, 4, 7, 10)),
        "quarter_end": lambda b, m: _both_flag(b, m.is_month_end, m.is_month(3, 6, 9, 12)),
        "year_start": lambda b, m: _both_flag(b, m.is_month_start, m.is_month(1)),
        "year_end": lambda b, m: _both_flag(b, m.is_month_end, m.is_month(12)),
        "leap_year": _to_flag(lambda m: m.is_leap_year),
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
            import_encoder,
        ),
        **dict.fromkeys(
            _paths(
                "imputation",
                "arbitrary_number.ArbitraryNumberImputer end_tail.EndTailImputer "
                "mean_median.MeanMedianImputer",
            ),
            import_imputer,
        ),
        "feature_engine.imputation.categorical.CategoricalImputer": import_categorical_imputer,
        "feature_engine.imputation.missing_indicator.AddMissingIndicator": import_missing_indicator,
        **dict.fromkeys(
            _paths(
                "transformation",
                "arcsin.ArcsinTransformer arcsinh.ArcSinhTransformer boxcox.BoxCoxTransformer "
                "log.LogTransformer log.LogCpTransformer power.PowerTransformer "
                "reciprocal.ReciprocalTransformer yeojohnson.YeoJohnsonTransformer",
            ),
            import_transformer,
        ),
        "feature_engine.scaling.mean_normalization.MeanNormalizationScaler": import_transformer,
        **dict.fromkeys(
            _paths(
                "discretisation",
                "arbitrary.ArbitraryDiscretiser equal_frequency.EqualFrequencyDiscretiser "
                "equal_width.EqualWidthDiscretiser geometric_width.GeometricWidthDiscretiser",
            ),
            import_discretiser,
        ),
        "feature_engine.creation.cyclical_features.CyclicalFeatures": import_cyclical,
        "feature_engine.creation.math_features.MathFeatures": import_math_features,
        "feature_engine.creation.relative_features.RelativeFeatures": import_relative_features,
        **dict.fromkeys(
            _paths("outliers", "artbitrary.ArbitraryOutlierCapper winsorizer.Winsorizer"),
            import_capper,
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
            import_selector,
        ),
        "feature_engine.datetime.datetime.DatetimeFeatures": import_datetime_features,
        "feature_engine.datetime.datetime_ordinal.DatetimeOrdinal": import_datetime_ordinal,
        **dict.fromkeys(
            _paths("datetime", "datetime_subtraction.DatetimeSubtraction"),
            import_datetime_subtraction,
        ),
    }
)
