"""`Plan`: what the planner decided for one statement, as a value that prints as EXPLAIN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from sqlml.bounded_cache import of_programs
from sqlml.catalog.small_models import CascadeFacts, FilterFacts
from sqlml.ir.program import Program
from sqlml.passes.order import MODEL_PASSES, run
from sqlml.passes.selection import inject_selection
from sqlml.planner.binding.column_types import Bound
from sqlml.planner.binding.context import AskRows, Rows
from sqlml.planner.choice.choose import SQL, Choice, for_rows
from sqlml.planner.choice.cost import BATCH
from sqlml.planner.plan.text import Analysis, plan_html, plan_text
from sqlml.planner.program.function_names import FunctionSpec, Part
from sqlml.planner.program.named_functions import ARROW, NamedFunction, Route
from sqlml.planner.program.prepare import Shared, chosen, prepare_parts

# `dropped`: which pass found out that an output does not need a feature.


INJECTED = "inject_selection, push_selection"
"""No weight and no split uses the feature; with only push_selection, a step of the model drops
it."""


@of_programs
def dropped(program: Program, parts: tuple[Part, ...]) -> Mapping[str, str]:
    """For each input of `program` that `parts` of its outputs do not need: why.

    That is the name of the pass that dropped it, or "other outputs" for one that only those need.
    It runs the model passes again, one by one: for EXPLAIN, not for planning.
    """
    made = chosen(program, parts)
    why = {name: "other outputs" for name in program.inputs if name not in made.inputs}
    start = made
    for apply in MODEL_PASSES:
        before, made = made.inputs, apply(made)
        why |= {name: apply.__name__ for name in before if name not in made.inputs}
    if "push_selection" in why.values():
        plain = run(start, without={inject_selection.__name__}).inputs
        for name, reason in why.items():
            if reason == "push_selection" and name in plain:
                why[name] = INJECTED
    return MappingProxyType(why)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """One model call: the model, what it reads, where each part runs.

    `made` are the features that TRANSFORM makes of what is read, and how; `fed` is how many
    features the function gets. `others` are columns that a star brings in and that are not
    features, `null_where` features without which a row's result is NULL, and `unknown_as_null`
    those of which a category that the model has never seen counts as NULL; `source` is the Program
    that `spec` computes parts of.
    `small` is the call of the small model that is asked first, `cascade` or `filtered` what is
    known of it, and `idle` what the rest of the query computes only for the rows that are left to
    the full model; `exact` says why a call that may be approximated is not. `for_now`: it rests on
    rows that were read when it was planned. `named` are the functions of a call whose rows name the
    `models`, of which one stands for all here.
    """

    written: str
    model: str
    version: int
    output: str
    reads: tuple[tuple[str, Bound], ...]
    unread: tuple[str, ...]
    encoded: tuple[str, ...]
    spec: FunctionSpec
    choice: Choice
    sql: str
    type: str
    made: tuple[tuple[str, str], ...] = ()
    fed: int = 0
    texts: tuple[str, ...] = ()
    has_trees: bool = True
    shared: Shared | None = None
    source: Program | None = field(default=None, repr=False, compare=False)
    rows: Rows = Rows()
    others: tuple[str, ...] = ()
    null_where: tuple[str, ...] = ()
    unknown_as_null: tuple[str, ...] = ()
    route: Route = ARROW
    small: PlannedCall | None = None
    cascade: CascadeFacts | None = None
    filtered: FilterFacts | None = None
    idle: tuple[str, ...] = ()
    exact: str = ""
    for_now: bool = False
    named: tuple[NamedFunction, ...] = ()
    models: tuple[str, ...] = ()

    def after(self, small: PlannedCall, facts: CascadeFacts) -> PlannedCall:
        """This call for the rows of which `small`, the same call of a small model, is not sure."""
        sql = f"coalesce({small.sql}, {self.sql})"
        return replace(self, sql=sql, small=small, cascade=facts)

    @property
    def small_reads(self) -> tuple[tuple[str, Bound], ...]:
        """What the small model reads, where there is one."""
        return () if self.small is None else self.small.reads

    @property
    def calls_function(self) -> bool:
        """Whether some rows may go to the function; an expression may be right for all."""
        return self.choice.backend != SQL or self.choice.guarded

    @property
    def constants(self) -> Mapping[str, float | str | None]:
        """Features whose literal arguments have become part of the model, with their values."""
        names = () if self.source is None else tuple(self.source.inputs)
        return {names[place]: value for place, value in self.spec.constants}

    @property
    def dropped(self) -> Mapping[str, str | None]:
        """Why each feature in `unread` is not read: a pass, "never used" or "other outputs"."""
        if self.source is None or not self.unread:
            return dict.fromkeys(self.unread)
        why = dropped(self.source, self.spec.parts)
        inputs = self.source.inputs
        return {n: why.get(n) if n in inputs else "never used" for n in self.unread}

    def to_dict(self) -> dict[str, Any]:
        """The call as plain values, for tools."""
        return {
            "call": self.written,
            "model": self.model,
            "version": self.version,
            "output": self.output,
            "columns_read": {name: bound.type for name, bound in self.reads},
            "columns_unread": list(self.unread),
            "dropped_by": dict(self.dropped),
            "constants": dict(self.constants),
            "other_columns": list(self.others),
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
            "remembers_rows": self.spec.again,
            "sql": self.sql,
            "cascade": None
            if self.small is None or self.cascade is None
            else {
                "small": self.small.to_dict(),
                "facts": asdict(self.cascade),
                "idle": list(self.idle),
            },
            "exact_because": self.exact or None,
            "models_of_rows": list(self.models),
        }


@dataclass(frozen=True)
class Plan:
    """The statement as it goes to the engine, and the calls that were planned in it.

    `parameters` tells which of the user's positional parameters remain, by index; None when all
    do. `dropped_names` are named parameters that were used up as model names, `dropped_joins` the
    joins that nobody needs. `analysis` is what was measured, if the statement ran for that. `kept`
    says that the engine keeps the statement for later, as a view, a macro or a prepared one: such a
    statement must call functions that another process can rebuild from their names.
    """

    statement: str
    sql: str
    calls: tuple[PlannedCall, ...]
    parameters: tuple[int, ...] | None = None
    dropped_names: frozenset[str] = frozenset()
    dropped_joins: tuple[str, ...] = ()
    analysis: Analysis | None = None
    kept: bool = False

    @property
    def is_for_now(self) -> bool:
        """Whether the next plan of the statement may be better."""
        return any(call.route.is_for_now or call.for_now for call in self.calls)

    @cached_property
    def functions(self) -> Mapping[str, tuple[int, ...]]:
        """The engine functions by name, each with the places of its calls."""
        found: dict[str, tuple[int, ...]] = {}
        for place, call in enumerate(self.calls):
            if call.calls_function and not call.named:
                found[call.spec.name] = (*found.get(call.spec.name, ()), place)
        return MappingProxyType(found)

    @cached_property
    def specs(self) -> Mapping[str, FunctionSpec]:
        """The engine functions by name, those of small models too."""
        calls = [*self.calls, *(call.small for call in self.calls if call.small is not None)]
        return {c.spec.name: c.spec for c in calls if c.calls_function and not c.named}

    @property
    def named(self) -> tuple[NamedFunction, ...]:
        """The functions that score each row with the model that it names."""
        return tuple(function for call in self.calls for function in call.named)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values, for tools.

        What was measured of a function stands in the first of its calls, and the others refer to
        that one: `{"with_call": 0}`.
        """
        made: dict[str, Any] = {
            "sql": self.sql,
            "calls": [c.to_dict() for c in self.calls],
            "dropped_joins": list(self.dropped_joins),
        }
        if self.analysis is None:
            return made
        made["measured"] = {"seconds": self.analysis.seconds, "in_functions": self.analysis.inside}
        for name, (first, *rest) in self.functions.items():
            measured = self.analysis.functions.get(name)
            if measured is None:
                continue
            made["calls"][first]["measured"] = {
                "rows": measured.rows,
                "rows_again": measured.again,
                "batches": measured.batches,
                "seconds": measured.seconds,
            }
            for place in rest:
                made["calls"][place]["measured"] = {"with_call": first}
        return made

    def __str__(self) -> str:
        return plan_text(self)

    def _repr_html_(self) -> str:
        return plan_html(self)


# What EXPLAIN adds to a plan: the rows of each call, as the engine estimates them.


def with_rows(plan: Plan, ask: AskRows) -> Plan:
    """`plan` with an estimate of the rows of each call, and of the time that these take."""
    return replace(plan, calls=tuple(_with_rows(call, ask) for call in plan.calls))


def _with_rows(call: PlannedCall, ask: AskRows) -> PlannedCall:
    rows = call.rows if call.rows.asked else call.rows.ask(ask)
    if call.source is None or rows.chosen_by:
        return replace(call, rows=rows)
    prepared = prepare_parts(
        call.source, call.spec.parts, call.spec.layout, call.spec.constants, call.spec.lookup
    )
    choice = for_rows(prepared.split.core, call.choice, rows.count, call.spec.by_column)
    return replace(call, rows=rows, choice=choice)
