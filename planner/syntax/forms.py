"""The table forms (`ml_predict` and others), and the options that each takes."""

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
"""The kind of an option's value.

"column" and "columns" are names of columns, "numbers" maps column names to numbers, "class" is a
class of the model, and "rows" is a query in brackets.
"""

_NO_OPTIONS: Mapping[str, Kind] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Form:
    """The arguments of a table form.

    Attributes:
        table_range: the least and the greatest number of rows arguments, each `TABLE t` or a query.
        options: the kinds of its options by name.
        has_model: its first argument is MODEL m.
        positional: the options that may be given without their name, in this order.
    """

    table_range: tuple[int, int]
    options: Mapping[str, Kind] = field(default_factory=lambda: _NO_OPTIONS)
    has_model: bool = True
    positional: tuple[str, ...] = ()


_LABEL_OPTIONS: Mapping[str, Kind] = {"label": "columns", "weight": "column", "by": "columns"}
_BINARY_OPTIONS: Mapping[str, Kind] = {**_LABEL_OPTIONS, "class": "class"}
_DRIFT_OPTIONS: Mapping[str, Kind] = {
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
            (0, 1),
            {**_LABEL_OPTIONS, "threshold": "number", "class": "class", "per_class": "boolean"},
        ),
        "confusion_matrix": Form(
            (0, 1), {**_BINARY_OPTIONS, "threshold": "number", "pairs": "boolean"}
        ),
        "roc_curve": Form((0, 1), {**_BINARY_OPTIONS, "points": "number"}),
        "pr_curve": Form((0, 1), {**_BINARY_OPTIONS, "points": "number"}),
        "calibration_curve": Form(
            (0, 1), {**_BINARY_OPTIONS, "bins": "number", "quantiles": "boolean"}
        ),
        "lift": Form((0, 1), {**_BINARY_OPTIONS, "bins": "number"}),
        "describe_data": Form(
            (1, 1), {"num_quantiles": "number", "top_k": "number"}, has_model=False
        ),
        "validate_data_drift": Form((2, 2), _DRIFT_OPTIONS, has_model=False),
        "validate_data_skew": Form((1, 1), _DRIFT_OPTIONS),
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
"""The table forms by their names without `ml_`."""


def find_form(name: str) -> str | None:
    """Return the table form that a function name means, without `ml_`; None if it is another
    function.

    >>> find_form("ML_Predict"), find_form("ml_predictions")
    ('predict', None)
    """
    name_without_prefix = fold(name).removeprefix("ml_")
    return (
        name_without_prefix
        if name_without_prefix != fold(name) and name_without_prefix in FORMS
        else None
    )


_BOOLEANS = {"TRUE": True, "FALSE": False}

_KIND_DESCRIPTIONS = {
    "column": "the name of a column in quotes",
    "columns": "the name of a column in quotes, or a list of names",
    "number": "a number",
    "numbers": "numbers by names of columns, as in {'age': 0.1}",
    "boolean": "true or false",
    "class": "a class of the model",
    "text": "a text in quotes",
    "rows": "a query in brackets",
}
"""Descriptions of the kinds for error messages."""


class Rows(str):
    """The text of a query in brackets."""


@dataclass(frozen=True, slots=True)
class FormOption:
    """An option of a table form, `threshold := 0.4` or in `STRUCT(0.4 AS threshold)`.

    Attributes:
        value: a string, number, boolean, tuple of strings, dict of numbers, or `Rows`.
        span: the option with its name.
    """

    name: str
    value: Any
    span: Span

    def check(self, kind: Kind, sql: str) -> FormOption:
        """Return the option if its value is of a kind; the value of "columns" becomes a tuple.

        Raises:
            BindError: the value is of another kind.
        """
        value = self.value
        if isinstance(value, Rows) or kind == "rows":
            if not (isinstance(value, Rows) and kind == "rows"):
                raise BindError(
                    f"option {self.name} takes {_KIND_DESCRIPTIONS[kind]}", sql, self.span.start
                )
            return self
        if kind == "columns" and isinstance(value, str):
            return FormOption(self.name, (value,), self.span)
        is_truth, is_list = isinstance(value, bool), isinstance(value, tuple)
        if isinstance(value, dict) or kind == "numbers":
            if not (isinstance(value, dict) and kind == "numbers"):
                raise BindError(
                    f"option {self.name} takes {_KIND_DESCRIPTIONS[kind]}", sql, self.span.start
                )
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
            raise BindError(
                f"option {self.name} takes {_KIND_DESCRIPTIONS[kind]}", sql, self.span.start
            )
        return self


