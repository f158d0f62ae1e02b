"""BigQuery's preprocessing functions in TRANSFORM (...), compiled to row expressions.

Values that depend on all rows are computed once over the fitted rows and written into the
expression, so that training and scoring cannot differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import combinations
from typing import Any

from sqlml.dialects.duckdb import DUCKDB, builtin
from sqlml.dialects.type_names import NUMBERS, STRINGS, element
from sqlml.errors import ConfigError, ParseError
from sqlml.suggestions import closest

MAX_QUANTILE_BUCKETS = 1000
MAX_NGRAM_WORDS = 100


@dataclass(frozen=True, slots=True)
class ArgumentKind:
    """A kind of argument, with its description in messages and a test of a value or SQL type."""

    description: str
    accepts: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a function: an example call, and the kinds of its arguments.

    `column` is the kind of the first argument. The first `required_count` of `others` are required.
    """

    example: str
    column: ArgumentKind
    others: tuple[ArgumentKind, ...] = ()
    required_count: int = 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_integer(value: Any, min_value: int, max_value: float = math.inf) -> bool:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return is_integer and min_value <= value <= max_value


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


def _are_percentiles(value: Any) -> bool:
    return _are_numbers(value) and len(value) == 2 and 0 <= value[0] < value[1] <= 100


def _are_points(value: Any) -> bool:
    return _are_numbers(value) and bool(value) and value == sorted(value)


def _are_sizes(value: Any) -> bool:
    sizes = value if isinstance(value, list) else [value, value]
    are_integers = all(_is_integer(size, 1, MAX_NGRAM_WORDS) for size in sizes)
    return are_integers and len(sizes) == 2 and sizes[0] <= sizes[1]


def _is_string_list(sql_type: str) -> bool:
    element_type = element(sql_type)
    return element_type is not None and STRINGS.fullmatch(element_type) is not None


_SIMPLE_TYPES = ("UUID", "DATE", "TIMESTAMP")

_NUMBER = ArgumentKind("a number", lambda sql_type: NUMBERS.fullmatch(sql_type) is not None)
_ANY = ArgumentKind("a column", lambda sql_type: True)
_VALUE = ArgumentKind(
    "a number, a string, a BOOLEAN, a UUID, a DATE or a TIMESTAMP",
    lambda sql_type: (
        (NUMBERS.fullmatch(sql_type) or STRINGS.fullmatch(sql_type)) is not None
        or sql_type in _SIMPLE_TYPES
    ),
)
_LIST = ArgumentKind("a list", lambda sql_type: element(sql_type) is not None)
_TEXTS = ArgumentKind("a list of strings", _is_string_list)
_STRUCT = ArgumentKind("a struct", lambda sql_type: sql_type.startswith("STRUCT("))

_BOOLEAN = ArgumentKind("true or false", lambda value: isinstance(value, bool))
_TEXT = ArgumentKind("a string", lambda value: isinstance(value, str))
_COUNT = ArgumentKind("an integer of at least 1", lambda value: _is_integer(value, 1))
_FREQUENCY = ArgumentKind("an integer of at least 0", lambda value: _is_integer(value, 0))
_LIMITS = (_COUNT, _FREQUENCY)
_DEGREE = ArgumentKind("a degree of at least 2", lambda value: _is_integer(value, 2))
_BUCKETS = ArgumentKind(
    f"a number of buckets from 2 to {MAX_QUANTILE_BUCKETS:,}",
    lambda value: _is_integer(value, 2, MAX_QUANTILE_BUCKETS),
)
_PERCENTILES = ArgumentKind("two percentiles in order, from 0 to 100", _are_percentiles)
_POINTS = ArgumentKind("a list of finite numbers in order", _are_points)
_SIZES = ArgumentKind(f"one or two sizes in order, from 1 to {MAX_NGRAM_WORDS}", _are_sizes)
_STRATEGIES = ("mean", "median", "most_frequent")
_STRATEGY = ArgumentKind("'mean', 'median' or 'most_frequent'", _STRATEGIES.__contains__)
_FORMAT = ArgumentKind("'bucket_names'", lambda value: value == "bucket_names")

