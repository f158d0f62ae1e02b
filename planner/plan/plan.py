"""The plan of a statement: an immutable value that holds all decisions, which EXPLAIN prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from sqlml.bounded_cache import cache_by_program
from sqlml.catalog.small_models import CascadeFacts, FilterFacts
from sqlml.ir.program import Program
from sqlml.passes import MODEL_PASSES, run
from sqlml.passes.selection import inject_selection
from sqlml.planner.binding.column_types import BoundInput
from sqlml.planner.binding.context import EstimateRows, RowEstimate
from sqlml.planner.plan.explain_plan import QueryMeasurement, draw_plan, format_plan
from sqlml.planner.program.choose import ARROW, SQL_BACKEND, Choice, Route, estimate_choice
from sqlml.planner.program.cost import BATCH
from sqlml.planner.program.function_spec import TREES, FunctionSpec, NamedFunction, ResultPart
from sqlml.planner.program.prepare_program import SharedParts, prepare_parts, select_parts

SELECTION_PASSES = "inject_selection, push_selection"
"""The passes that together drop a feature if no weight and no split of the model uses it.

If push_selection drops the feature without inject_selection, a step of the model ignores it.
"""


@cache_by_program
def find_dropping_passes(program: Program, parts: tuple[ResultPart, ...]) -> Mapping[str, str]:
    """Map each input of `program` that `parts` do not need to the reason for dropping it.

    The reason is the name of the pass that dropped the input, or "other outputs" if only other
    outputs need it. This is too slow for planning, since it runs the model passes one by one.
    """
    selected = select_parts(program, parts)
    reasons = {name: "other outputs" for name in program.inputs if name not in selected.inputs}
    unpruned = selected
    for model_pass in MODEL_PASSES:
        inputs_before, selected = selected.inputs, model_pass(selected)
        reason = model_pass.__name__
        reasons |= {name: reason for name in inputs_before if name not in selected.inputs}
    if "push_selection" in reasons.values():
        without_injection = run(unpruned, without={inject_selection.__name__}).inputs
        for name, reason in reasons.items():
            if reason == "push_selection" and name in without_injection:
                reasons[name] = SELECTION_PASSES
    return MappingProxyType(reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """A planned call of a model, with the columns that it reads, its SQL and where it runs."""

    call_text: str
    model: str
    version: int
    output: str
    reads: tuple[tuple[str, BoundInput], ...]  # Feature or column -> expression that feeds it.
    unread: tuple[str, ...]  # Columns of the model that the call does not read.
    encoded: tuple[str, ...]  # Features whose category codes are computed in SQL.
    spec: FunctionSpec
    choice: Choice
    sql: str
    type: str
    transformed: tuple[tuple[str, str], ...] = ()  # Features of TRANSFORM -> their expressions.
    feature_count: int = 0  # The number of features that the function gets.
    texts: tuple[str, ...] = ()  # Features that the function gets as strings.
    has_trees: bool = True
    shared: SharedParts | None = None
    # The model's Program, whose hash is in `spec`.
    source: Program | None = field(default=None, repr=False, compare=False)
    rows: RowEstimate = RowEstimate()
    other_columns: tuple[str, ...] = ()  # Columns of a star that are not features of the model.
    null_where: tuple[str, ...] = ()  # Features whose NULL makes the result NULL.
    unknown_as_null: tuple[str, ...] = ()  # Features whose unknown categories count as NULL.
    route: Route = ARROW
    small_call: PlannedCall | None = None  # The call of the small model that runs first.
    cascade: CascadeFacts | None = None  # The record of the small model, if it is a cascade.
    filtered: FilterFacts | None = None  # The record of the small model, if it is a top-K filter.
    # Parts of the query that are computed only for the full model.
    idle_parts: tuple[str, ...] = ()
    exact_reason: str = ""  # Says why the call is exact, although it may be approximated.
    is_temporary: bool = False  # The call depends on rows that planning has read.
    # If each row names one of several `models`, the functions that score the rows. The other fields
    # then describe one of the models.
    functions_of_models: tuple[NamedFunction, ...] = ()
    models: tuple[str, ...] = ()

    def with_cascade(self, small_call: PlannedCall, cascade: CascadeFacts) -> PlannedCall:
        sql = f"coalesce({small_call.sql}, {self.sql})"
        return replace(self, sql=sql, small_call=small_call, cascade=cascade)

    @property
    def small_model_reads(self) -> tuple[tuple[str, BoundInput], ...]:
        return () if self.small_call is None else self.small_call.reads

    @property
    def calls_function(self) -> bool:
        """True if rows may reach the function; false if a SQL expression scores all rows."""
        return self.choice.backend != SQL_BACKEND or self.choice.guarded

    @property
    def constants(self) -> Mapping[str, float | str | None]:
        names = () if self.source is None else (*self.source.inputs, TREES)
        constants = {names[index]: value for index, value in self.spec.constants}
        trees = constants.get(TREES)
        return constants if trees is None else {**constants, TREES: int(trees)}

    @property
    def dropped_by(self) -> Mapping[str, str | None]:
        """Unread column -> a pass, "never used" or "other outputs", or None if unknown."""
        if self.source is None or not self.unread:
            return dict.fromkeys(self.unread)
        reasons = find_dropping_passes(self.source, self.spec.parts)
        inputs = self.source.inputs
        return {n: reasons.get(n) if n in inputs else "never used" for n in self.unread}

    def to_dict(self) -> dict[str, Any]:
        cascade: dict[str, Any] | None = None
        if self.small_call is not None and self.cascade is not None:
            facts, idle = asdict(self.cascade), list(self.idle_parts)
            cascade = {"small": self.small_call.to_dict(), "facts": facts, "idle": idle}
        return {
            "call": self.call_text,
            "model": self.model,
            "version": self.version,
            "output": self.output,
            "columns_read": {name: bound.type for name, bound in self.reads},
            "columns_unread": list(self.unread),
            "dropped_by": dict(self.dropped_by),
            "constants": dict(self.constants),
            "other_columns": list(self.other_columns),
            "null_where_missing": list(self.null_where),
            "unknown_as_null": list(self.unknown_as_null),
            "encoded_in_sql": list(self.encoded),
            "texts": list(self.texts),
            "backend": self.choice.backend,
            "strategy": self.choice.strategy,
            "device": self.choice.device,
            "reason": self.choice.reason,
            "route": self.route.name,
            "batch_rows": BATCH,
            "rows": self.rows.count,
            "rows_are_assumed": self.rows.estimate is None,
            "estimates": [
                {"way": e.name, "seconds": e.seconds, "loading": e.start, "rows": self.choice.rows}
                for e in self.choice.estimates
            ],
            "function": self.spec.name,
            "parts": [str(part) for part in self.spec.parts],
            "remembers_rows": self.spec.remembers_rows,
            "sql": self.sql,
            "cascade": cascade,
            "exact_because": self.exact_reason or None,
            "models_of_rows": list(self.models),
        }


@dataclass(frozen=True)
class Plan:
    """The plan of a statement: the rewritten SQL for the engine, and the model calls in it."""

    statement: str  # The user's statement.
    sql: str  # The statement for the engine.
    calls: tuple[PlannedCall, ...]
    # The positions of the parameters that the engine still gets, or None if it gets all.
    parameters: tuple[int, ...] | None = None
    dropped_names: frozenset[str] = frozenset()  # Parameters that became names of models.
    dropped_joins: tuple[str, ...] = ()  # The joins that are not needed.
    analysis: QueryMeasurement | None = None  # The measurements of EXPLAIN ANALYZE.
    # The engine stores the statement, as a view, a macro or a prepared statement, so it must call
    # functions that another process can rebuild from their names.
    is_stored: bool = False

    @property
    def is_temporary(self) -> bool:
        """True if the plan must not be cached, since planning again may give a different plan."""
        return any(call.route.is_temporary or call.is_temporary for call in self.calls)

    @cached_property
    def functions(self) -> Mapping[str, tuple[int, ...]]:
        """Name of an engine function -> the indices of the calls that share the function."""
        functions: dict[str, tuple[int, ...]] = {}
        for index, call in enumerate(self.calls):
            if call.calls_function and not call.functions_of_models:
                functions[call.spec.name] = (*functions.get(call.spec.name, ()), index)
        return functions

    @cached_property
    def specs(self) -> Mapping[str, FunctionSpec]:
        small_calls = [call.small_call for call in self.calls if call.small_call is not None]
        calls = [*self.calls, *small_calls]
        specs = [c.spec for c in calls if c.calls_function and not c.functions_of_models]
        return {spec.name: spec for spec in specs}

    @property
    def functions_of_models(self) -> tuple[NamedFunction, ...]:
        return tuple(function for call in self.calls for function in call.functions_of_models)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values. Each measurement belongs to a function's first call."""
        calls = [c.to_dict() for c in self.calls]
        joins = list(self.dropped_joins)
        result: dict[str, Any] = {"sql": self.sql, "calls": calls, "dropped_joins": joins}
        analysis = self.analysis
        if analysis is None:
            return result
        seconds, in_functions = analysis.seconds, analysis.function_seconds
        result["measured"] = {"seconds": seconds, "in_functions": in_functions}
        for name, (first_index, *other_indices) in self.functions.items():
            measurement = analysis.functions.get(name)
            if measurement is None:
                continue
            calls[first_index]["measured"] = {
                "rows": measurement.rows,
                "rows_again": measurement.again,
                "batches": measurement.batches,
                "seconds": measurement.seconds,
            }
            for index in other_indices:
                calls[index]["measured"] = {"with_call": first_index}
        return result

    def __str__(self) -> str:
        return format_plan(self)

    def _repr_html_(self) -> str:
        return draw_plan(self)


