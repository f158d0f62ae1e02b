"""Importers of feature_engine's transformers of numbers, discretisers, and makers of features.

What they refuse is refused: a value that is missing or infinite, unless they were told to ignore
it, and a number outside of what a function takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse
from sqlml.importers.model_checks import unfitted
from sqlml.importers.sklearn.preprocessing.numeric_transforms import box_cox, yeo_johnson
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

# Steps that change the columns that they name, and leave the others as they are.


def check_fitted(model: Any, *attributes: str) -> None:
    """Raise UnsupportedModelError unless the object has what `fit` gives it."""
    if not all(hasattr(model, name) for name in attributes):
        raise unfitted(model)


def place(frame: Frame, name: str) -> int:
    """Where a column is.

    Raises:
        UnsupportedModelError: nowhere.
    """
    if name not in frame.names:
        raise UnsupportedModelError(f"column {name!r} is not among those that this step gets")
    return frame.names.index(name)


def changed(
    frame: Frame, chosen: Mapping[str, Any], change: Callable[[Value, Any], Value]
) -> Frame:
    """Columns of numbers, each changed by what stands with its name; others as they are."""
    b = frame.builder
    parts = []
    for i, name in enumerate(frame.names):
        if name in chosen:
            made = change(frame.numbers(i), chosen[name])
            parts.append(Frame.of(b, made, (name,)))
        else:
            parts.append(frame.take([i]))
    return Frame.hstack(b, parts)


def beside(frame: Frame, made: Sequence[tuple[str, Value]], dropped: Collection[str] = ()) -> Frame:
    """The columns but some, and new ones behind them."""
    b = frame.builder
    kept = frame.take([i for i, name in enumerate(frame.names) if name not in dropped])
    return Frame.hstack(b, [kept, *(Frame.of(b, value, (name,)) for name, value in made)])


Change = Callable[[Builder, Value, Any, str], Value]
"""A builder, a column, the fitted object and the column's name -> the changed column."""


def transformer(model: Any, frame: Frame) -> Frame:
    """Each column of `variables_` by the function of its class."""
    check_fitted(model, "variables_")
    change = next(_CHANGES[c.__name__] for c in type(model).__mro__ if c.__name__ in _CHANGES)

    def one(x: Value, name: str) -> Value:
        return change(frame.builder, _finite(frame.builder, x, model, name), model, name)

    return changed(frame, {str(name): str(name) for name in model.variables_}, one)


def _finite(b: Builder, x: Value, model: Any, name: str) -> Value:
    step = type(model).__name__
    return b.op("require_finite", x, features=(name,), step=step, allow_nan=False)


def _need(b: Builder, x: Value, fine: Value, model: Any, name: str, what: str) -> Value:
    message = (
        f"column {name!r} has {what}, which {type(model).__name__} does not take; filter such rows"
    )
    return b.op("require", x, fine, message=message)


def _positive(b: Builder, x: Value, model: Any, name: str, what: str) -> Value:
    return _need(b, x, b.op("gt", x, 0.0), model, name, what)


def _log(b: Builder, x: Value, model: Any, name: str) -> Value:
    x = _positive(b, x, model, name, "a number that is not above 0")
    return b.op("log10" if model.base == "10" else "log", x)


def _log_of_sum(b: Builder, x: Value, model: Any, name: str) -> Value:
    added = b.op("add", x, _of_column(model.C_, name))
    added = _positive(b, added, model, name, "a number that is not above 0 with C added")
    return b.op("log" if model.base == "e" else "log10", added)


def _reciprocal(b: Builder, x: Value, model: Any, name: str) -> Value:
    x = _need(b, x, b.op("ne", x, 0.0), model, name, "0")
    return b.op("div", np.ones(1), x)


def _arcsin(b: Builder, x: Value, model: Any, name: str) -> Value:
    inside = b.op("and", b.op("ge", x, 0.0), b.op("le", x, 1.0))
    x = _need(b, x, inside, model, name, "a number outside of 0 to 1")
    return b.op("arcsin", b.op("sqrt", x))


def _arcsinh(b: Builder, x: Value, model: Any, name: str) -> Value:
    moved = b.op("sub", x, float(model.loc))
    return b.op("arcsinh", b.op("div", moved, float(model.scale)))


def _box_cox(b: Builder, x: Value, model: Any, name: str) -> Value:
    x = _positive(b, x, model, name, "a number that is not above 0")
    return box_cox(b, x, np.array([float(model.lambda_dict_[name])]))


