"""Importers of feature_engine: encoders, imputers, cappers, and steps that drop columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlml.errors import UnsupportedModelError
from sqlml.importers.asked_encoder import encoded
from sqlml.importers.categories import category_array
from sqlml.importers.frame import Frame
from sqlml.importers.unfitted import unfitted
from sqlml.ir.builder import Value


def encoder(model: Any, frame: Frame) -> Frame:
    """Each column of `variables_` by its table in `encoder_dict_`."""
    _fitted(model, "encoder_dict_")
    known = {
        name: category_array(list(table), str(name)) for name, table in model.encoder_dict_.items()
    }
    return encoded(model, frame, known)


def imputer(model: Any, frame: Frame) -> Frame:
    """A number of its own for what is missing in each column of `imputer_dict_`."""
    _fitted(model, "imputer_dict_")
    b = frame.builder

    def filled(x: Value, value: float) -> Value:
        return b.op("where", b.op("isnan", x), value, x)

    return _changed(frame, {str(n): float(v) for n, v in model.imputer_dict_.items()}, filled)


def missing_indicator(model: Any, frame: Frame) -> Frame:
    """A column of 0 and 1 for each column of `variables_`, behind all others."""
    _fitted(model, "variables_")
    b = frame.builder
    parts = [frame]
    for name in map(str, model.variables_):
        gone = b.op("cast", b.op("isnan", frame.numbers(_place(frame, name))), dtype="float64")
        parts.append(Frame.of(b, gone, (f"{name}_na",)))
    return Frame.hstack(b, parts)


def capper(model: Any, frame: Frame) -> Frame:
    """No number above `right_tail_caps_` or below `left_tail_caps_`; missing ones are refused, as
    feature_engine does unless told otherwise."""
    _fitted(model, "right_tail_caps_", "left_tail_caps_")
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

    return _changed(frame, {str(name): str(name) for name in model.variables_}, capped)


def dropper(model: Any, frame: Frame) -> Frame:
    """The columns that are not in `features_to_drop_`."""
    _fitted(model, "features_to_drop_")
    gone = {str(name) for name in model.features_to_drop_}
    return frame.take([i for i, name in enumerate(frame.names) if name not in gone])


def _fitted(model: Any, *attributes: str) -> None:
    if not all(hasattr(model, name) for name in attributes):
        raise unfitted(model)


def _place(frame: Frame, name: str) -> int:
    if name not in frame.names:
        raise UnsupportedModelError(f"column {name!r} is not among those that this step gets")
    return frame.names.index(name)


def _changed(
    frame: Frame, chosen: Mapping[str, Any], change: Callable[[Value, Any], Value]
) -> Frame:
    """Columns by name, each changed by what stands with its name; others as they are."""
    b = frame.builder
    parts = []
    for i, name in enumerate(frame.names):
        if name in chosen:
            made = change(frame.numbers(i), chosen[name])
            parts.append(Frame.of(b, made, (name,)))
        else:
            parts.append(frame.take([i]))
    return Frame.hstack(b, parts)


def _paths(package: str, names: str) -> list[str]:
    return [f"feature_engine.{package}.{name}" for name in names.split()]


IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame]] = MappingProxyType(
    {
        **dict.fromkeys(
            _paths(
                "encoding",
                "count_frequency.CountFrequencyEncoder mean_encoding.MeanEncoder "
                "one_hot.OneHotEncoder ordinal.OrdinalEncoder woe.WoEEncoder",
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
        "feature_engine.imputation.missing_indicator.AddMissingIndicator": missing_indicator,
        **dict.fromkeys(
            _paths("outliers", "artbitrary.ArbitraryOutlierCapper winsorizer.Winsorizer"), capper
        ),
        **dict.fromkeys(
            _paths(
                "selection",
                "drop_constant_features.DropConstantFeatures "
                "drop_correlated_features.DropCorrelatedFeatures "
                "drop_duplicate_features.DropDuplicateFeatures drop_features.DropFeatures "
                "smart_correlation_selection.SmartCorrelatedSelection",
            ),
            dropper,
        ),
    }
)
