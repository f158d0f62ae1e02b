"""Expand BigQuery's preprocessing functions and STRUCT(a AS x) in DuckDB queries to plain SQL.

::

    ML.MIN_MAX_SCALER(x) OVER ()    ->  (x - min(x) OVER ()) / ...
    ml_bucketize(x, [10, 20])       ->  CASE WHEN x < 10 THEN 'bin_1' ... END
    STRUCT(a AS x)                  ->  struct_pack("x" := a)

In TRANSFORM (...), the same functions are fitted to the training rows instead of the query's rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlml.dialects.duckdb import DUCKDB
from sqlml.errors import BindError, ParseError, SqlmlError
from sqlml.parsing.tokens import (
    CLOSING_SYMBOLS,
    OPENING_SYMBOLS,
    Tokens,
    find_original_offset,
    tokenize,
)
from sqlml.planner.syntax.preprocessing import (
    MAX_CATEGORIES,
    ROW_FUNCTIONS,
    SIGNATURES,
    align_constants,
    check_argument_count,
    clip_to_unit,
    expand_struct,
    format_double,
    is_fitted,
    pick,
)
from sqlml.planner.syntax.table_forms import is_table_form, read_number
from sqlml.types import fold

_call = DUCKDB.call


def _bind(variable: str, value: str, body: str) -> str:
    """Build `body`, in which `variable` stands for a value that is computed once.

    The value may contain windows, which a lambda cannot contain.
    """
    values = _call("list_value", value)
    return DUCKDB.at(_call("list_transform", values, f"lambda {variable}: {body}"), 1)


def _pack(fields: Mapping[str, str]) -> str:
    quote = DUCKDB.quote_name
    return _call("struct_pack", *(f"{quote(name)} := {sql}" for name, sql in fields.items()))


_WORDS = ["struct", *(name.removeprefix("ml_") for name in SIGNATURES)]
_RELEVANT = re.compile(rf"(?:\b|_)(?:{'|'.join(_WORDS)})\b", re.IGNORECASE)
"""Words without which a statement has nothing to expand."""


def expand_preprocessing(sql: str, is_user_function: Callable[[str], bool]) -> str:
    """Expand the calls of preprocessing functions in a text, and the structs in it.

    A call is left to a function of the user that its name resolves to: `ml_bucketize`, or
    `ml.bucketize` in a schema or database `ml`.
    BindError is raised for a call with wrong arguments, and ParseError for invalid tokens.
    """
    if _RELEVANT.search(sql) is None:
        return sql
    tokens = tokenize(sql)
    return _Expander(sql, tokens, is_user_function).expand(0, len(tokens), 0, len(sql))


def locate_error(error: SqlmlError, expanded: str, sql: str) -> SqlmlError:
    """Return an error in the expanded text with its offset in `sql`, the text of the user."""
    if error.offset is None or error.sql != expanded:
        return error
    return error.at(sql, find_original_offset(expanded, sql, error.offset) or 0)


def replace_structs(sql: str) -> str:
    """Replace STRUCT(a AS x) by DuckDB's function.

    >>> replace_structs("f(STRUCT(a + 1 AS x, b), CAST(c AS STRUCT(d INTEGER)))")
    'f(system.main.struct_pack("x" := a + 1, "b" := b), CAST(c AS STRUCT(d INTEGER)))'
    """
    try:
        tokens = tokenize(sql)
    except ParseError:  # The engine reports the error.
        return sql
    return _Expander(sql, tokens, None).expand(0, len(tokens), 0, len(sql))


def has_preprocessing(tokens: Tokens) -> bool:
    """Return whether the tokens contain a call of a preprocessing function."""
    return any(_find_function(tokens, index) is not None for index in range(len(tokens)))


def _find_function(tokens: Tokens, start: int) -> tuple[str, int] | None:
    """Return the function whose call starts at an index, and the index of its opening bracket."""
    if not _may_begin_expression(tokens, start):
        return None
    token = tokens[start]
    is_dotted = token.upper == "ML" and len(tokens) > start + 2 and tokens[start + 1].is_symbol(".")
    opening = start + (3 if is_dotted else 1)
    if opening >= len(tokens) or not tokens[opening].is_symbol("("):
        return None
    word = tokens[opening - 1]
    name = f"ml_{fold(word.text)}" if is_dotted else fold(word.text)
    if word.kind != "word" or name not in SIGNATURES:
        return None
    after = tokens[tokens.closing.get(opening, len(tokens)) + 1 :][:3]
    is_cte = [t.upper for t in after[:1]] in (["AS"], ["USING"]) and any(
        t.is_symbol("(") or t.upper in ("KEY", "MATERIALIZED") for t in after[1:2]
    )
    is_cte |= [t.upper for t in after] == ["AS", "NOT", "MATERIALIZED"]
    return None if is_cte else (name, opening)


def _may_begin_expression(tokens: Tokens, start: int) -> bool:
    """Return whether an expression may begin at an index, by the tokens before it.

    A table, a CTE or an alias may have the name of a function and a list of columns in brackets.
    """
    previous = tokens[start - 1] if start else None
    if previous is None or previous.kind == "symbol":
        if previous is not None and previous.is_symbol(")"):
            return _ends_distinct_on(tokens, start - 1)
        return previous is None or previous.text not in (".", "]", "}")
    if previous.upper == "FROM":
        return start > 1 and tokens[start - 2].upper == "DISTINCT"  # a IS DISTINCT FROM b
    if previous.upper in ("AS", "ON"):
        words = _list_statement_words(tokens, start - 1)
        if previous.upper == "ON":
            return words[:1] != ["CREATE"] or "INDEX" not in words[:3]
        return not _DEFINING.isdisjoint(words) and "FROM" not in words
    return previous.upper in _BEFORE_EXPRESSIONS


def _ends_distinct_on(tokens: Tokens, closing: int) -> bool:
    opening = next((i for i, end in tokens.closing.items() if end == closing), 0)
    return [t.upper for t in tokens[max(opening - 2, 0) : opening]] == ["DISTINCT", "ON"]


def _list_statement_words(tokens: Tokens, end: int) -> list[str]:
    """Return the words before an index in the same statement."""
    ends = (i + 1 for i in range(end - 1, -1, -1) if tokens[i].is_symbol(";"))
    return [t.upper for t in tokens[next(ends, 0) : end]]


_BEFORE_EXPRESSIONS = frozenset(
    "ALL AND BETWEEN BY CASE DEFAULT DISTINCT ELSE ESCAPE FOR GLOB HAVING IF ILIKE IN LIKE LIMIT "
    "NOT OFFSET OR QUALIFY RETURNING SELECT THEN TO USING WHEN WHERE ZONE".split()
)
"""Words of SQL after which an expression may begin, except AS, FROM and ON."""

_DEFINING = frozenset(("FUNCTION", "MACRO"))
"""Words of a statement in which AS precedes an expression."""


_AFTER_SELECT_LIST = frozenset(
    "FROM WHERE GROUP HAVING WINDOW QUALIFY ORDER LIMIT OFFSET UNION EXCEPT INTERSECT USING".split()
)


def _find_select_items(tokens: Tokens) -> frozenset[int]:
    """Return the indices at which the items of select lists start."""
    starts: set[int] = set()
    in_list = [False]  # For each open bracket, whether a select list is being read.
    for index, token in enumerate(tokens):
        if token.kind == "symbol" and token.text in OPENING_SYMBOLS:
            in_list.append(False)
        elif token.kind == "symbol" and token.text in CLOSING_SYMBOLS:
            in_list = in_list[:-1] or [False]
        elif token.upper == "SELECT" or (token.upper in ("DISTINCT", "ALL") and index in starts):
            in_list[-1] = True
            starts.add(index + 1)
        elif token.upper in _AFTER_SELECT_LIST:
            in_list[-1] = False
        elif token.is_symbol(",") and in_list[-1]:
            starts.add(index + 1)
    return frozenset(starts)


@dataclass(frozen=True)
class _Expander:
    """The expansion of `sql`; without `is_user_function`, only structs are replaced."""

    sql: str
    tokens: Tokens
    is_user_function: Callable[[str], bool] | None

    @cached_property
    def select_items(self) -> frozenset[int]:
        return _find_select_items(self.tokens)

    def expand(self, begin: int, end: int, start: int, stop: int) -> str:
        """Return sql[start:stop], whose tokens are tokens[begin:end], with all calls expanded."""
        tokens, pieces, copied_end = self.tokens, [], start
        option_structs: set[int] = set()
        index = begin
        while index < end:
            token, replacement = tokens[index], None
            if token.start < copied_end:
                index += 1
                continue
            function = self._find_call(index)
            if function is not None:
                start_index = index
                replacement, index = self._expand_call(index, *function)
                if start_index in self.select_items and self._ends_item(index):
                    replacement += f" AS {function[0]}"
                    end_offset = tokens[index - 1].end  # In `f(x)FROM t`, no blank follows.
                    replacement += "" if self.sql[end_offset : end_offset + 1] in ",);" else " "
            elif token.upper == "STRUCT" and index not in option_structs:
                replacement, next_index = self._expand_struct(index)
                index = index if replacement is None else next_index
            elif is_table_form(tokens, index):
                option_structs.update(self._list_options(index))
            if replacement is None:
                index += 1
                continue
            pieces += [self.sql[copied_end : token.start], replacement]
            copied_end = tokens[index - 1].end
        return "".join((*pieces, self.sql[copied_end:stop]))

    def _find_call(self, index: int) -> tuple[str, int] | None:
        """Return the function whose call starts at an index, unless it is the user's own."""
        is_user_function = self.is_user_function
        function = None if is_user_function is None else _find_function(self.tokens, index)
        if function is None or is_user_function is None:
            return None
        name, opening = function
        is_dotted = opening > index + 1
        own_name = f"ml.{name.removeprefix('ml_')}" if is_dotted else name
        return None if is_user_function(own_name) else function

    def _ends_item(self, index: int) -> bool:
        """Return whether the item of a select list ends before an index."""
        token = self.tokens[index] if index < len(self.tokens) else None
        if token is None or token.upper in _AFTER_SELECT_LIST:
            return True
        return token.kind == "symbol" and token.text in (",", ")", ";")

    def _expand_range(self, begin: int, end: int) -> str:
        tokens = self.tokens
        return self.expand(begin, end, tokens[begin].start, tokens[end - 1].end)

    def _list_options(self, start: int) -> list[int]:
        """Return the indices of the arguments of a table form, whose options are STRUCT(...)."""
        opening = next(i for i in range(start, len(self.tokens)) if self.tokens[i].is_symbol("("))
        closing = self.tokens.closing.get(opening, len(self.tokens))
        return [begin for begin, _ in self.tokens.split_commas(opening + 1, closing)]

    def _find_closing(self, opening: int) -> int:
        closing = self.tokens.closing.get(opening)
        if closing is None:
            raise BindError("this bracket is not closed", self.sql, self.tokens[opening].start)
        return closing

    def _expand_struct(self, start: int) -> tuple[str | None, int]:
        """Return the SQL of a STRUCT with named fields and the index after it, or (None, 0)."""
        tokens = self.tokens
        follows_dot = start > 0 and tokens[start - 1].is_symbol(".")
        if follows_dot or start + 1 >= len(tokens) or start + 1 not in tokens.closing:
            return None, 0
        closing = tokens.closing[start + 1]
        ranges = tokens.split_commas(start + 2, closing)
        if not any(self._has_alias(*item) for item in ranges):
            return None, 0  # A type, or the values of ROW(...).
        fields = [*self._read_fields(ranges)]
        columns = dict(fields)
        if len(columns) < len(fields):
            raise BindError("a STRUCT has a name twice", self.sql, tokens[start].start)
        return _pack(columns), closing + 1

    def _has_alias(self, begin: int, end: int) -> bool:
        is_long = end - begin >= 3
        return is_long and self.tokens[end - 2].upper == "AS" and self.tokens[end - 1].is_identifier

    def _read_fields(self, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[str, str]]:
        """Yield the name and the SQL of each field `a AS x`, `a`, `t.a` or `'x': a` of a struct."""
        for begin, end in ranges:
            tokens = self.tokens[begin:end]
            if self._has_alias(begin, end):
                yield tokens[-1].text, self._expand_range(begin, end - 2)
            elif len(tokens) > 2 and tokens[1].is_symbol(":"):
                yield tokens[0].text, self._expand_range(begin + 2, end)
            elif all(t.is_symbol(".") if i % 2 else t.is_identifier for i, t in enumerate(tokens)):
                yield tokens[-1].text, self._expand_range(begin, end)
            else:
                message = "a field of a STRUCT needs a name, as in STRUCT(a + b AS total)"
                raise BindError(message, self.sql, self.tokens[min(begin, end - 1)].start)

    def _expand_call(self, start: int, name: str, opening: int) -> tuple[str, int]:
        """Return the SQL of a call, and the index after it."""
        tokens, closing = self.tokens, self._find_closing(opening)
        ranges = tokens.split_commas(opening + 1, closing)
        if any(begin >= end for begin, end in ranges):
            raise BindError("an argument is missing", self.sql, tokens[opening].start)
        try:
            check_argument_count(name, len(ranges))
            values = align_constants(name, [self._read_constant(*item) for item in ranges[1:]])
            if name in ("ml_feature_cross", "ml_polynomial_expand"):
                return self._expand_struct_call(name, ranges[0], values), closing + 1
            if name == "ml_multi_hot_encoder":
                raise ParseError(f"{name} works only in TRANSFORM (...) of CREATE MODEL")
            column = self._expand_range(*ranges[0])
            if not is_fitted(name):
                body = ROW_FUNCTIONS[name]("sqlml_row", values)
                return _bind("sqlml_row", column, body), closing + 1
            over, end = self._read_over(name, closing)
            self._check_repeatable(name, ranges[0][0], end)
            return _WINDOWS[name](_Window(column, over, values)), end
        except ParseError as error:
            if error.sql is not None:
                raise
            raise BindError(error.message, self.sql, tokens[start].start) from None

    def _expand_struct_call(self, name: str, item: tuple[int, int], values: Sequence[Any]) -> str:
        begin, end = item
        tokens = self.tokens
        opening = begin + (tokens[begin].upper == "STRUCT")
        is_struct = tokens[opening].is_symbol("{") or opening > begin
        fields: list[tuple[str, str]] = []
        if is_struct and tokens.closing.get(opening) == end - 1:
            fields = list(self._read_fields(tokens.split_commas(opening + 1, end - 1)))
        columns = dict(fields)
        min_count = 2 if name == "ml_feature_cross" else 1
        if not min_count <= len(columns) == len(fields):
            count = "at least two columns" if min_count == 2 else "columns with different names"
            example = SIGNATURES[name].example
            raise ParseError(f"{name} takes a struct of {count}: {example}")
        quote = DUCKDB.quote_string
        fields_sql = {c: _call("struct_extract", "sqlml_row", quote(c)) for c in columns}
        expressions = expand_struct(name, fields_sql, *values)
        return _bind("sqlml_row", _pack(columns), _pack(expressions))

    def _read_over(self, name: str, closing: int) -> tuple[str, int]:
        """Return the OVER clause after a call, and the index after it."""
        tokens, index = self.tokens, closing + 2
        if index >= len(tokens) or tokens[closing + 1].upper != "OVER":
            raise ParseError(f"{name} needs OVER (): {SIGNATURES[name].example}")
        end = self._find_closing(index) + 1 if tokens[index].is_symbol("(") else index + 1
        return self._expand_range(closing + 1, end), end

    def _check_repeatable(self, name: str, begin: int, end: int) -> None:
        if any(token.kind == "param" and token.text == "?" for token in self.tokens[begin:end]):
            raise ParseError(f"{name} reads its column several times, so it cannot contain ?")

    def _read_constant(self, begin: int, end: int) -> Any:
        tokens = self.tokens[begin:end]
        first, last = tokens[0], tokens[-1]
        if len(tokens) == 1 and first.kind == "string":
            return first.text
        if len(tokens) == 1 and first.upper in _CONSTANTS:
            return _CONSTANTS[first.upper]
        signs = "".join(token.text for token in tokens[:-1])
        if last.kind == "number" and signs in ("", "-", "+", ".", "-.", "+."):
            number = read_number(("." if "." in signs else "") + last.text)
            return -number if "-" in signs else number
        opening = begin + (first.upper == "ARRAY")
        if self.tokens[opening].is_symbol("[") and self.tokens.closing.get(opening) == end - 1:
            items = self.tokens.split_commas(opening + 1, end - 1)
            return [self._read_constant(*item) for item in items]
        if first.upper == "CAST" and len(tokens) > 2 and fold(tokens[2].text) in _INFINITE:
            return float("inf")
        message = f"expected a constant instead of {self.sql[first.start : last.end]}"
        raise BindError(message, self.sql, first.start)


