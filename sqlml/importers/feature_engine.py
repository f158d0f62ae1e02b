"""Import feature_engine: encoders, imputers, cappers, selectors, and steps for numbers and dates.

Missing or infinite values and numbers outside a function's domain are errors, as in feature_engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from itertools import product
from operator import attrgetter
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.calendar_parts import PARTS, Moment
from sqlml.importers.category_encoders import apply_encoder
from sqlml.importers.frame import (
    Composite,
    Frame,
    Leaf,
    Outputs,
    Recurse,
    index_by_class,
    to_category_array,
)
from sqlml.importers.model_checks import make_unfitted_error
from sqlml.importers.sklearn.preprocessing.numeric_transforms import (
    apply_box_cox,
    apply_yeo_johnson,
)
from sqlml.ir.builder import Builder, Value


def _check_fitted(model: Any, *attributes: str) -> None:
    if not all(hasattr(model, name) for name in attributes):
        raise make_unfitted_error(model)


def _require_index(frame: Frame, name: str) -> int:
    if name not in frame.names:
        raise UnsupportedModelError(f"column {name!r} is not an input of this step")
    return frame.names.index(name)


def _transform_columns(
    frame: Frame, selected: Iterable[Any], transform: Callable[[Value, str], Value]
) -> Frame:
    """Replace the values of each column in `selected` with `transform(values, name)`."""
    selected_names = set(map(str, selected))
    frames = [
        Frame.from_value(frame.builder, transform(frame.read_numbers(i), name), (name,))
        if name in selected_names
        else frame.select([i])
        for i, name in enumerate(frame.names)
    ]
    return Frame.hstack(frame.builder, frames)


def _append_columns(
    frame: Frame, columns: Iterable[tuple[str, Value]], dropped: Iterable[Any] = ()
) -> Frame:
    """Remove the `dropped` columns, then append `columns`, which are pairs of name and value."""
    dropped_names = set(map(str, dropped))
    remaining = frame.select([i for i, name in enumerate(frame.names) if name not in dropped_names])
    added_frames = [Frame.from_value(frame.builder, value, (name,)) for name, value in columns]
    return Frame.hstack(frame.builder, [remaining, *added_frames])


def import_transformer(model: Any, frame: Frame) -> Frame:
    """Transform each column in `variables_` with the function of the model's class."""
    _check_fitted(model, "variables_")

    def transform(x: Value, name: str) -> Value:
        x = _require_finite(frame.builder, x, model, name)
        return _transform_column(frame.builder, x, model, name)

    return _transform_columns(frame, model.variables_, transform)


def _require_finite(builder: Builder, x: Value, model: Any, *names: str, part: str = "") -> Value:
    """Return the columns `names` with a check that raises an error for NaN and infinity."""
    step = type(model).__name__ + (part and f" ({part})")
    return builder.op("require_finite", x, features=names, step=step, allow_nan=False)


def _require_condition(
    builder: Builder, x: Value, is_valid: Value, model: Any, name: str, fault: str
) -> Value:
    """Return `x` with a check; if `is_valid` is false, scoring fails and reports `fault`."""
    step = type(model).__name__
    message = f"column {name!r} has {fault}, which {step} does not take; filter such rows"
    return builder.op("require", x, is_valid, message=message)


def _transform_column(builder: Builder, x: Value, model: Any, name: str) -> Value:
    op = builder.op
    match type(model).__name__:
        case "LogTransformer":
            x = _require_positive(builder, x, model, name)
            return op("log10" if model.base == "10" else "log", x)
        case "LogCpTransformer":
            x = op("add", x, _get_parameter(model.C_, name))
            x = _require_positive(builder, x, model, name, " with C added")
            return op("log" if model.base == "e" else "log10", x)
        case "PowerTransformer":
            return op("pow", x, float(model.exp))
        case "ReciprocalTransformer":
            x = _require_condition(builder, x, op("ne", x, 0.0), model, name, "0")
            return op("div", np.ones(1), x)
        case "ArcsinTransformer":
            is_inside = op("and", op("ge", x, 0.0), op("le", x, 1.0))
            x = _require_condition(builder, x, is_inside, model, name, "a number outside of 0 to 1")
            return op("arcsin", op("sqrt", x))
        case "ArcSinhTransformer":
            return op("arcsinh", op("div", op("sub", x, float(model.loc)), float(model.scale)))
        case "BoxCoxTransformer":
            x = _require_positive(builder, x, model, name)
            return apply_box_cox(builder, x, np.array([float(model.lambda_dict_[name])]))
        case "YeoJohnsonTransformer":
            return apply_yeo_johnson(builder, x, np.array([float(model.lambda_dict_[name])]))
    # The only other class is MeanNormalizationScaler.
    centred = op("sub", x, _get_parameter(model.mean_, name))
    return op("div", centred, _get_parameter(model.range_, name))