def _yeo_johnson(b: Builder, x: Value, model: Any, name: str) -> Value:
    return yeo_johnson(b, x, np.array([float(model.lambda_dict_[name])]))


def _normalised(b: Builder, x: Value, model: Any, name: str) -> Value:
    centred = b.op("sub", x, _of_column(model.mean_, name))
    return b.op("div", centred, _of_column(model.range_, name))


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
        "MeanNormalizationScaler": _normalised,
    }
)


def _of_column(given: Any, name: str) -> float:
    """A number for all columns, or that of one."""
    return float(given) if isinstance(given, int | float | np.number) else float(given[name])


def discretiser(model: Any, frame: Frame) -> Frame:
    """The number of the interval that each column of `binner_dict_` falls into, as pandas.cut."""
    check_fitted(model, "binner_dict_")
    if model.return_boundaries:
        raise _texts(model, "return_boundaries=False")
    b = frame.builder
    refuses = getattr(model, "errors", "ignore") == "raise"

    def one(x: Value, name: str) -> Value:
        x = _finite(b, x, model, name)
        made = _interval(b, x, np.asarray(model.binner_dict_[name], np.float64))
        if not refuses:
            return made
        inside = b.op("not", b.op("isnan", made))
        return _need(b, made, inside, model, name, "a number outside of all intervals")

    return changed(frame, {str(name): str(name) for name in model.variables_}, one)


def _interval(b: Builder, x: Value, edges: Array) -> Value:
    """The place of the interval (a, b] between edges, the first with its a; NaN outside."""
    offsets = np.array([0, edges.size], np.int64)
    below = b.op("search_sorted", x, edges=edges, offsets=offsets, side="left")
    below = b.op("where", b.op("eq", x, float(edges[0])), np.ones(1, np.int64), below)
    outside = b.op(
        "or",
        b.op("eq", below, np.zeros(1, np.int64)),
        b.op("eq", below, np.array([edges.size], np.int64)),
    )
    place = b.op("sub", b.op("cast", below, dtype="float64"), 1.0)
    return b.op("where", outside, np.nan, place)


def tree_discretiser(model: Any, frame: Frame, recurse: Recurse) -> Frame:
    """What the tree of each column of `binner_dict_` predicts, or which interval that is."""
    check_fitted(model, "binner_dict_")
    if model.bin_output == "boundaries":
        raise _texts(model, "bin_output='prediction'")
    b = frame.builder

    def one(x: Value, name: str) -> Value:
        x, own = _finite(b, x, model, name), model.binner_dict_[name]
        if model.bin_output != "prediction":
            return _interval(b, x, np.asarray(own, np.float64))
        told = recurse(own, Frame.of(b, x, (name,)))
        assert isinstance(told, Outputs)
        if model.regression:
            made = told.values["label"]
        else:
            made = b.op("select", told.values["proba"], indices=np.array([1], np.int64))
        made = b.cast(made, "float64")
        return made if model.precision is None else _rounded(b, made, int(model.precision))

    return changed(frame, {str(name): str(name) for name in model.variables_}, one)


def _rounded(b: Builder, x: Value, digits: int) -> Value:
    """numpy.round."""
    scale = float(10**digits)
    return b.op("div", b.op("rint", b.op("mul", x, scale)), scale)


def _texts(model: Any, instead: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{type(model).__name__} makes texts of intervals, which is not covered; fit it with "
        f"{instead}"
    )


def cyclical(model: Any, frame: Frame) -> Frame:
    """Sine and cosine of each column of `variables_`, whose period is its largest value."""
    check_fitted(model, "max_values_")
    b, made = frame.builder, list[tuple[str, Value]]()
    for name in map(str, model.variables_):
        x = _finite(b, frame.numbers(place(frame, name)), model, name)
        angle = b.op("mul", x, 2.0 * math.pi / float(model.max_values_[name]))
        made += [(f"{name}_sin", b.op("sin", angle)), (f"{name}_cos", b.op("cos", angle))]
    return beside(frame, made, [*map(str, model.variables_)] if model.drop_original else ())


