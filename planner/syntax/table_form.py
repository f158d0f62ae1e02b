"""`table_forms`: the table forms of a text, `ml_predict(MODEL m, TABLE t)`, and their parts.

Each may be written `ML.PREDICT(..)`, too, and its options `STRUCT(0.5 AS threshold)` in place of
`threshold := 0.5`, as BigQuery has it.
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
    option_of,
    options_of_struct,
    unnamed_option,
)
from sqlml.suggestions import closest
from sqlml.types import fold


@dataclass(frozen=True, slots=True)
class TableForm:
    """`ml_predict(MODEL m, TABLE t)`, `ML.PREDICT(MODEL m, (query))` or `ml_evaluate(MODEL m)`.

    function: one of `FORMS`. model: the reference to the model, which stands at `model_span`; None
    if a parameter or the expression `column` should give it, or the form has none. rows: each
    without TABLE. options: by their names.
    """

    span: Span
    function: str
    model: str | None
    model_span: Span
    rows: tuple[Span, ...]
    options: Mapping[str, FormOption]
    column: Span | None = None

    def whole(self, name: str, default: int, least: int, most: int, sql: str) -> int:
        """An option that is a whole number.

        Raises:
            BindError: it is none, or out of range.
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


def table_forms(sql: str, dialect: str = "duckdb") -> tuple[TableForm, ...]:
    """All table forms, in the order of the text, those in the rows of others, too.

    Raises:
        BindError: a table form that is not well formed.
        ParseError: the text cannot be read.
    """
    tokens = tokenize(sql, dialect)
    return tuple(_form(sql, tokens, i) for i in range(len(tokens)) if _begins(tokens, i))


def has_table_form(tokens: Sequence[Token]) -> bool:
    """Whether a statement has a table form, well written or not."""
    return any(_begins(tokens, i) for i in range(len(tokens)))


def names_in(sql: str, dialect: str = "duckdb") -> frozenset[str]:
    """The names that a text has, folded."""
    return frozenset(fold(t.text) for t in tokenize(sql, dialect) if t.is_identifier)


def defined_names(sql: str, dialect: str = "duckdb") -> frozenset[str]:
    """The names, folded, that a statement gives to queries in a WITH, and some others.

    >>> sorted(defined_names("WITH a AS (SELECT 1), b(x) AS MATERIALIZED (SELECT 2) FROM a, b"))
    ['a', 'b']
    """
    tokens = tokenize(sql, dialect)
    if not any(token.upper == "WITH" for token in tokens):
        return frozenset()
    found = set()
    for i, token in enumerate(tokens):
        place = i + 1
        if place < len(tokens) and tokens[place].is_symbol("("):
            place = tokens.closing.get(place, len(tokens)) + 1
        if token.is_identifier and place < len(tokens) and tokens[place].upper == "AS":
            found.add(fold(token.text))
    return frozenset(found)


def _begins(tokens: Sequence[Token], i: int) -> bool:
    """Whether a table form begins at token i; functions of that name take neither MODEL nor
    TABLE."""
    dotted = tokens[i].upper == "ML"
    name = i + 2 if dotted else i
    if name + 3 >= len(tokens) or not tokens[name + 1].is_symbol("("):
        return False
    if dotted and not (tokens[i + 1].is_symbol(".") and tokens[name].is_identifier):
        return False
    written = fold(tokens[name].text)
    if not dotted and not (tokens[i].is_identifier and written.startswith("ml_")):
        return False
    first, second = tokens[name + 2], tokens[name + 3]
    form = FORMS.get(written if dotted else written.removeprefix("ml_"))
    if form is None or form.has_model:
        if first.upper == "MODEL":
            named = second.is_identifier or second.kind in ("string", "param")
            return named or second.is_symbol("(")
        return dotted and form is None and first.upper == "TABLE" and second.is_identifier
    is_query = first.is_symbol("(") and (second.upper in QUERIES or second.is_symbol("("))
    named = second.is_identifier or second.kind == "string"
    return is_query or (first.upper == "TABLE" and named)


