"""The table forms in a text, such as `ml_predict(MODEL m, TABLE t)`, read from its tokens.

As in BigQuery, each may also be written `ML.PREDICT(...)`, and its options as `STRUCT(0.5 AS
threshold)` instead of `threshold := 0.5`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlml.errors import BindError
from sqlml.parsing.places import Span
from sqlml.parsing.tokens import Token, Tokens, tokenize
from sqlml.planner.syntax.forms import (
    FORMS,
    QUERIES,
    FormOption,
    read_option,
    read_positional_option,
    read_struct_options,
)
from sqlml.suggestions import closest
from sqlml.types import fold


@dataclass(frozen=True, slots=True)
class TableForm:
    """A table form: `ml_predict(MODEL m, TABLE t)`, `ML.PREDICT(MODEL m, (query))` or
    `ml_evaluate(MODEL m)`.

    Attributes:
        function: one of `FORMS`.
        model: the reference to the model; None if a parameter or the expression `column` names it,
            or if the form has no model.
        model_span: the span of the reference.
        rows: the spans of its rows, without TABLE.
        options: its options by name.
    """

    span: Span
    function: str
    model: str | None
    model_span: Span
    rows: tuple[Span, ...]
    options: Mapping[str, FormOption]
    column: Span | None = None

    def whole_number(self, name: str, default: int, least: int, most: int, sql: str) -> int:
        """Return an option that is a whole number.

        Raises:
            BindError: it is not a whole number, or out of range.
        """
        option = self.options.get(name)
        if option is None:
            return default
        if option.value != int(option.value) or not least <= option.value <= most:
            raise BindError(
                f"option {name} takes a whole number from {least} to {most}",
                sql,
                option.span.start,
            )
        return int(option.value)


def find_table_forms(sql: str, dialect: str = "duckdb") -> tuple[TableForm, ...]:
    """Return all table forms in the order of the text, including those in the rows of others.

    Raises:
        BindError: a table form is malformed.
        ParseError: the text cannot be tokenized.
    """
    tokens = tokenize(sql, dialect)
    return tuple(
        _read_table_form(sql, tokens, i) for i in range(len(tokens)) if _is_table_form(tokens, i)
    )


def has_table_form(tokens: Sequence[Token]) -> bool:
    """Return whether a statement has a table form, well formed or not."""
    return any(_is_table_form(tokens, i) for i in range(len(tokens)))


def find_names(sql: str, dialect: str = "duckdb") -> frozenset[str]:
    """Return the folded identifiers of a text."""
    return frozenset(fold(t.text) for t in tokenize(sql, dialect) if t.is_identifier)


def find_defined_names(sql: str, dialect: str = "duckdb") -> frozenset[str]:
    """Return the folded names of the CTEs of a statement, and maybe other aliases.

    >>> sorted(find_defined_names("WITH a AS (SELECT 1), b(x) AS (SELECT 2) FROM a, b"))
    ['a', 'b']
    """
    tokens = tokenize(sql, dialect)
    if not any(token.upper == "WITH" for token in tokens):
        return frozenset()
    names = set()
    for i, token in enumerate(tokens):
        next_index = i + 1
        if next_index < len(tokens) and tokens[next_index].is_symbol("("):
            next_index = tokens.closing.get(next_index, len(tokens)) + 1
        if token.is_identifier and next_index < len(tokens) and tokens[next_index].upper == "AS":
            names.add(fold(token.text))
    return frozenset(names)


def _is_table_form(tokens: Sequence[Token], i: int) -> bool:
    """Return whether a table form begins at token i; user functions of that name take neither MODEL
    nor TABLE.
    """
    is_dotted = tokens[i].upper == "ML"
    name = i + 2 if is_dotted else i
    if name + 3 >= len(tokens) or not tokens[name + 1].is_symbol("("):
        return False
    if is_dotted and not (tokens[i + 1].is_symbol(".") and tokens[name].is_identifier):
        return False
    function = fold(tokens[name].text)
    if not is_dotted and not (tokens[i].is_identifier and function.startswith("ml_")):
        return False
    first, second = tokens[name + 2], tokens[name + 3]
    form = FORMS.get(function if is_dotted else function.removeprefix("ml_"))
    if form is None or form.has_model:
        if first.upper == "MODEL":
            is_name = second.is_identifier or second.kind in ("string", "param")
            return is_name or second.is_symbol("(")
        return is_dotted and form is None and first.upper == "TABLE" and second.is_identifier
    is_query = first.is_symbol("(") and (second.upper in QUERIES or second.is_symbol("("))
    is_name = second.is_identifier or second.kind == "string"
    return is_query or (first.upper == "TABLE" and is_name)


def _read_table_form(sql: str, tokens: Tokens, start: int) -> TableForm:
    is_dotted = tokens[start].upper == "ML"
    opening = start + (3 if is_dotted else 1)
    function_token = tokens[opening - 1].text
    function = fold(function_token).removeprefix("" if is_dotted else "ml_")
    if function not in FORMS:
        raise BindError(
            _describe_unknown(sql[tokens[start].start : tokens[opening].start], function),
            sql,
            tokens[start].start,
        )
    close = tokens.closing.get(opening)
    if close is None:
        raise BindError("this bracket is not closed", sql, tokens[opening].start)
    items = tokens.split_commas(opening + 1, close)
    form = FORMS[function]
    model, model_span, column = None, Span(tokens[opening].start, tokens[opening].end), None
    if form.has_model:
        first, last = items.pop(0)
        model_span = Span(tokens[first + 1].start, tokens[last - 1].end)
        if tokens[first + 1].is_symbol("(") and tokens.closing.get(first + 1) == last - 1:
            column = model_span
        else:
            model = _read_reference(sql, tokens[first + 1 : last])
    rows = []
    while items and _are_rows(tokens, *items[0]):
        rows.append(items.pop(0))
    _check_rows(sql, tokens, function, rows, items, start)
    return TableForm(
        Span(tokens[start].start, tokens[close].end),
        function,
        model,
        model_span,
        tuple(_span_of_rows(tokens, *place) for place in rows),
        dict(_read_options(sql, function, tokens, items)),
        column,
    )


def _check_rows(
    sql: str,
    tokens: Tokens,
    function: str,
    rows: Sequence[tuple[int, int]],
    other_items: Sequence[tuple[int, int]],
    start: int,
) -> None:
    """Raise BindError if a form has too few or too many rows; `other_items` are its other
    arguments.
    """
    form = FORMS[function]
    least, most = form.table_range
    if least <= len(rows) <= most:
        return
    if len(rows) < least and other_items and other_items[0][0] < other_items[0][1]:
        raise BindError(
            "the table form takes its rows as TABLE and a name, or as a query in brackets",
            sql,
            tokens[other_items[0][0]].start,
        )
    model = ["MODEL m"] if form.has_model else []
    example = ", ".join([*model, "TABLE t", "TABLE u"][: len(model) + most])
    if not most:
        expected = "a model alone"
    elif form.has_model:
        expected = "a model and its rows"
    else:
        expected = "rows" if most == 1 else "two tables"
    error_token = start if len(rows) < least else rows[most][0]
    raise BindError(
        f"ml_{function} takes {expected}, as in ml_{function}({example})",
        sql,
        tokens[error_token].start,
    )


def _describe_unknown(written: str, function: str) -> str:
    """Return the message for a form that does not exist."""
    suggestion = closest(function, FORMS)
    hint = f"functions: {', '.join(f'ml_{f}' for f in FORMS)}"
    if suggestion is not None:
        hint = f"did you mean ml_{suggestion}?"
    return f"unknown function {written}; {hint}"


def _are_rows(tokens: Tokens, start: int, end: int) -> bool:
    """Return whether an argument is `TABLE t` or a query in brackets."""
    if tokens[start].upper == "TABLE" and end - start > 1:
        return True
    return tokens[start].is_symbol("(") and tokens.closing.get(start) == end - 1


def _span_of_rows(tokens: Tokens, start: int, end: int) -> Span:
    """Return the span of rows as they may stand in FROM."""
    start += tokens[start].upper == "TABLE"
    return Span(tokens[start].start, tokens[end - 1].end)


def _read_options(
    sql: str, function: str, tokens: Tokens, items: Sequence[tuple[int, int]]
) -> Iterator[tuple[str, FormOption]]:
    """Yield the options of a form with their names.

    Raises:
        BindError: an argument is not an option, or not one of this form.
    """
    names = set()
    positional = list(FORMS[function].positional)
    for start, end in items:
        options = read_struct_options(sql, tokens, start, end)
        if not options and positional and end - start == 1:
            options = [read_positional_option(sql, tokens, start, positional.pop(0))]
        options = options or [read_option(sql, tokens, start, end)]
        for option in options:
            known_options = FORMS[function].options
            if option.name not in known_options:
                suggestion = closest(option.name, known_options)
                hint = f"options: {', '.join(known_options)}" if known_options else "it takes none"
                if suggestion is not None:
                    hint = f"did you mean {suggestion}?"
                raise BindError(
                    f"unknown option {option.name} of ml_{function}; {hint}",
                    sql,
                    option.span.start,
                )
            if option.name in names:
                raise BindError(f"option {option.name} is given twice", sql, option.span.start)
            names.add(option.name)
            yield option.name, option.check(known_options[option.name], sql)


def _read_reference(sql: str, tokens: Sequence[Token]) -> str | None:
    """Return a reference to a model: m, db.m, "m", m@last, m/3, or any of these as a string."""
    if len(tokens) == 1 and tokens[0].kind == "string":
        return tokens[0].text
    if any(t.kind == "param" for t in tokens):
        return None
    for before, token in zip(tokens, tokens[1:], strict=False):
        if not (before.kind == "symbol" or token.kind == "symbol"):
            raise BindError(
                f"the table form takes one model; expected a comma before {token.text!r}",
                sql,
                token.start,
            )
    return "".join(t.text for t in tokens)