def relative_features(model: Any, frame: Frame) -> Frame:
    """Each variable and each reference, added, divided, and so on."""
    check_fitted(model, "feature_names_in_")
    b, made = frame.builder, list[tuple[str, Value]]()
    unknown = [name for name in model.func if name not in _RELATIVE]
    if unknown:
        raise UnsupportedModelError(
            f"RelativeFeatures computes {unknown[0]!r}, which is not covered; covered: "
            f"{', '.join(_RELATIVE)}"
        )
    names = [*dict.fromkeys(map(str, [*model.variables, *model.reference]))]
    x = {name: frame.numbers(place(frame, name)) for name in names}
    if model.missing_values == "raise":
        x = {name: _finite(b, value, model, name) for name, value in x.items()}
    for function in model.func:
        for reference in map(str, model.reference):
            for name in map(str, model.variables):
                by = x[reference]
                value = b.op(_RELATIVE[function], x[name], by)
                if function in _DIVIDES and model.fill_value is None:
                    value = _need(b, value, b.op("ne", by, 0.0), model, reference, "0")
                elif function in _DIVIDES:
                    is_zero = b.op("eq", by, 0.0)
                    value = b.op("where", is_zero, float(model.fill_value), value)
                made.append((f"{name}_{function}_{reference}", value))
    return beside(frame, made, names if model.drop_original else ())


_RELATIVE: Mapping[str, str] = MappingProxyType(
    {
        **{"add": "add", "sub": "sub", "mul": "mul", "div": "div", "truediv": "div"},
        **{"mod": "mod", "pow": "pow"},
    }
)
_DIVIDES = frozenset({"div", "truediv", "mod"})


def math_features(model: Any, frame: Frame) -> Frame:
    """Sums, means and the like of the columns of `variables`, by rows."""
    check_fitted(model, "feature_names_in_")
    b = frame.builder
    functions = model.func if isinstance(model.func, list) else [model.func]
    unknown = [name for name in functions if name not in _OF_ROWS]
    if unknown:
        raise UnsupportedModelError(
            f"MathFeatures computes {unknown[0]!r}, which is not covered; covered: "
            f"{', '.join(_OF_ROWS)}"
        )
    names = [*map(str, model.variables)]
    x = b.beside([frame.numbers(place(frame, name)) for name in names])
    if model.missing_values == "raise":
        step = type(model).__name__
        x = b.op("require_finite", x, features=tuple(names), step=step, allow_nan=False)
    new = model.new_variables_names or [f"{f}_{'_'.join(names)}" for f in functions]
    row = _Row(b, x)
    made = [(str(name), _OF_ROWS[f](row)) for name, f in zip(new, functions, strict=True)]
    return beside(frame, made, names if model.drop_original else ())


class _Row:
    """Aggregates of a row's numbers, of which those that are missing do not count."""

    def __init__(self, b: Builder, x: Value) -> None:
        self.b, self.x = b, x
        self.gone = b.op("isnan", x)
        known = b.op("cast", b.op("not", self.gone), dtype="float64")
        self.known, self.count = known, b.op("sum", known, axis=1)

    def filled(self, value: float) -> Value:
        """The numbers, with `value` for those that are missing."""
        return self.b.op("where", self.gone, value, self.x)

    def where_known(self, value: Value, least: int = 1) -> Value:
        """NaN where fewer numbers are known."""
        few = self.b.op("lt", self.count, float(least))
        return self.b.op("where", few, np.nan, value)

    def total(self) -> Value:
        """The sum; 0 of none."""
        return self.b.op("sum", self.filled(0.0), axis=1)

    def mean(self) -> Value:
        """The mean."""
        return self.where_known(self.b.op("div", self.total(), self.count))

    def product(self) -> Value:
        """The product; 1 of none."""
        b, filled = self.b, self.filled(1.0)
        made = b.op("select", filled, indices=np.array([0], np.int64))
        for i in range(1, self.x.type.width):
            made = b.op("mul", made, b.op("select", filled, indices=np.array([i], np.int64)))
        return made

    def extreme(self, op: str) -> Value:
        """The least or the greatest."""
        filled = self.filled(math.inf if op == "min" else -math.inf)
        return self.where_known(self.b.op(op, filled, axis=1))

    def variance(self) -> Value:
        """The variance of a sample."""
        b = self.b
        away = b.op("sub", self.filled(0.0), self.mean())
        squares = b.op("mul", b.op("square", away), self.known)
        total = b.op("sum", squares, axis=1)
        return self.where_known(b.op("div", total, b.op("sub", self.count, 1.0)), 2)


_OF_ROWS: Mapping[str, Callable[[_Row], Value]] = MappingProxyType(
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
