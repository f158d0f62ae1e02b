"""Import feature_engine's transformers of numbers, discretisers, and creators of features.

Errors are the same as there: for missing or infinite values, unless the step is set to ignore them,
and for numbers outside the domain of a function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse
from sqlml.importers.model_checks import explain_unfitted
from sqlml.importers.sklearn.preprocessing.numeric_transforms import box_cox, yeo_johnson
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array


def check_fitted(model: Any, *attributes: str) -> None:
    """Raise UnsupportedModelError unless the object has the attributes that `fit` sets."""
    if not all(hasattr(model, name) for name in attributes):
        raise explain_unfitted(model)


def find_column(frame: Frame, name: str) -> int:
    """Return the number of a column.

    Raises:
        UnsupportedModelError: the frame has no such column.
    """
    if name not in frame.names:
        raise UnsupportedModelError(f"column {name!r} is not among those that this step gets")
    return frame.names.index(name)


def change_columns(
    frame: Frame, chosen: Mapping[str, Any], change: Callable[[Value, Any], Value]
) -> Frame:
    """Apply `change` to each chosen column and its entry in `chosen`; others stay as they are."""
    b = frame.builder
    blocks = []
    for i, name in enumerate(frame.names):
        if name in chosen:
            value = change(frame.numbers(i), chosen[name])
            blocks.append(Frame.from_value(b, value, (name,)))
        else:
            blocks.append(frame.select([i]))
    return Frame.hstack(b, blocks)


def append_columns(
    frame: Frame, columns: Sequence[tuple[str, Value]], dropped: Collection[str] = ()
) -> Frame:
    """Append columns to those of a frame that are not dropped."""
    b = frame.builder
    remaining = frame.select([i for i, name in enumerate(frame.names) if name not in dropped])
    return Frame.hstack(
        b, [remaining, *(Frame.from_value(b, value, (name,)) for name, value in columns)]
    )


Change = Callable[[Builder, Value, Any, str], Value]
"""A builder, a column, the fitted object and the column's name -> the changed column."""


def import_transformer(model: Any, frame: Frame) -> Frame:
    """Apply the function of the transformer's class to each column of `variables_`."""
    check_fitted(model, "variables_")
    change = next(_CHANGES[c.__name__] for c in type(model).__mro__ if c.__name__ in _CHANGES)

    def change_column(x: Value, name: str) -> Value:
        return change(frame.builder, _require_finite(frame.builder, x, model, name), model, name)

    return change_columns(frame, {str(name): str(name) for name in model.variables_}, change_column)


def _require_finite(b: Builder, x: Value, model: Any, name: str) -> Value:
    step = type(model).__name__
    return b.op("require_finite", x, features=(name,), step=step, allow_nan=False)


def _require(b: Builder, x: Value, is_valid: Value, model: Any, name: str, what: str) -> Value:
    message = (
        f"column {name!r} has {what}, which {type(model).__name__} does not take; filter such rows"
    )
    return b.op("require", x, is_valid, message=message)


def _require_positive(b: Builder, x: Value, model: Any, name: str, what: str) -> Value:
    return _require(b, x, b.op("gt", x, 0.0), model, name, what)


def _log(b: Builder, x: Value, model: Any, name: str) -> Value:
    x = _require_positive(b, x, model, name, "a number that is not above 0")
    return b.op("log10" if model.base == "10" else "log", x)


def _log_of_sum(b: Builder, x: Value, model: Any, name: str) -> Value:
    added = b.op("add", x, _find_parameter(model.C_, name))
    added = _require_positive(b, added, model, name, "a number that is not above 0 with C added")
    return b.op("log" if model.base == "e" else "log10", added)


def _reciprocal(b: Builder, x: Value, model: Any, name: str) -> Value:
    x = _require(b, x, b.op("ne", x, 0.0), model, name, "0")
    return b.op("div", np.ones(1), x)


def _arcsin(b: Builder, x: Value, model: Any, name: str) -> Value:
    inside = b.op("and", b.op("ge", x, 0.0), b.op("le", x, 1.0))
    x = _require(b, x, inside, model, name, "a number outside of 0 to 1")
    return b.op("arcsin", b.op("sqrt", x))


def _arcsinh(b: Builder, x: Value, model: Any, name: str) -> Value:
    moved = b.op("sub", x, float(model.loc))
    return b.op("arcsinh", b.op("div", moved, float(model.scale)))


def _box_cox(b: Builder, x: Value, model: Any, name: str) -> Value:
    x = _require_positive(b, x, model, name, "a number that is not above 0")
    return box_cox(b, x, np.array([float(model.lambda_dict_[name])]))


def _yeo_johnson(b: Builder, x: Value, model: Any, name: str) -> Value:
    return yeo_johnson(b, x, np.array([float(model.lambda_dict_[name])]))