_MAX_ESTIMATED_TEXT = 50_000
"""Characters of the queries whose rows the engine estimates, for which it plans each of them."""


def estimate_rows(plan: Plan, estimate: EstimateRows) -> Plan:
    """Return `plan` with the row counts that the engine estimates, and the times for these rows.

    In a long statement, the last calls keep the default row count.
    """
    length = 0

    def estimate_and_count(query: str) -> int | None:
        nonlocal length
        length += len(query)
        return estimate(query)

    calls = []
    for call in plan.calls:
        if not call.rows.was_asked and length < _MAX_ESTIMATED_TEXT:
            call = replace(call, rows=call.rows.ask_engine(estimate_and_count))
        calls.append(_estimate_times(call))
    return replace(plan, calls=tuple(calls))


def _estimate_times(call: PlannedCall) -> PlannedCall:
    """Return a call with the estimated times for its rows."""
    rows, source, spec = call.rows, call.source, call.spec
    if source is None or rows.chosen_by:
        return call
    prepared = prepare_parts(source, spec.parts, spec.layout, spec.constants, spec.max_categories)
    choice = estimate_choice(
        prepared.split.core,
        call.choice,
        rows.count,
        spec.by_column,
        len(prepared.split.text_inputs),
    )
    return replace(call, choice=choice)