_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}
_INFINITE = ("+inf", "inf", "infinity", "+infinity")


@dataclass(frozen=True, slots=True)
class _Window:
    """A call that depends on all rows of a window: its column, OVER clause and constants."""

    column: str
    over: str
    values: Sequence[Any]

    @property
    def number(self) -> str:
        return f"CAST({self.column} AS DOUBLE)"

    def aggregate(self, function: str, *arguments: str) -> str:
        return f"{_call(function, *arguments)} {self.over}"

    def scale(self, center: str, spread: str) -> str:
        """Build (x - center) / spread; a spread of 0 or NULL becomes 1."""
        centered, one = _call("-", self.number, center), format_double(1.0)
        return _call("/", centered, f"CASE WHEN {spread} != 0 THEN {spread} ELSE {one} END")

    def quantile(self, level: float) -> str:
        return self.aggregate("quantile_cont", self.number, repr(level))


def _build_standard_scaler(window: _Window) -> str:
    mean, spread = (window.aggregate(f, window.number) for f in ("avg", "stddev_samp"))
    return window.scale(mean, spread)


def _build_min_max_scaler(window: _Window) -> str:
    low, high = (window.aggregate(f, window.number) for f in ("min", "max"))
    return clip_to_unit(window.scale(low, _call("-", high, low)))


