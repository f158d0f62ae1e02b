"""Find the model calls in a statement's tokens: names, arguments and places, no meaning yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlml.errors import BindError, SqlmlError
from sqlml.front.lexer import Token, closing, split_commas, tokenize
from sqlml.planner.table_form import has_table_form
from sqlml.types import fold

FUNCTIONS = ("predict", "predict_proba", "predict_score", "transform")
"""Scalar functions of sql.md."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument after the model: tokens[start:end], and the name in `name := value`."""

    start: int
    end: int
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """`function(model, arguments...)` at tokens[start:end].

    `model` is the token of the first argument: a string or a parameter. `class_argument` is the
    token range of `class := ..`.
    """

    function: str
    start: int
    end: int
    model: int
    arguments: tuple[Argument, ...]
    class_argument: Argument | None = None


def find_calls(sql: str, tokens: Sequence[Token]) -> tuple[Call, ...]:
    """All model calls of a statement, in the order of the text (an outer call before an inner).

    A call is a bare word of `FUNCTIONS` before `(` whose first argument is one string or
    parameter; everything else of that name is a user's own.

    Raises:
        BindError: an argument that cannot be meant.
    """
    calls = []
    for i, token in enumerate(tokens[:-1]):
        name = fold(token.text) if token.kind == "word" else ""
        if name not in FUNCTIONS:
            continue
        if not tokens[i + 1].is_symbol("("):
            continue
        if i and tokens[i - 1].is_symbol("."):
            continue
        close = closing(tokens, i + 1)
        if close is None:
            continue
        call = _call(sql, tokens, i, close)
        if call is not None:
            calls.append(call)
    return tuple(calls)


def may_call(sql: Any) -> bool:
    """Whether a text has a model call, or what seems a broken one; the catalog says if it is."""
    try:
        if not isinstance(sql, str):
            return False
        tokens = tokenize(sql)
        return bool(find_calls(sql, tokens)) or has_table_form(tokens)
    except SqlmlError:
        return True


def _call(sql: str, tokens: Sequence[Token], start: int, close: int) -> Call | None:
    items = split_commas(tokens, start + 2, close)
    if not items:
        return None
    named = items[0][1] - items[0][0] == 1 and tokens[items[0][0]].kind in ("string", "param")
    if not named and any(
        tokens[begin].is_symbol("*") or tokens[end - 1].is_symbol("*") for begin, end in items[1:]
    ):
        raise BindError(  # no function of the engine takes a star, so this was meant for us
            f"{tokens[start].text} names its model by a string or a parameter, as in "
            f"{tokens[start].text}('churn_model', *)",
            sql,
            tokens[items[0][0]].start,
        )
    if not named:
        return None
    model = items[0][0]
    function = fold(tokens[start].text)
    arguments: list[Argument] = []
    chosen: Argument | None = None
    for begin, end in items[1:]:
        if begin == end:
            raise BindError("an argument is empty", sql, tokens[min(end, close)].start)
        is_named = (
            end - begin > 2
            and tokens[begin].is_identifier
            and (tokens[begin + 1].is_symbol(":=") or tokens[begin + 1].is_symbol("=>"))
        )
        argument = (
            Argument(begin + 2, end, tokens[begin].text) if is_named else Argument(begin, end)
        )
        if is_named and tokens[begin].upper == "CLASS":
            if function != "predict_proba":
                raise BindError(
                    f"class := belongs to predict_proba; {function} has no classes to choose from "
                    '(a feature of that name is written "class" := ..)',
                    sql,
                    tokens[begin].start,
                )
            if chosen is not None:
                raise BindError("class := is given twice", sql, tokens[begin].start)
            chosen = argument
        else:
            arguments.append(argument)
    return Call(function, start, close + 1, model, tuple(arguments), chosen)
