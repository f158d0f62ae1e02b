"""`target_of`: what a call computes, once its model is known: an output, or one class of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlml.catalog.model import Model
from sqlml.errors import BindError, MissingOutputError, SqlmlError, UnknownModelError
from sqlml.explaining.explained import OWN, explained
from sqlml.ir.program import Program
from sqlml.planner.binding.context import Context
from sqlml.planner.program.function_names import Output, Part
from sqlml.planner.program.result_sql import Chosen, result_type
from sqlml.planner.syntax.arguments import seems_to_call
from sqlml.planner.syntax.outline import Literal, ModelCall, Parameter
from sqlml.planner.syntax.parameters import Parameters
from sqlml.types import Labels, class_literal, fold, list_classes

# `chosen_class`, `keyed_class`: the class that `class := ..` means, or a key of the MAP.


def chosen_class(call: ModelCall, model: Model, sql: str, given: Parameters) -> Chosen | None:
    """The class in `class := ..` as its index in each target; None when the call names none.

    Without it the model's own `positive_class` is meant, if it has one.
    """
    chosen = call.class_argument
    if chosen is None:
        positive = model.options.get("positive_class")
        if call.function not in ("predict_proba", "explain") or positive is None:
            return None
        return _places(model, positive, sql, call.span.start)
    place = chosen.span.start
    if not model.program.labels:
        raise BindError(f"model {model.name!r} has no classes", sql, place)
    value = given.literal(chosen)
    if value is None:
        raise BindError(
            "class := takes a literal or a parameter, since it decides what is computed",
            sql,
            place,
        )
    return _places(model, value[0], sql, place)


def keyed_class(call: ModelCall, model: Model) -> Chosen | None:
    """The class in `predict_proba(..)['yes']`: one number is computed, and no MAP is made.

    None where the key may mean anything else than one class of a MAP to the engine: it is not
    written as a label of its type is, it equals none (which gives NULL), or the result is a list.
    """
    labels = model.program.labels
    if call.key is None or call.class_argument is not None or len(labels) != 1:
        return None
    wanted = _key_value(call.key.literal, labels[0].kind)
    found = [i for i, label in enumerate(labels[0].values) if label == wanted]
    return (found[0],) if wanted is not None and len(found) == 1 else None


def _key_value(literal: Literal, kind: str) -> str | int | bool | None:
    """The value of a key that is written in the way of a kind of labels."""
    text = literal.text
    if kind == "string" and literal.kind == "string":
        return text
    if kind == "int64" and literal.kind == "number" and text.isascii() and text.isdigit():
        return -int(text) if literal.negative else int(text)
    if kind == "bool" and literal.kind == "word" and text != "NULL":
        return text == "TRUE"
    return None


def _places(model: Model, wanted: Any, sql: str, place: int) -> Chosen:
    """The place of a class among the labels of each target."""
    labels = model.program.labels
    found = tuple(index_of(known, wanted) for known in labels)
    if any(i is not None for i in found):
        return found
    all_known = dict.fromkeys(v for known in labels for v in known.values)
    known = list_classes(all_known)
    raise BindError(
        f"model {model.name!r} has no class {wanted!r}; its classes are {known}", sql, place
    )


def index_of(labels: Labels, wanted: Any) -> int | None:
    """The place of the label that `wanted` equals, or else spells ('1' is 1, 'true' True).

    Macros look for it in the same order (`model_sql/plain_macros.py`).
    """
    for same in (_is_equal, lambda a, b: spelled_class(a) == spelled_class(b), _is_spelled):
        for i, label in enumerate(labels.values):
            if same(label, wanted):
                return i
    return None


def _is_equal(label: Any, wanted: Any) -> bool:
    return isinstance(label, str) == isinstance(wanted, str) and bool(label == wanted)


def spelled_class(value: Any) -> str:
    """A class as `class := ..` takes it as a text.

    >>> spelled_class(True), spelled_class(3)
    ('true', '3')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_spelled(label: Any, wanted: Any) -> bool:
    """A boolean in any case, an integer with or without a fraction."""
    if isinstance(label, bool) or isinstance(wanted, bool):
        return str(label).casefold() == str(wanted).casefold()
    return _digits(label) == _digits(wanted)