def _form(sql: str, tokens: Tokens, start: int) -> TableForm:
    dotted = tokens[start].upper == "ML"
    opening = start + (3 if dotted else 1)
    written = tokens[opening - 1].text
    function = fold(written).removeprefix("" if dotted else "ml_")
    if function not in FORMS:
        raise BindError(
            _unknown(sql[tokens[start].start : tokens[opening].start], function),
            sql,
            tokens[start].start,
        )
    close = tokens.closing.get(opening)
    if close is None:
        raise BindError("this bracket is not closed", sql, tokens[opening].start)
    items = tokens.split_commas(opening + 1, close)
    form = FORMS[function]
    model, place, column = None, Span(tokens[opening].start, tokens[opening].end), None
    if form.has_model:
        first, last = items.pop(0)
        place = Span(tokens[first + 1].start, tokens[last - 1].end)
        if tokens[first + 1].is_symbol("(") and tokens.closing.get(first + 1) == last - 1:
            column = place
        else:
            model = _reference(sql, tokens[first + 1 : last])
    rows = []
    while items and _are_rows(tokens, *items[0]):
        rows.append(items.pop(0))
    _check_rows(sql, tokens, function, rows, items, start)
    return TableForm(
        Span(tokens[start].start, tokens[close].end),
        function,
        model,
        place,
        tuple(_without_table(tokens, *place) for place in rows),
        dict(_options(sql, function, tokens, items)),
        column,
    )


def _check_rows(
    sql: str,
    tokens: Tokens,
    function: str,
    rows: Sequence[tuple[int, int]],
    others: Sequence[tuple[int, int]],
    start: int,
) -> None:
    """Raise BindError for a form with too few or too many rows; `others` are its other items."""
    form = FORMS[function]
    least, most = form.tables
    if least <= len(rows) <= most:
        return
    if len(rows) < least and others and others[0][0] < others[0][1]:
        raise BindError(
            "the table form takes its rows as TABLE and a name, or as a query in brackets",
            sql,
            tokens[others[0][0]].start,
        )
    model = ["MODEL m"] if form.has_model else []
    example = ", ".join([*model, "TABLE t", "TABLE u"][: len(model) + most])
    if not most:
        wanted = "a model alone"
    elif form.has_model:
        wanted = "a model and its rows"
    else:
        wanted = "rows" if most == 1 else "two tables"
    place = start if len(rows) < least else rows[most][0]
    raise BindError(
        f"ml_{function} takes {wanted}, as in ml_{function}({example})", sql, tokens[place].start
    )


def _unknown(written: str, function: str) -> str:
    """The message for a form that does not exist."""
    near = closest(function, FORMS)
    hint = f"functions: {', '.join(f'ml_{f}' for f in FORMS)}"
    if near is not None:
        hint = f"did you mean ml_{near}?"
    return f"unknown function {written}; {hint}"


def _are_rows(tokens: Tokens, start: int, end: int) -> bool:
    """Whether an argument is `TABLE t` or a query in brackets."""
    if tokens[start].upper == "TABLE" and end - start > 1:
        return True
    return tokens[start].is_symbol("(") and tokens.closing.get(start) == end - 1


def _without_table(tokens: Tokens, start: int, end: int) -> Span:
    """The place of rows as they may stand in FROM."""
    start += tokens[start].upper == "TABLE"
    return Span(tokens[start].start, tokens[end - 1].end)


def _options(
    sql: str, function: str, tokens: Tokens, items: Sequence[tuple[int, int]]
) -> Iterator[tuple[str, FormOption]]:
    """The options of a form, by their names.

    Raises:
        BindError: an argument that is none, or an option that the form does not have.
    """
    seen = set()
    unnamed = list(FORMS[function].positional)
    for start, end in items:
        found = options_of_struct(sql, tokens, start, end)
        if not found and unnamed and end - start == 1:
            found = [unnamed_option(sql, tokens, start, unnamed.pop(0))]
        found = found or [option_of(sql, tokens, start, end)]
        for option in found:
            known = FORMS[function].options
            if option.name not in known:
                near = closest(option.name, known)
                hint = f"options: {', '.join(known)}" if known else "it takes none"
                if near is not None:
                    hint = f"did you mean {near}?"
                raise BindError(
                    f"unknown option {option.name} of ml_{function}; {hint}",
                    sql,
                    option.span.start,
                )
            if option.name in seen:
                raise BindError(f"option {option.name} is given twice", sql, option.span.start)
            seen.add(option.name)
            yield option.name, option.checked(known[option.name], sql)


def _reference(sql: str, tokens: Sequence[Token]) -> str | None:
    """The reference to a model: m, db.m, "m", m@last, m/3 or all that as a string."""
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