def _normalize_mean(b: Builder, x: Value, model: Any, name: str) -> Value:
    centred = b.op("sub", x, _find_parameter(model.mean_, name))
    return b.op("div", centred, _find_parameter(model.range_, name))


_CHANGES: Mapping[str, Change] = MappingProxyType(
    {
        "LogTransformer": _log,
        "LogCpTransformer": _log_of_sum,
        "PowerTransformer": lambda b, x, model, name: b.op("pow", x, float(model.exp)),
        "ReciprocalTransformer": _reciprocal,
        "ArcsinTransformer": _arcsin,
        "ArcSinhTransformer": _arcsinh,
        "BoxCoxTransformer": _box_cox,
        "YeoJohnsonTransformer": _yeo_johnson,
        "MeanNormalizationScaler": _normalize_mean,
    }
)


def _find_parameter(parameter: Any, name: str) -> float:
    """Return a parameter that is one number for all columns, or one per column."""
    return (
        float(parameter)
        if isinstance(parameter, int | float | np.number)
        else float(parameter[name])
    )


def import_discretiser(model: Any, frame: Frame) -> Frame:
    """Replace each column of `binner_dict_` by the number of its interval, like pandas.cut."""
    check_fitted(model, "binner_dict_")
    if model.return_boundaries:
        raise _explain_texts(model, "return_boundaries=False")
    b = frame.builder
    refuses = getattr(model, "errors", "ignore") == "raise"

    def change(x: Value, name: str) -> Value:
        x = _require_finite(b, x, model, name)
        interval = _find_interval(b, x, np.asarray(model.binner_dict_[name], np.float64))
        if not refuses:
            return interval
        inside = b.op("not", b.op("isnan", interval))
        return _require(b, interval, inside, model, name, "a number outside of all intervals")

    return change_columns(frame, {str(name): str(name) for name in model.variables_}, change)


def _find_interval(b: Builder, x: Value, edges: Array) -> Value:
    """Return the index of the interval (a, b] of each number, NaN outside; the first includes a."""
    offsets = np.array([0, edges.size], np.int64)
    below = b.op("search_sorted", x, edges=edges, offsets=offsets, side="left")
    below = b.op("where", b.op("eq", x, float(edges[0])), np.ones(1, np.int64), below)
    outside = b.op(
        "or",
        b.op("eq", below, np.zeros(1, np.int64)),
        b.op("eq", below, np.array([edges.size], np.int64)),
    )
    index = b.op("sub", b.op("cast", below, dtype="float64"), 1.0)
    return b.op("where", outside, np.nan, index)


def import_tree_discretiser(model: Any, frame: Frame, recurse: Recurse) -> Frame:
    """Replace each column of `binner_dict_` by its tree's prediction, or by its interval."""
    check_fitted(model, "binner_dict_")
    if model.bin_output == "boundaries":
        raise _explain_texts(model, "bin_output='prediction'")
    b = frame.builder

    def change(x: Value, name: str) -> Value:
        x, tree = _require_finite(b, x, model, name), model.binner_dict_[name]
        if model.bin_output != "prediction":
            return _find_interval(b, x, np.asarray(tree, np.float64))
        outputs = recurse(tree, Frame.from_value(b, x, (name,)))
        assert isinstance(outputs, Outputs)
        if model.regression:
            prediction = outputs.values["label"]
        else:
            prediction = b.op("select", outputs.values["proba"], indices=np.array([1], np.int64))
        prediction = b.cast(prediction, "float64")
        return (
            prediction if model.precision is None else _round(b, prediction, int(model.precision))
        )

    return change_columns(frame, {str(name): str(name) for name in model.variables_}, change)


def _round(b: Builder, x: Value, digits: int) -> Value:
    """Round like numpy.round."""
    scale = float(10**digits)
    return b.op("div", b.op("rint", b.op("mul", x, scale)), scale)


def _explain_texts(model: Any, instead: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{type(model).__name__} makes texts of intervals, which is not covered; fit it with "
        f"{instead}"
    )


def import_cyclical(model: Any, frame: Frame) -> Frame:
    """Append sine and cosine of each column of `variables_`, whose period is its maximum."""
    check_fitted(model, "max_values_")
    b, columns = frame.builder, list[tuple[str, Value]]()
    for name in map(str, model.variables_):
        x = _require_finite(b, frame.numbers(find_column(frame, name)), model, name)
        angle = b.op("mul", x, 2.0 * math.pi / float(model.max_values_[name]))
        columns += [(f"{name}_sin", b.op("sin", angle)), (f"{name}_cos", b.op("cos", angle))]
    return append_columns(
        frame, columns, [*map(str, model.variables_)] if model.drop_original else ()
    )


