"""The draft of one call, which the stages of `plan_call` complete, and how literals are folded.

`predict('m', *, plan := 'pro')` calls a model whose feature `plan` is always 'pro'. The trees keep
only the branches that this value reaches (`fold_arguments`), and the function gets fewer columns. A
forest of 100 trees over 10 columns becomes 1.1 to 1.7 times as fast, and 2.3 times with three
literals. But the call needs a new function, which takes milliseconds to make and stays until the
process ends. So only long calls are folded, and a model has at most `function_spec.MAX_CONSTANTS`
functions with constants.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from typing import Any

from sqlml.catalog.model import Model
from sqlml.dialects import Dialect
from sqlml.explaining.explained import OWN
from sqlml.explaining.reconstruction import LOSSES
from sqlml.ir.operators.categories import HASHING_OPERATORS
from sqlml.ir.operators.opaque import OWNING_BACKENDS
from sqlml.ir.operators.sparse_rows import ITEM_OPERATORS
from sqlml.ir.operators.text import TEXT_OPERATORS
from sqlml.ir.program import Program
from sqlml.passes.fold_arguments import rejects_arguments
from sqlml.passes.split import Layout
from sqlml.planner.binding.column_types import BoundInput
from sqlml.planner.binding.context import Context, RowEstimate
from sqlml.planner.binding.probe_queries import Scope
from sqlml.planner.binding.refused_nulls import EvaluatedOnce
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.model_sql.sql_or_function import ModelExpression, ModelSql
from sqlml.planner.program.choose import Choice, Route, asks_for_sql, choose_way
from sqlml.planner.program.cost import ROWS
from sqlml.planner.program.function_spec import (
    Constants,
    ResultPart,
    admit_constants,
    encode_constants,
)
from sqlml.planner.program.prepare_program import (
    PreparedProgram,
    SharedParts,
    fold_constants,
    prepare_parts,
)
from sqlml.planner.syntax.outline import Literal, ModelCall
from sqlml.types import Feature, fold

MAX_NAME_LENGTH = 64  # The maximum length of the constants in a function's name.
MAX_LITERALS = 4  # The maximum number of literals of a call that become constants of the model.
MIN_SECONDS = 0.02  # Faster calls are not worth folding.
_MAX_EXACT_INTEGER = 1 << 53

_UNFOLDABLE_OPS = TEXT_OPERATORS | ITEM_OPERATORS | HASHING_OPERATORS | OWNING_BACKENDS.keys()
"""Operators that cannot be evaluated unless all columns of a row are known."""


@dataclass(frozen=True, slots=True)
class FromColumn:
    """A column that FROM computes for a model call."""

    name: str
    sql: str
    arguments: str  # The expressions in `sql`, which must bind in FROM.
    type: str
    order: str | None = None  # The expression by which FROM sorts the rows, or None if unsorted.

    @staticmethod
    def of_row(packed_sql: str, sql_type: str) -> FromColumn:
        return FromColumn(f"sqlml_row_{_hash_sql(packed_sql)}", packed_sql, packed_sql, sql_type)

    @staticmethod
    def of_models(sql: str, arguments: str, sql_type: str, model_sql: str) -> FromColumn:
        """Return a column with the results of the models that `model_sql` names in each row."""
        return FromColumn(f"sqlml_models_{_hash_sql(sql)}", sql, arguments, sql_type, model_sql)

    def build_probe(self, dialect: Dialect) -> str:
        """Return the SQL of a NULL of the column's type, which binds only if its arguments bind."""
        return f"CASE WHEN {dialect.row(self.arguments)} IS NULL THEN CAST(NULL AS {self.type}) END"


def _hash_sql(sql: str) -> str:
    return hashlib.blake2b(sql.encode(), digest_size=12).hexdigest()


@dataclass(frozen=True)
class CallSite:
    """A model call with its scope in the statement, and the estimated number of its rows."""

    call: ModelCall
    scope: Scope
    context: Context
    rows: RowEstimate


@dataclass(frozen=True, kw_only=True)
class CallDraft(CallSite):
    """A model call with all decisions that the stages of `plan_call` have made so far."""

    target: Target
    shared: SharedParts  # The parts that one function computes for several calls on the same row.
    row_in_from: bool  # The packed numbers can be a column of FROM.
    options: Mapping[str, Any]  # The model's options, overridden by the settings of the session.
    max_categories: int | None  # The maximum number of categories of an encoder in SQL.
    route: Route  # How rows reach the function.
    used_features: frozenset[str]  # The features that the parts read.
    choice: Choice  # How the function runs.
    for_shared_sql: bool = False  # Several models share the SQL, so a function computes all.
    # The expressions that feed the features.
    bound_inputs: dict[str, BoundInput] = field(default_factory=dict)
    # The expressions that feed the columns of TRANSFORM, if the model has one.
    columns: dict[str, BoundInput] | None = None
    constants: Constants = ()  # Literal arguments that have become part of the model.
    layout: Layout = "f64"
    null_where: tuple[str, ...] = ()  # Features whose NULL makes the result NULL.
    unknown_as_null: tuple[str, ...] = ()  # Features whose unknown categories count as NULL.
    read_once: EvaluatedOnce | None = None  # The struct whose fields are `bound_inputs`, if any.
    expression: ModelSql | None = None  # The model as SQL, if it needs no function.

    @property
    def model(self) -> Model:
        return self.target.model

    @property
    def dialect(self) -> Dialect:
        return self.context.dialect

    @cached_property
    def prepared(self) -> PreparedProgram:
        """The Program of all parts that the function computes, after the model passes."""
        return self._prepare(self.shared.parts)

    @cached_property
    def prepared_alone(self) -> PreparedProgram:
        """The Program of only the part that this call requests, after the model passes."""
        return self._prepare((self.target.part,))

    def _prepare(self, parts: tuple[ResultPart, ...]) -> PreparedProgram:
        program = self.model.program
        return prepare_parts(program, parts, self.layout, self.constants, self.max_categories)

    @cached_property
    def used_columns(self) -> frozenset[str]:
        """The model's columns that feed `used_features`, directly or through TRANSFORM."""
        used, transform = self.used_features, self.model.transform
        return used if transform is None else frozenset(transform.find_columns(used))

    @property
    def model_expression(self) -> ModelExpression:
        program = self.model.program
        if self.constants:
            program = fold_constants(program, self.constants)
        prepared, inputs = self.prepared_alone, self.bound_inputs
        return ModelExpression(self.target, program, self.dialect, prepared, inputs, self.layout)

    def without_sharing(self) -> CallDraft:
        """Return the draft with a function that computes only the part that this call requests."""
        shared = SharedParts(parts=(self.target.part,), once=self.shared.once)
        return replace(self, shared=shared).choose_again()

    def choose_again(self, rows: int = ROWS) -> CallDraft:
        core, by_column = self.prepared.split.core, self.route.by_column
        return replace(self, choice=choose_way(core, self.options, rows, by_column=by_column))


