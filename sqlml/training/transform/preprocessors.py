"""BigQuery's preprocessing functions in TRANSFORM (...), compiled to row expressions.

Values that depend on all rows are computed once over the fitted rows and written into the
expression, so that training and scoring cannot differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from sqlml.dialects.duckdb import DUCKDB, builtin
from sqlml.dialects.type_names import NUMBERS
from sqlml.errors import ConfigError, ParseError
from sqlml.planner.syntax.preprocessing import (
    MAX_CATEGORIES,
    ROW_FUNCTIONS,
    build_bin_name,
    clip_to_unit,
    format_double,
    pick,
)

_SUM_BITS = 125
"""Bits of a sum in a HUGEINT."""

AggregateReader = Callable[[str], tuple[Any, ...]]
"""A function from the SQL of aggregates to their values."""


def compute_exact_moments(ask: AggregateReader, column: str) -> tuple[float, float]:
    """Return the mean and the sample standard deviation of a DOUBLE `column`.

    If the column has no values or an infinite value, both are 0. The numbers are shifted, scaled by
    a power of two, rounded to 128-bit integers and added exactly, so the row order does not matter.
    """
    call = DUCKDB.call
    min_value, max_value, count = ask(", ".join(call(f, column) for f in ("min", "max", "count")))
    if not count or not (math.isfinite(min_value) and math.isfinite(max_value)):
        return 0.0, 0.0
    midpoint = min_value / 2 + max_value / 2
    half_range = max(max_value - midpoint, midpoint - min_value)
    if half_range == 0:
        return float(min_value), 0.0
    exponent = math.frexp(half_range)[1]  # Scales the values into the range from -1 to 1.
    shifted_column = call("-", column, format_double(midpoint))
    normalized = call("*", shifted_column, format_double(2.0 ** -max(min(exponent, 1000), -1000)))
    bits = _SUM_BITS - count.bit_length()
    values = normalized, call("*", normalized, normalized)
    scaled_columns = [call("*", value, format_double(2.0**bits)) for value in values]
    total, squares = ask(", ".join(call("sum", f"CAST({v} AS HUGEINT)") for v in scaled_columns))
    mean, square = (Fraction(int(value_sum), count * 2**bits) for value_sum in (total, squares))
    scale = Fraction(2) ** max(min(exponent, 1000), -1000)
    spread = max(square - mean * mean, Fraction(0)) * Fraction(count, max(count - 1, 1))
    return float(Fraction(midpoint) + mean * scale), math.sqrt(spread) * float(scale)


@dataclass(frozen=True, slots=True)
class Arguments:
    """The checked arguments of a call.

    column: the stored expression of the first argument. shown: the first argument as messages show
    it. values: the values of the other arguments. ask: computes aggregates over the fitted rows.
    """

    name: str
    column: str
    type: str
    shown: str
    values: tuple[Any, ...]
    ask: AggregateReader

    def value(self, position: int, default: Any) -> Any:
        return pick(self.values, position, default)

    @property
    def number(self) -> str:
        return f"CAST({self.column} AS DOUBLE)"

    def find_categories(self) -> list[str]:
        histogram = _render("histogram", f"CAST({self.column} AS VARCHAR)")
        return self.find_most_frequent(f"{histogram} FILTER (WHERE {self.column} IS NOT NULL)")

    def find_list_categories(self) -> list[str]:
        texts = _render("list", f"CAST({self.column} AS VARCHAR[])")
        histogram = _render("list_aggregate", _render("flatten", texts), "'histogram'")
        return self.find_most_frequent(histogram)

    def find_most_frequent(self, histogram: str) -> list[str]:
        """Return the sorted most frequent strings of a histogram, within the call's limits."""
        limits = self.values[self.name == "ml_one_hot_encoder" :]
        max_categories, min_frequency = pick(limits, 0, MAX_CATEGORIES), pick(limits, 1, 1)
        (counts,) = self.ask(histogram)
        ranked = sorted((-n, text) for text, n in (counts or {}).items() if n >= min_frequency)
        return sorted(text for _, text in ranked[:max_categories])


def _render(name: str, *arguments: str) -> str:
    return f"{builtin(name)}({', '.join(arguments)})"


def _compile_scaling(call: Arguments, center: float, scale: float) -> str:
    """Compile (x - center) / scale. As in scikit-learn, a scale of 0 is replaced by 1."""
    if not (math.isfinite(center) and math.isfinite(scale)):
        raise ConfigError(
            f"{call.name} cannot scale {call.shown}, which has NaN, infinite or too large values; "
            f"turn them into NULL in the query, as in CASE WHEN isfinite({call.shown}) "
            f"THEN {call.shown} END"
        )
    centered = _render("-", call.number, format_double(center))
    return _render("/", centered, format_double(scale or 1.0))


def _compile_min_max_scaler(call: Arguments) -> str:
    min_value, max_value = call.ask(f"{_render('min', call.number)}, {_render('max', call.number)}")
    scale = (max_value or 0.0) - (min_value or 0.0)
    return clip_to_unit(_compile_scaling(call, min_value or 0.0, scale))


