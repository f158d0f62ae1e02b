"""Table forms, such as `ml_predict(MODEL m, TABLE t)`: their options, and a reader of their tokens.

As in BigQuery, a table form may also be written `ML.PREDICT(...)`, and its options as `STRUCT(0.5
AS threshold)` instead of `threshold := 0.5`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Literal

from sqlml.errors import BindError
from sqlml.parsing.places import Span
from sqlml.parsing.tokens import Token, Tokens, tokenize
from sqlml.suggestions import closest
from sqlml.types import fold

Kind = Literal["column", "columns", "number", "numbers", "list", "boolean", "class", "text", "rows"]
"""The kind of an option's value; `_KIND_DESCRIPTIONS` describes each kind."""


@dataclass(frozen=True, slots=True)
class Form:
    """The arguments that a table form accepts.

    Attributes:
        table_range: the minimum and maximum number of arguments that are `TABLE t` or a query.
        options: name of an option -> kind of its value.
        has_model: whether the first argument is MODEL m.
        column_options: the further options of a call without a model, whose rows have predictions,
            or {} if every call needs a model.
        positional: the options that may be passed by position, in this order.
    """

    table_range: tuple[int, int]
    options: Mapping[str, Kind] = field(default_factory=dict)
    has_model: bool = True
    positional: tuple[str, ...] = ()
    column_options: Mapping[str, Kind] = field(default_factory=dict)

    @property
    def example(self) -> str:
        """Example arguments for messages, such as `MODEL m, TABLE t`."""
        tables = ["TABLE t", "TABLE u"][: self.table_range[1]]
        return ", ".join(["MODEL m", *tables] if self.has_model else tables)


_LABEL_OPTIONS: Mapping[str, Kind] = {"label": "columns", "weight": "column", "by": "columns"}
_BINARY_OPTIONS: Mapping[str, Kind] = {**_LABEL_OPTIONS, "class": "class"}
_COLUMN_OPTIONS: Mapping[str, Kind] = {
    "prediction": "column",
    "probability": "column",
    "classes": "columns",
}
_EXPLAIN_OPTIONS: Mapping[str, Kind] = {
    "class": "class",
    "background": "rows",
    "permutations": "number",
}
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
        "predict": Form(
            (1, 1),
            {
                **{"threshold": "number", "class": "class", "unknown_model": "text"},
                **{"coverage": "number", "trial_id": "number"},
            },
        ),
        "evaluate": Form(
            (0, 1),
            {
                **{**_LABEL_OPTIONS, "threshold": "number", "class": "class"},
                **{"per_class": "boolean", "coverage": "number", "trial_id": "number"},
            },
            column_options=_COLUMN_OPTIONS,
        ),
        "confusion_matrix": Form(
            (0, 1),
            {**_BINARY_OPTIONS, "threshold": "number", "pairs": "boolean"},
            column_options=_COLUMN_OPTIONS,
        ),
        "roc_curve": Form(
            (0, 1),
            {**_BINARY_OPTIONS, "points": "number", "thresholds": "list"},
            positional=("thresholds",),
            column_options=_COLUMN_OPTIONS,
        ),
        "pr_curve": Form(
            (0, 1), {**_BINARY_OPTIONS, "points": "number"}, column_options=_COLUMN_OPTIONS
        ),
        "calibration_curve": Form(
            (0, 1),
            {**_BINARY_OPTIONS, "bins": "number", "quantiles": "boolean"},
            column_options=_COLUMN_OPTIONS,
        ),
        "lift": Form((0, 1), {**_BINARY_OPTIONS, "bins": "number"}, column_options=_COLUMN_OPTIONS),
        "detect_anomalies": Form((1, 1), {"contamination": "number"}),
        "reconstruction_loss": Form((1, 1)),
        "transform": Form((1, 1)),
        "describe_data": Form(
            (1, 1), {"num_quantiles": "number", "top_k": "number"}, has_model=False
        ),
        "validate_data_drift": Form((2, 2), _DRIFT_OPTIONS, has_model=False),
        "validate_data_skew": Form((1, 1), _DRIFT_OPTIONS),
        "explain_predict": Form(
            (1, 1), {"top_k_features": "number", "threshold": "number", **_EXPLAIN_OPTIONS}
        ),
        "global_explain": Form((0, 1), _EXPLAIN_OPTIONS),
        "permutation_importance": Form(
            (0, 1), {"label": "columns", "metric": "text", "repeats": "number", "seed": "number"}
        ),
        "partial_dependence": Form(
            (0, 1),
            {"feature": "column", "points": "number", "class": "class"},
            positional=("feature",),
        ),
        "feature_importance": Form((0, 0)),
        "weights": Form((0, 0), {"standardize": "boolean"}),
        "advanced_weights": Form((0, 0), {"standardize": "boolean"}),
        "centroids": Form((0, 0)),
        "principal_components": Form((0, 0)),
        "principal_component_info": Form((0, 0)),
        "tree": Form((0, 0), {"tree": "number"}, positional=("tree",)),
        "training_info": Form((0, 0)),
        "feature_info": Form((0, 0)),
        "trial_info": Form((0, 0)),
        "partitions": Form((0, 0)),
        "cross_validation": Form((0, 0)),
        "cross_predict": Form((0, 0)),
    }
)
"""Name of a table form without `ml_` -> the arguments that it accepts."""

