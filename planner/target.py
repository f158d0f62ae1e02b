"""`target_of`: what a call computes, once its model is known: an output, or one class of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlml.catalog.model import Model
from sqlml.errors import BindError, UnknownModelError
from sqlml.front.lexer import Token, closing
from sqlml.ir.program import Program
from sqlml.planner.absent import why_none
from sqlml.planner.calls import Call
from sqlml.planner.classes import chosen_class
from sqlml.planner.context import Context
from sqlml.planner.names import Output, Part
from sqlml.planner.parameters import Parameters
from sqlml.planner.results import Chosen, result_type
from sqlml.planner.stars import is_star

OUTPUTS_OF: Mapping[str, tuple[Output, ...]] = {
    "predict": ("label",),
    "predict_proba": ("proba",),
    "predict_score": ("score", "samples"),
    "transform": ("transform",),
}
"""The outputs that a function gives: the first of them that the model has.

A density (KernelDensity, GaussianMixture) has no decision function but scores of samples.
"""

_NO_OUTPUT = {
    "predict": "it predicts nothing",
    "predict_proba": "it gives no probabilities",
    "predict_score": "it has no decision function and no scores of samples",
    "transform": "it transforms nothing",
}


@dataclass(frozen=True, slots=True)
class Target:
    """What a call computes: an output of a model, one class of it when `chosen` is given.

    `shown` is what EXPLAIN says of it, where that is not the output's name.
    """

    model: Model
    output: Output
    chosen: Chosen | None
    shown: str = ""

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

    @property
    def text(self) -> str:
        """The output as EXPLAIN shows it."""
        if self.shown:
            return self.shown
        labels, text = self.model.program.labels, str(self.output)
        if self.chosen is not None:
            t, k = next((t, k) for t, k in enumerate(self.chosen) if k is not None)
            text += f", class {labels[t].values[k]!r}"
        targets = self.model.program.targets
        return text + (f", {targets} targets" if targets > 1 else "")


def target_of(
    call: Call, sql: str, tokens: Sequence[Token], given: Parameters, context: Context
) -> Target | None:
    """What the call is to compute; None when the function is a user's own."""
    token = tokens[call.model]
    name = given.text(call.model) if token.kind == "param" else token.text
    if name is None:
        if context.is_user_function(call.function):
            return None
        raise BindError(
            f"the model name {token.text} is not given as a text; pass it when the statement is "
            "executed, or write it out",
            sql,
            token.start,
        )
    try:
        model = context.model(name)
    except UnknownModelError as error:
        starred = any(a.name is None and is_star(tokens, a) for a in call.arguments)
        if not starred and context.is_user_function(call.function):
            return None
        raise UnknownModelError(error.message, sql, token.start) from None
    given.use_up(call.model)
    if _defines_a_table(tokens, call.start):
        raise BindError(
            "a model call cannot stand in a generated column, DEFAULT or CHECK: nobody could read "
            "the table without sqlml; make a view of the table instead",
            sql,
            tokens[call.start].start,
        )
    output = _output(call.function, model.program)
    if output is None:
        others = [f"{f}(..)" for f in OUTPUTS_OF if _output(f, model.program) is not None]
        raise BindError(
            f"{call.function} does not fit model {model.name!r}: {_NO_OUTPUT[call.function]}"
            f"{why_none(OUTPUTS_OF[call.function][0], model.program)}; use {' or '.join(others)}",
            sql,
            tokens[call.start].start,
        )
    return Target(model, output, chosen_class(call, model, sql, tokens, given))


def _output(function: str, program: Program) -> Output | None:
    """The output of `program` that `function` gives; None where it has none of them."""
    return next((o for o in OUTPUTS_OF[function] if o in program.outputs), None)


def _defines_a_table(tokens: Sequence[Token], place: int) -> bool:
    """Whether the token stands in a table's definition: a column list, or an ALTER of one."""
    if tokens[0].upper not in ("ALTER", "CREATE"):
        return False
    words = [t.upper for t in tokens[:place]]
    if words[:2] == ["ALTER", "TABLE"] and {"DEFAULT", "GENERATED", "AS"} & set(words):
        return True
    if words[:1] != ["CREATE"] or "TABLE" not in words[:5] or "AS" in words[:8]:
        return False
    opening = next((i for i, t in enumerate(tokens) if t.is_symbol("(")), place)
    close = closing(tokens, opening) if opening < place else None
    return close is not None and opening < place < close
