"""The arguments of model calls, read from the tokens of a statement.

sqlglot's tree does not keep everything that matters here, such as the spans of EXCLUDE lists or the
spelling of arguments.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlml.errors import BindError, ParseError
from sqlml.parsing.places import Span, overlaps
from sqlml.parsing.tokens import CLOSING_SYMBOLS, OPENING_SYMBOLS, Token, Tokens, tokenize
from sqlml.planner.syntax.call_options import (
    CALL_OPTIONS,
    FUNCTIONS,
    NamedArgument,
    check_options,
)
from sqlml.planner.syntax.outline import (
    Argument,
    Key,
    Literal,
    MetricCall,
    ModelCall,
    ModelColumn,
    Parameter,
    Star,
)
from sqlml.planner.syntax.preprocessing_calls import has_preprocessing
from sqlml.planner.syntax.table_forms import has_table_form
from sqlml.types import fold

METRICS = ("roc_auc", "average_precision", "log_loss", "brier_score", "rmse", "mae", "r2")
"""The aggregates that compare labels with predictions."""


_PATTERN_CLAUSES = frozenset({"LIKE", "ILIKE", "GLOB", "SIMILAR", "NOT"})
"""Keywords of clauses after a star that cannot be combined with an EXCLUDE list."""

_STAR_CLAUSES = frozenset({"EXCLUDE", "EXCEPT", "REPLACE", "RENAME"}) | _PATTERN_CLAUSES


def find_parameters(sql: str) -> tuple[Parameter, ...]:
    """Return the parameters in `sql`, a DuckDB statement, even if sqlglot cannot parse it."""
    return read_parameters(tokenize(sql))


def read_parameters(tokens: Tokens) -> tuple[Parameter, ...]:
    return tuple(_make_parameter(token) for token in tokens if token.kind == "param")


def _make_parameter(token: Token) -> Parameter:
    return Parameter(Span(token.start, token.end), token.text)


def has_model_calls(sql: Any, dialect: str = "duckdb") -> bool:
    """Return whether `sql` is a string that contains a model call, even an invalid one.

    Calls of preprocessing functions count, too.
    """
    try:
        return isinstance(sql, str) and (
            replace_calls_with_null(sql, dialect) is not None
            or (dialect == "duckdb" and has_preprocessing(tokenize(sql)))
        )
    except ParseError:
        return False
    except BindError:
        return True


def replace_calls_with_null(sql: str, dialect: str = "duckdb") -> str | None:
    """Replace model calls with NULL, or return None if `sql` has neither calls nor table forms."""
    tokens = tokenize(sql, dialect)
    arguments = ArgumentReader(sql, tokens)
    new_sql = ""
    copied_end = 0
    has_call = False
    for index, token in enumerate(tokens[:-1]):
        name = fold(token.text) if token.kind == "word" else ""
        is_call = name in FUNCTIONS and tokens[index + 1].is_symbol("(")
        if token.start < copied_end or not is_call or _follows_dot(tokens, index):
            continue
        if arguments.read_call(name, Span(token.start, token.end)) is None:
            continue
        new_sql += sql[copied_end : token.start] + "NULL"
        copied_end = arguments.find_call_span(token.start).end
        has_call = True
    return new_sql + sql[copied_end:] if has_call or has_table_form(tokens) else None


def _follows_dot(tokens: Tokens, index: int) -> bool:
    return index > 0 and tokens[index - 1].is_symbol(".")


@dataclass(frozen=True, slots=True)
class StringCall:
    """A call `name('text', ...)`. A qualified call has a schema before the function's name."""

    name: str
    text: str
    is_qualified: bool


def find_string_calls(sql: str) -> list[StringCall]:
    """Return the calls whose first argument is a string, or [] if `sql` cannot be tokenized."""
    try:
        tokens = tokenize(sql)
    except ParseError:
        return []
    return [
        StringCall(name_token.text, argument_token.text, _follows_dot(tokens, index))
        for index, (name_token, bracket, argument_token, next_token) in enumerate(
            zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False)
        )
        if name_token.is_identifier and bracket.is_symbol("(") and argument_token.kind == "string"
        if next_token.is_symbol(",") or next_token.is_symbol(")")
    ]