_BOOLEANS = {"TRUE": True, "FALSE": False}

_RANGE_FUNCTIONS = ("GENERATE_ARRAY", "GENERATE_SERIES")
_MAX_RANGE = 10_000

QUERIES = frozenset({"SELECT", "FROM", "WITH", "VALUES", "TABLE"})
"""The keywords that can begin a query."""

_KIND_DESCRIPTIONS = {
    "column": "the name of a column in quotes",
    "columns": "the name of a column in quotes, or a list of names",
    "number": "a number",
    "numbers": "numbers by names of columns, as in {'age': 0.1}",
    "list": "a list of numbers, as in [0.25, 0.5] or generate_array(0.1, 0.9, 0.1)",
    "boolean": "true or false",
    "class": "a class of the model",
    "text": "a string in quotes",
    "rows": "a query in brackets",
}
"""Kind of an option's value -> its description in error messages."""


class BracketedQuery(str):
    """The SQL of a query in brackets, as the value of an option."""


@dataclass(frozen=True, slots=True)
class FormOption:
    """An option of a table form, written `threshold := 0.4` or `STRUCT(0.4 AS threshold)`.

    Attributes:
        value: a string, number, boolean, tuple of strings or numbers, dict of numbers, or
            `BracketedQuery`.
        span: the span of the option, including its name.
    """

    name: str
    value: Any
    span: Span

    def normalize(self, kind: Kind, sql: str) -> FormOption:
        """Return the option, or raise BindError if the value is not of `kind`.

        If `kind` is "columns", the name of a single column becomes a tuple.
        """
        if not _is_of_kind(self.value, kind):
            message = f"option {self.name} takes {_KIND_DESCRIPTIONS[kind]}"
            raise BindError(message, sql, self.span.start)
        if kind == "columns" and isinstance(self.value, str):
            return FormOption(self.name, (self.value,), self.span)
        return self


def _is_of_kind(value: Any, kind: Kind) -> bool:
    if isinstance(value, BracketedQuery) or kind == "rows":
        return isinstance(value, BracketedQuery) and kind == "rows"
    if isinstance(value, dict) or kind == "numbers":
        return isinstance(value, dict) and kind == "numbers"
    if kind == "list":
        return isinstance(value, tuple) and bool(value) and not isinstance(value[0], str)
    if kind in ("column", "text"):
        return isinstance(value, str)
    if kind == "columns":
        names = value if isinstance(value, tuple) else (value,)
        return bool(names) and all(isinstance(name, str) for name in names)
    if kind == "number":
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and math.isfinite(value)
    return isinstance(value, bool) if kind == "boolean" else not isinstance(value, tuple)