def _require_positive(builder: Builder, x: Value, model: Any, name: str, detail: str = "") -> Value:
    fault = f"a number that is not above 0{detail}"
    return _require_condition(builder, x, builder.op("gt", x, 0.0), model, name, fault)


def _get_parameter(parameter: Any, name: str) -> float:
    is_number = isinstance(parameter, int | float | np.number)
    return float(parameter if is_number else parameter[name])


def import_discretiser(model: Any, frame: Frame) -> Frame:
    """Replace each number in the columns of `binner_dict_` with an interval index."""
    _check_fitted(model, "binner_dict_")
    if model.return_boundaries:
        raise _make_interval_error(model, "return_boundaries=False")
    builder = frame.builder
    raises_outside = getattr(model, "errors", "ignore") == "raise"

    def replace_by_index(x: Value, name: str) -> Value:
        x = _require_finite(builder, x, model, name)
        index = _compute_interval_index(builder, x, model.binner_dict_[name])
        if not raises_outside:
            return index
        is_inside = builder.op("not", builder.op("isnan", index))
        fault = "a number outside of all intervals"
        return _require_condition(builder, index, is_inside, model, name, fault)

    return _transform_columns(frame, model.variables_, replace_by_index)


def _compute_interval_index(builder: Builder, x: Value, interval_edges: Any) -> Value:
    """Return the index of each number's interval, or NaN without one, like pandas.cut."""
    op = builder.op
    edges = np.asarray(interval_edges, np.float64)
    offsets = np.array([0, edges.size], np.int64)
    position = op("search_sorted", x, edges=edges, offsets=offsets, side="left")
    position = op("where", op("eq", x, float(edges[0])), np.ones(1, np.int64), position)
    is_too_small = op("eq", position, np.zeros(1, np.int64))
    is_too_large = op("eq", position, np.array([edges.size], np.int64))
    is_outside = op("or", is_too_small, is_too_large)
    return op("where", is_outside, np.nan, op("sub", op("cast", position, dtype="float64"), 1.0))


def import_tree_discretiser(model: Any, frame: Frame, recurse: Recurse) -> Frame:
    """Replace each column in `binner_dict_` with a tree's prediction or an interval index."""
    _check_fitted(model, "binner_dict_")
    if model.bin_output == "boundaries":
        raise _make_interval_error(model, "bin_output='prediction'")
    builder = frame.builder
    op = builder.op

    def replace_by_prediction(x: Value, name: str) -> Value:
        x = _require_finite(builder, x, model, name)
        if model.bin_output != "prediction":
            return _compute_interval_index(builder, x, model.binner_dict_[name])
        outputs = recurse(model.binner_dict_[name], Frame.from_value(builder, x, (name,)))
        assert isinstance(outputs, Outputs)
        if model.regression:
            prediction = outputs.values["label"]
        else:
            prediction = op("select", outputs.values["proba"], indices=np.array([1], np.int64))
        prediction = builder.cast(prediction, "float64")
        if model.precision is None:
            return prediction
        scale = float(10 ** int(model.precision))  # This is how numpy.round rounds.
        return op("div", op("rint", op("mul", prediction, scale)), scale)

    return _transform_columns(frame, model.variables_, replace_by_prediction)


def _make_interval_error(model: Any, advice: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{type(model).__name__} returns intervals as strings, which is not supported; fit it with "
        f"{advice}"
    )


