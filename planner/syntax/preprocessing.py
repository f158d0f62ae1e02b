"""BigQuery's preprocessing functions: their signatures, and the SQL of those that read one row.

TRANSFORM (...) and `preprocessing_calls.py` share them. `SIGNATURES` lists the functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from sqlml.dialects.duckdb import DUCKDB
from sqlml.dialects.type_names import NUMBERS, STRINGS, element
from sqlml.errors import ParseError
from sqlml.suggestions import closest
from sqlml.types import fold

MAX_CATEGORIES = 1000
"""Default limit on the categories of an encoder."""

MAX_QUANTILE_BUCKETS = 1000
MAX_NGRAM_WORDS = 100
MAX_EXPANDED_COLUMNS = 10


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
_NUMBER_LIST = ArgumentKind(
    "a list of numbers",
    lambda sql_type: NUMBERS.fullmatch(element(sql_type) or "") is not None,
)
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
_DROP = ArgumentKind("'none' or 'most_frequent'", ("none", "most_frequent").__contains__)
_MAX_DEGREE = 4
_POWERS = ArgumentKind(
    f"a degree from 1 to {_MAX_DEGREE}", lambda value: _is_integer(value, 1, _MAX_DEGREE)
)
_NORM = ArgumentKind(
    "a norm that is 0, at least 1, or infinite",
    lambda value: _is_number(value) and (value == 0 or value >= 1) or value == math.inf,
)
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
    "ml_one_hot_encoder": Signature(
        "ml_one_hot_encoder(x, 'none', 1000, 1) OVER ()", _ANY, (_DROP, *_LIMITS)
    ),
    "ml_label_encoder": Signature("ml_label_encoder(x, 1000, 1) OVER ()", _ANY, _LIMITS),
    "ml_multi_hot_encoder": Signature(
        "ml_multi_hot_encoder(words, 1000, 1) OVER ()", _LIST, _LIMITS
    ),
    "ml_hash_bucketize": Signature("ml_hash_bucketize(x, 10)", _ANY, (_COUNT,), required_count=1),
    "ml_ngrams": Signature("ml_ngrams(words, [1, 2], ' ')", _TEXTS, (_SIZES, _TEXT)),
    "ml_normalizer": Signature("ml_normalizer(numbers, 2)", _NUMBER_LIST, (_NORM,)),
    "ml_feature_cross": Signature("ml_feature_cross({'a': a, 'b': b}, 2)", _STRUCT, (_DEGREE,)),
    "ml_polynomial_expand": Signature(
        "ml_polynomial_expand({'a': a, 'b': b}, 2)", _STRUCT, (_POWERS,)
    ),
}
"""Maps each function to its signature."""

MULTI_FEATURE_FUNCTIONS = ("ml_multi_hot_encoder", "ml_feature_cross", "ml_polynomial_expand")
"""Functions that compute several values."""


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


def align_constants(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """Check the constants of a call, and insert NULL for a left out `drop` of ml_one_hot_encoder.

    The limits of the categories may follow the column directly, as in the other encoders.
    """
    lacks_drop = name == "ml_one_hot_encoder" and values and not isinstance(values[0], str)
    if lacks_drop and len(values) < len(SIGNATURES[name].others):
        values = (None, *values)
    _check_constants(name, values)
    return tuple(values)


def _check_constants(name: str, values: Sequence[Any]) -> None:
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


def pick(values: Sequence[Any], position: int, default: Any) -> Any:
    """Return a constant of a call, or `default` if it is missing or NULL."""
    value = values[position] if position < len(values) else None
    return default if value is None else value


def format_double(value: float) -> str:
    return f"CAST('{value!r}' AS DOUBLE)"


def clip_to_unit(number: str) -> str:
    zero, one, infinity = format_double(0.0), format_double(1.0), format_double(math.inf)
    is_above = f"{number} > {one} AND {number} <= {infinity}"  # NaN is above infinity.
    return f"CASE WHEN {number} < {zero} THEN {zero} WHEN {is_above} THEN {one} ELSE {number} END"


def is_fitted(name: str) -> bool:
    """Return whether a function depends on all rows, so that OVER () follows its calls.

    >>> is_fitted("ml_imputer"), is_fitted("ml_ngrams")
    (True, False)
    """
    return SIGNATURES[name].example.endswith("OVER ()")


def build_bin_name(column: str, points: Sequence[float]) -> str:
    """Build the name of a bin: bin_1 below the first point, bin_2 below the second, ..."""
    bounds = [format_double(float(point)) for point in points]
    when_clauses = " ".join(f"WHEN {column} < {b} THEN 'bin_{n}'" for n, b in enumerate(bounds, 1))
    return f"CASE WHEN {column} IS NULL THEN NULL {when_clauses} ELSE 'bin_{len(points) + 1}' END"


def _build_bucket(column: str, values: Sequence[Any]) -> str:
    points = pick(values, 0, [])
    inner_points = points[1:-1] if pick(values, 1, False) else points
    if not inner_points:
        raise ParseError(
            "ml_bucketize with exclude_boundaries leaves out the first and the last point, and "
            f"{format_value(points)} has no others: give three points or more"
        )
    return build_bin_name(column, inner_points)


def _build_hash_bucket(column: str, values: Sequence[Any]) -> str:
    """Build a bucket by md5, which is stable across versions of the engine."""
    call = DUCKDB.call
    digits = call("substr", call("md5", f"CAST({column} AS VARCHAR)"), "1", "15")
    number = f"CAST({call('||', DUCKDB.quote_string('0x'), digits)} AS BIGINT)"
    return call("%", number, str(pick(values, 0, 1)))


def _build_ngrams(column: str, values: Sequence[Any]) -> str:
    call = DUCKDB.call
    sizes = pick(values, 0, 1)
    min_size, max_size = sizes if isinstance(sizes, list) else (sizes, sizes)
    separator = DUCKDB.quote_string(pick(values, 1, " "))
    ngrams = []
    for size in range(min_size, max_size + 1):
        last_start = call("-", call("len", column), str(size - 1))
        end = call("+", "sqlml_p9", str(size - 1))
        words = call("array_slice", column, "sqlml_p9", end)
        joined_words = call("list_aggregate", words, "'string_agg'", separator)
        starts = call("generate_series", "1", last_start)
        ngrams.append(call("list_transform", starts, f"lambda sqlml_p9: {joined_words}"))
    return ngrams[0] if len(ngrams) == 1 else call("list_concat", *ngrams)


def _build_normalized(column: str, values: Sequence[Any]) -> str:
    """Divide the numbers of a list by their p-norm; as in scikit-learn, a norm of 0 becomes 1."""
    call, degree = DUCKDB.call, pick(values, 0, 2)
    numbers = f"CAST({column} AS DOUBLE[])"
    size = call("abs", "sqlml_p9")
    if degree == 0:
        size = "CASE WHEN sqlml_p9 IS NOT NULL THEN CAST(sqlml_p9 != 0 AS INTEGER) END"
    elif degree not in (1, math.inf):
        size = call("pow", size, format_double(float(degree)))
    sizes = call("list_transform", numbers, f"lambda sqlml_p9: {size}")
    norm = call("list_aggregate", sizes, "'max'" if degree == math.inf else "'sum'")
    if degree not in (0, 1, math.inf):
        root = call("/", format_double(1.0), format_double(float(degree)))
        norm = call("sqrt", norm) if degree == 2 else call("pow", norm, root)
    # The list binds the norm, so that it is computed once.
    divisor = f"CASE WHEN sqlml_p8 = 0 THEN {format_double(1.0)} ELSE sqlml_p8 END"
    quotient = call("/", "sqlml_p9", divisor)
    quotients = call("list_transform", numbers, f"lambda sqlml_p9: {quotient}")
    norms = call("list_value", norm)
    return DUCKDB.at(call("list_transform", norms, f"lambda sqlml_p8: {quotients}"), 1)


ROW_FUNCTIONS: Mapping[str, Callable[[str, Sequence[Any]], str]] = {
    "ml_bucketize": _build_bucket,
    "ml_hash_bucketize": _build_hash_bucket,
    "ml_ngrams": _build_ngrams,
    "ml_normalizer": _build_normalized,
}
"""Maps each function of one column of a row to the function that builds its SQL."""


def expand_struct(
    name: str, columns: Mapping[str, str], degree: int | None = None
) -> dict[str, str]:
    """Map the joined names of columns to SQL, for ml_feature_cross or ml_polynomial_expand.

    A cross joins the texts of 2 to `degree` different columns; a polynomial multiplies 1 to
    `degree` columns, each of them any number of times. `columns` maps names to SQL.
    """
    degree = 2 if degree is None else degree
    if not 0 < len(columns) <= MAX_EXPANDED_COLUMNS:
        fault = f"1 to {MAX_EXPANDED_COLUMNS} columns, not {len(columns)}"
        raise ParseError(f"{name} takes {fault}: {SIGNATURES[name].example}")
    if name == "ml_polynomial_expand":
        values = {column: f"CAST({sql} AS DOUBLE)" for column, sql in columns.items()}
        symbol, separator, names = "*", None, [*_iterate_powers([*columns], degree)]
    else:
        values = {column: f"CAST({sql} AS VARCHAR)" for column, sql in columns.items()}
        sizes = range(2, min(degree, len(columns)) + 1)
        symbol, separator = "||", "'_'"
        names = [n for size in sizes for n in combinations(columns, size)]
    seen: dict[str, tuple[str, ...]] = {}
    for parts in names:
        other = seen.setdefault(fold("_".join(parts)), parts)
        if other is not parts:
            pairs = f"{', '.join(other)} and of {', '.join(parts)}"
            raise ParseError(
                f"{name} joins the names of {pairs} to the same {'_'.join(parts)}: rename a column"
            )
    return {"_".join(n): _join(symbol, [values[c] for c in n], separator) for n in names}


def _iterate_powers(columns: Sequence[str], degree: int) -> Iterator[tuple[str, ...]]:
    """Yield products in the order a, a_a, a_b, b, b_b.

    >>> list(_iterate_powers("ab", 2))
    [('a',), ('a', 'a'), ('a', 'b'), ('b',), ('b', 'b')]
    """
    for position, column in enumerate(columns if degree else ()):
        yield (column,)
        yield from ((column, *rest) for rest in _iterate_powers(columns[position:], degree - 1))


def _join(symbol: str, values: Sequence[str], separator: str | None = None) -> str:
    joined, *others = values
    for value in others:
        joined = joined if separator is None else DUCKDB.call(symbol, joined, separator)
        joined = DUCKDB.call(symbol, joined, value)
    return joined
