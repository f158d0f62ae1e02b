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

MOST_BUCKETS = 1000
"""The most buckets of quantiles."""

LONGEST_NGRAM = 100
"""The most words of an n-gram."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of argument: its description in messages, and a test of its value or SQL type."""

    words: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Form:
    """A signature: an example call, and the kinds of its arguments, `needed` of the others."""

    example: str
    column: Kind
    others: tuple[Kind, ...] = ()
    needed: int = 0


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


def _is_integer(value: Any, least: int, most: float = math.inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


def _are_percentiles(value: Any) -> bool:
    return _are_numbers(value) and len(value) == 2 and 0 <= value[0] < value[1] <= 100


def _are_points(value: Any) -> bool:
    return _are_numbers(value) and bool(value) and value == sorted(value)


def _are_sizes(value: Any) -> bool:
    sizes = value if isinstance(value, list) else [value, value]
    are_integers = all(_is_integer(size, 1, LONGEST_NGRAM) for size in sizes)
    return are_integers and len(sizes) == 2 and sizes[0] <= sizes[1]


def _is_texts(kind: str) -> bool:
    inner = element(kind)
    return inner is not None and STRINGS.fullmatch(inner) is not None


_PLAIN = ("UUID", "DATE", "TIMESTAMP")

_NUMBER = Kind("a number", lambda kind: NUMBERS.fullmatch(kind) is not None)
_ANY = Kind("a column", lambda kind: True)
_VALUE = Kind(
    "a number, a text, a BOOLEAN, a UUID, a DATE or a TIMESTAMP",
    lambda kind: bool(NUMBERS.fullmatch(kind) or STRINGS.fullmatch(kind) or kind in _PLAIN),
)
_LIST = Kind("a list", lambda kind: element(kind) is not None)
_TEXTS = Kind("a list of texts", _is_texts)
_STRUCT = Kind("a struct", lambda kind: kind.startswith("STRUCT("))

_BOOLEAN = Kind("true or false", lambda value: isinstance(value, bool))
_TEXT = Kind("a text", lambda value: isinstance(value, str))
_COUNT = Kind("an integer of at least 1", lambda value: _is_integer(value, 1))
_FREQUENCY = Kind("an integer of at least 0", lambda value: _is_integer(value, 0))
_DEGREE = Kind("a degree of at least 2", lambda value: _is_integer(value, 2))
_BUCKETS = Kind(
    f"a number of buckets from 2 to {MOST_BUCKETS:,}",
    lambda value: _is_integer(value, 2, MOST_BUCKETS),
)
_PERCENTILES = Kind("two percentiles in order, from 0 to 100", _are_percentiles)
_POINTS = Kind("a list of finite numbers in order", _are_points)
_SIZES = Kind(f"one or two sizes in order, from 1 to {LONGEST_NGRAM}", _are_sizes)
_STRATEGY = Kind(
    "'mean', 'median' or 'most_frequent'",
    lambda value: value in ("mean", "median", "most_frequent"),
)
_FORMAT = Kind("'bucket_names'", lambda value: value == "bucket_names")

FORMS: Mapping[str, Form] = {
    "ml_standard_scaler": Form("ml_standard_scaler(x) OVER ()", _NUMBER),
    "ml_min_max_scaler": Form("ml_min_max_scaler(x) OVER ()", _NUMBER),
    "ml_max_abs_scaler": Form("ml_max_abs_scaler(x) OVER ()", _NUMBER),
    "ml_robust_scaler": Form(
        "ml_robust_scaler(x, [25, 75], true, true) OVER ()",
        _NUMBER,
        (_PERCENTILES, _BOOLEAN, _BOOLEAN),
    ),
    "ml_imputer": Form("ml_imputer(x, 'mean') OVER ()", _VALUE, (_STRATEGY,)),
    "ml_bucketize": Form(
        "ml_bucketize(x, [10, 20], false, 'bucket_names')",
        _NUMBER,
        (_POINTS, _BOOLEAN, _FORMAT),
        needed=1,
    ),
    "ml_quantile_bucketize": Form(
        "ml_quantile_bucketize(x, 4, 'bucket_names') OVER ()",
        _NUMBER,
        (_BUCKETS, _FORMAT),
        needed=1,
    ),
    "ml_one_hot_encoder": Form(
        "ml_one_hot_encoder(x, 1000, 1) OVER ()", _ANY, (_COUNT, _FREQUENCY)
    ),
    "ml_label_encoder": Form("ml_label_encoder(x, 1000, 1) OVER ()", _ANY, (_COUNT, _FREQUENCY)),
    "ml_multi_hot_encoder": Form(
        "ml_multi_hot_encoder(words, 1000, 1) OVER ()", _LIST, (_COUNT, _FREQUENCY)
    ),
    "ml_hash_bucketize": Form("ml_hash_bucketize(x, 10)", _ANY, (_COUNT,), needed=1),
    "ml_ngrams": Form("ml_ngrams(words, [1, 2], ' ')", _TEXTS, (_SIZES, _TEXT)),
    "ml_feature_cross": Form("ml_feature_cross({'a': a, 'b': b}, 2)", _STRUCT, (_DEGREE,)),
}
"""Function in TRANSFORM -> its signature."""


def find_form(name: str) -> Form:
    if name not in FORMS:
        suggestion = closest(name, FORMS)
        hint = f"did you mean {suggestion}?" if suggestion else f"functions: {', '.join(FORMS)}"
        raise ParseError(f"unknown function {name}; {hint}")
    return FORMS[name]


def check_count(name: str, given: int) -> None:
    form = find_form(name)
    least, most = 1 + form.needed, 1 + len(form.others)
    if least <= given <= most:
        return
    counts = f"{least}" if least == most else f"{least} to {most}"
    plural = "" if most == 1 else "s"
    raise ParseError(f"{name} takes {counts} argument{plural}, not {given}: {form.example}")


def check_values(name: str, values: Sequence[Any]) -> None:
    form = FORMS[name]
    for position, (value, kind) in enumerate(zip(values, form.others, strict=False)):
        if value is None and position >= form.needed:
            continue
        if not kind.fits(value):
            raise ParseError(f"{name} takes {kind.words}, not {shown_value(value)}: {form.example}")


def shown_value(value: Any) -> str:
    """Return a value in SQL notation.

    >>> shown_value([None, "a", True, 1.5])
    "[NULL, 'a', true, 1.5]"
    """
    if isinstance(value, list):
        return f"[{', '.join(map(shown_value, value))}]"
    if isinstance(value, bool) or value is None:
        return "NULL" if value is None else str(value).lower()
    return DUCKDB.quote_string(value) if isinstance(value, str) else str(value)


def check_column(name: str, column: str, kind: str) -> None:
    form = FORMS[name]
    if not form.column.fits(kind):
        fix = _suggest_cast(form.column, column, kind) or form.example
        raise ParseError(f"{name} takes {form.column.words}, and {column} has type {kind}: {fix}")


def _suggest_cast(expected: Kind, column: str, kind: str) -> str | None:
    is_text = STRINGS.fullmatch(kind)
    if expected is _NUMBER and is_text:
        return f"write TRY_CAST({column} AS DOUBLE)"
    if expected in (_NUMBER, _VALUE) and kind.startswith(("DATE", "TIME", "INTERVAL")):
        return f"write epoch({column})"
    if expected in (_LIST, _TEXTS) and is_text:
        return f"write string_split({column}, ' ')"
    if expected is _TEXTS and element(kind) is not None:
        return f"write CAST({column} AS VARCHAR[])"
    return None


_BITS = 125
"""Bits of a sum in a HUGEINT."""

Ask = Callable[[str], tuple[Any, ...]]
"""Aggregates -> their values."""


def exact_moments(ask: Ask, column: str) -> tuple[float, float]:
    """Return the mean and the population standard deviation of a DOUBLE; 0 without finite values.

    The numbers are shifted, scaled by a power of two, rounded to 128-bit integers, and added
    exactly, so that the order of rows does not matter.
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

    column: its stored expression. shown: its text in messages. values: of the other arguments. ask:
    computes aggregates over the fitted rows.
    """

    name: str
    column: str
    type: str
    shown: str
    values: tuple[Any, ...]
    ask: Ask

    def value(self, position: int, default: Any) -> Any:
        value = self.values[position] if position < len(self.values) else None
        return default if value is None else value

    @property
    def number(self) -> str:
        """The column as a DOUBLE."""
        return f"CAST({self.column} AS DOUBLE)"

    def categories(self) -> list[str]:
        histogram = _call("histogram", f"CAST({self.column} AS VARCHAR)")
        return self.most_frequent(f"{histogram} FILTER (WHERE {self.column} IS NOT NULL)")

    def list_categories(self) -> list[str]:
        texts = _call("list", f"CAST({self.column} AS VARCHAR[])")
        return self.most_frequent(_call("list_aggregate", _call("flatten", texts), "'histogram'"))

    def most_frequent(self, histogram: str) -> list[str]:
        """Return the most frequent texts of a histogram, by the call's limits, in order."""
        most, least = self.value(0, MOST_VALUES), self.value(1, 1)
        (counts,) = self.ask(histogram)
        frequent = sorted((-n, text) for text, n in (counts or {}).items() if n >= least)
        return sorted(text for _, text in frequent[:most])


def _call(name: str, *arguments: str) -> str:
    return f"{builtin(name)}({', '.join(arguments)})"


def _double(value: float) -> str:
    return f"CAST('{value!r}' AS DOUBLE)"


def _scale(given: Arguments, middle: float, size: float) -> str:
    """Return (x - middle) / size, with 1 instead of a size of 0, as scikit-learn does."""
    return _call("/", _call("-", given.number, _double(middle)), _double(size or 1.0))


def _min_max_scaler(given: Arguments) -> str:
    least, most = given.ask(f"{_call('min', given.number)}, {_call('max', given.number)}")
    return _scale(given, least or 0.0, (most or 0.0) - (least or 0.0))


def _max_abs_scaler(given: Arguments) -> str:
    (largest,) = given.ask(_call("max", _call("abs", given.number)))
    return _scale(given, 0.0, float(largest or 0.0))


def _robust_scaler(given: Arguments) -> str:
    low, high = given.value(0, [25, 75])
    is_centred, is_scaled = given.value(1, True), given.value(2, True)
    quantiles = _ask_quantiles(given, [low / 100, 0.5, high / 100])
    least, median, most = quantiles or (0.0, 0.0, 0.0)
    return _scale(given, median if is_centred else 0.0, most - least if is_scaled else 1.0)


def _ask_quantiles(given: Arguments, levels: Sequence[float]) -> Sequence[float]:
    (quantiles,) = given.ask(
        _call("quantile_cont", given.number, f"[{', '.join(map(repr, levels))}]")
    )
    return quantiles or ()


def _imputer(given: Arguments) -> str:
    strategy = given.value(0, "mean")
    is_number = NUMBERS.fullmatch(given.type) is not None and given.type != "BOOLEAN"
    if strategy != "most_frequent" and not is_number:
        raise ParseError(
            f"{given.name} takes the {strategy} of numbers only, and {given.shown} has type "
            f"{given.type}: write ml_imputer({given.shown}, 'most_frequent') OVER ()"
        )
    aggregate = {"mean": "count", "median": "median", "most_frequent": "mode"}[strategy]
    (filler,) = given.ask(_call(aggregate, given.column))
    if strategy == "mean":
        filler = exact_moments(given.ask, given.number)[0] if filler else None
    if filler is None:
        return given.column
    text = DUCKDB.quote_string(str(filler))
    kind = "DOUBLE" if is_number else given.type
    literal = text if isinstance(filler, str) else f"CAST({text} AS {kind})"
    return f"COALESCE({given.column}, {literal})"


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
    quantiles = _ask_quantiles(given, [n / count for n in range(1, count)])
    return _assign_bins(given.column, sorted(set(quantiles)))


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


PREPROCESSORS: Mapping[str, Callable[[Arguments], str]] = {
    "ml_standard_scaler": lambda given: _scale(given, *exact_moments(given.ask, given.number)),
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
"""Function in TRANSFORM -> the function that compiles it."""


def multi_hot(given: Arguments) -> dict[str, str]:
    """Return for each category the expression that tests whether a list contains it."""
    texts = f"CAST({given.column} AS VARCHAR[])"
    categories = given.list_categories()
    if not categories:
        raise ConfigError(f"{given.name} finds no categories: all lists are empty")
    return {text: _call("list_contains", texts, DUCKDB.quote_string(text)) for text in categories}


def feature_cross(columns: Mapping[str, str], degree: int) -> dict[str, str]:
    """Return the combinations of up to `degree` columns: joined names -> joined values."""
    texts = {name: f"CAST({column} AS VARCHAR)" for name, column in columns.items()}
    sizes = range(2, min(degree, len(columns)) + 1)
    return {
        "_".join(names): reduce(_join_texts, [texts[name] for name in names])
        for size in sizes
        for names in combinations(columns, size)
    }


def _join_texts(joined: str, text: str) -> str:
    return _call("||", _call("||", joined, "'_'"), text)