def import_cyclical(model: Any, frame: Frame) -> Frame:
    """Append the sine and cosine of each column, whose period is in `max_values_`."""
    _check_fitted(model, "max_values_")
    op = frame.builder.op
    columns = list[tuple[str, Value]]()
    for name in map(str, model.variables_):
        x = _require_finite(
            frame.builder, frame.read_numbers(_require_index(frame, name)), model, name
        )
        angle = op("mul", x, 2.0 * math.pi / float(model.max_values_[name]))
        columns += [(f"{name}_sin", op("sin", angle)), (f"{name}_cos", op("cos", angle))]
    return _append_columns(frame, columns, model.variables_ if model.drop_original else ())


def import_relative_features(model: Any, frame: Frame) -> Frame:
    """Append one column per combination of an operation, a variable and a reference column."""
    _check_fitted(model, "feature_names_in_")
    op = frame.builder.op
    columns = list[tuple[str, Value]]()
    _check_functions("RelativeFeatures", model.func, _RELATIVE_OPERATORS)
    names = [*dict.fromkeys(map(str, [*model.variables, *model.reference]))]
    inputs = {name: frame.read_numbers(_require_index(frame, name)) for name in names}
    if model.missing_values == "raise":
        inputs = {n: _require_finite(frame.builder, x, model, n) for n, x in inputs.items()}
    references, variables = (list(map(str, group)) for group in (model.reference, model.variables))
    for function, reference, name in product(model.func, references, variables):
        divisor = inputs[reference]
        combined = op(_RELATIVE_OPERATORS[function], inputs[name], divisor)
        if function in _DIVISIONS and model.fill_value is None:
            is_valid = op("ne", divisor, 0.0)
            combined = _require_condition(frame.builder, combined, is_valid, model, reference, "0")
        elif function in _DIVISIONS:
            combined = op("where", op("eq", divisor, 0.0), float(model.fill_value), combined)
        columns.append((f"{name}_{function}_{reference}", combined))
    return _append_columns(frame, columns, names if model.drop_original else ())


def _check_functions(step: str, functions: Iterable[str], supported: Mapping[str, Any]) -> None:
    unsupported = [name for name in functions if name not in supported]
    if unsupported:
        raise UnsupportedModelError(
            f"{step} computes {unsupported[0]!r}, which is not supported; "
            f"supported: {', '.join(supported)}"
        )


_RELATIVE_OPERATORS: Mapping[str, str] = {
    **{name: name for name in ("add", "sub", "mul", "div", "mod", "pow")},
    "truediv": "div",
}
_DIVISIONS = frozenset({"div", "truediv", "mod"})


def import_math_features(model: Any, frame: Frame) -> Frame:
    """Append each aggregate in `func`, such as the mean, of the columns in `variables`."""
    _check_fitted(model, "feature_names_in_")
    builder = frame.builder
    functions = model.func if isinstance(model.func, list) else [model.func]
    _check_functions("MathFeatures", functions, _ROW_AGGREGATES)
    names = [*map(str, model.variables)]
    x = builder.concat([frame.read_numbers(_require_index(frame, name)) for name in names])
    if model.missing_values == "raise":
        x = _require_finite(builder, x, model, *names)
    new_names = model.new_variables_names or [f"{f}_{'_'.join(names)}" for f in functions]
    aggregates = _RowAggregates(builder.op, x)
    pairs = zip(new_names, functions, strict=True)
    columns = [(str(name), _ROW_AGGREGATES[function](aggregates)) for name, function in pairs]
    return _append_columns(frame, columns, names if model.drop_original else ())


