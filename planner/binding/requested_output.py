"""The target of a call: a model, and the requested output or class of the model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from sqlml.catalog.model import Model, extend_version
from sqlml.catalog.small_models import (
    DEFAULT_COVERAGE,
    Calibration,
    CalibrationFacts,
    format_coverage,
)
from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import (
    BindError,
    MissingOutputError,
    SqlmlError,
    UnknownModelError,
    UnsupportedModelError,
)
from sqlml.explaining.explained import OWN, explain_program
from sqlml.explaining.reconstruction import LOSSES, add_losses
from sqlml.ir.program import Program
from sqlml.passes.tree_stages import LEAF, add_leaves, keep_stages
from sqlml.planner.binding.context import Context
from sqlml.planner.program.function_spec import Output, ResultPart
from sqlml.planner.program.result_sql import ChosenClass, find_result_type
from sqlml.planner.syntax.arguments import has_model_calls
from sqlml.planner.syntax.outline import Literal, ModelCall, Parameter
from sqlml.planner.syntax.parameters import Parameters
from sqlml.types import Labels, class_literal, fold, list_classes


def find_chosen_class(
    call: ModelCall, model: Model, sql: str, parameters: Parameters
) -> ChosenClass | None:
    """Return the class of `class := ...` or option `positive_class`, or None if neither is set."""
    class_argument = call.class_argument
    if class_argument is None:
        positive_class = model.options.get("positive_class")
        if call.function not in ("predict_proba", "explain") or positive_class is None:
            return None
        return _find_class(model, positive_class, sql, call.span.start)
    offset = class_argument.span.start
    if not model.program.labels:
        raise BindError(f"model {model.name!r} has no classes", sql, offset)
    boxed = parameters.find_literal_value(class_argument)
    if boxed is None:
        message = "class := takes a literal or a parameter, since it decides what is computed"
        raise BindError(message, sql, offset)
    return _find_class(model, boxed[0], sql, offset)


def find_keyed_class(call: ModelCall, model: Model) -> ChosenClass | None:
    """Return the class that the call's key chooses, as in `predict_proba(...)['yes']`.

    Return None if the result is a list, if the key is not written like a label of the model's type,
    or if no label equals the key. In the last case, the engine returns NULL.
    """
    labels = model.program.labels
    if call.key is None or call.class_argument is not None or len(labels) != 1:
        return None
    key = _read_key(call.key.literal, labels[0].kind)
    indices = [i for i, label in enumerate(labels[0].values) if label == key]
    return (indices[0],) if key is not None and len(indices) == 1 else None


def _read_key(literal: Literal, label_kind: str) -> str | int | bool | None:
    """Return the value of a key, or None unless it is written like a label of `label_kind`."""
    text = literal.text
    if label_kind == "string" and literal.kind == "string":
        return text
    if label_kind == "int64" and literal.kind == "number" and text.isascii() and text.isdigit():
        return -int(text) if literal.negative else int(text)
    if label_kind == "bool" and literal.kind == "word" and text != "NULL":
        return text == "TRUE"
    return None


def _find_class(model: Model, value: Any, sql: str, offset: int) -> ChosenClass:
    """Return each target's index of the class `value`, or None for a target without the class.

    Raises BindError if no target has the class.
    """
    labels = model.program.labels
    indices = tuple(find_label(target, value) for target in labels)
    if any(i is not None for i in indices):
        return indices
    listing = list_classes(dict.fromkeys(label for target in labels for label in target.values))
    message = f"model {model.name!r} has no class {value!r}; its classes are {listing}"
    raise BindError(message, sql, offset)


def find_label(labels: Labels, value: Any) -> int | None:
    """Return the index of the label that equals `value` or is written alike, as '1' and 1 are.

    Return None if no label matches. Macros search in the same order (`model_sql/macro_bodies.py`).
    """
    for is_same in (_is_equal, lambda a, b: render_class(a) == render_class(b), _is_written_alike):
        for i, label in enumerate(labels.values):
            if is_same(label, value):
                return i
    return None


def _is_equal(label: Any, value: Any) -> bool:
    return isinstance(label, str) == isinstance(value, str) and bool(label == value)


def render_class(value: Any) -> str:
    """Return a class as a string that `class := ...` accepts.

    >>> render_class(True), render_class(3)
    ('true', '3')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_written_alike(label: Any, value: Any) -> bool:
    """Return whether two classes are written alike, as `TRUE` and `true`, or `1` and `1.0` are."""
    if isinstance(label, bool) or isinstance(value, bool):
        return str(label).casefold() == str(value).casefold()
    return _write_number(label) == _write_number(value)


