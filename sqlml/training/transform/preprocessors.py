"""`Preprocessors`: BigQuery's preprocessing functions in TRANSFORM (..), as expressions of a row.

What they need to know of all rows, such as a mean, is computed once, over the rows that the model
is fitted to, and written into the expression: training and serving cannot differ.
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

# `exact_moments`: a mean and a standard deviation that do not depend on the order of rows.
#
# An engine of several threads adds numbers in an order of its own, and the last bits of a sum of
# doubles depend on it. Here the numbers are added as integers: shifted by the middle of their
# range, scaled by a power of two, and rounded to 128 bits, each for itself.


_BITS = 125
"""Bits of a sum in a HUGEINT."""

Ask = Callable[[str], tuple[Any, ...]]
"""Aggregates -> their values."""


def exact_moments(ask: Ask, column: str) -> tuple[float, float]:
    """The mean and the standard deviation (of the population) of a column; 0 without finite values.

    Args:
        ask: is called twice. column: an expression of type DOUBLE.
    """
    call = DUCKDB.call
    least, most, count = ask(", ".join(call(f, column) for f in ("min", "max", "count")))
    if not count or not (math.isfinite(least) and math.isfinite(most)):
        return 0.0, 0.0
    middle = least / 2 + most / 2
    size = max(most - middle, middle - least)
    if size == 0:
        return float(least), 0.0
    power = math.frexp(size)[1]  # so that the values below are in -1 .. 1
    near = call("-", column, _number(middle))
    unit = call("*", near, _number(2.0 ** -max(min(power, 1000), -1000)))
    bits = _BITS - count.bit_length()
    scaled = [call("*", value, _number(2.0**bits)) for value in (unit, call("*", unit, unit))]
    total, squares = ask(", ".join(call("sum", f"CAST({v} AS HUGEINT)") for v in scaled))
    mean, square = (Fraction(int(found), count * 2**bits) for found in (total, squares))
    scale = Fraction(2) ** max(min(power, 1000), -1000)
    spread = max(square - mean * mean, Fraction(0))
    return float(Fraction(middle) + mean * scale), math.sqrt(spread) * float(scale)


def _number(value: float) -> str:
    return f"CAST('{value!r}' AS DOUBLE)"


MOST_VALUES = 1000
"""Categories that an encoder keeps unless it is told otherwise."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call, which are as the function's form wants them.

    name: of the function. column: as it is kept. type: the column's, in the engine. shown: the
    column in messages. values: of the other arguments, which are the same for all rows.
    """

    name: str
    column: str
    type: str
    shown: str
    values: tuple[Any, ...]
    ask: Ask

    def value(self, place: int, default: Any) -> Any:
        """The value at a place, from 0; the default if it is not given."""
        given = self.values[place] if place < len(self.values) else None
        return default if given is None else given

    def number(self, aggregate: str) -> float:
        """One number over all rows; 0 where there is none."""
        (found,) = self.ask(aggregate)
        return 0.0 if found is None else float(found)

    def categories(self) -> list[str]:
        """The most frequent values, in alphabetical order.

        Arguments after the column: how many at most, and how often each at least.
        """
        most, least = self.value(0, MOST_VALUES), self.value(1, 1)
        counts = f"{builtin('histogram')}(CAST({self.column} AS VARCHAR))"
        (found,) = self.ask(f"{counts} FILTER (WHERE {self.column} IS NOT NULL)")
        often = [(n, text) for text, n in (found or {}).items() if n >= least]
        often.sort(key=lambda pair: (-pair[0], pair[1]))
        return sorted(text for _, text in often[:most])


def _call(name: str, *arguments: str) -> str:
    return f"{builtin(name)}({', '.join(arguments)})"


def _double(value: float) -> str:
    return f"CAST('{value!r}' AS DOUBLE)"


def _scaled(column: str, middle: float, size: float) -> str:
    """(x - middle) / size, where a size of 0 is 1, as scikit-learn has it."""
    moved = _call("-", f"CAST({column} AS DOUBLE)", _double(middle))
    return _call("/", moved, _double(size or 1.0))


def _standard_scaler(given: Arguments) -> str:
    column = f"CAST({given.column} AS DOUBLE)"
    return _scaled(given.column, *exact_moments(given.ask, column))


def _min_max_scaler(given: Arguments) -> str:
    column = f"CAST({given.column} AS DOUBLE)"
    least, most = given.ask(f"{_call('min', column)}, {_call('max', column)}")
    return _scaled(given.column, least or 0.0, (most or 0.0) - (least or 0.0))


def _max_abs_scaler(given: Arguments) -> str:
    column = f"CAST({given.column} AS DOUBLE)"
    return _scaled(given.column, 0.0, given.number(_call("max", _call("abs", column))))


def _robust_scaler(given: Arguments) -> str:
    low, high = given.value(0, [25, 75])
    centred, divided = given.value(1, True), given.value(2, True)
    column = f"CAST({given.column} AS DOUBLE)"
    places = [low / 100, 0.5, high / 100]
    (found,) = given.ask(_call("quantile_cont", column, f"[{', '.join(map(repr, places))}]"))
    least, median, most = found or (0.0, 0.0, 0.0)
    return _scaled(given.column, median if centred else 0.0, most - least if divided else 1.0)


def _mean(given: Arguments) -> float | None:
    (count,) = given.ask(_call("count", given.column))
    return exact_moments(given.ask, f"CAST({given.column} AS DOUBLE)")[0] if count else None


def _imputer(given: Arguments) -> str:
    how = given.value(0, "mean")
    is_number = NUMBERS.fullmatch(given.type) is not None and given.type != "BOOLEAN"
    if how != "most_frequent" and not is_number:
        raise ParseError(
            f"{given.name} takes the {how} of numbers only, and {given.shown} has type "
            f"{given.type}: write ml_imputer({given.shown}, 'most_frequent') OVER ()"
        )
    found = _mean(given) if how == "mean" else given.ask(_call(_AGGREGATES[how], given.column))[0]
    if found is None:
        return given.column
    text = DUCKDB.quote_string(str(found))
    kind = "DOUBLE" if is_number else given.type
    literal = text if isinstance(found, str) else f"CAST({text} AS {kind})"
    return f"COALESCE({given.column}, {literal})"


_AGGREGATES = {"median": "median", "most_frequent": "mode"}


def _binned(column: str, points: Sequence[float]) -> str:
    """bin_1 below the first point, bin_2 from there, and so on."""
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
    return _binned(given.column, inner)


def _quantile_bucketize(given: Arguments) -> str:
    count = given.value(0, 2)
    places = ", ".join(repr(n / count) for n in range(1, count))
    (found,) = given.ask(_call("quantile_cont", f"CAST({given.column} AS DOUBLE)", f"[{places}]"))
    return _binned(given.column, sorted(set(found or ())))


def _one_hot_encoder(given: Arguments) -> str:
    """The category, if it is one of those that are kept: the estimator makes columns of it."""
    known = DUCKDB.texts(given.categories())
    text = f"CAST({given.column} AS VARCHAR)"
    return f"CASE WHEN {_call('list_contains', known, text)} THEN {text} END"


def _label_encoder(given: Arguments) -> str:
    known = DUCKDB.texts(given.categories())
    place = _call("list_position", known, f"CAST({given.column} AS VARCHAR)")
    return f"COALESCE({place}, 0)"


def _hash_bucketize(given: Arguments) -> str:
    """By md5, which is the same in all versions of the engine."""
    count = given.value(0, 1)
    digits = _call("substr", _call("md5", f"CAST({given.column} AS VARCHAR)"), "1", "15")
    number = f"CAST({_call('||', DUCKDB.quote_string('0x'), digits)} AS BIGINT)"
    return _call("%", number, str(count))


def _ngrams(given: Arguments) -> str:
    sizes = given.value(0, 1)
    low, high = sizes if isinstance(sizes, list) else (sizes, sizes)
    between = DUCKDB.quote_string(given.value(1, " "))
    parts = []
    for size in range(low, high + 1):
        last = _call("-", _call("len", given.column), str(size - 1))
        words = _call(
            "array_slice", given.column, "sqlml_p9", _call("+", "sqlml_p9", str(size - 1))
        )
        joined = _call("list_aggregate", words, "'string_agg'", between)
        starts = _call("generate_series", "1", last)
        parts.append(_call("list_transform", starts, f"lambda sqlml_p9: {joined}"))
    return parts[0] if len(parts) == 1 else _call("list_concat", *parts)


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
"""Function in TRANSFORM -> what makes an expression of it."""


def multi_hot(given: Arguments) -> dict[str, str]:
    """Category -> the expression of whether a list has it.

    Raises:
        ConfigError: all lists are empty.
    """
    texts = f"CAST({given.column} AS VARCHAR[])"
    found = listed_categories(given)
    if not found:
        raise ConfigError(f"{given.name} finds no categories: all lists are empty")
    return {text: _call("list_contains", texts, DUCKDB.quote_string(text)) for text in found}


def listed_categories(given: Arguments) -> list[str]:
    """The most frequent entries of lists, in alphabetical order.

    Arguments after the column: how many at most, and how often each is there at least.
    """
    most, least = given.value(0, MOST_VALUES), given.value(1, 1)
    texts = _call("list", f"CAST({given.column} AS VARCHAR[])")
    (found,) = given.ask(_call("list_aggregate", _call("flatten", texts), "'histogram'"))
    often = sorted((-n, text) for text, n in (found or {}).items() if n >= least)
    return sorted(text for _, text in often[:most])


def feature_cross(columns: Mapping[str, str], degree: int) -> dict[str, str]:
    """The names of some columns -> the expression of their values side by side.

    Args:
        columns: name -> the expression that reads it. degree: columns that are joined at most.
    """
    made = {}
    for size in range(2, min(degree, len(columns)) + 1):
        for names in combinations(columns, size):
            texts = [f"CAST({columns[name]} AS VARCHAR)" for name in names]
            joined = texts[0]
            for text in texts[1:]:
                joined = _call("||", _call("||", joined, "'_'"), text)
            made["_".join(names)] = joined
    return made