def _digits(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value)


# `why_none`: why a model lacks an output that its library may give.


_THREE_AXES = (
    "a VotingClassifier transforms only with flatten_transform=True: three axes do not make a "
    "column"
)


def why_none(output: str, program: Program) -> str:
    """What to add to the error for a missing output that the model's library may give; empty for
    other models."""
    averaged = program.outputs.keys() == {"label", "proba"}
    return f" ({_THREE_AXES})" if output == "transform" and averaged else ""


# Refuse model calls where none can stand, and say what to write instead.


_TABLE_FORMS = {"explain": "ml_explain_predict", "transform": None}
"""The table form that does for all rows what a function does for one; ml_predict for the others."""


def refuse_place(call: ModelCall, sql: str, context: Context) -> None:
    """Refuse a call in a table's definition, or as a table in FROM.

    Raises:
        BindError: the call stands in one of these places.
    """
    if call.defines:
        raise BindError(
            "a model call cannot stand in a generated column, DEFAULT or CHECK: the table could "
            "not be read without sqlml; create a view of it instead",
            sql,
            call.span.start,
        )
    if call.is_source and not context.is_user_function(call.function):
        model = f"'{call.model}'" if isinstance(call.model, str) else "'m'"
        form = _TABLE_FORMS.get(call.function, "ml_predict")
        table = _table_name(call, sql)
        whole = "" if form is None else f", or SELECT * FROM {form}(MODEL {model}, TABLE {table})"
        raise BindError(
            f"{call.function} is computed for one row, so it cannot stand in FROM; write "
            f"SELECT *, {call.function}({model}, *) FROM {table}{whole}",
            sql,
            call.span.start,
        )


def _table_name(call: ModelCall, sql: str) -> str:
    """Return the table that the call was probably meant to score, or `t`."""
    if not call.arguments:
        return "t"
    place = call.arguments[0].span
    words = sql[place.start : place.end].split()
    is_named = len(words) == 2 and words[0].upper() == "TABLE"
    return words[-1] if is_named or call.arguments[0].column is not None else "t"


OUTPUTS_OF: Mapping[str, tuple[Output, ...]] = {
    "predict": ("label",),
    "predict_proba": ("proba",),
    "predict_score": ("score", "samples"),
    "transform": ("transform",),
}
"""The outputs that a function may give: it gives the first that the model has.

A density (KernelDensity, GaussianMixture) has no decision function but scores of samples.
"""

EXPLAIN = "explain"
"""The function that gives contributions, which a model has no output of its own for."""

_NO_OUTPUT = {
    "predict": "it predicts nothing",
    "predict_proba": "it gives no probabilities",
    "predict_score": "it has no decision function and no scores of samples",
    "transform": "it transforms nothing",
}


@dataclass(frozen=True, slots=True)
class Target:
    """What a call computes: an output of a model, one class of it when `chosen` is given.

    `shown` is EXPLAIN's text for it, if that is not the output's name. `key` is what is left for
    the engine to look up in the result, as written: `[1]`.
    """

    model: Model
    output: Output
    chosen: Chosen | None
    shown: str = ""
    key: str = ""

    @property
    def column(self) -> int | None:
        """The one column of the output that is computed; None for all."""
        return None if self.chosen is None or len(self.chosen) > 1 else self.chosen[0]

    @property
    def part(self) -> Part:
        """What is computed of the model's outputs."""
        return Part(self.output, self.column)

    @property
    def type(self) -> str:
        """The SQL type of the call."""
        return result_type(self.model.program, self.output, self.chosen)

    def with_key(self, key: str) -> Target:
        """The whole output, in which the engine looks up the class that is written as `key`."""
        return replace(self, chosen=None, key=key)

    @property
    def text(self) -> str:
        """The output as EXPLAIN shows it."""
        if self.shown:
            return self.shown
        labels, text = self.model.program.labels, str(self.output)
        if self.chosen is not None:
            t, k = next((t, k) for t, k in enumerate(self.chosen) if k is not None)
            text += f", class {class_literal(labels[t].values[k])}"
        targets = self.model.program.targets
        return text + (f", {targets} targets" if targets > 1 else "")


