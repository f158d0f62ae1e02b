"""BigQuery's preprocessing functions in TRANSFORM (...), compiled to row expressions.

Values that depend on all rows, such as a mean, are computed once over the fitted rows and written
into the expression, so that training and scoring cannot differ. Add a function to `PREPROCESSORS`,
and its signature to `FORMS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from types import MappingProxyType
from typing import Any

from sqlml.dialects.duckdb import DUCKDB, builtin
from sqlml.dialects.type_names import NUMBERS
from sqlml.errors import ConfigError, ParseError
from sqlml.training.transform.preprocessor_forms import shown_value

_BITS = 125
"""Bits of a sum in a HUGEINT."""

Ask = Callable[[str], tuple[Any, ...]]
"""Aggregates -> their values."""


def exact_moments(ask: Ask, column: str) -> tuple[float, float]:
    """Return the mean and the population standard deviation of a column; 0 without finite values.

    They do not depend on the order of rows, unlike sums of doubles by several threads. The numbers
    are shifted by the middle of their range, scaled by a power of two, rounded to 128-bit integers,
    and added exactly.

    Args:
        ask: is called twice.
        column: an expression of type DOUBLE.
    """
    call = DUCKDB.call
    least, most, count = ask(", ".join(call(f, column) for f in ("min", "max", "count")))
    if not count or not (math.isfinite(least) and math.isfinite(most)):
        return 0.0, 0.0
    middle = least / 2 + most / 2
    size = max(most - middle, middle - least)
    if size == 0:
        return float(least), 0.0
    power = math.frexp(size)[1]  # Scales the values into the range from -1 to 1.
    shifted = call("-", column, _double(middle))
    normalized = call("*", shifted, _double(2.0 ** -max(min(power, 1000), -1000)))
    bits = _BITS - count.bit_length()
    scaled = [
        call("*", value, _double(2.0**bits))
        for value in (normalized, call("*", normalized, normalized))
    ]
    total, squares = ask(", ".join(call("sum", f"CAST({v} AS HUGEINT)") for v in scaled))
    mean, square = (Fraction(int(total_of), count * 2**bits) for total_of in (total, squares))
    scale = Fraction(2) ** max(min(power, 1000), -1000)
    spread = max(square - mean * mean, Fraction(0))
    return float(Fraction(middle) + mean * scale), math.sqrt(spread) * float(scale)


MOST_VALUES = 1000
"""Default limit on the categories of an encoder."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The checked arguments of a call.

    name: of the function. column: its stored expression. type: of the column, in the engine. shown:
    the column in messages. values: of the other arguments, which are constant. ask: computes
    aggregates over the fitted rows.
    """

    name: str
    column: str
    type: str
    shown: str
    values: tuple[Any, ...]
    ask: Ask

    def value(self, position: int, default: Any) -> Any:
        """Return the argument at a position, from 0, or the default if it is missing or NULL."""
        value = self.values[position] if position < len(self.values) else None
        return default if value is None else value

    def number(self, aggregate: str) -> float:
        """Return an aggregate over the fitted rows, or 0 if it is NULL."""
        (value,) = self.ask(aggregate)
        return 0.0 if value is None else float(value)

    def categories(self) -> list[str]:
        """Return the most frequent values in alphabetical order.

        The arguments after the column are the most values, and their minimum number of rows.
        """
        most, least = self.value(0, MOST_VALUES), self.value(1, 1)
        counts = f"{builtin('histogram')}(CAST({self.column} AS VARCHAR))"
        (histogram,) = self.ask(f"{counts} FILTER (WHERE {self.column} IS NOT NULL)")
        frequent = [(n, text) for text, n in (histogram or {}).items() if n >= least]
        frequent.sort(key=lambda pair: (-pair[0], pair[1]))
        return sorted(text for _, text in frequent[:most])


def _call(name: str, *arguments: str) -> str:
    return f"{builtin(name)}({', '.join(arguments)})"


def _double(value: float) -> str:
    return f"CAST('{value!r}' AS DOUBLE)"


def _scale(column: str, middle: float, size: float) -> str:
    """Return (x - middle) / size, with 1 instead of a size of 0, as scikit-learn does."""
    shifted = _call("-", f"CAST({column} AS DOUBLE)", _double(middle))
    return _call("/", shifted, _double(size or 1.0))


def _standard_scaler(given: Arguments) -> str:
    column = f"CAST({given.column} AS DOUBLE)"
    return _scale(given.column, *exact_moments(given.ask, column))


def _min_max_scaler(given: Arguments) -> str:
    column = f"CAST({given.column} AS DOUBLE)"
    least, most = given.ask(f"{_call('min', column)}, {_call('max', column)}")
    return _scale(given.column, least or 0.0, (most or 0.0) - (least or 0.0))


def _max_abs_scaler(given: Arguments) -> str:
    column = f"CAST({given.column} AS DOUBLE)"
    return _scale(given.column, 0.0, given.number(_call("max", _call("abs", column))))


def _robust_scaler(given: Arguments) -> str:
    low, high = given.value(0, [25, 75])
    is_centred, is_scaled = given.value(1, True), given.value(2, True)
    column = f"CAST({given.column} AS DOUBLE)"
    levels = [low / 100, 0.5, high / 100]
    (quantiles,) = given.ask(_call("quantile_cont", column, f"[{', '.join(map(repr, levels))}]"))
    least, median, most = quantiles or (0.0, 0.0, 0.0)
    return _scale(given.column, median if is_centred else 0.0, most - least if is_scaled else 1.0)


def _mean(given: Arguments) -> float | None:
    (count,) = given.ask(_call("count", given.column))
    return exact_moments(given.ask, f"CAST({given.column} AS DOUBLE)")[0] if count else None


def _imputer(given: Arguments) -> str:
    strategy = given.value(0, "mean")
    is_number = NUMBERS.fullmatch(given.type) is not None and given.type != "BOOLEAN"
    if strategy != "most_frequent" and not is_number:
        raise ParseError(
            f"{given.name} takes the {strategy} of numbers only, and {given.shown} has type "
            f"{given.type}: write ml_imputer({given.shown}, 'most_frequent') OVER ()"
        )
    filler = (
        _mean(given)
        if strategy == "mean"
        else given.ask(_call(_AGGREGATES[strategy], given.column))[0]
    )
    if filler is None:
        return given.column
    text = DUCKDB.quote_string(str(filler))
    kind = "DOUBLE" if is_number else given.type
    literal = text if isinstance(filler, str) else f"CAST({text} AS {kind})"
    return f"COALESCE({given.column}, {literal})"


_AGGREGATES = {"median": "median", "most_frequent": "mode"}


def _assign_bins(column: str, points: Sequence[float]) -> str:
    """Return bin_1 for values below the first point, bin_2 below the second, and so on."""
    cases = " ".join(
        f"WHEN {column} < {_double(float(point))} THEN 'bin_{n}'"
        for n, point in enumerate(points, 1)
    )
    return f"CASE WHEN {column} IS NULL THEN NULL {cases} ELSE 'bin_{len(points) + 1}' END"


def _bucketize(given: Arguments) -> str:
    points = given.value(0, [])
    inner = points[1:-1] if given.value(1, False) else points
    if not inner:
        raise ParseError(
            f"{given.name} with exclude_boundaries leaves out the first and the last point, and "
            f"{shown_value(points)} has no others: give three points or more"
        )
    return _assign_bins(given.column, inner)


def _quantile_bucketize(given: Arguments) -> str:
    count = given.value(0, 2)
    levels = ", ".join(repr(n / count) for n in range(1, count))
    (quantiles,) = given.ask(
        _call("quantile_cont", f"CAST({given.column} AS DOUBLE)", f"[{levels}]")
    )
    return _assign_bins(given.column, sorted(set(quantiles or ())))


def _one_hot_encoder(given: Arguments) -> str:
    """Return the category if it is frequent, otherwise NULL: the estimator makes columns of it."""
    frequent = DUCKDB.texts(given.categories())
    text = f"CAST({given.column} AS VARCHAR)"
    return f"CASE WHEN {_call('list_contains', frequent, text)} THEN {text} END"


def _label_encoder(given: Arguments) -> str:
    frequent = DUCKDB.texts(given.categories())
    position = _call("list_position", frequent, f"CAST({given.column} AS VARCHAR)")
    return f"COALESCE({position}, 0)"


def _hash_bucketize(given: Arguments) -> str:
    """Return a bucket by md5, which is stable across versions of the engine."""
    count = given.value(0, 1)
    digits = _call("substr", _call("md5", f"CAST({given.column} AS VARCHAR)"), "1", "15")
    number = f"CAST({_call('||', DUCKDB.quote_string('0x'), digits)} AS BIGINT)"
    return _call("%", number, str(count))


def _ngrams(given: Arguments) -> str:
    sizes = given.value(0, 1)
    low, high = sizes if isinstance(sizes, list) else (sizes, sizes)
    separator = DUCKDB.quote_string(given.value(1, " "))
    ngrams = []
    for size in range(low, high + 1):
        last = _call("-", _call("len", given.column), str(size - 1))
        words = _call(
            "array_slice", given.column, "sqlml_p9", _call("+", "sqlml_p9", str(size - 1))
        )
        joined = _call("list_aggregate", words, "'string_agg'", separator)
        starts = _call("generate_series", "1", last)
        ngrams.append(_call("list_transform", starts, f"lambda sqlml_p9: {joined}"))
    return ngrams[0] if len(ngrams) == 1 else _call("list_concat", *ngrams)


PREPROCESSORS: Mapping[str, Callable[[Arguments], str]] = MappingProxyType(
    {
        "ml_standard_scaler": _standard_scaler,
        "ml_min_max_scaler": _min_max_scaler,
        "ml_max_abs_scaler": _max_abs_scaler,
        "ml_robust_scaler": _robust_scaler,
        "ml_imputer": _imputer,
        "ml_bucketize": _bucketize,
        "ml_quantile_bucketize": _quantile_bucketize,
        "ml_one_hot_encoder": _one_hot_encoder,
        "ml_label_encoder": _label_encoder,
        "ml_hash_bucketize": _hash_bucketize,
        "ml_ngrams": _ngrams,
    }
)
"""Function in TRANSFORM -> the function that compiles it."""


def multi_hot(given: Arguments) -> dict[str, str]:
    """Return, for each category, the expression that tests whether a list contains it.

    Raises:
        ConfigError: all lists are empty.
    """
    texts = f"CAST({given.column} AS VARCHAR[])"
    categories = listed_categories(given)
    if not categories:
        raise ConfigError(f"{given.name} finds no categories: all lists are empty")
    return {text: _call("list_contains", texts, DUCKDB.quote_string(text)) for text in categories}


def listed_categories(given: Arguments) -> list[str]:
    """Return the most frequent entries of lists in alphabetical order.

    The arguments after the column are the most entries, and their minimum count.
    """
    most, least = given.value(0, MOST_VALUES), given.value(1, 1)
    texts = _call("list", f"CAST({given.column} AS VARCHAR[])")
    (histogram,) = given.ask(_call("list_aggregate", _call("flatten", texts), "'histogram'"))
    frequent = sorted((-n, text) for text, n in (histogram or {}).items() if n >= least)
    return sorted(text for _, text in frequent[:most])


def feature_cross(columns: Mapping[str, str], degree: int) -> dict[str, str]:
    """Return the combinations of columns: joined names -> the expression of their joined values.

    Args:
        columns: name -> the expression that reads it.
        degree: the most columns in a combination.
    """
    crosses = {}
    for size in range(2, min(degree, len(columns)) + 1):
        for names in combinations(columns, size):
            texts = [f"CAST({columns[name]} AS VARCHAR)" for name in names]
            joined = texts[0]
            for text in texts[1:]:
                joined = _call("||", _call("||", joined, "'_'"), text)
            crosses["_".join(names)] = joined
    return crosses