def _build_max_abs_scaler(window: _Window) -> str:
    return window.scale(format_double(0.0), window.aggregate("max", _call("abs", window.number)))


def _build_robust_scaler(window: _Window) -> str:
    lower, upper = pick(window.values, 0, [25, 75])
    spread = _call("-", window.quantile(upper / 100), window.quantile(lower / 100))
    return window.scale(
        window.quantile(0.5) if pick(window.values, 1, True) else format_double(0.0),
        spread if pick(window.values, 2, True) else format_double(1.0),
    )


def _build_imputer(window: _Window) -> str:
    strategy = pick(window.values, 0, "mean")
    function = {"mean": "avg", "median": "median", "most_frequent": "mode"}[strategy]
    return f"COALESCE({window.column}, {window.aggregate(function, window.column)})"


def _build_quantile_bucket(window: _Window) -> str:
    count = pick(window.values, 0, 2)
    levels = ", ".join(repr(n / count) for n in range(1, count))
    quantiles = window.aggregate("quantile_disc", window.number, f"[{levels}]")
    points = _call("list_distinct", "sqlml_points")
    below = _call("list_filter", points, "lambda sqlml_point: sqlml_point <= sqlml_number")
    name = _call("||", "'bin_'", f"CAST({_call('+', _call('len', below), '1')} AS VARCHAR)")
    is_null = "CASE WHEN sqlml_number IS NOT NULL"
    names = _bind("sqlml_number", window.number, f"{is_null} THEN {name} END")
    return _bind("sqlml_points", quantiles, names)


