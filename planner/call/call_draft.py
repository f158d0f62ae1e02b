"""`CallDraft`: one call of a model on its way to its SQL, as the stages of `plan_call` leave it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sqlml.catalog.model import Model
from sqlml.dialects import Dialect
from sqlml.explaining.explained import OWN
from sqlml.ir.operators.categories import HASHED
from sqlml.ir.operators.opaque import OWNERS
from sqlml.ir.operators.sparse_rows import ITEMS
from sqlml.ir.operators.text import TEXT
from sqlml.ir.program import Program
from sqlml.passes.fold_arguments import refuses
from sqlml.passes.split import Layout
from sqlml.planner.binding.column_types import Bound
from sqlml.planner.binding.context import Context, Rows
from sqlml.planner.binding.probe_queries import Scope
from sqlml.planner.binding.refused_nulls import Once
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.choice.choose import Choice, asks_for_sql, choose
from sqlml.planner.choice.cost import ROWS
from sqlml.planner.model_sql.sql_or_function import Wanted, Written
from sqlml.planner.program.function_names import Constants, admitted, spelled
from sqlml.planner.program.named_functions import Route
from sqlml.planner.program.prepare import Prepared, Shared, prepare_parts
from sqlml.planner.syntax.outline import Literal, ModelCall
from sqlml.types import Feature, fold

# `Column`: a column that FROM makes for a call, besides its own.


@dataclass(frozen=True, slots=True)
class Column:
    """A column that FROM makes besides its own.

    name: of the column. sql: its expression. arguments: what must bind for it to be made. type: as
        the dialect spells it. order: what the rows are sorted by before it is made, if anything.
    """

    name: str
    sql: str
    arguments: str
    type: str
    order: str | None = None

    @staticmethod
    def of_row(packed: str, kind: str) -> Column:
        """The packed numbers of one row, of type `kind`."""
        return Column(f"sqlml_row_{_digest(packed)}", packed, packed, kind)

    @staticmethod
    def of_models(sql: str, arguments: str, kind: str, model: str) -> Column:
        """What models make of `arguments`; the expression `model` names that of each row."""
        return Column(f"sqlml_models_{_digest(sql)}", sql, arguments, kind, model)

    def probe(self, dialect: Dialect) -> str:
        """A NULL of the same type, which binds where the function's arguments bind."""
        row = dialect.row(self.arguments)
        return f"CASE WHEN {row} IS NULL THEN CAST(NULL AS {self.type}) END"


def _digest(sql: str) -> str:
    return hashlib.blake2b(sql.encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, kw_only=True)
class CallDraft:
    """What is known of a call, and what the stages have decided about it so far.

    Attributes:
        shared: what it computes together with others on the same row.
        row_in_from: FROM can make its packed numbers.
        options: the model's own, and those of the session over them.
        most: categories that SQL spells at most; the function's own encoders know more.
        route: how rows reach the function.
        used: the features that the parts read.
        choice: how the function is run.
        by_function: a function computes all that it can, whatever is cheaper.
        bounds: what feeds these. columns: what feeds the columns that TRANSFORM makes them of;
            None without it.
        constants: literal arguments that have become part of the model.
        null_where: features without which the result is NULL.
        unknown_as_null: features of which a category that the model has never seen counts as NULL.
        read_once: the columns, where `bounds` are fields that hold what these evaluate to.
        expression: the model as SQL, where no function is called for it.
    """

    call: ModelCall
    target: Target
    shared: Shared
    scope: Scope
    context: Context
    rows: Rows
    row_in_from: bool
    options: Mapping[str, Any]
    most: int | None
    route: Route
    used: frozenset[str]
    choice: Choice
    by_function: bool = False
    bounds: dict[str, Bound] = field(default_factory=dict)
    columns: dict[str, Bound] | None = None
    constants: Constants = ()
    layout: Layout = "f64"
    null_where: tuple[str, ...] = ()
    unknown_as_null: tuple[str, ...] = ()
    read_once: Once | None = None
    expression: Written | None = None

    @property
    def model(self) -> Model:
        """The model that is called."""
        return self.target.model

    @property
    def dialect(self) -> Dialect:
        """The engine's SQL."""
        return self.context.dialect

    @cached_property
    def prepared(self) -> Prepared:
        """All parts that the function makes, after the model passes."""
        return prepare_parts(
            self.model.program, self.shared.parts, self.layout, self.constants, self.most
        )

    @cached_property
    def alone(self) -> Prepared:
        """The call's own part, after the model passes."""
        return prepare_parts(
            self.model.program, (self.target.part,), self.layout, self.constants, self.most
        )

    @property
    def wanted(self) -> Wanted:
        """What the call computes, as an expression has to compute it."""
        target = self.target
        return Wanted(
            self.model.program,
            target.output,
            target.column,
            target.chosen,
            self.dialect,
            self.alone,
            self.bounds,
            self.layout,
        )

    def apart(self) -> CallDraft:
        """The call where it shares no evaluation with others, and its choice of a way to run."""
        shared = self.shared.apart(self.target.part)
        choice = choose(self.alone.split.core, self.options, by_column=self.route.by_column)
        return replace(self, shared=shared, choice=choice)

    def chosen(self, rows: int = ROWS) -> CallDraft:
        """The call with the best way to run the function of its parts as they are now.

        Raises:
            ConfigError, BackendError, MissingDependencyError: as `choose` says.
        """
        core, by_column = self.prepared.split.core, self.route.by_column
        return replace(self, choice=choose(core, self.options, rows, by_column=by_column))


