"""Signatures of the preprocessing functions of TRANSFORM (...), and checks of their arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlml.dialects.duckdb import DUCKDB
from sqlml.dialects.type_names import NUMBERS, STRINGS, element
from sqlml.errors import ParseError
from sqlml.suggestions import closest

MOST_BUCKETS = 1000
"""The most buckets of quantiles."""

LONGEST_NGRAM = 100
"""The most words of an n-gram."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of argument.

    words: its description in messages. fits: tests the type of a column, or the value of another
    argument.
    """

    words: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Form:
    """The signature of a function.

    example: a call with all arguments. column: the kind of the first argument. others: the kinds of
    the other arguments. needed: how many of those are required.
    """

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
    """Return whether a value is a range of n-gram sizes, or a single size."""
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

FORMS: Mapping[str, Form] = MappingProxyType(
    {
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
        "ml_label_encoder": Form(
            "ml_label_encoder(x, 1000, 1) OVER ()", _ANY, (_COUNT, _FREQUENCY)
        ),
        "ml_multi_hot_encoder": Form(
            "ml_multi_hot_encoder(words, 1000, 1) OVER ()", _LIST, (_COUNT, _FREQUENCY)
        ),
        "ml_hash_bucketize": Form("ml_hash_bucketize(x, 10)", _ANY, (_COUNT,), needed=1),
        "ml_ngrams": Form("ml_ngrams(words, [1, 2], ' ')", _TEXTS, (_SIZES, _TEXT)),
        "ml_feature_cross": Form("ml_feature_cross({'a': a, 'b': b}, 2)", _STRUCT, (_DEGREE,)),
    }
)
"""Function in TRANSFORM -> its signature."""


def find_form(name: str) -> Form:
    """Look up the signature of a function.

    Raises:
        ParseError: the function is unknown.
    """
    if name not in FORMS:
        suggestion = closest(name, FORMS)
        hint = f"did you mean {suggestion}?" if suggestion else f"functions: {', '.join(FORMS)}"
        raise ParseError(f"unknown function {name}; {hint}")
    return FORMS[name]


def check_count(name: str, given: int) -> None:
    """Check the number of arguments of a call, including the column.

    Raises:
        ParseError: there are too few or too many arguments, or the function is unknown.
    """
    form = find_form(name)
    least, most = 1 + form.needed, 1 + len(form.others)
    if least <= given <= most:
        return
    counts = f"{least}" if least == most else f"{least} to {most}"
    plural = "" if most == 1 else "s"
    raise ParseError(f"{name} takes {counts} argument{plural}, not {given}: {form.example}")


def check_values(name: str, values: Sequence[Any]) -> None:
    """Check the arguments after the column; NULL stands for a default.

    Raises:
        ParseError: an argument is invalid.
    """
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
    """Check the type of a function's column.

    Args:
        column: as messages show it.
        kind: its type in the engine.

    Raises:
        ParseError: the function does not take this type.
    """
    form = FORMS[name]
    if not form.column.fits(kind):
        fix = _suggest_cast(form.column, column, kind) or form.example
        raise ParseError(f"{name} takes {form.column.words}, and {column} has type {kind}: {fix}")


def _suggest_cast(expected: Kind, column: str, kind: str) -> str | None:
    """Return advice that converts a column to the expected kind, or None."""
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