SIGNATURES: Mapping[str, Signature] = {
    "ml_standard_scaler": Signature("ml_standard_scaler(x) OVER ()", _NUMBER),
    "ml_min_max_scaler": Signature("ml_min_max_scaler(x) OVER ()", _NUMBER),
    "ml_max_abs_scaler": Signature("ml_max_abs_scaler(x) OVER ()", _NUMBER),
    "ml_robust_scaler": Signature(
        "ml_robust_scaler(x, [25, 75], true, true) OVER ()",
        _NUMBER,
        (_PERCENTILES, _BOOLEAN, _BOOLEAN),
    ),
    "ml_imputer": Signature("ml_imputer(x, 'mean') OVER ()", _VALUE, (_STRATEGY,)),
    "ml_bucketize": Signature(
        "ml_bucketize(x, [10, 20], false, 'bucket_names')", _NUMBER, (_POINTS, _BOOLEAN, _FORMAT), 1
    ),
    "ml_quantile_bucketize": Signature(
        "ml_quantile_bucketize(x, 4, 'bucket_names') OVER ()", _NUMBER, (_BUCKETS, _FORMAT), 1
    ),
    "ml_one_hot_encoder": Signature("ml_one_hot_encoder(x, 1000, 1) OVER ()", _ANY, _LIMITS),
    "ml_label_encoder": Signature("ml_label_encoder(x, 1000, 1) OVER ()", _ANY, _LIMITS),
    "ml_multi_hot_encoder": Signature(
        "ml_multi_hot_encoder(words, 1000, 1) OVER ()", _LIST, _LIMITS
    ),
    "ml_hash_bucketize": Signature("ml_hash_bucketize(x, 10)", _ANY, (_COUNT,), required_count=1),
    "ml_ngrams": Signature("ml_ngrams(words, [1, 2], ' ')", _TEXTS, (_SIZES, _TEXT)),
    "ml_feature_cross": Signature("ml_feature_cross({'a': a, 'b': b}, 2)", _STRUCT, (_DEGREE,)),
}
"""Maps each function in TRANSFORM to its signature."""


def find_signature(name: str) -> Signature:
    if name not in SIGNATURES:
        suggestion = closest(name, SIGNATURES)
        names = ", ".join(SIGNATURES)
        hint = f"did you mean {suggestion}?" if suggestion else f"functions: {names}"
        raise ParseError(f"unknown function {name}; {hint}")
    return SIGNATURES[name]


def check_argument_count(name: str, argument_count: int) -> None:
    signature = find_signature(name)
    min_count, max_count = 1 + signature.required_count, 1 + len(signature.others)
    if min_count <= argument_count <= max_count:
        return
    counts = f"{min_count}" if min_count == max_count else f"{min_count} to {max_count}"
    expected = f"{counts} argument{'' if max_count == 1 else 's'}"
    raise ParseError(f"{name} takes {expected}, not {argument_count}: {signature.example}")


def check_constants(name: str, values: Sequence[Any]) -> None:
    signature = SIGNATURES[name]
    for position, (value, argument_kind) in enumerate(zip(values, signature.others, strict=False)):
        is_omitted = value is None and position >= signature.required_count
        if not is_omitted and not argument_kind.accepts(value):
            fault = f"not {format_value(value)}: {signature.example}"
            raise ParseError(f"{name} takes {argument_kind.description}, {fault}")


def format_value(value: Any) -> str:
    """Return a value in SQL notation.

    >>> format_value([None, "a", True, 1.5])
    "[NULL, 'a', true, 1.5]"
    """
    if isinstance(value, list):
        return f"[{', '.join(map(format_value, value))}]"
    if isinstance(value, bool) or value is None:
        return "NULL" if value is None else str(value).lower()
    return DUCKDB.quote_string(value) if isinstance(value, str) else str(value)


def check_column(name: str, column: str, sql_type: str) -> None:
    signature = SIGNATURES[name]
    if not signature.column.accepts(sql_type):
        fix = _suggest_cast(signature.column, column, sql_type) or signature.example
        expected = signature.column.description
        raise ParseError(f"{name} takes {expected}, and {column} has type {sql_type}: {fix}")


def _suggest_cast(expected: ArgumentKind, column: str, sql_type: str) -> str | None:
    is_text = STRINGS.fullmatch(sql_type)
    if expected is _NUMBER and is_text:
        return f"write TRY_CAST({column} AS DOUBLE)"
    if expected in (_NUMBER, _VALUE) and sql_type.startswith(("DATE", "TIME", "INTERVAL")):
        return f"write epoch({column})"
    if expected in (_LIST, _TEXTS) and is_text:
        return f"write string_split({column}, ' ')"
    if expected is _TEXTS and element(sql_type) is not None:
        return f"write CAST({column} AS VARCHAR[])"
    return None