@dataclass(frozen=True, slots=True)
class TableForm:
    """A table form: `ml_predict(MODEL m, TABLE t)`, `ML.PREDICT(MODEL m, (query))` or
    `ml_evaluate(MODEL m)`.

    Attributes:
        function: the form's key in `FORMS`.
        model: the reference to the model, or None if a parameter or the expression `column` names
            the model, or if the form has no model.
        rows: the spans of the tables and queries that provide rows, without the keyword TABLE.
        has_model: whether the form names a model, by any of these means.
    """

    span: Span
    function: str
    model: str | None
    model_span: Span
    rows: tuple[Span, ...]
    options: Mapping[str, FormOption]
    column: Span | None = None
    has_model: bool = True

    def read_integer(self, name: str, default: int, minimum: int, maximum: int, sql: str) -> int:
        """Return the value of the option `name`, or `default` if it is not set.

        Raises BindError unless the value is a whole number from `minimum` to `maximum`.
        """
        option = self.options.get(name)
        if option is None:
            return default
        if option.value != int(option.value) or not minimum <= option.value <= maximum:
            message = f"option {name} takes a whole number from {minimum} to {maximum}"
            raise BindError(message, sql, option.span.start)
        return int(option.value)


def find_form(name: str) -> str | None:
    """Return the key of `FORMS` for a function name such as `ml_predict`, or None for other names.

    >>> find_form("ML_Predict"), find_form("ml_predictions")
    ('predict', None)
    """
    key = fold(name).removeprefix("ml_")
    return key if key != fold(name) and key in FORMS else None


def find_table_forms(sql: str, dialect: str = "duckdb") -> tuple[TableForm, ...]:
    """Return all table forms in `sql` in order, including forms inside the rows of another form.

    Raises BindError if a form is malformed, and ParseError if `sql` cannot be tokenized.
    """
    tokens = tokenize(sql, dialect)
    reader = _FormReader(sql, tokens)
    return tuple(reader.read_form(i) for i in range(len(tokens)) if is_table_form(tokens, i))


def has_table_form(tokens: Sequence[Token]) -> bool:
    """Return whether `tokens` contain a table form, even a malformed one."""
    return any(is_table_form(tokens, i) for i in range(len(tokens)))


def find_names(sql: str, dialect: str = "duckdb") -> frozenset[str]:
    """Return the folded identifiers in `sql`."""
    return frozenset(fold(t.text) for t in tokenize(sql, dialect) if t.is_identifier)


def find_defined_names(sql: str, dialect: str = "duckdb") -> frozenset[str]:
    """Return the folded names of the CTEs in `sql`, and perhaps of other aliases.

    >>> sorted(find_defined_names("WITH a AS (SELECT 1), b(x) AS (SELECT 2) FROM a, b"))
    ['a', 'b']
    """
    tokens = tokenize(sql, dialect)
    if not any(token.upper == "WITH" for token in tokens):
        return frozenset()
    names = set()
    for next_index, token in enumerate(tokens, 1):
        if next_index < len(tokens) and tokens[next_index].is_symbol("("):
            next_index = tokens.closing.get(next_index, len(tokens)) + 1
        if token.is_identifier and next_index < len(tokens) and tokens[next_index].upper == "AS":
            names.add(fold(token.text))
    return frozenset(names)