class _RowAggregates:
    """Builds aggregates of the numbers in each row of `x`; missing values are ignored."""

    def __init__(self, op: Callable[..., Value], x: Value) -> None:
        self.op = op
        self.x = x
        self.is_missing = op("isnan", x)
        self.is_known = op("cast", op("not", self.is_missing), dtype="float64")
        self.count = op("sum", self.is_known, axis=1)

    def fill_missing(self, fill: float) -> Value:
        return self.op("where", self.is_missing, fill, self.x)

    def mask_below_count(self, value: Value, min_count: int = 1) -> Value:
        return self.op("where", self.op("lt", self.count, float(min_count)), np.nan, value)

    def build_sum(self) -> Value:
        """Return the sum, which is 0 if the row has no numbers."""
        return self.op("sum", self.fill_missing(0.0), axis=1)

    def build_mean(self) -> Value:
        return self.mask_below_count(self.op("div", self.build_sum(), self.count))

    def build_product(self) -> Value:
        """Return the product, which is 1 if the row has no numbers."""
        filled = self.fill_missing(1.0)
        indices = (np.array([i], np.int64) for i in range(self.x.type.width))
        columns = (self.op("select", filled, indices=index) for index in indices)
        return reduce(lambda left, right: self.op("mul", left, right), columns)

    def build_extreme(self, operator: str) -> Value:
        filled = self.fill_missing(math.inf if operator == "min" else -math.inf)
        return self.mask_below_count(self.op(operator, filled, axis=1))

    def build_variance(self) -> Value:
        deviation = self.op("sub", self.fill_missing(0.0), self.build_mean())
        total = self.op("sum", self.op("mul", self.op("square", deviation), self.is_known), axis=1)
        return self.mask_below_count(self.op("div", total, self.op("sub", self.count, 1.0)), 2)


_ROW_AGGREGATES: Mapping[str, Callable[[_RowAggregates], Value]] = {
    "sum": _RowAggregates.build_sum,
    "mean": _RowAggregates.build_mean,
    "prod": _RowAggregates.build_product,
    "min": lambda row: row.build_extreme("min"),
    "max": lambda row: row.build_extreme("max"),
    "var": _RowAggregates.build_variance,
    "std": lambda row: row.op("sqrt", row.build_variance()),
}


def import_encoder(model: Any, frame: Frame) -> Frame:
    """Apply an encoder of categories, for example an ordinal or a one-hot encoder."""
    _check_fitted(model, "encoder_dict_")
    tables = model.encoder_dict_.items()
    categories = {name: to_category_array(list(table), str(name)) for name, table in tables}
    return apply_encoder(model, frame, categories)


def import_imputer(model: Any, frame: Frame) -> Frame:
    """Fill missing values in each column of `imputer_dict_` with the number for the column."""
    _check_fitted(model, "imputer_dict_")
    fills = {str(name): number for name, number in model.imputer_dict_.items()}
    op = frame.builder.op
    return _transform_columns(frame, fills, lambda x, name: _fill_missing(op, x, fills[name]))


def _fill_missing(op: Callable[..., Value], x: Value, fill: Any) -> Value:
    return op("where", op("isnan", x), float(fill), x)


def import_categorical_imputer(model: Any, frame: Frame) -> Frame:
    """Fill missing values in each column of `imputer_dict_` with a string or a number."""
    _check_fitted(model, "imputer_dict_")
    frames = []
    for i, name in enumerate(frame.names):
        fill = model.imputer_dict_.get(name)
        if fill is None:
            frames.append(frame.select([i]))
            continue
        if isinstance(fill, str):
            filled = frame.builder.op("fill", frame.read_strings(i), value=fill)
        else:
            filled = _fill_missing(frame.builder.op, frame.read_numbers(i), fill)
        frames.append(Frame.from_value(frame.builder, filled, (name,)))
    return Frame.hstack(frame.builder, frames)


def import_missing_indicator(model: Any, frame: Frame) -> Frame:
    """Append a column for each column in `variables_`: 1 where the value is missing, else 0."""
    _check_fitted(model, "variables_")
    columns = list[tuple[str, Value]]()
    for name in map(str, model.variables_):
        is_missing = frame.builder.op("isnan", frame.read_numbers(_require_index(frame, name)))
        columns.append((f"{name}_na", frame.builder.cast(is_missing, "float64")))
    return _append_columns(frame, columns)


def import_capper(model: Any, frame: Frame) -> Frame:
    """Clip each column in `variables_` to `left_tail_caps_` and `right_tail_caps_`."""
    _check_fitted(model, "right_tail_caps_", "left_tail_caps_")
    if getattr(model, "add_indicators", False):
        raise UnsupportedModelError(
            f"add_indicators of {type(model).__name__} is not supported; fit it without that option"
        )
    builder = frame.builder

    def cap(x: Value, name: str) -> Value:
        if model.missing_values == "raise":
            x = _require_finite(builder, x, model, name)
        for comparison, caps in (("gt", model.right_tail_caps_), ("lt", model.left_tail_caps_)):
            if name in caps:
                limit = float(caps[name])
                x = builder.op("where", builder.op(comparison, x, limit), limit, x)
        return x

    return _transform_columns(frame, model.variables_, cap)


