"""`CallDraft`: one call of a model on its way to its SQL, as the stages of `plan_call` leave it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sqlml.catalog.model import Model
from sqlml.dialects import Dialect
from sqlml.passes.split import Layout
from sqlml.planner.binding.column_types import Bound
from sqlml.planner.binding.context import Context
from sqlml.planner.binding.estimated_rows import Rows
from sqlml.planner.binding.refused_nulls import Once
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.binding.scope import Scope
from sqlml.planner.choice.choose import Choice, choose
from sqlml.planner.choice.cost import ROWS
from sqlml.planner.model_sql.sql_or_function import Wanted, Written
from sqlml.planner.program.constants import Constants
from sqlml.planner.program.prepare import Prepared, prepare_parts
from sqlml.planner.program.route import Route
from sqlml.planner.program.shared import Shared
from sqlml.planner.syntax.outline import ModelCall


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