_SUM_BITS = 125
"""Bits of a sum in a HUGEINT."""

AggregateReader = Callable[[str], tuple[Any, ...]]
"""A function from the SQL of aggregates to their values."""


def compute_exact_moments(ask: AggregateReader, column: str) -> tuple[float, float]:
    """Return the mean and the population standard deviation of a DOUBLE `column`.

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
    shifted_column = call("-", column, _format_double(midpoint))
    normalized = call("*", shifted_column, _format_double(2.0 ** -max(min(exponent, 1000), -1000)))
    bits = _SUM_BITS - count.bit_length()
    values = normalized, call("*", normalized, normalized)
    scaled_columns = [call("*", value, _format_double(2.0**bits)) for value in values]
    total, squares = ask(", ".join(call("sum", f"CAST({v} AS HUGEINT)") for v in scaled_columns))
    mean, square = (Fraction(int(value_sum), count * 2**bits) for value_sum in (total, squares))
    scale = Fraction(2) ** max(min(exponent, 1000), -1000)
    spread = max(square - mean * mean, Fraction(0))
    return float(Fraction(midpoint) + mean * scale), math.sqrt(spread) * float(scale)


MAX_CATEGORIES = 1000
"""Default limit on the categories of an encoder."""


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
        value = self.values[position] if position < len(self.values) else None
        return default if value is None else value

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
        max_categories = self.value(0, MAX_CATEGORIES)
        min_frequency = self.value(1, 1)
        (counts,) = self.ask(histogram)
        ranked = sorted((-n, text) for text, n in (counts or {}).items() if n >= min_frequency)
        return sorted(text for _, text in ranked[:max_categories])


def _render(name: str, *arguments: str) -> str:
    return f"{builtin(name)}({', '.join(arguments)})"


def _format_double(value: float) -> str:
    return f"CAST('{value!r}' AS DOUBLE)"


def _compile_scaling(call: Arguments, center: float, scale: float) -> str:
    """Compile (x - center) / scale. As in scikit-learn, a scale of 0 is replaced by 1."""
    centered = _render("-", call.number, _format_double(center))
    return _render("/", centered, _format_double(scale or 1.0))


def _compile_min_max_scaler(call: Arguments) -> str:
    min_value, max_value = call.ask(f"{_render('min', call.number)}, {_render('max', call.number)}")
    return _compile_scaling(call, min_value or 0.0, (max_value or 0.0) - (min_value or 0.0))


def _compile_max_abs_scaler(call: Arguments) -> str:
    (max_abs,) = call.ask(_render("max", _render("abs", call.number)))
    return _compile_scaling(call, 0.0, float(max_abs or 0.0))


def _compile_robust_scaler(call: Arguments) -> str:
    lower, upper = call.value(0, [25, 75])
    with_centering, with_scaling = call.value(1, True), call.value(2, True)
    quantiles = _compute_quantiles(call, [lower / 100, 0.5, upper / 100]) or (0.0, 0.0, 0.0)
    low_quantile, median, high_quantile = quantiles
    scale = high_quantile - low_quantile if with_scaling else 1.0
    return _compile_scaling(call, median if with_centering else 0.0, scale)


def _compute_quantiles(call: Arguments, levels: Sequence[float]) -> Sequence[float]:
    level_list = f"[{', '.join(map(repr, levels))}]"
    (quantiles,) = call.ask(_render("quantile_cont", call.number, level_list))
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


def _compile_bin_names(column: str, points: Sequence[float]) -> str:
    """Compile to the name of a bin: bin_1 below the first point, bin_2 below the second, ..."""
    bounds = [_format_double(float(point)) for point in points]
    when_clauses = " ".join(f"WHEN {column} < {b} THEN 'bin_{n}'" for n, b in enumerate(bounds, 1))
    return f"CASE WHEN {column} IS NULL THEN NULL {when_clauses} ELSE 'bin_{len(points) + 1}' END"


def _compile_bucketize(call: Arguments) -> str:
    points = call.value(0, [])
    inner_points = points[1:-1] if call.value(1, False) else points
    if not inner_points:
        raise ParseError(
            f"{call.name} with exclude_boundaries leaves out the first and the last point, and "
            f"{format_value(points)} has no others: give three points or more"
        )
    return _compile_bin_names(call.column, inner_points)


def _compile_quantile_bucketize(call: Arguments) -> str:
    bucket_count = call.value(0, 2)
    quantiles = _compute_quantiles(call, [n / bucket_count for n in range(1, bucket_count)])
    return _compile_bin_names(call.column, sorted(set(quantiles)))


def _compile_one_hot_encoder(call: Arguments) -> str:
    categories = DUCKDB.texts(call.find_categories())
    text = f"CAST({call.column} AS VARCHAR)"
    return f"CASE WHEN {_render('list_contains', categories, text)} THEN {text} END"


def _compile_label_encoder(call: Arguments) -> str:
    categories = DUCKDB.texts(call.find_categories())
    position = _render("list_position", categories, f"CAST({call.column} AS VARCHAR)")
    return f"COALESCE({position}, 0)"


def _compile_hash_bucketize(call: Arguments) -> str:
    """Compile to a bucket by md5, which is stable across versions of the engine."""
    bucket_count = call.value(0, 1)
    digits = _render("substr", _render("md5", f"CAST({call.column} AS VARCHAR)"), "1", "15")
    number = f"CAST({_render('||', DUCKDB.quote_string('0x'), digits)} AS BIGINT)"
    return _render("%", number, str(bucket_count))


def _compile_ngrams(call: Arguments) -> str:
    sizes = call.value(0, 1)
    min_size, max_size = sizes if isinstance(sizes, list) else (sizes, sizes)
    separator = DUCKDB.quote_string(call.value(1, " "))
    ngrams = []
    for size in range(min_size, max_size + 1):
        last_start = _render("-", _render("len", call.column), str(size - 1))
        end = _render("+", "sqlml_p9", str(size - 1))
        words = _render("array_slice", call.column, "sqlml_p9", end)
        joined_words = _render("list_aggregate", words, "'string_agg'", separator)
        starts = _render("generate_series", "1", last_start)
        ngrams.append(_render("list_transform", starts, f"lambda sqlml_p9: {joined_words}"))
    return ngrams[0] if len(ngrams) == 1 else _render("list_concat", *ngrams)


PREPROCESSORS: Mapping[str, Callable[[Arguments], str]] = {
    "ml_standard_scaler": lambda call: _compile_scaling(
        call, *compute_exact_moments(call.ask, call.number)
    ),
    "ml_min_max_scaler": _compile_min_max_scaler,
    "ml_max_abs_scaler": _compile_max_abs_scaler,
    "ml_robust_scaler": _compile_robust_scaler,
    "ml_imputer": _compile_imputer,
    "ml_bucketize": _compile_bucketize,
    "ml_quantile_bucketize": _compile_quantile_bucketize,
    "ml_one_hot_encoder": _compile_one_hot_encoder,
    "ml_label_encoder": _compile_label_encoder,
    "ml_hash_bucketize": _compile_hash_bucketize,
    "ml_ngrams": _compile_ngrams,
}
"""Maps each function in TRANSFORM to the function that compiles its calls."""


def compile_multi_hot(call: Arguments) -> dict[str, str]:
    """Map each frequent category to an expression that tests whether a list contains it."""
    texts = f"CAST({call.column} AS VARCHAR[])"
    categories = call.find_list_categories()
    if not categories:
        raise ConfigError(f"{call.name} finds no categories: all lists are empty")
    return {text: _render("list_contains", texts, DUCKDB.quote_string(text)) for text in categories}


def compile_feature_cross(columns: Mapping[str, str], degree: int) -> dict[str, str]:
    """Map the joined names of 2 to `degree` columns to SQL that joins the values of the columns."""
    texts = {name: f"CAST({column} AS VARCHAR)" for name, column in columns.items()}
    sizes = range(2, min(degree, len(columns)) + 1)
    return {
        "_".join(names): reduce(_join_texts, [texts[name] for name in names])
        for size in sizes
        for names in combinations(columns, size)
    }


def _join_texts(joined: str, text: str) -> str:
    return _render("||", _render("||", joined, "'_'"), text)