def import_selector(model: Any, frame: Frame) -> Frame:
    _check_fitted(model, "features_to_drop_")
    dropped = {str(name) for name in model.features_to_drop_}
    return frame.select([i for i, name in enumerate(frame.names) if name not in dropped])


_UNIX_ORDINAL = 719_163
"""The value of `datetime.date(1970, 1, 1).toordinal()`."""


def import_datetime_features(model: Any, frame: Frame) -> Frame:
    """Append each feature in `features_to_extract_`, such as month, for each date column.

    For a missing date, weekend is 1, semester is 2 and the other flags are 0, as in pandas. The
    features week and days_in_month raise an error while scoring.
    """
    _check_fitted(model, "variables_", "features_to_extract_")
    if model.variables == "index":
        raise UnsupportedModelError(
            "DatetimeFeatures reads the index of the frame, but rows in SQL have no index; fit it "
            "on a column"
        )
    columns: list[tuple[str, Value]] = []
    for variable in map(str, model.variables_):
        moment = _read_moment(model, frame, variable)
        for feature in model.features_to_extract_:
            part = _DATETIME_FEATURES[feature](moment)
            if feature in _DATE_REQUIRED:
                part = _require_finite(frame.builder, part, model, variable, part=feature)
            columns.append((f"{variable}_{feature}", part))
    return _append_columns(frame, columns, model.variables_ if model.drop_original else ())


def import_datetime_subtraction(model: Any, frame: Frame) -> Frame:
    """Append the time from each date in `reference_` to each date in `variables_`."""
    _check_fitted(model, "variables_", "reference_")
    date_names = [*map(str, model.variables_), *map(str, model.reference_)]
    moments = {name: _read_moment(model, frame, name) for name in date_names}
    # Like numpy, divide nanoseconds as floats.
    unit = np.timedelta64(1, model.output_unit).astype("timedelta64[ns]").astype(np.float64)
    pairs = [(v, r) for r in map(str, model.reference_) for v in map(str, model.variables_)]
    names = model.new_variables_names or [f"{v}_sub_{r}" for v, r in pairs]
    columns = []
    for name, (variable, reference) in zip(names, pairs, strict=True):
        start, end = moments[reference].microseconds, moments[variable].microseconds
        nanoseconds = frame.builder.op("mul", frame.builder.op("sub", end, start), 1_000.0)
        columns.append((str(name), frame.builder.op("div", nanoseconds, float(unit))))
    return _append_columns(frame, columns, date_names if model.drop_original else ())


def import_datetime_ordinal(model: Any, frame: Frame) -> Frame:
    """Append the number of days since the day before the start date, by default 0001-01-01."""
    _check_fitted(model, "variables_")
    columns = list[tuple[str, Value]]()
    start = getattr(model, "start_date_ordinal_", None)
    shift = _UNIX_ORDINAL if start is None else _UNIX_ORDINAL - int(start) + 1
    for variable in map(str, model.variables_):
        days = _read_moment(model, frame, variable).days
        columns.append((f"{variable}_ordinal", frame.builder.op("add", days, float(shift))))
    return _append_columns(frame, columns, model.variables_ if model.drop_original else ())


def _read_moment(model: Any, frame: Frame, name: str) -> Moment:
    moments = frame.read_moments(_require_index(frame, name))
    if model.missing_values == "raise":
        moments = _require_finite(frame.builder, moments, model, name)
    return Moment(frame.builder, moments)


def _flag_in_months(moment: Moment, is_edge: Value, *months: int) -> Value:
    return moment.to_number(moment.builder.op("and", is_edge, moment.build_is_month(*months)))


_DATE_REQUIRED = frozenset({"week", "days_in_month"})
"""The features that feature_engine converts to integers, which pandas rejects for NaT."""

_SAME_IN_SQL = ("month", "quarter", "year", "week", "hour", "minute", "second")