def _build_categories(window: _Window, limits: Sequence[Any]) -> str:
    """Build the sorted list of the most frequent texts of a window.

    DuckDB computes it for each row of a partition, so it sorts only if there are too many texts:
    the keys of a histogram are sorted.
    """

    def sort(values: str) -> str:
        return _call("list_sort", values, "'ASC'")  # The session may have another default.

    max_count, min_frequency = pick(limits, 0, MAX_CATEGORIES), pick(limits, 1, 1)
    texts = f"CAST({window.column} AS VARCHAR)"
    histogram = window.aggregate("histogram", texts)
    entries = _call("map_entries", histogram)
    count = _call("struct_extract", "sqlml_e", "'value'")
    key = _call("struct_extract", "sqlml_e", "'key'")
    frequent = _call("list_filter", entries, f"lambda sqlml_e: {count} >= {min_frequency}")
    negative = _call("-", f"CAST({count} AS BIGINT)")
    ranks = _call("struct_pack", f"n := {negative}", f"k := {key}")
    ranked = sort(_call("list_transform", frequent, f"lambda sqlml_e: {ranks}"))
    top = _call("array_slice", ranked, "1", str(max_count))
    text = _call("struct_extract", "sqlml_e", "'k'")
    limited = sort(_call("list_transform", top, f"lambda sqlml_e: {text}"))
    keys = _call("list_transform", frequent, f"lambda sqlml_e: {key}")
    if min_frequency <= 1:
        keys = _call("map_keys", histogram)
    fits = f"{_call('cardinality', histogram)} <= {max_count}"
    return f"CASE WHEN {fits} THEN {keys} ELSE {limited} END"