def _write_number(value: Any) -> str:
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if is_whole else str(value)


def explain_missing_output(output: str, program: Program) -> str:
    """Return a hint that explains why a model lacks `output`, or "" if there is no hint."""
    if output != "transform" or program.outputs.keys() != {"label", "proba"}:
        return ""
    return (
        " (a VotingClassifier transforms only with flatten_transform=True, since a column cannot "
        "hold an array with three axes)"
    )


_TABLE_FORMS = {
    "explain": "ml_explain_predict",
    "transform": None,
    "reconstruction_loss": "ml_reconstruction_loss",
    "predict_leaf": None,
}
"""Scalar function -> the table function for all rows. The default is ml_predict."""


def check_position(call: ModelCall, sql: str, context: Context) -> None:
    """Raise BindError if a call is in a table's definition, or in FROM as a table."""
    if call.in_definition:
        raise BindError(
            "a model call cannot stand in a generated column, DEFAULT or CHECK: the table could "
            "not be read without sqlml; create a view of it instead",
            sql,
            call.span.start,
        )
    if call.is_source and not context.is_user_function(call.function):
        quoted_model = f"'{call.model}'" if isinstance(call.model, str) else "'m'"
        function, table = _TABLE_FORMS.get(call.function, "ml_predict"), _guess_table(call, sql)
        message = (
            f"{call.function} is computed for one row, so it cannot stand in FROM; write "
            f"SELECT *, {call.function}({quoted_model}, *) FROM {table}"
        )
        if function is not None:
            message += f", or SELECT * FROM {function}(MODEL {quoted_model}, TABLE {table})"
        raise BindError(message, sql, call.span.start)


def _guess_table(call: ModelCall, sql: str) -> str:
    """Return the table that a call in FROM probably means, or "t" if it is unclear."""
    if not call.arguments:
        return "t"
    argument_span = call.arguments[0].span
    words = sql[argument_span.start : argument_span.end].split()
    has_table_keyword = len(words) == 2 and words[0].upper() == "TABLE"
    return words[-1] if has_table_keyword or call.arguments[0].column is not None else "t"


OUTPUTS_OF: Mapping[str, tuple[Output, ...]] = {
    "predict": ("label",),
    "predict_proba": ("proba",),
    "predict_score": ("score", "samples"),
    "transform": ("transform",),
    "predict_interval": ("interval",),
    "predict_set": ("set",),
}
"""Function except `explain` -> outputs. The function returns the first output of the model.

A density (KernelDensity, GaussianMixture) has no decision function, but it scores samples.
"""

_CONFORMAL = {"predict_interval": "interval", "predict_set": "set"}
"""The functions that read the calibration of a version, and its output."""

_NO_OUTPUT = {
    "predict": "it predicts nothing",
    "predict_proba": "it gives no probabilities",
    "predict_score": "it has no decision function and no scores of samples",
    "transform": "it transforms nothing",
}


@dataclass(frozen=True, slots=True)
class Target:
    """The requested output of a call: an output of a model, or one class if `chosen` is set.

    Attributes:
        label: the name of the target in EXPLAIN, if it differs from the name of the output.
        key: the key that the engine looks up in the result, as written, such as `[1]`.
        coverage: the coverage of intervals or sets, or None if the function computes none, or if
            each row has its own.
        coverage_sql: the requested coverage as written, or "" if the function computes none.
        trees: the number of the first stages of the ensemble to score with, or None for all.
    """

    model: Model
    output: Output
    chosen: ChosenClass | None
    label: str = ""
    key: str = ""
    coverage: float | None = None
    coverage_sql: str = ""
    trees: int | None = None

    @property
    def program(self) -> Program:
        """The Program of the model, with only the requested trees."""
        program = self.model.program
        return program if self.trees is None else keep_stages(program, self.trees)

    @property
    def variant(self) -> tuple[str, int | None, bool]:
        """The properties that calls of a version share if one function can compute all of them."""
        return self.coverage_sql, self.trees, self.output == LEAF

    @property
    def column(self) -> int | None:
        """The index of the only output column that is computed, or None if all are computed."""
        return None if self.chosen is None or len(self.chosen) > 1 else self.chosen[0]

    @property
    def part(self) -> ResultPart:
        return ResultPart(self.output, self.column)

    @property
    def type(self) -> str:
        return find_result_type(self.model.program, self.output, self.chosen)

    @property
    def text(self) -> str:
        """The output as shown by EXPLAIN."""
        if self.label:
            return self.label
        labels, description = self.model.program.labels, str(self.output)
        if self.output == LEAF:
            return (
                description if self.column is None else f"{description} of tree {self.column + 1}"
            )
        if self.chosen is not None:
            target_index, index = next((t, i) for t, i in enumerate(self.chosen) if i is not None)
            description += f", class {class_literal(labels[target_index].values[index])}"
        target_count = self.model.program.target_count
        return description + (f", {target_count} targets" if target_count > 1 else "")


