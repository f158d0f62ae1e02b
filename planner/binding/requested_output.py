"""`target_of`: what a call computes, once its model is known: an output, or one class of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlml.catalog.model import Model
from sqlml.errors import BindError, MissingOutputError, SqlmlError, UnknownModelError
from sqlml.explaining.classes import OWN
from sqlml.explaining.explained import explained
from sqlml.ir.program import Program
from sqlml.planner.binding.class_argument import chosen_class, keyed_class
from sqlml.planner.binding.context import Context
from sqlml.planner.binding.missing_output import why_none
from sqlml.planner.binding.refused_places import refuse_place
from sqlml.planner.program.function_names import Output, Part
from sqlml.planner.program.result_sql import Chosen, result_type
from sqlml.planner.syntax.arguments import seems_to_call
from sqlml.planner.syntax.outline import ModelCall, Parameter
from sqlml.planner.syntax.parameters import Parameters
from sqlml.types import class_literal, fold

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
        return Target(model, OWN, chosen_class(call, model, sql, given), key=_key(call, sql))
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
    return Target(model, output, chosen, key=_key(call, sql))


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


def _key(call: ModelCall, sql: str) -> str:
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