def fold_literal_arguments(draft: CallDraft) -> CallDraft:
    """Fold the literal arguments of a call into the model if the model then reads fewer columns."""
    if asks_for_sql(draft.options) or any(p.output in (OWN, LOSSES) for p in draft.shared.parts):
        return draft  # The result is about each argument, even about a literal.
    transform = draft.model.transform
    computed = frozenset[str]() if transform is None else transform.expressions.keys()
    values = _find_literals(draft.call, draft.model.columns, draft.used_features - computed)
    constants = _choose_constants(draft, values) if values else ()
    if not constants:
        return draft
    folded_draft = replace(draft, constants=constants)
    inputs = folded_draft.prepared.program.inputs
    bound_inputs = {name: bound for name, bound in draft.bound_inputs.items() if name in inputs}
    return replace(folded_draft, bound_inputs=bound_inputs).choose_again()


def _choose_constants(draft: CallDraft, values: Mapping[str, float | str | None]) -> Constants:
    """Choose the `values` to fold into the model as constants, or () if folding gains nothing."""
    program, prepared = draft.model.program, draft.prepared
    has_trees = any(node.op == "tree_ensemble" for node in prepared.split.core)
    if not has_trees or prepared.split.texts or any(node.type.sparse for node in program.nodes):
        return ()
    rows = draft.rows.ask_engine(draft.context.estimate_rows).count
    if not _is_worth_folding(draft.choice, rows):
        return ()
    selected = _select_constants(program, values)
    if not selected:
        return ()
    candidates = tuple(sorted((*draft.constants, *selected), key=itemgetter(0)))
    folded = prepare_parts(program, draft.shared.parts, constants=candidates)
    reads_fewer = len(folded.program.inputs) < len(prepared.program.inputs)
    return candidates if reads_fewer and admit_constants(program, candidates) else ()


def _find_literals(
    call: ModelCall, features: Sequence[Feature], used_features: Collection[str]
) -> dict[str, float | str | None]:
    """Map each used feature whose argument is a literal to the literal's value (None for NULL)."""
    argument_by_name = {fold(a.name): a for a in call.arguments if a.name is not None}
    if not argument_by_name and len(call.arguments) == len(features):
        argument_by_name = {fold(f.name): a for f, a in zip(features, call.arguments, strict=True)}
    values: dict[str, float | str | None] = {}
    for feature in features:
        argument = argument_by_name.get(fold(feature.name))
        if argument is not None and argument.literal is not None and feature.name in used_features:
            value = _parse_literal(argument.literal, feature.kind)
            if value is not None:
                values[feature.name] = value[0]
    return values


def _parse_literal(literal: Literal, feature_kind: str) -> tuple[float | str | None] | None:
    """Return a tuple of the value (None for NULL), or None if the literal does not fit the kind."""
    if literal.kind == "word" and literal.text == "NULL":
        return (None,) if feature_kind in ("number", "string") else None
    if feature_kind == "string":  # Only the engine knows how it formats a number.
        return (literal.text,) if literal.kind == "string" else None
    if feature_kind != "number" or literal.kind == "string":
        return None
    if literal.kind == "word":
        return (float(literal.text == "TRUE"),)
    digits = literal.text.replace(".", "", 1)
    is_plain = digits.isdigit() and digits.isascii() and len(digits) <= 17
    if not is_plain or int(digits) > _MAX_EXACT_INTEGER:
        return None  # The engine might read another number.
    return ((-float(literal.text) if literal.negative else float(literal.text)) + 0.0,)


def _select_constants(program: Program, values: Mapping[str, float | str | None]) -> Constants:
    """Select up to `MAX_LITERALS` values to fold into `program`, or () if it rejects them."""
    names = list(program.inputs)
    indices = {name: i for i, name in enumerate(names)}
    selected: Constants = ()
    for constant in sorted((indices[name], v) for name, v in values.items() if name in indices):
        extended = (*selected, constant)
        if len(extended) <= MAX_LITERALS and len(encode_constants(extended)) <= MAX_NAME_LENGTH:
            selected = extended
    if not selected or any(n.op in _UNFOLDABLE_OPS or n.type.sparse for n in program.nodes):
        return ()
    arguments = {names[i]: value for i, value in selected}
    return () if rejects_arguments(program, arguments) else selected


def _is_worth_folding(choice: Choice, rows: int) -> bool:
    if not choice.estimates:
        return rows >= choice.rows
    return choice.estimates[0].seconds / choice.rows * rows >= MIN_SECONDS
