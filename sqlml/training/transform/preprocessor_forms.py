"""`FORMS`: how each preprocessing function of TRANSFORM (..) is called, and what it takes."""

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
"""Buckets of quantiles."""

LONGEST_NGRAM = 100
"""Words of an n-gram."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What an argument may be.

    words: how messages call it. fits: whether it is one: a column by its type in the engine,
    another argument by its value.
    """

    words: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Form:
    """How a function is called.

    example: a call with all of its arguments. column: what the first argument may be. others: what
    those behind it may be. needed: how many of these have to be given.
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
    """Sizes of n-grams: from the first to the last, or one alone."""
    sizes = value if isinstance(value, list) else [value, value]
    whole = all(_is_integer(size, 1, LONGEST_NGRAM) for size in sizes)
    return whole and len(sizes) == 2 and sizes[0] <= sizes[1]


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
"""Function in TRANSFORM -> its form."""


def form_of(name: str) -> Form:
    """The form of a function.

    Raises:
        ParseError: there is no such function.
    """
    if name not in FORMS:
        near = closest(name, FORMS)
        hint = f"did you mean {near}?" if near else f"functions: {', '.join(FORMS)}"
        raise ParseError(f"unknown function {name}; {hint}")
    return FORMS[name]


def check_count(name: str, given: int) -> None:
    """Refuse a call with too few arguments, or too many, the column included.

    Raises:
        ParseError: it is one, or there is no such function.
    """
    form = form_of(name)
    least, most = 1 + form.needed, 1 + len(form.others)
    if least <= given <= most:
        return
    counts = f"{least}" if least == most else f"{least} to {most}"
    plural = "" if most == 1 else "s"
    raise ParseError(f"{name} takes {counts} argument{plural}, not {given}: {form.example}")


def check_values(name: str, values: Sequence[Any]) -> None:
    """Refuse arguments behind the column that are none; NULL stands for a default.

    Raises:
        ParseError: one of them is.
    """
    form = FORMS[name]
    for place, (value, kind) in enumerate(zip(values, form.others, strict=False)):
        if value is None and place >= form.needed:
            continue
        if not kind.fits(value):
            raise ParseError(f"{name} takes {kind.words}, not {shown_value(value)}: {form.example}")


def shown_value(value: Any) -> str:
    """A value as SQL writes it.

    >>> shown_value([None, "a", True, 1.5])
    "[NULL, 'a', true, 1.5]"
    """
    if isinstance(value, list):
        return f"[{', '.join(map(shown_value, value))}]"
    if isinstance(value, bool) or value is None:
        return "NULL" if value is None else str(value).lower()
    return DUCKDB.quote_string(value) if isinstance(value, str) else str(value)


def check_column(name: str, column: str, kind: str) -> None:
    """Refuse a column of a type that a function does not take.

    Args:
        column: as messages show it. kind: its type in the engine.

    Raises:
        ParseError: it is one.
    """
    form = FORMS[name]
    if not form.column.fits(kind):
        fix = _fix(form.column, column, kind) or form.example
        raise ParseError(f"{name} takes {form.column.words}, and {column} has type {kind}: {fix}")


def _fix(wanted: Kind, column: str, kind: str) -> str | None:
    """What makes of a column what is wanted; None if nothing does."""
    text = STRINGS.fullmatch(kind)
    if wanted is _NUMBER and text:
        return f"write TRY_CAST({column} AS DOUBLE)"
    if wanted in (_NUMBER, _VALUE) and kind.startswith(("DATE", "TIME", "INTERVAL")):
        return f"write epoch({column})"
    if wanted in (_LIST, _TEXTS) and text:
        return f"write string_split({column}, ' ')"
    if wanted is _TEXTS and element(kind) is not None:
        return f"write CAST({column} AS VARCHAR[])"
    return None