def find_identifiers(sql: str) -> tuple[tuple[str, int, bool], ...]:
    """Return the identifiers in `sql`, a DuckDB statement, in the order of their offsets.

    Each triple contains the folded identifier, the offset, and whether a dot precedes it.
    """
    tokens = tokenize(sql)
    return tuple(
        (fold(token.text), token.start, _follows_dot(tokens, index))
        for index, token in enumerate(tokens)
        if token.is_identifier
    )


class ArgumentReader:
    """A reader of the model calls in `sql`, whose tokens are `tokens`.

    Public methods accept offsets and spans in `sql`. Private methods read tokens[start:end].
    """

    def __init__(self, sql: str, tokens: Tokens) -> None:
        self._sql = sql
        self._tokens = tokens
        self._starts = [token.start for token in tokens]
        self._index_at = {start: i for i, start in enumerate(self._starts)}

    def find_call_span(self, start: int) -> Span:
        """Return the span of the call whose name begins at the offset `start`."""
        index = self._index_at[start]
        closing_index = self._tokens.closing.get(index + 1)
        assert closing_index is not None, "the parser has accepted the call"
        return self._span(index, closing_index + 1)

    def find_key_after(self, span: Span) -> Key | None:
        """Return the key after a span, such as `['yes']`, or None if there is no key."""
        opening = bisect_left(self._starts, span.end)
        closing = self._tokens.closing.get(opening)
        if closing is None or not self._tokens[opening].is_symbol("["):
            return None
        literal = self._read_literal(opening + 1, closing) if closing > opening + 1 else None
        return None if literal is None else Key(self._span(opening, closing + 1), literal)

    def read_call(self, function: str, name_span: Span) -> ModelCall | None:
        """Read the call of `function` whose name is at `name_span`.

        Return None if no argument shows that this is a model call, since users may have a function
        of the same name. Raises BindError if an argument cannot be valid.
        """
        tokens, name_index = self._tokens, self._index_at[name_span.start]
        closing_index = tokens.closing.get(name_index + 1)
        ranges = [] if closing_index is None else tokens.split_commas(name_index + 2, closing_index)
        if closing_index is None or not ranges or tokens[name_index].kind != "word":
            return None
        (model_start, model_end), *argument_ranges = ranges
        model = self._read_model(model_start, model_end)
        if model is None:
            # The first argument is an expression, which may name the model of each row. It does if
            # a star follows, since no other function takes a star, and perhaps if a struct follows.
            if model_end == model_start or not any(
                end > begin and (self._read_star(begin, end) or self._read_fields(begin, end))
                for begin, end in argument_ranges
            ):
                return None
            model = ModelColumn(self._span(model_start, model_end))
        arguments: list[Argument] = []
        options: dict[str, Any] = {}
        for begin, end in argument_ranges:
            if begin == end:
                offset = tokens[min(end, closing_index)].start
                raise BindError("an argument is empty", self._sql, offset)
            argument = self._read_argument(begin, end)
            # A name in double quotes always means a feature.
            option = None if argument.name is None else CALL_OPTIONS.get(tokens[begin].upper)
            if (
                option is None
                or (option.functions and function not in option.functions)
                or (option.only_by_column and not isinstance(model, ModelColumn))
            ):
                arguments.append(argument)
                continue
            named_argument = NamedArgument(argument, self._sql, tokens, begin, end, function)
            value = option.read(named_argument)
            if option.field in options:
                message = f"{named_argument.name} := is given twice"
                raise BindError(message, self._sql, tokens[begin].start)
            options[option.field] = value
        check_options(options, self._sql, name_span.start)
        written_arguments = []
        identifiers: set[str] = set()
        for argument in arguments:
            argument_tokens = self._get_tokens(argument.span)
            written_value = "\0".join(token.kind[0] + token.text for token in argument_tokens)
            written_arguments.append((argument.name, written_value))
            identifiers |= {fold(token.text) for token in argument_tokens if token.is_identifier}
        return ModelCall(
            function,
            name_span,
            model,
            self._span(model_start, model_end),
            tuple(arguments),
            tuple(written_arguments),
            frozenset(identifiers),
            **options,
        )

    def read_metric(self, function: str, start: int) -> MetricCall:
        """Read the call of a metric whose name is at the offset `start`, with FILTER and OVER."""
        tokens, name_index = self._tokens, self._index_at[start]
        closing = tokens.closing[name_index + 1]
        modifier = "DISTINCT" if tokens[name_index + 2].upper in ("DISTINCT", "ALL") else None
        arguments = []
        for begin, end in tokens.split_commas(name_index + 2, closing):
            has_name = begin + 1 < end and tokens[begin + 1].text in (":=", "=>")
            name = fold(tokens[begin].text) if has_name else None
            value = begin + 2 * has_name
            if value < end:
                arguments.append((name, self._span(value, end)))
            if any(t.upper == "ORDER" and t.kind == "word" for t in tokens[value:end]):
                depth = 0
                for token in tokens[value:end]:
                    depth += (token.text in OPENING_SYMBOLS) - (token.text in CLOSING_SYMBOLS)
                    modifier = "ORDER BY" if not depth and token.upper == "ORDER" else modifier
        end, condition, window = closing + 1, None, None
        if self._is_word(end, "FILTER") and self._has_symbol(end + 1, "("):
            closing = tokens.closing[end + 1]
            begin = end + 2 + self._is_word(end + 2, "WHERE")
            condition, end = self._span(begin, closing), closing + 1
        if self._is_word(end, "OVER"):
            closing = tokens.closing[end + 1] if self._has_symbol(end + 1, "(") else end + 1
            window, end = self._span(end + 1, closing + 1), closing + 1
        span = self._span(name_index, end)
        return MetricCall(
            function=function,
            span=span,
            arguments=tuple(arguments),
            condition=condition,
            window=window,
            modifier=modifier,
        )

    def read_number(self, span: Span | None) -> Literal | Parameter | None:
        """Return the number or parameter at a span, or None if the span contains anything else."""
        tokens = [] if span is None else self._get_tokens(span)
        if len(tokens) != 1:
            return None
        if tokens[0].kind == "param":
            return _make_parameter(tokens[0])
        return Literal("number", tokens[0].text) if tokens[0].kind == "number" else None

    def find_operator(self, start: int, end: int, text: str) -> Span | None:
        """Return the span of the operator `text` if it occurs once in sql[start:end], or None."""
        matches = [t for t in self._get_tokens(Span(start, end)) if t.is_symbol(text)]
        return Span(matches[0].start, matches[0].end) if len(matches) == 1 else None

    def find_local_names(self, span: Span, names: frozenset[str]) -> tuple[Span, ...]:
        """Return the spans inside `span` that read a variable `x` in `names` or a field `x.a`."""
        if not names:
            return ()
        tokens, spans = self._tokens, []
        index = self._index_at[span.start]
        while index < len(tokens) and tokens[index].start < span.end:
            begin = index
            index += 1
            if not tokens[begin].is_identifier or fold(tokens[begin].text) not in names:
                continue
            is_call_or_name = self._has_symbol(index, "(") or self._has_symbol(index, ":=")
            if is_call_or_name or tokens[begin - 1].is_symbol("."):
                continue
            while (
                index + 1 < len(tokens)
                and tokens[index].is_symbol(".")
                and tokens[index + 1].is_identifier
            ):
                index += 2
            spans.append(self._span(begin, index))
        return tuple(spans)

    def uses_row(self, alias: str, span: Span, source_span: Span, calls: Sequence[Span]) -> bool:
        """Return whether the table alias `alias` may mean the table's whole row within `span`.

        Before a dot, the alias only qualifies a column. `source_span`, where the alias is defined,
        and `calls` are not searched.
        """
        tokens = self._tokens
        first_index = bisect_left(self._starts, span.start)
        for index in range(first_index, bisect_left(self._starts, span.end)):
            token = tokens[index]
            if not token.is_identifier or fold(token.text) != alias:
                continue
            name_span = Span(token.start, token.end)
            if source_span.contains(name_span) or overlaps(name_span, calls):
                continue
            if not self._has_symbol(index + 1, ".") and not _follows_dot(tokens, index):
                return True
        return False

    def read_star_spans(self, span: Span | None) -> tuple[Span, Span | None] | None:
        """Return the span of a star and the span of the bracket that opens the EXCLUDE list.

        The second span is None if the star has no EXCLUDE list. Return None instead of both spans
        if the star cannot have an EXCLUDE list, as in `* LIKE 'a%'`.
        """
        tokens = self._tokens
        index = self._index_at[span.start] if span is not None else -1
        if index < 0 or not tokens[index].is_symbol("*"):
            return None
        star_span = self._span(index, index + 1)
        next_word = tokens[index + 1].upper if index + 1 < len(tokens) else ""
        if next_word in _PATTERN_CLAUSES:
            return None
        if next_word not in ("EXCLUDE", "EXCEPT"):
            return star_span, None
        has_list = self._has_symbol(index + 2, "(")
        return (star_span, self._span(index + 2, index + 3)) if has_list else None

    def _is_word(self, index: int, word: str) -> bool:
        return index < len(self._tokens) and self._tokens[index].upper == word

    def _has_symbol(self, index: int, text: str) -> bool:
        return index < len(self._tokens) and self._tokens[index].is_symbol(text)

    def _span(self, start: int, end: int) -> Span:
        return Span(self._tokens[start].start, self._tokens[end - 1].end)

    def _get_tokens(self, span: Span) -> Sequence[Token]:
        first_index = bisect_left(self._starts, span.start)
        return self._tokens[first_index : bisect_left(self._starts, span.end)]

    def _read_model(self, start: int, end: int) -> str | Parameter | ModelColumn | None:
        """Read the model from the first argument: 'm', a parameter, MODEL m or MODEL (column)."""
        token = self._tokens[start]
        if end - start == 1 and token.kind == "string":
            return token.text
        if end - start == 1 and token.kind == "param":
            return _make_parameter(token)
        if end - start < 2 or token.upper != "MODEL":
            return None
        name_token = self._tokens[start + 1]
        if name_token.kind == "param" and end - start == 2:
            return _make_parameter(name_token)
        if name_token.is_symbol("(") and self._tokens.closing.get(start + 1) == end - 1:
            return ModelColumn(self._span(start + 1, end))
        is_name = name_token.is_identifier or name_token.kind == "string"
        return "".join(t.text for t in self._tokens[start + 1 : end]) if is_name else None

    def _read_argument(self, start: int, end: int) -> Argument:
        tokens = self._tokens
        name, value_start = None, start
        if end - start > 2 and tokens[start].is_identifier:
            if tokens[start + 1].is_symbol(":=") or tokens[start + 1].is_symbol("=>"):
                name, value_start = tokens[start].text, start + 2
        value_token = tokens[value_start]
        return Argument(
            self._span(value_start, end),
            name,
            tokens[start].start,
            self._read_literal(value_start, end),
            _make_parameter(value_token)
            if value_token.kind == "param" and end - value_start == 1
            else None,
            None if name is not None else self._read_star(value_start, end),
            self._read_fields(value_start, end),
            self._read_column(value_start, end),
            self._read_items(value_start, end),
        )

    def _read_literal(self, start: int, end: int) -> Literal | None:
        token, is_negative = self._tokens[start], self._tokens[start].is_symbol("-")
        if end - start != 1 + is_negative:
            return None
        last_token = self._tokens[end - 1]
        if last_token.kind == "number":
            return Literal("number", last_token.text, is_negative)
        if is_negative:
            return None
        if token.kind == "string":
            return Literal("string", token.text)
        return Literal("word", token.upper) if token.upper in ("NULL", "TRUE", "FALSE") else None

    def _read_column(self, start: int, end: int) -> str | None:
        tokens = self._tokens[start:end]
        for index, token in enumerate(tokens):
            if not (token.is_identifier if index % 2 == 0 else token.is_symbol(".")):
                return None
        return fold(tokens[-1].text) if len(tokens) % 2 else None

    def _read_items(self, start: int, end: int) -> tuple[Argument, ...] | None:
        """Return the elements of `[a, b]` or `ARRAY[a, b]`, or None for any other argument."""
        tokens = self._tokens
        start += tokens[start].upper == "ARRAY" and end - start > 1
        if not tokens[start].is_symbol("[") or tokens.closing.get(start) != end - 1:
            return None
        if any(token.upper == "FOR" for token in tokens[start:end]):
            return None
        ranges = tokens.split_commas(start + 1, end - 1) if end - start > 2 else []
        return tuple(self._read_argument(begin, stop) for begin, stop in ranges)

    def _read_fields(self, start: int, end: int) -> tuple[tuple[str, Span], ...] | None:
        """Return each name and value span in `{'a': x, b: y}`, or None for other arguments."""
        tokens = self._tokens
        if not tokens[start].is_symbol("{") or tokens.closing.get(start) != end - 1:
            return None
        fields = []
        for begin, stop in tokens.split_commas(start + 1, end - 1):
            if stop - begin < 3 or not tokens[begin + 1].is_symbol(":"):
                return None
            if tokens[begin].kind not in ("string", "word", "name"):
                return None
            fields.append((tokens[begin].text, self._span(begin + 2, stop)))
        return tuple(fields)

    def _read_star(self, start: int, end: int) -> Star | None:
        tokens = self._tokens
        is_unpacked = tokens[start].is_symbol("*") and tokens[start + 1].upper == "COLUMNS"
        select_start = start + is_unpacked
        star_index = self._skip_qualifier(select_start, end)
        is_columns = (
            tokens[star_index].upper == "COLUMNS"
            and star_index + 1 < end
            and tokens[star_index + 1].is_symbol("(")
            and tokens.closing.get(star_index + 1) == end - 1
        )
        is_plain = tokens[star_index].is_symbol("*") and (
            star_index + 1 == end or tokens[star_index + 1].upper in _STAR_CLAUSES
        )
        if not (is_columns or is_plain):
            return None
        replaced, renamed = (self._list_star_items(start, end, w) for w in ("REPLACE", "RENAME"))
        return Star(
            self._span(select_start, end),
            self._read_qualifier(select_start, end),
            frozenset(
                fold(".".join(t.text for t in tokens[begin:stop] if t.is_identifier))
                for word in ("EXCLUDE", "EXCEPT")
                for begin, stop in self._list_star_items(start, end, word)
            ),
            {fold(tokens[stop - 1].text): self._span(begin, stop - 2) for begin, stop in replaced},
            {fold(tokens[stop - 1].text): self._span(stop - 3, stop - 2) for _, stop in renamed},
        )

    def _skip_qualifier(self, start: int, end: int) -> int:
        """Return the index after a qualifier `t.` or `s.t.`, or `start` without a qualifier."""
        tokens = self._tokens
        while start + 1 < end and tokens[start].is_identifier and tokens[start + 1].is_symbol("."):
            start += 2
        return start

    def _read_qualifier(self, start: int, end: int) -> Span | None:
        """Return the span of `t.` in `t.*`, `t.COLUMNS(...)` or `COLUMNS(t.*)`, or None for `*`."""
        if self._tokens[start].upper == "COLUMNS" and self._tokens[start + 1].is_symbol("("):
            start, end = start + 2, end - 1
        qualifier_end = self._skip_qualifier(start, end)
        return self._span(start, qualifier_end) if qualifier_end > start else None

    def _list_star_items(self, start: int, end: int, word: str) -> list[tuple[int, int]]:
        """Return each item's range of token indices in `* WORD (item, ...)` or `* WORD item`."""
        tokens = self._tokens
        for index in range(start, end):
            if tokens[index].upper == word and index + 1 < end:
                if tokens[index + 1].is_symbol("("):
                    closing = tokens.closing.get(index + 1)
                    return [] if closing is None else tokens.split_commas(index + 2, closing)
                return [(index + 1, end)]
        return []


def find_literals(sql: str, dialect: str) -> frozenset[str]:
    """Return the literals in `sql`, in which equal numbers are spelled alike.

    >>> sorted(find_literals("CASE WHEN a > 1.50 THEN 'b' END", "duckdb"))
    ["'b'", '1.5']
    """
    literals = set[str]()
    for token in tokenize(sql, dialect):
        if token.kind == "string":
            literals.add(f"'{token.text}'")
        elif token.kind == "number":
            with suppress(ValueError):
                literals.add(repr(float(token.text)))
        elif token.upper in ("TRUE", "FALSE"):
            literals.add(token.upper)
    return frozenset(literals)