def is_table_form(tokens: Sequence[Token], start: int) -> bool:
    """Return whether a table form begins at tokens[start].

    MODEL, TABLE or a query inside the form distinguishes it from a call of a user's function.
    """
    is_dotted = tokens[start].upper == "ML"
    name_index = start + 2 if is_dotted else start
    if name_index + 3 >= len(tokens) or not tokens[name_index + 1].is_symbol("("):
        return False
    if is_dotted and not (tokens[start + 1].is_symbol(".") and tokens[name_index].is_identifier):
        return False
    function = fold(tokens[name_index].text)
    if not is_dotted and not (tokens[start].is_identifier and function.startswith("ml_")):
        return False
    token, next_token = tokens[name_index + 2], tokens[name_index + 3]
    is_name = next_token.is_identifier or next_token.kind == "string"
    form = FORMS.get(function if is_dotted else function.removeprefix("ml_"))
    if form is None or form.has_model:
        if token.upper == "MODEL":
            return is_name or next_token.kind == "param" or next_token.is_symbol("(")
        if form is None or not form.column_options:
            is_table = token.upper == "TABLE" and next_token.is_identifier
            return is_dotted and form is None and is_table
    is_query = token.is_symbol("(") and (next_token.upper in QUERIES or next_token.is_symbol("("))
    return is_query or (token.upper == "TABLE" and is_name)


def _build_hint(word: str, choices: Collection[str], prefix: str, noun: str) -> str:
    """Build a hint for the unknown `word` that names the most similar choice, or all `choices`."""
    suggestion = closest(word, choices)
    if suggestion is not None:
        return f"did you mean {prefix}{suggestion}?"
    listing = ", ".join(prefix + choice for choice in choices)
    return f"{noun}: {listing}" if choices else "it takes none"


_Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _FormReader:
    """A reader of the table forms in `sql`, whose methods read the range tokens[start:end].

    The methods raise BindError if the range does not contain what they read.
    """

    sql: str
    tokens: Tokens

    def error(self, message: str, index: int) -> BindError:
        return BindError(message, self.sql, self.tokens[index].start)

    def span(self, start: int, end: int) -> Span:
        return Span(self.tokens[start].start, self.tokens[end - 1].end)

    def is_in_brackets(self, start: int, end: int) -> bool:
        return self.tokens[start].is_symbol("(") and self.tokens.closing.get(start) == end - 1

    def read_form(self, start: int) -> TableForm:
        tokens, is_dotted = self.tokens, self.tokens[start].upper == "ML"
        opening = start + (3 if is_dotted else 1)
        function = fold(tokens[opening - 1].text).removeprefix("" if is_dotted else "ml_")
        if function not in FORMS:
            written_name = self.sql[tokens[start].start : tokens[opening].start]
            hint = _build_hint(function, FORMS, "ml_", "functions")
            raise self.error(f"unknown function {written_name}; {hint}", start)
        closing = tokens.closing.get(opening)
        if closing is None:
            raise self.error("this bracket is not closed", opening)
        ranges = tokens.split_commas(opening + 1, closing)
        model = column = None
        model_span = self.span(opening, opening + 1)
        has_model = FORMS[function].has_model and tokens[opening + 1].upper == "MODEL"
        if has_model:
            model_start, model_end = ranges.pop(0)
            model_span = self.span(model_start + 1, model_end)
            if self.is_in_brackets(model_start + 1, model_end):
                column = model_span
            else:
                model = self._read_reference(tokens[model_start + 1 : model_end])
        row_ranges = [r for r in ranges if self._are_rows(*r)]  # BigQuery's come last in some.
        ranges = [r for r in ranges if r not in row_ranges]
        self._check_rows(function, row_ranges, ranges, start)
        options = dict(self._read_options(function, ranges, has_model))
        row_spans = tuple(self.span(a + (tokens[a].upper == "TABLE"), b) for a, b in row_ranges)
        form_span = self.span(start, closing + 1)
        form = form_span, function, model, model_span, row_spans, options, column, has_model
        return TableForm(*form)

    def _are_rows(self, start: int, end: int) -> bool:
        is_table = self.tokens[start].upper == "TABLE" and end - start > 1
        return is_table or self.is_in_brackets(start, end)

    def _check_rows(
        self, function: str, row_ranges: _Ranges, other_ranges: _Ranges, start: int
    ) -> None:
        form = FORMS[function]
        min_count, max_count = form.table_range
        if min_count <= len(row_ranges) <= max_count:
            return
        if len(row_ranges) < min_count and other_ranges and other_ranges[0][0] < other_ranges[0][1]:
            message = "the table form takes its rows as TABLE and a name, or as a query in brackets"
            raise self.error(message, other_ranges[0][0])
        if not max_count:
            expected = "a model alone"
        elif form.has_model:
            expected = "a model and its rows"
        else:
            expected = "rows" if max_count == 1 else "two tables"
        raise self.error(
            f"ml_{function} takes {expected}, as in ml_{function}({form.example})",
            start if len(row_ranges) < min_count else row_ranges[max_count][0],
        )

    def _read_options(
        self, function: str, ranges: _Ranges, has_model: bool
    ) -> Iterator[tuple[str, FormOption]]:
        form = FORMS[function]
        known_options = form.options if has_model else {**form.options, **form.column_options}
        used_names: set[str] = set()
        positional = list(form.positional)
        for start, end in ranges:
            options = self._read_struct_options(start, end)
            is_single = end - start == 1 or self._is_list(start)
            if not options and positional and is_single:
                value = self._read_literal(start, end)
                options = [FormOption(positional.pop(0), value, self.span(start, end))]
            for option in options or [self._read_option(start, end)]:
                name, offset = option.name, option.span.start
                if name not in known_options:
                    hint = _build_hint(name, known_options, "", "options")
                    message = f"unknown option {name} of ml_{function}; {hint}"
                    raise BindError(message, self.sql, offset)
                if name in used_names:
                    raise BindError(f"option {name} is given twice", self.sql, offset)
                used_names.add(name)
                yield name, option.normalize(known_options[name], self.sql)

    def _read_option(self, start: int, end: int) -> FormOption:
        """Return the option `name := value` or `name => value`."""
        tokens = self.tokens
        is_named = end - start > 2 and tokens[start].is_identifier
        if not is_named or not any(tokens[start + 1].is_symbol(sign) for sign in (":=", "=>")):
            raise self.error(
                "after its model and its rows (TABLE and a name, or a query in brackets) a table "
                "form takes options, as in threshold := 0.5",
                start if start < end else start - 1,
            )
        value_token = tokens[start + 2]
        if value_token.is_symbol("(") and tokens[start + 3].upper in QUERIES:
            value: Any = BracketedQuery(self.sql[value_token.start : tokens[end - 1].end])
        else:
            value = self._read_value(start + 2, end)
        return FormOption(fold(tokens[start].text), value, self.span(start, end))

    def _read_struct_options(self, start: int, end: int) -> list[FormOption]:
        """Return the options of `STRUCT(value AS name, ...)`, or [] for any other argument."""
        tokens = self.tokens
        if tokens[start].upper != "STRUCT" or not self.is_in_brackets(start + 1, end):
            return []
        options = []
        for begin, stop in tokens.split_commas(start + 2, end - 1):
            has_name = tokens[stop - 2].upper == "AS" and tokens[stop - 1].is_identifier
            if stop - begin < 3 or not has_name:
                message = "options in a STRUCT have names, as in STRUCT(0.5 AS threshold)"
                raise self.error(message, begin)
            name = fold(tokens[stop - 1].text)
            value = self._read_value(begin, stop - 2)
            options.append(FormOption(name, value, self.span(begin, stop)))
        return options

    def _read_literal(self, start: int, end: int) -> Any:
        tokens = self.tokens[start:end]
        token = tokens[0]
        if len(tokens) == 1 and token.kind == "string":
            return token.text
        if len(tokens) == 1 and token.upper in _BOOLEANS:
            return _BOOLEANS[token.upper]
        if len(tokens) == 1 and token.kind == "number":
            return read_number(token.text)
        signs = "".join(t.text for t in tokens[:-1])
        if signs in ("-", ".", "-.") and tokens[-1].kind == "number":
            value = read_number(("." if "." in signs else "") + tokens[-1].text)
            return -value if "-" in signs else value
        opening = next((i for i, t in enumerate(tokens[:2]) if t.text in ("[", "(")), None)
        is_range = token.upper in _RANGE_FUNCTIONS
        if opening is not None and (opening == 0 or token.upper == "ARRAY" or is_range):
            ranges = self.tokens.split_commas(start + opening + 1, end - 1)
            values = tuple(self._read_literal(*r) for r in ranges if r[0] < r[1])
            if is_range and (numbers := _expand_range(values)):
                return numbers
            if not is_range and len({isinstance(v, str) for v in values}) < 2:
                return values
        raise self.error(
            "options of a table form must be literals: a string, a number, true, false, or a list "
            "of strings or numbers",
            start,
        )

    def _is_list(self, start: int) -> bool:
        token = self.tokens[start]
        return token.is_symbol("[") or token.upper in ("ARRAY", *_RANGE_FUNCTIONS)

    def _read_value(self, start: int, end: int) -> Any:
        """Return a literal, or a dict that maps names to numbers.

        The dict is written `{'age': 0.1, plan: 0.2}` or `[('age', 0.1), STRUCT('plan', 0.2)]`.
        """
        tokens = self.tokens
        first_bracket = start + 1 + (tokens[start + 1].upper == "STRUCT")
        is_list = tokens[start].is_symbol("[") and tokens.closing.get(first_bracket)
        is_map = tokens[start].is_symbol("{") or is_list
        if not is_map or tokens.closing.get(start) != end - 1:
            return self._read_literal(start, end)
        numbers: dict[str, float] = {}
        for begin, stop in tokens.split_commas(start + 1, end - 1):
            if is_list:
                begin, stop = begin + 1 + (tokens[begin].upper == "STRUCT"), stop - 1
            is_pair = stop - begin == 3 and tokens[begin + 1].is_symbol("," if is_list else ":")
            name_token, value_token = tokens[begin], tokens[stop - 1]
            is_name = name_token.kind == "string" or name_token.is_identifier
            if not (is_pair and is_name and value_token.kind == "number"):
                raise self.error(f"expected {_KIND_DESCRIPTIONS['numbers']}", start)
            number = float(read_number(value_token.text))
            if not math.isfinite(number):
                raise self.error(f"{name_token.text!r} needs a finite number", stop - 1)
            if fold(name_token.text) in map(fold, numbers):
                raise self.error(f"{name_token.text!r} is given twice", begin)
            numbers[name_token.text] = number
        return numbers

    def _read_reference(self, tokens: Sequence[Token]) -> str | None:
        """Return a reference such as m, db.m, "m", 'm', m@last or m/3, or None for a parameter."""
        if len(tokens) == 1 and tokens[0].kind == "string":
            return tokens[0].text
        if any(t.kind == "param" for t in tokens):
            return None
        for previous, token in zip(tokens, tokens[1:], strict=False):
            if not (previous.kind == "symbol" or token.kind == "symbol"):
                message = f"the table form takes one model; expected a comma before {token.text!r}"
                raise BindError(message, self.sql, token.start)
        return "".join(t.text for t in tokens)


def _expand_range(values: Sequence[Any]) -> tuple[float, ...]:
    """Return the numbers of generate_array(start, end, step), or () for other arguments.

    >>> _expand_range((0.1, 0.3, 0.1))
    (0.1, 0.2, 0.3)
    """
    are_numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if not are_numbers or len(values) not in (2, 3):
        return ()
    start, end, step = values if len(values) == 3 else (*values, 1)
    # Decimals keep 0.1 + 2 * 0.1 from becoming 0.30000000000000004.
    first, last, increment = (Decimal(repr(value)) for value in (start, end, step))
    if increment <= 0 or not (first <= last < first + _MAX_RANGE * increment):
        return ()
    count = int((last - first) / increment) + 1
    return tuple(float(first + k * increment) for k in range(count))


def read_number(text: str) -> int | float:
    """Return the value of an unsigned number such as `1_000` or `1e3`."""
    digits = text.replace("_", "")
    return int(digits) if digits.isdigit() else float(digits)