def _compile_max_abs_scaler(call: Arguments) -> str:
    (max_abs,) = call.ask(_render("max", _render("abs", call.number)))
    return _compile_scaling(call, 0.0, float(max_abs or 0.0))


def _compile_robust_scaler(call: Arguments) -> str:
    lower, upper = call.value(0, [25, 75])
    with_centering, with_scaling = call.value(1, True), call.value(2, True)
    levels = [lower / 100, 0.5, upper / 100]
    quantiles = _compute_quantiles(call, "quantile_cont", levels) or (0.0, 0.0, 0.0)
    low_quantile, median, high_quantile = quantiles
    scale = high_quantile - low_quantile if with_scaling else 1.0
    return _compile_scaling(call, median if with_centering else 0.0, scale)


def _compute_quantiles(call: Arguments, function: str, levels: Sequence[float]) -> Sequence[float]:
    level_list = f"[{', '.join(map(repr, levels))}]"
    (quantiles,) = call.ask(_render(function, call.number, level_list))
    return quantiles or ()


def _compile_imputer(call: Arguments) -> str:
    strategy = call.value(0, "mean")
    is_number = NUMBERS.fullmatch(call.type) is not None and call.type != "BOOLEAN"
    if strategy != "most_frequent" and not is_number:
        raise ParseError(
            f"{call.name} takes the {strategy} of numbers only, and {call.shown} has type "
            f"{call.type}: write ml_imputer({call.shown}, 'most_frequent') OVER ()"
        )
    function_name = {"mean": "count", "median": "median", "most_frequent": "mode"}[strategy]
    (fill_value,) = call.ask(_render(function_name, call.column))
    if strategy == "mean":
        fill_value = compute_exact_moments(call.ask, call.number)[0] if fill_value else None
    if fill_value is None:
        return call.column
    fill_text = DUCKDB.quote_string(str(fill_value))
    value_type = "DOUBLE" if is_number else call.type
    literal = fill_text if isinstance(fill_value, str) else f"CAST({fill_text} AS {value_type})"
    return f"COALESCE({call.column}, {literal})"


def _compile_quantile_bucketize(call: Arguments) -> str:
    bucket_count = call.value(0, 2)
    levels = [n / bucket_count for n in range(1, bucket_count)]
    quantiles = _compute_quantiles(call, "quantile_disc", levels)
    return build_bin_name(call.column, sorted(set(quantiles)))


def _compile_one_hot_encoder(call: Arguments) -> str:
    categories = DUCKDB.texts(call.find_categories())
    text = f"CAST({call.column} AS VARCHAR)"
    return f"CASE WHEN {_render('list_contains', categories, text)} THEN {text} END"


def _compile_label_encoder(call: Arguments) -> str:
    categories = DUCKDB.texts(call.find_categories())
    position = _render("list_position", categories, f"CAST({call.column} AS VARCHAR)")
    return f"COALESCE({position}, 0)"


def _compile_row_function(call: Arguments) -> str:
    return ROW_FUNCTIONS[call.name](call.column, call.values)


PREPROCESSORS: Mapping[str, Callable[[Arguments], str]] = {
    **dict.fromkeys(ROW_FUNCTIONS, _compile_row_function),
    "ml_standard_scaler": lambda call: _compile_scaling(
        call, *compute_exact_moments(call.ask, call.number)
    ),
    "ml_min_max_scaler": _compile_min_max_scaler,
    "ml_max_abs_scaler": _compile_max_abs_scaler,
    "ml_robust_scaler": _compile_robust_scaler,
    "ml_imputer": _compile_imputer,
    "ml_quantile_bucketize": _compile_quantile_bucketize,
    "ml_one_hot_encoder": _compile_one_hot_encoder,
    "ml_label_encoder": _compile_label_encoder,
}
"""Maps each function of one column to the function that compiles its calls."""


def compile_multi_hot(call: Arguments) -> dict[str, str]:
    """Map each frequent category to an expression that tests whether a list contains it."""
    texts = f"CAST({call.column} AS VARCHAR[])"
    categories = call.find_list_categories()
    if not categories:
        raise ConfigError(f"{call.name} finds no categories: all lists are empty")
    return {text: _render("list_contains", texts, DUCKDB.quote_string(text)) for text in categories}


def compile_dummies(call: Arguments) -> dict[str, str]:
    """Map each frequent category but the most frequent one to an expression that tests for it.

    If some fitted rows have no frequent category, "other" maps to a test for such a value.
    """
    categories = call.find_categories()
    if len(categories) < 2:
        raise ConfigError(f"{call.name} of {call.shown} finds no category besides the dropped one")
    text = f"CAST({call.column} AS VARCHAR)"
    (dropped,) = replace(call, values=(None, 1)).find_categories()
    tests = {
        category: f"{text} IS NOT DISTINCT FROM {DUCKDB.quote_string(category)}"
        for category in categories
        if category != dropped
    }
    is_other = f"{_render('list_contains', DUCKDB.texts(categories), text)} IS NOT TRUE"
    (other_count,) = call.ask(f"{_render('count', '*')} FILTER (WHERE {is_other})")
    return {**tests, "other": is_other} if other_count else tests
