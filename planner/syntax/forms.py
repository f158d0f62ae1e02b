"""`FORMS`: the table forms, `ml_predict` and its like, and what each takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from sqlml.errors import BindError
from sqlml.parsing.places import Span
from sqlml.parsing.tokens import Token, Tokens
from sqlml.types import fold

Kind = Literal["column", "columns", "number", "numbers", "boolean", "class", "text", "rows"]
"""What an option is: the name of a column, one such name or several, a number, numbers by names of
columns, true or false, a class of the model, a text; or rows, a query in brackets."""

_NONE: Mapping[str, Kind] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Form:
    """What a table form takes.

    tables: how many rows, each `TABLE t` or a query, at least and at most. options: those that it
    knows, by their names; `positional` ones may be given without, in that order. has_model: whether
    its first argument is MODEL m.
    """

    tables: tuple[int, int]
    options: Mapping[str, Kind] = field(default_factory=lambda: _NONE)
    has_model: bool = True
    positional: tuple[str, ...] = ()


_OF_LABELS: Mapping[str, Kind] = {"label": "columns", "weight": "column", "by": "columns"}
_BINARY: Mapping[str, Kind] = {**_OF_LABELS, "class": "class"}
_DRIFT: Mapping[str, Kind] = {
    "bins": "number",
    "categorical_metric_type": "text",
    "numerical_metric_type": "text",
    "categorical_default_threshold": "number",
    "numerical_default_threshold": "number",
    "null_share_threshold": "number",
    "thresholds": "numbers",
}

FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "predict": Form((1, 1), {"threshold": "number", "class": "class", "unknown_model": "text"}),
        "evaluate": Form(
            (0, 1), {**_OF_LABELS, "threshold": "number", "class": "class", "per_class": "boolean"}
        ),
        "confusion_matrix": Form((0, 1), {**_BINARY, "threshold": "number", "pairs": "boolean"}),
        "roc_curve": Form((0, 1), {**_BINARY, "points": "number"}),
        "pr_curve": Form((0, 1), {**_BINARY, "points": "number"}),
        "calibration_curve": Form((0, 1), {**_BINARY, "bins": "number", "quantiles": "boolean"}),
        "lift": Form((0, 1), {**_BINARY, "bins": "number"}),
        "describe_data": Form(
            (1, 1), {"num_quantiles": "number", "top_k": "number"}, has_model=False
        ),
        "validate_data_drift": Form((2, 2), _DRIFT, has_model=False),
        "validate_data_skew": Form((1, 1), _DRIFT),
        "explain_predict": Form(
            (1, 1),
            {
                "top_k_features": "number",
                "class": "class",
                "background": "rows",
                "permutations": "number",
            },
        ),
        "global_explain": Form(
            (0, 1), {"class": "class", "background": "rows", "permutations": "number"}
        ),
        "permutation_importance": Form(
            (0, 1), {"label": "columns", "metric": "text", "repeats": "number", "seed": "number"}
        ),
        "partial_dependence": Form(
            (0, 1),
            {"feature": "column", "points": "number", "class": "class"},
            positional=("feature",),
        ),
        "feature_importance": Form((0, 0)),
        "weights": Form((0, 0)),
        "tree": Form((0, 0), {"tree": "number"}, positional=("tree",)),
        "training_info": Form((0, 0)),
        "feature_info": Form((0, 0)),
        "trial_info": Form((0, 0)),
    }
)
"""Form, without `ml_` -> what it takes."""


def form_of(name: str) -> str | None:
    """The form that a function of this name is, without `ml_`; None if it is none.

    >>> form_of("ML_Predict"), form_of("ml_predictions")
    ('predict', None)
    """
    short = fold(name).removeprefix("ml_")
    return short if short != fold(name) and short in FORMS else None


# `FormOption`: an option of a table form, `threshold := 0.4` or in `STRUCT(0.4 AS threshold)`.


_TRUTHS = {"TRUE": True, "FALSE": False}

_WANTED = {
    "column": "the name of a column in quotes",
    "columns": "the name of a column in quotes, or a list of names",
    "number": "a number",
    "numbers": "numbers by names of columns, as in {'age': 0.1}",
    "boolean": "true or false",
    "class": "a class of the model",
    "text": "a text in quotes",
    "rows": "a query in brackets",
}
"""What an option of a kind takes, as errors say it."""


class Rows(str):
    """The text of a query in brackets."""


@dataclass(frozen=True, slots=True)
class FormOption:
    """The value is a text, a number, a truth, (of a list) a tuple of texts, (of a struct) a dict of
    numbers, or `Rows`; it stands at `span`, with its name."""

    name: str
    value: Any
    span: Span

    def checked(self, kind: Kind, sql: str) -> FormOption:
        """The option, whose value is of a kind; of "columns" always a tuple.

        Raises:
            BindError: it is not.
        """
        value = self.value
        if isinstance(value, Rows) or kind == "rows":
            if not (isinstance(value, Rows) and kind == "rows"):
                raise BindError(f"option {self.name} takes {_WANTED[kind]}", sql, self.span.start)
            return self
        if kind == "columns" and isinstance(value, str):
            return FormOption(self.name, (value,), self.span)
        is_truth, is_list = isinstance(value, bool), isinstance(value, tuple)
        if isinstance(value, dict) or kind == "numbers":
            if not (isinstance(value, dict) and kind == "numbers"):
                raise BindError(f"option {self.name} takes {_WANTED[kind]}", sql, self.span.start)
            return self
        fits = {
            "column": isinstance(value, str),
            "text": isinstance(value, str),
            "columns": is_list and value and all(isinstance(v, str) for v in value),
            "number": isinstance(value, int | float) and not is_truth and math.isfinite(value),
            "boolean": is_truth,
            "class": not is_list,
        }
        if not fits[kind]:
            raise BindError(f"option {self.name} takes {_WANTED[kind]}", sql, self.span.start)
        return self


def option_of(sql: str, tokens: Tokens, start: int, end: int) -> FormOption:
    """The option in tokens[start:end], `name := value` or `name => value`.

    Raises:
        BindError: it is none.
    """
    place = tokens[start].start if start < end else tokens[start - 1].start
    span = Span(place, tokens[end - 1].end)
    named = end - start > 2 and tokens[start].is_identifier
    if not named or not any(tokens[start + 1].is_symbol(sign) for sign in (":=", "=>")):
        raise BindError(
            "after its model and its rows (TABLE and a name, or a query in brackets) a table form "
            "takes options, as in threshold := 0.5",
            sql,
            place,
        )
    opened = tokens[start + 2]
    if opened.is_symbol("(") and tokens[start + 3].upper in QUERIES:
        value: Any = Rows(sql[opened.start : tokens[end - 1].end])
    else:
        value = _value(sql, tokens, start + 2, end)
    return FormOption(fold(tokens[start].text), value, span)


QUERIES = frozenset({"SELECT", "FROM", "WITH", "VALUES", "TABLE"})
"""What a query begins with."""


def unnamed_option(sql: str, tokens: Tokens, place: int, name: str) -> FormOption:
    """The option whose value is tokens[place]; its place among the others says its name."""
    token = tokens[place]
    return FormOption(name, _literal(sql, [token]), Span(token.start, token.end))


def options_of_struct(sql: str, tokens: Tokens, start: int, end: int) -> list[FormOption]:
    """The options of `STRUCT(value AS name, ..)`; none if tokens[start:end] is something else."""
    is_struct = end - start > 2 and tokens[start].upper == "STRUCT"
    if not is_struct or tokens.closing.get(start + 1) != end - 1:
        return []
    made = []
    for first, last in tokens.split_commas(start + 2, end - 1):
        if last - first < 3 or tokens[last - 2].upper != "AS" or not tokens[last - 1].is_identifier:
            raise BindError(
                "options in a STRUCT have names, as in STRUCT(0.5 AS threshold)",
                sql,
                tokens[first].start,
            )
        value = _value(sql, tokens, first, last - 2)
        span = Span(tokens[first].start, tokens[last - 1].end)
        made.append(FormOption(fold(tokens[last - 1].text), value, span))
    return made


def _literal(sql: str, tokens: Sequence[Token]) -> Any:
    """The value of a literal.

    Raises:
        BindError: an expression or a parameter.
    """
    first = tokens[0]
    if len(tokens) == 1:
        if first.kind == "string":
            return first.text
        if first.kind == "number":
            return _number(first.text)
        if first.upper in _TRUTHS:
            return _TRUTHS[first.upper]
    signs = "".join(token.text for token in tokens[:-1])
    if signs in ("-", ".", "-.") and tokens[-1].kind == "number":
        value = _number(("." if "." in signs else "") + tokens[-1].text)
        return -value if "-" in signs else value
    opened = next((i for i, t in enumerate(tokens[:2]) if t.text in ("[", "(")), None)
    if opened is not None and (opened == 0 or first.upper == "ARRAY"):
        inner = tokens[opened + 1 : -1]
        parts, commas = inner[::2], inner[1::2]
        if all(c.is_symbol(",") for c in commas) and all(p.kind == "string" for p in parts):
            return tuple(p.text for p in parts)
    raise BindError(
        "options of a table form must be literals: a text, a number, true, false, a list of texts",
        sql,
        first.start,
    )


def _value(sql: str, tokens: Tokens, start: int, end: int) -> Any:
    """The value in tokens[start:end]: a literal, or numbers by names, `{'age': 0.1, plan: 0.2}` or
    `[('age', 0.1), STRUCT('plan', 0.2)]`.

    Raises:
        BindError: anything else.
    """
    opened = tokens[start]
    listed = opened.is_symbol("[") and tokens.closing.get(start + 1 + _is_struct(tokens[start + 1]))
    if not (opened.is_symbol("{") or listed) or tokens.closing.get(start) != end - 1:
        return _literal(sql, tokens[start:end])
    made: dict[str, float] = {}
    for first, last in tokens.split_commas(start + 1, end - 1):
        if listed:
            first, last = first + 1 + _is_struct(tokens[first]), last - 1
        parted = last - first == 3 and tokens[first + 1].is_symbol("," if listed else ":")
        name, value = tokens[first], tokens[last - 1]
        if (
            not parted
            or value.kind != "number"
            or not (name.kind == "string" or name.is_identifier)
        ):
            raise BindError(f"expected {_WANTED['numbers']}", sql, opened.start)
        number = float(_number(value.text))
        if not math.isfinite(number):
            raise BindError(f"{name.text!r} needs a finite number", sql, value.start)
        if fold(name.text) in map(fold, made):
            raise BindError(f"{name.text!r} is given twice", sql, name.start)
        made[name.text] = number
    return made


def _is_struct(token: Token) -> bool:
    return token.upper == "STRUCT"


def _number(text: str) -> int | float:
    plain = text.replace("_", "")
    return int(plain) if plain.isdigit() else float(plain)