def target_of(call: ModelCall, sql: str, given: Parameters, context: Context) -> Target | None:
    """What the call is to compute; None when the function is a user's own."""
    at = call.model_span.start
    name = given.text(call.model) if isinstance(call.model, Parameter) else call.model
    if not isinstance(name, str):
        if context.is_user_function(call.function):
            return None
        raise BindError(
            f"the model name {sql[at : call.model_span.end]} is not a string; pass it when the "
            "statement is executed, or write it out",
            sql,
            at,
        )
    try:
        model = _model(name, context)
    except UnknownModelError as error:
        starred = any(a.star is not None for a in call.arguments)
        if not starred and context.is_user_function(call.function):
            return None
        raise UnknownModelError(error.message, sql, at) from None
    refuse_place(call, sql, context)
    if call.function == EXPLAIN:
        if call.class_argument is not None and len(model.program.labels) > 1:
            raise BindError(
                f"class := goes with a model of one label, and model {model.name!r} predicts "
                f"{len(model.program.labels)}; explain gives a MAP for each",
                sql,
                call.class_argument.span.start,
            )
        model = _explained(call, model, sql, context)
        return Target(model, OWN, chosen_class(call, model, sql, given), key=_key_sql(call, sql))
    output = _output(call.function, model.program)
    if output is None:
        others = [f"{f}(..)" for f in OUTPUTS_OF if _output(f, model.program) is not None]
        raise MissingOutputError(
            f"{call.function} does not fit model {model.name!r}: {_NO_OUTPUT[call.function]}"
            f"{why_none(OUTPUTS_OF[call.function][0], model.program)}; use {' or '.join(others)}",
            sql,
            call.span.start,
        )
    chosen = chosen_class(call, model, sql, given)
    if call.key is None:
        return Target(model, output, chosen)
    keyed = keyed_class(call, model) if chosen is None else None
    if keyed is not None:
        return Target(model, output, keyed)
    return Target(model, output, chosen, key=_key_sql(call, sql))


def _explained(call: ModelCall, model: Model, sql: str, context: Context) -> Model:
    """The model with a Program that can be explained, against the call's background if it has one.

    Raises:
        UnsupportedModelError, ConfigError, BindError: it cannot.
    """
    place = call.background
    if place is not None and seems_to_call(sql[place.start : place.end], context.dialect.name):
        raise BindError("background := takes a query that calls no model", sql, place.start)
    try:
        if place is None:
            explained(model.program)
            return model
        made = context.explained(model, sql[place.start : place.end], call.permutations)
    except SqlmlError as error:
        at = (call.span if place is None else place).start
        raise error.at(sql, at, f"model {model.name!r}: ") from None
    return replace(model, program=made)


def _key_sql(call: ModelCall, sql: str) -> str:
    """What is left for the engine to look up in the result."""
    return "" if call.key is None else sql[call.key.span.start : call.key.span.end]


def _model(name: str, context: Context) -> Model:
    """The model of a name; `main.m` may mean m by the schema of the current database."""
    try:
        return context.model(name)
    except UnknownModelError:
        schema, _, rest = name.partition(".")
        if fold(schema) != "main" or not rest:
            raise
        return context.model(rest)


def _output(function: str, program: Program) -> Output | None:
    """The output of `program` that `function` gives; None if it has none of them."""
    return next((o for o in OUTPUTS_OF[function] if o in program.outputs), None)