# `literal_arguments`: the literals of a call become part of the model that it calls.
#
# `predict('m', *, plan := 'pro', discount := 0)` calls a model of which plan is 'pro'. Its trees
# keep the branches that these values reach (`fold_arguments`), and fewer columns are packed and
# handed over. Measured for a forest of 100 trees of depth 8 over 10 columns: 1.1 to 1.7 times as
# fast with one literal, and 2.3 times with three. A forest with constants in it is a function of
# its own, which takes milliseconds to make and stays until the process ends; so only work of some
# length is worth it, and a model has at most `constants.MOST` of them.


LONGEST = 64
"""Characters of the constants in a function's name."""

MOST_LITERALS = 4

LEAST = 0.02
"""Seconds that the unchanged model is estimated to take, at which constants begin to pay."""

_EXACT = 1 << 53

_UNFOLLOWED = TEXT | ITEMS | HASHED | OWNERS.keys()
"""Operators without a value for a row of which only some columns are known."""


def literal_arguments(draft: CallDraft) -> CallDraft:
    """The call of a model with its literal arguments, where it then reads fewer columns."""
    if asks_for_sql(draft.options) or any(p.output == OWN for p in draft.shared.parts):
        return draft  # what an argument contributes is asked for
    transform = draft.model.transform
    plain = draft.used if transform is None else draft.used - transform.made.keys()
    values = literals(draft.call, draft.model.columns, plain)
    found = _worth_it(draft, values) if values else ()
    if not found:
        return draft
    folded = replace(draft, constants=found)
    reads = folded.prepared.program.inputs
    bounds = {name: bound for name, bound in draft.bounds.items() if name in reads}
    return replace(folded, bounds=bounds).chosen()


def _worth_it(draft: CallDraft, values: Mapping[str, float | str | None]) -> Constants:
    """The values that become part of the model; none if that gains nothing."""
    program, prepared = draft.model.program, draft.prepared
    trees = any(node.op == "tree_ensemble" for node in prepared.split.core)
    if not trees or prepared.split.texts or any(node.type.sparse for node in program.nodes):
        return ()
    if not pays(draft.choice, draft.rows.ask(draft.context.rows).count):
        return ()
    found = constants(program, values)
    if not found:
        return ()
    folded = prepare_parts(program, draft.shared.parts, constants=found)
    fewer = len(folded.program.inputs) < len(prepared.program.inputs)
    return found if fewer and admitted(program, found) else ()


def literals(
    call: ModelCall, features: Sequence[Feature], used: Collection[str]
) -> dict[str, float | str | None]:
    """The features in `used` whose argument is a literal, with its value.

    A number for a string feature does not count, since the engine decides how it is spelled.
    """
    by_name = {fold(a.name): a for a in call.arguments if a.name is not None}
    if not by_name and len(call.arguments) == len(features):
        by_name = {fold(f.name): a for f, a in zip(features, call.arguments, strict=True)}
    found: dict[str, float | str | None] = {}
    for feature in features:
        argument = by_name.get(fold(feature.name))
        if argument is None or argument.literal is None or feature.name not in used:
            continue
        value = _value(argument.literal, feature.kind)
        if value is not None:
            (found[feature.name],) = value
    return found


def _value(literal: Literal, kind: str) -> tuple[float | str | None] | None:
    """The value of a literal for a feature of `kind`, in a 1-tuple."""
    if literal.kind == "word" and literal.text == "NULL":
        return (None,) if kind in ("number", "string") else None
    if kind == "string":
        return (literal.text,) if literal.kind == "string" else None
    if kind != "number" or literal.kind == "string":
        return None
    if literal.kind == "word":
        return (float(literal.text == "TRUE"),)
    digits = literal.text.replace(".", "", 1)
    if not digits.isdigit() or not digits.isascii() or int(digits) > _EXACT or len(digits) > 17:
        return None  # not what the engine reads, to the bit
    return ((-float(literal.text) if literal.negative else float(literal.text)) + 0.0,)


def constants(program: Program, values: Mapping[str, float | str | None]) -> Constants:
    """Those of `values` that become part of `program`: none that it refuses, and only so many."""
    places = {name: i for i, name in enumerate(program.inputs)}
    chosen: Constants = ()
    for one in sorted((places[name], value) for name, value in values.items() if name in places):
        longer = (*chosen, one)
        if len(longer) <= MOST_LITERALS and len(spelled(longer)) <= LONGEST:
            chosen = longer
    names = list(program.inputs)
    if not chosen or any(node.op in _UNFOLLOWED or node.type.sparse for node in program.nodes):
        return ()
    return () if refuses(program, {names[place]: value for place, value in chosen}) else chosen


def pays(choice: Choice, rows: int) -> bool:
    """Whether the model has so much to do that constants in it pay."""
    if not choice.estimates:
        return rows >= choice.rows
    return choice.estimates[0].seconds / choice.rows * rows >= LEAST