def import_relative_features(model: Any, frame: Frame) -> Frame:
    """Combine each variable with each reference by addition, division, and so on."""
    check_fitted(model, "feature_names_in_")
    b, columns = frame.builder, list[tuple[str, Value]]()
    unknown = [name for name in model.func if name not in _RELATIVE_OPERATORS]
    if unknown:
        raise UnsupportedModelError(
            f"RelativeFeatures computes {unknown[0]!r}, which is not covered; covered: "
            f"{', '.join(_RELATIVE_OPERATORS)}"
        )
    names = [*dict.fromkeys(map(str, [*model.variables, *model.reference]))]
    x = {name: frame.numbers(find_column(frame, name)) for name in names}
    if model.missing_values == "raise":
        x = {name: _require_finite(b, value, model, name) for name, value in x.items()}
    for function in model.func:
        for reference in map(str, model.reference):
            for name in map(str, model.variables):
                by = x[reference]
                value = b.op(_RELATIVE_OPERATORS[function], x[name], by)
                if function in _DIVISIONS and model.fill_value is None:
                    value = _require(b, value, b.op("ne", by, 0.0), model, reference, "0")
                elif function in _DIVISIONS:
                    is_zero = b.op("eq", by, 0.0)
                    value = b.op("where", is_zero, float(model.fill_value), value)
                columns.append((f"{name}_{function}_{reference}", value))
    return append_columns(frame, columns, names if model.drop_original else ())


_RELATIVE_OPERATORS: Mapping[str, str] = MappingProxyType(
    {
        **{"add": "add", "sub": "sub", "mul": "mul", "div": "div", "truediv": "div"},
        **{"mod": "mod", "pow": "pow"},
    }
)
_DIVISIONS = frozenset({"div", "truediv", "mod"})


def import_math_features(model: Any, frame: Frame) -> Frame:
    """Aggregate the columns of `variables` by row: sums, means, and others."""
    check_fitted(model, "feature_names_in_")
    b = frame.builder
    functions = model.func if isinstance(model.func, list) else [model.func]
    unknown = [name for name in functions if name not in _ROW_AGGREGATES]
    if unknown:
        raise UnsupportedModelError(
            f"MathFeatures computes {unknown[0]!r}, which is not covered; covered: "
            f"{', '.join(_ROW_AGGREGATES)}"
        )
    names = [*map(str, model.variables)]
    x = b.concat([frame.numbers(find_column(frame, name)) for name in names])
    if model.missing_values == "raise":
        step = type(model).__name__
        x = b.op("require_finite", x, features=tuple(names), step=step, allow_nan=False)
    new = model.new_variables_names or [f"{f}_{'_'.join(names)}" for f in functions]
    row = _Row(b, x)
    columns = [(str(name), _ROW_AGGREGATES[f](row)) for name, f in zip(new, functions, strict=True)]
    return append_columns(frame, columns, names if model.drop_original else ())


class _Row:
    """Aggregates of the numbers in a row, without missing ones."""

    def __init__(self, b: Builder, x: Value) -> None:
        self.b, self.x = b, x
        self.is_missing = b.op("isnan", x)
        is_present = b.op("cast", b.op("not", self.is_missing), dtype="float64")
        self.known, self.count = is_present, b.op("sum", is_present, axis=1)

    def filled(self, value: float) -> Value:
        """Return the numbers, with `value` for missing ones."""
        return self.b.op("where", self.is_missing, value, self.x)

    def where_known(self, value: Value, least: int = 1) -> Value:
        """Return NaN where fewer than `least` numbers are present."""
        few = self.b.op("lt", self.count, float(least))
        return self.b.op("where", few, np.nan, value)

    def total(self) -> Value:
        """Return the sum; 0 without numbers."""
        return self.b.op("sum", self.filled(0.0), axis=1)

    def mean(self) -> Value:
        """Return the mean."""
        return self.where_known(self.b.op("div", self.total(), self.count))

    def product(self) -> Value:
        """Return the product; 1 without numbers."""
        b, filled = self.b, self.filled(1.0)
        result = b.op("select", filled, indices=np.array([0], np.int64))
        for i in range(1, self.x.type.width):
            result = b.op("mul", result, b.op("select", filled, indices=np.array([i], np.int64)))
        return result

    def extreme(self, op: str) -> Value:
        """Return the minimum or the maximum."""
        filled = self.filled(math.inf if op == "min" else -math.inf)
        return self.where_known(self.b.op(op, filled, axis=1))

    def variance(self) -> Value:
        """Return the sample variance."""
        b = self.b
        away = b.op("sub", self.filled(0.0), self.mean())
        squares = b.op("mul", b.op("square", away), self.known)
        total = b.op("sum", squares, axis=1)
        return self.where_known(b.op("div", total, b.op("sub", self.count, 1.0)), 2)


_ROW_AGGREGATES: Mapping[str, Callable[[_Row], Value]] = MappingProxyType(
    {
        "sum": _Row.total,
        "mean": _Row.mean,
        "prod": _Row.product,
        "min": lambda row: row.extreme("min"),
        "max": lambda row: row.extreme("max"),
        "var": _Row.variance,
        "std": lambda row: row.b.op("sqrt", row.variance()),
    }
)