def read_option(sql: str, tokens: Tokens, start: int, end: int) -> FormOption:
    """Return the option in tokens[start:end], `name := value` or `name => value`.

    Raises:
        BindError: the tokens are not an option.
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
        value = _read_value(sql, tokens, start + 2, end)
    return FormOption(fold(tokens[start].text), value, span)


QUERIES = frozenset({"SELECT", "FROM", "WITH", "VALUES", "TABLE"})
"""The keywords with which a query begins."""


def read_positional_option(sql: str, tokens: Tokens, index: int, name: str) -> FormOption:
    """Return the option `name` with the value tokens[index]."""
    token = tokens[index]
    return FormOption(name, _read_literal(sql, [token]), Span(token.start, token.end))


def read_struct_options(sql: str, tokens: Tokens, start: int, end: int) -> list[FormOption]:
    """Return the options of `STRUCT(value AS name, ...)`; none if tokens[start:end] is something
    else.
    """
    is_struct = end - start > 2 and tokens[start].upper == "STRUCT"
    if not is_struct or tokens.closing.get(start + 1) != end - 1:
        return []
    options = []
    for first, last in tokens.split_commas(start + 2, end - 1):
        if last - first < 3 or tokens[last - 2].upper != "AS" or not tokens[last - 1].is_identifier:
            raise BindError(
                "options in a STRUCT have names, as in STRUCT(0.5 AS threshold)",
                sql,
                tokens[first].start,
            )
        value = _read_value(sql, tokens, first, last - 2)
        span = Span(tokens[first].start, tokens[last - 1].end)
        options.append(FormOption(fold(tokens[last - 1].text), value, span))
    return options


def _read_literal(sql: str, tokens: Sequence[Token]) -> Any:
    """Return the value of a literal.

    Raises:
        BindError: it is an expression or a parameter.
    """
    first = tokens[0]
    if len(tokens) == 1:
        if first.kind == "string":
            return first.text
        if first.kind == "number":
            return _read_number(first.text)
        if first.upper in _BOOLEANS:
            return _BOOLEANS[first.upper]
    signs = "".join(token.text for token in tokens[:-1])
    if signs in ("-", ".", "-.") and tokens[-1].kind == "number":
        value = _read_number(("." if "." in signs else "") + tokens[-1].text)
        return -value if "-" in signs else value
    opening = next((i for i, t in enumerate(tokens[:2]) if t.text in ("[", "(")), None)
    if opening is not None and (opening == 0 or first.upper == "ARRAY"):
        inner = tokens[opening + 1 : -1]
        strings, commas = inner[::2], inner[1::2]
        if all(c.is_symbol(",") for c in commas) and all(p.kind == "string" for p in strings):
            return tuple(p.text for p in strings)
    raise BindError(
        "options of a table form must be literals: a text, a number, true, false, a list of texts",
        sql,
        first.start,
    )


def _read_value(sql: str, tokens: Tokens, start: int, end: int) -> Any:
    """Return the value in tokens[start:end].

    This is a literal, or numbers by names: `{'age': 0.1, plan: 0.2}` or `[('age', 0.1),
    STRUCT('plan', 0.2)]`.

    Raises:
        BindError: it is anything else.
    """
    opening = tokens[start]
    is_list = opening.is_symbol("[") and tokens.closing.get(
        start + 1 + _is_struct(tokens[start + 1])
    )
    if not (opening.is_symbol("{") or is_list) or tokens.closing.get(start) != end - 1:
        return _read_literal(sql, tokens[start:end])
    numbers: dict[str, float] = {}
    for first, last in tokens.split_commas(start + 1, end - 1):
        if is_list:
            first, last = first + 1 + _is_struct(tokens[first]), last - 1
        is_pair = last - first == 3 and tokens[first + 1].is_symbol("," if is_list else ":")
        name, value = tokens[first], tokens[last - 1]
        if (
            not is_pair
            or value.kind != "number"
            or not (name.kind == "string" or name.is_identifier)
        ):
            raise BindError(f"expected {_KIND_DESCRIPTIONS['numbers']}", sql, opening.start)
        number = float(_read_number(value.text))
        if not math.isfinite(number):
            raise BindError(f"{name.text!r} needs a finite number", sql, value.start)
        if fold(name.text) in map(fold, numbers):
            raise BindError(f"{name.text!r} is given twice", sql, name.start)
        numbers[name.text] = number
    return numbers


def _is_struct(token: Token) -> bool:
    return token.upper == "STRUCT"


def _read_number(text: str) -> int | float:
    digits = text.replace("_", "")
    return int(digits) if digits.isdigit() else float(digits)