def find_target(
    call: ModelCall, sql: str, parameters: Parameters, context: Context
) -> Target | None:
    """Return the requested output of a call, or None if the call is to a user's function."""
    offset = call.model_span.start
    name = parameters.find_text(call.model) if isinstance(call.model, Parameter) else call.model
    if not isinstance(name, str):
        if context.is_user_function(call.function):
            return None
        message = (
            f"the model name {sql[offset : call.model_span.end]} is not a string; pass it when the "
            "statement is executed, or write it out"
        )
        raise BindError(message, sql, offset)
    try:
        model = _find_model(name, context)
    except UnknownModelError as error:
        has_star = any(a.star is not None for a in call.arguments)
        if not has_star and context.is_user_function(call.function):
            return None
        raise UnknownModelError(error.message, sql, offset) from None
    check_position(call, sql, context)
    key = "" if call.key is None else sql[call.key.span.start : call.key.span.end]
    trees = _find_trees(call, model, sql, parameters)
    if call.function == "predict_leaf":
        target = Target(model, LEAF, None, key=key, trees=trees)
        try:
            tree_count = add_leaves(target.program).output_type(LEAF).width
        except UnsupportedModelError as error:
            message = f"predict_leaf does not fit model {model.name!r}: {error}"
            raise MissingOutputError(message, sql, call.span.start) from None
        tree_index = _find_keyed_tree(call, tree_count, context.dialect)
        return target if tree_index is None else replace(target, chosen=(tree_index,), key="")
    if call.function == "explain":
        if call.class_argument is not None and len(model.program.labels) > 1:
            raise BindError(
                f"class := needs a model with one label, and model {model.name!r} predicts "
                f"{len(model.program.labels)}; explain returns a MAP for each",
                sql,
                call.class_argument.span.start,
            )
        if trees is not None and call.background is not None:
            model, trees = replace(model, program=keep_stages(model.program, trees)), None
        model = _prepare_explanation(call, model, sql, context)
        chosen = find_chosen_class(call, model, sql, parameters)
        return Target(model, OWN, chosen, key=key, trees=trees)
    if call.function == "reconstruction_loss":
        try:
            add_losses(model.program)
        except SqlmlError as error:
            raise error.at(sql, call.span.start, f"model {model.name!r}: ") from None
        return Target(model, LOSSES, None, key=key)
    if call.function in _CONFORMAL:
        return _find_conformal_target(call, model, sql, parameters, context, key)
    output = _find_output(call.function, model.program)
    if output is None:
        calls = [f"{f}(..)" for f in OUTPUTS_OF if _find_output(f, model.program) is not None]
        raise MissingOutputError(
            f"{call.function} does not fit model {model.name!r}: {_NO_OUTPUT[call.function]}"
            f"{explain_missing_output(OUTPUTS_OF[call.function][0], model.program)}; use "
            f"{' or '.join(calls)}",
            sql,
            call.span.start,
        )
    chosen = find_chosen_class(call, model, sql, parameters)
    keyed_class = find_keyed_class(call, model) if chosen is None else None
    if keyed_class is not None:
        return Target(model, output, keyed_class, trees=trees)
    return Target(model, output, chosen, key=key, trees=trees)


def _find_keyed_tree(call: ModelCall, tree_count: int, dialect: Dialect) -> int | None:
    """Return the only tree that `predict_leaf(...)[1]` reads, or None for other calls."""
    if call.key is None or dialect is not DUCKDB:
        return None
    position = _read_key(call.key.literal, "int64")
    is_tree = isinstance(position, int) and 1 <= position <= tree_count
    return position - 1 if is_tree and isinstance(position, int) else None


def _find_trees(call: ModelCall, model: Model, sql: str, parameters: Parameters) -> int | None:
    """Return the number of `trees := ...`, or None without it; raise if it does not fit."""
    if call.trees is None:
        return None
    offset = call.trees.span.start
    boxed = parameters.find_literal_value(call.trees)
    if boxed is None or type(boxed[0]) is not int or boxed[0] < 1:
        message = "trees := takes a whole number of at least 1, as a literal or a parameter"
        raise BindError(message, sql, offset)
    try:
        keep_stages(model.program, boxed[0])
    except UnsupportedModelError as error:
        message = f"trees := {boxed[0]} does not fit model {model.name!r}: {error}"
        raise BindError(message, sql, offset) from None
    return boxed[0]