_DATETIME_FEATURES: Mapping[str, Callable[[Moment], Value]] = {
    **{name: PARTS[name] for name in _SAME_IN_SQL},
    **{name: attrgetter(name) for name in ("day_of_year", "days_in_month")},
    "semester": lambda m: m.builder.op("where", m.builder.op("le", m.month, 6.0), 1.0, 2.0),
    "day_of_week": attrgetter("weekday"),
    "day_of_month": attrgetter("day"),
    "weekend": lambda m: m.builder.op("where", m.builder.op("le", m.weekday, 4.0), 0.0, 1.0),
    "month_start": lambda m: m.to_number(m.is_month_start),
    "month_end": lambda m: m.to_number(m.is_month_end),
    "quarter_start": lambda m: _flag_in_months(m, m.is_month_start, 1, 4, 7, 10),
    "quarter_end": lambda m: _flag_in_months(m, m.is_month_end, 3, 6, 9, 12),
    "year_start": lambda m: _flag_in_months(m, m.is_month_start, 1),
    "year_end": lambda m: _flag_in_months(m, m.is_month_end, 12),
    "leap_year": lambda m: m.to_number(m.is_leap_year),
}

_CLASSES: Mapping[Leaf, str] = {
    import_encoder: (
        "encoding.count_frequency.CountFrequencyEncoder "
        "encoding.decision_tree.DecisionTreeEncoder encoding.mean_encoding.MeanEncoder "
        "encoding.one_hot.OneHotEncoder encoding.ordinal.OrdinalEncoder encoding.woe.WoEEncoder"
    ),
    import_imputer: (
        "imputation.arbitrary_number.ArbitraryNumberImputer imputation.end_tail.EndTailImputer "
        "imputation.mean_median.MeanMedianImputer"
    ),
    import_categorical_imputer: "imputation.categorical.CategoricalImputer",
    import_missing_indicator: "imputation.missing_indicator.AddMissingIndicator",
    import_transformer: (
        "scaling.mean_normalization.MeanNormalizationScaler "
        "transformation.arcsin.ArcsinTransformer transformation.arcsinh.ArcSinhTransformer "
        "transformation.boxcox.BoxCoxTransformer transformation.log.LogCpTransformer "
        "LogTransformer transformation.power.PowerTransformer "
        "transformation.reciprocal.ReciprocalTransformer "
        "transformation.yeojohnson.YeoJohnsonTransformer"
    ),
    import_discretiser: (
        "discretisation.arbitrary.ArbitraryDiscretiser "
        "discretisation.equal_frequency.EqualFrequencyDiscretiser "
        "discretisation.equal_width.EqualWidthDiscretiser "
        "discretisation.geometric_width.GeometricWidthDiscretiser"
    ),
    import_cyclical: "creation.cyclical_features.CyclicalFeatures",
    import_math_features: "creation.math_features.MathFeatures",
    import_relative_features: "creation.relative_features.RelativeFeatures",
    import_capper: "outliers.artbitrary.ArbitraryOutlierCapper outliers.winsorizer.Winsorizer",
    import_selector: (
        "selection.drop_constant_features.DropConstantFeatures "
        "selection.drop_correlated_features.DropCorrelatedFeatures "
        "selection.drop_duplicate_features.DropDuplicateFeatures "
        "selection.drop_features.DropFeatures selection.drop_psi_features.DropHighPSIFeatures "
        "selection.information_value.SelectByInformationValue selection.mrmr.MRMR "
        "selection.probe_feature_selection.ProbeFeatureSelection "
        "selection.recursive_feature_addition.RecursiveFeatureAddition "
        "selection.recursive_feature_elimination.RecursiveFeatureElimination "
        "selection.shuffle_features.SelectByShuffling "
        "selection.single_feature_performance.SelectBySingleFeaturePerformance "
        "selection.smart_correlation_selection.SmartCorrelatedSelection "
        "selection.target_mean_selection.SelectByTargetMeanPerformance"
    ),
    import_datetime_features: "datetime.datetime.DatetimeFeatures",
    import_datetime_ordinal: "datetime.datetime_ordinal.DatetimeOrdinal",
    import_datetime_subtraction: "datetime.datetime_subtraction.DatetimeSubtraction",
}

IMPORTERS: Mapping[str, Leaf] = index_by_class("feature_engine", _CLASSES)
COMPOSITES: Mapping[str, Composite] = {
    "feature_engine.discretisation.decision_tree.DecisionTreeDiscretiser": import_tree_discretiser
}