def _build_label_encoder(window: _Window) -> str:
    categories = _build_categories(window, window.values)
    position = _call("list_position", categories, f"CAST({window.column} AS VARCHAR)")
    return f"COALESCE({position}, 0)"


def _build_one_hot_encoder(window: _Window) -> str:
    categories = _build_categories(window, window.values[1:])
    text = f"CAST({window.column} AS VARCHAR)"
    index = f"COALESCE({_call('list_position', categories, text)}, 0)"
    value = format_double(1.0)
    if pick(window.values, 0, "none") == "most_frequent":
        dropped = DUCKDB.at(_build_categories(window, (1,)), 1)
        value = f"CASE WHEN {text} = {dropped} THEN {format_double(0.0)} ELSE {value} END"
    item = _call("struct_pack", f'"index" := CAST({index} AS BIGINT)', f'"value" := {value}')
    return _call("list_value", item)


_WINDOWS: Mapping[str, Callable[[_Window], str]] = {
    "ml_standard_scaler": _build_standard_scaler,
    "ml_min_max_scaler": _build_min_max_scaler,
    "ml_max_abs_scaler": _build_max_abs_scaler,
    "ml_robust_scaler": _build_robust_scaler,
    "ml_imputer": _build_imputer,
    "ml_quantile_bucketize": _build_quantile_bucket,
    "ml_label_encoder": _build_label_encoder,
    "ml_one_hot_encoder": _build_one_hot_encoder,
}
"""Maps each function that depends on all rows to the function that builds its SQL in a query."""