def explain_no_calibration(model: Model, dialect: Dialect) -> str:
    """Return the message for a call that needs a calibration, with the statement that adds it."""
    parts = [part for part in (model.database, model.name) if part is not None]
    name = ".".join(p if re.fullmatch(r"[A-Za-z_]\w*", p) else dialect.quote_name(p) for p in parts)
    return (
        f"version {model.version} of model {model.name!r} is not calibrated, so it has no "
        f"intervals or sets: ALTER MODEL {name}/{model.version} CALIBRATE USING (query with true "
        "labels)"
    )


def _find_conformal_target(
    call: ModelCall,
    model: Model,
    sql: str,
    parameters: Parameters,
    context: Context,
    key: str,
) -> Target:
    """Return the target of a call whose result the version's calibration computes."""
    offset = call.span.start
    calibration = context.small_models(model).get("calibration")
    if not isinstance(calibration, Calibration):
        raise MissingOutputError(
            explain_no_calibration(model, context.dialect),
            sql,
            offset,
        )
    output = calibration.output
    if output != _CONFORMAL[call.function]:
        function = next(f for f, name in _CONFORMAL.items() if name == output)
        message = f"{call.function} does not fit model {model.name!r}; use {function}(..)"
        raise MissingOutputError(message, sql, offset)
    coverage = _find_coverage(call, calibration.facts, model, sql, parameters)
    span = None if call.coverage is None else call.coverage.span
    coverage_sql = str(coverage) if span is None else sql[span.start : span.end]
    calibrated_model = extend_version(model, calibration.small)
    return Target(calibrated_model, output, None, "", key, coverage, coverage_sql)


def _find_coverage(
    call: ModelCall, facts: CalibrationFacts, model: Model, sql: str, parameters: Parameters
) -> float | None:
    """Return the coverage of a call, or None if each row computes it; raise if it is too high."""
    argument = call.coverage
    if argument is None:
        coverage: Any = DEFAULT_COVERAGE
    else:
        boxed = parameters.find_literal_value(argument)
        if boxed is None and (argument.literal is not None):
            boxed = (None,)
        if boxed is None:
            return None
        coverage = boxed[0]
    offset = call.span.start if argument is None else argument.span.start
    is_number = isinstance(coverage, int | float | Decimal) and not isinstance(coverage, bool)
    if not is_number or not 0 < coverage < 1:
        message = f"coverage := takes a number between 0 and 1, such as 0.9, not {coverage!r}"
        raise BindError(message, sql, offset)
    if coverage > facts.highest:
        message = _explain_high_coverage(Fraction(str(coverage)), facts, model)
        raise BindError(message, sql, offset)
    return float(coverage)


def _explain_high_coverage(coverage: Fraction, facts: CalibrationFacts, model: Model) -> str:
    end = f"allow at most {format_coverage(facts.highest)}; calibrate it with more rows"
    name = f"model {model.name!r}"
    if facts.weight:
        return f"coverage {float(coverage)} is too high: the weights of {name} {end}"
    numerator = coverage if facts.symmetric else 1 + coverage
    needed = f"coverage {float(coverage)} needs {math.ceil(numerator / (1 - coverage)):,}"
    if facts.by:
        return f"{needed} calibration rows in a group, and the groups of {name} {end}"
    return f"{needed} calibration rows, and {name} has {facts.rows:,}, which {end}"


def _prepare_explanation(call: ModelCall, model: Model, sql: str, context: Context) -> Model:
    """Return the model with a Program that explains predictions against the call's background.

    Without background rows, check that the model can be explained, and return it unchanged.
    """
    span = call.background
    background_sql = "" if span is None else sql[span.start : span.end]
    if span is not None and has_model_calls(background_sql, context.dialect.name):
        raise BindError("background := takes a query that calls no model", sql, span.start)
    try:
        if span is not None:
            program = context.explain_against(model, background_sql, call.permutations)
            return replace(model, program=program)
        explain_program(model.program)
        return model
    except SqlmlError as error:
        raise error.at(sql, (span or call.span).start, f"model {model.name!r}: ") from None


def _find_model(name: str, context: Context) -> Model:
    """Return the model `name`, where `main.m` may mean `m` in the current database."""
    try:
        return context.model(name)
    except UnknownModelError:
        schema, _, bare_name = name.partition(".")
        if fold(schema) != "main" or not bare_name:
            raise
        return context.model(bare_name)


def _find_output(function: str, program: Program) -> Output | None:
    return next((output for output in OUTPUTS_OF[function] if output in program.outputs), None)
