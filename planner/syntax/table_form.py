"""`table_forms`: the table forms of a text, `ml_predict(MODEL m, TABLE t)`, and their parts.

Each may be written `ML.PREDICT(..)`, too, as BigQuery has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlml.errors import BindError
from sqlml.parsing.places import Span
from sqlml.parsing.tokens import Token, Tokens, tokenize
from sqlml.types import fold

OF_ROWS = ("predict",)
"""Forms of a model and rows, without `ml_`."""

OF_A_MODEL = ("evaluate", "training_info", "feature_info", "trial_info")
"""Forms of a model alone."""

FORMS = (*OF_ROWS, *OF_A_MODEL)


@dataclass(frozen=True, slots=True)
class TableForm:
    """`ml_predict(MODEL m, TABLE t)`, `ML.PREDICT(MODEL m, (query))` or `ml_evaluate(MODEL m)`.

    function: one of `FORMS`. model: the reference to the model, which stands at `model_span`; None
    if a parameter should give it. rows: without TABLE; None for a form of a model alone.
    """

    span: Span
    function: str
    model: str | None
    model_span: Span
    rows: Span | None


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


def _begins(tokens: Sequence[Token], i: int) -> bool:
    """Whether a table form begins at token i; functions of that name do not take MODEL."""
    if tokens[i].upper == "ML":
        dotted = i + 2 < len(tokens) and tokens[i + 1].is_symbol(".")
        i = i + 2 if dotted and fold(tokens[i + 2].text) in FORMS else len(tokens)
    elif form_of(tokens[i].text) is None:
        return False
    if i + 3 >= len(tokens) or not tokens[i + 1].is_symbol("("):
        return False
    named = tokens[i + 3].is_identifier or tokens[i + 3].kind in ("string", "param")
    return tokens[i + 2].upper == "MODEL" and named


def form_of(name: str) -> str | None:
    """The form that a function of this name is, without `ml_`; None if it is none.

    >>> form_of("ML_Predict"), form_of("ml_predictions")
    ('predict', None)
    """
    short = fold(name).removeprefix("ml_")
    return short if short != fold(name) and short in FORMS else None


def _form(sql: str, tokens: Tokens, start: int) -> TableForm:
    dotted = tokens[start].upper == "ML"
    opening = start + (3 if dotted else 1)
    function = fold(tokens[opening - 1].text).removeprefix("ml_")
    close = tokens.closing.get(opening)
    if close is None:
        raise BindError("this bracket is not closed", sql, tokens[opening].start)
    items = tokens.split_commas(opening + 1, close)
    whole = Span(tokens[start].start, tokens[close].end)
    if function in OF_A_MODEL:
        if len(items) != 1:
            raise BindError(
                f"ml_{function} takes a model alone, as in ml_{function}(MODEL m)",
                sql,
                tokens[items[1][0]].start,
            )
        ((model, model_end),) = items
        named = tokens[model + 1 : model_end]
        place = Span(named[0].start, named[-1].end)
        return TableForm(whole, function, _reference(sql, named), place, None)
    if len(items) != 2 or items[1][0] == items[1][1]:
        raise BindError(
            "the table form takes a model and its rows, as in ml_predict(MODEL m, TABLE t)",
            sql,
            tokens[start].start,
        )
    (model, model_end), (a, b) = items
    if tokens[a].upper == "TABLE" and b - a > 1:
        a += 1
    elif not (tokens[a].is_symbol("(") and tokens.closing.get(a) == b - 1):
        raise BindError(
            "the table form takes its rows as TABLE and a name, or as a query in brackets",
            sql,
            tokens[a].start,
        )
    return TableForm(
        whole,
        function,
        _reference(sql, tokens[model + 1 : model_end]),
        Span(tokens[model + 1].start, tokens[model_end - 1].end),
        Span(tokens[a].start, tokens[b - 1].end),
    )


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
