"""`plan_call`: one call of a model as planned: what its arguments are, how it runs, and its SQL.

The call is a `CallDraft`, to which each of `STAGES` adds what it decides; the last step writes that
as SQL. Unlike the rules of a statement (`rewrites/order.py`) they see one call, and none of them
may be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlml.catalog.model import Transform
from sqlml.errors import BackendError, BindError, ConfigError
from sqlml.planner.binding.bind import bind, other_columns
from sqlml.planner.binding.column_types import Bound, fits_float
from sqlml.planner.binding.context import Context, Rows
from sqlml.planner.binding.probe_queries import Scope
from sqlml.planner.binding.refused_nulls import (
    Once,
    any_missing,
    columns,
    either,
    no_row,
    numbers,
    packed,
    refused,
    texts,
    unless,
    whole_texts,
)
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.binding.unknown_categories import known_categories, nullified
from sqlml.planner.call.call_draft import CallDraft, Column, literal_arguments
from sqlml.planner.choice.choose import (
    asks_for_sql,
    batch_rows,
    choose,
    depends_on_rows,
    leaves_open,
)
from sqlml.planner.choice.cost import most_categories
from sqlml.planner.model_sql.sql_or_function import Written, for_lambda, in_lambda
from sqlml.planner.plan.plan import PlannedCall
from sqlml.planner.program.function_names import FunctionSpec
from sqlml.planner.program.named_functions import Route
from sqlml.planner.program.prepare import Shared, prepare_parts, refuses_rows
from sqlml.planner.program.result_sql import decoded
from sqlml.planner.syntax.outline import ModelCall
from sqlml.types import fold

ROW = "sqlml_row"
"""Stands for the arguments of a function that scores rows of several models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedCall:
    """A call as planned, and what FROM is to make for it: its function's column, and its row.

    Where other models shall have the same SQL, that calls the function of a row still to come, and
    here are the numbers (DOUBLE) and the texts which that takes.
    """

    planned: PlannedCall
    column: Column | None
    row: Column | None
    numbers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


def plan_call(
    *,
    call: ModelCall,
    target: Target,
    shared: Shared,
    scope: Scope,
    context: Context,
    rows: Rows,
    row_in_from: bool,
    bounds: Mapping[str, Bound] | None = None,
    by_function: bool = False,
) -> PlacedCall:
    """The call as planned.

    Args:
        row_in_from: FROM can make its packed numbers.
        bounds: what feeds its features, where that is known.
        by_function: a function of packed rows computes all that it can: other models shall have the
            same SQL.

    Raises:
        BindError and its kin: an argument does not fit.
        ConfigError, BackendError: the options ask for what cannot be.
    """
    options = {**target.model.options, **context.settings}
    route = _route(options, row_in_from, context)
    if by_function and route.by_column and "[]" in shared.type(target.model.program, True):
        route = Route(False, "each row names its model, and its result is a list")
    most = None if asks_for_sql(options) else 0 if route.by_column else most_categories()
    if by_function:
        most = 0
    prepared = prepare_parts(target.model.program, shared.parts, lookup=most)
    draft = CallDraft(
        call=call,
        target=target,
        shared=shared,
        scope=scope,
        context=context,
        rows=rows,
        row_in_from=row_in_from,
        options=options,
        most=most,
        route=route,
        used=frozenset(prepared.program.inputs),
        choice=choose(prepared.split.core, options, by_column=route.by_column),
        bounds={} if bounds is None else dict(bounds),
        by_function=by_function,
    )
    for stage in STAGES:
        draft = stage(draft)
    return _written(draft)


def _route(options: Mapping[str, Any], row_in_from: bool, context: Context) -> Route:
    """How rows reach the function of a call.

    Raises:
        BackendError: the session's settings ask for a way that cannot be taken.
    """
    asked = str(options.get("route", "auto"))
    if asked == "arrow":
        return Route(False, "asked for")
    why = "FROM packs the rows" if row_in_from else context.no_columns(asked == "native")
    if asked == "native" and why is not None:
        raise BackendError(f"the native route cannot be taken: {why}; RESET sqlml_route")
    return Route(why is None, why)


def bound_arguments(draft: CallDraft) -> CallDraft:
    """What feeds each feature, unless that is known."""
    if draft.bounds:
        return draft
    model, transform = draft.model, draft.model.transform
    columns = bind(
        draft.call,
        model.columns,
        draft.used if transform is None else transform.reads(draft.used),
        f"model {model.name!r}",
        draft.scope,
        model.origin.blanks,
        draft.options.get("on_missing_column") == "null",
    )
    if transform is None:
        return replace(draft, bounds=columns)
    return replace(draft, bounds=_made(transform, draft.used, columns), columns=columns)


def _made(
    transform: Transform, features: frozenset[str], columns: Mapping[str, Bound]
) -> dict[str, Bound]:
    """What feeds features that TRANSFORM makes of a call's columns."""
    sql = {name: bound.sql for name, bound in columns.items()}
    return {
        name: Bound(transform.sql(name, sql), transform.made[name].type)
        if name in transform.made
        else columns[name]
        for name in sorted(features)
    }


def packed_layout(draft: CallDraft) -> CallDraft:
    """FLOAT in place of DOUBLE, where all numbers and codes are exact in it."""
    fits = fits_float(draft.bounds, draft.prepared.program)
    return replace(draft, layout="f32") if fits else draft


def values_tested(draft: CallDraft) -> CallDraft:
    """Find the features whose NULL gives NULL, and read unknown categories as NULL.

    Each column is then evaluated once, since it is written several times.
    """
    inputs = draft.prepared.program.inputs.keys()
    empty = sorted(refused(draft.options, draft.model.program) & inputs)
    known = known_categories(draft.options, draft.model.program)
    known = {name: values for name, values in known.items() if name in inputs}
    if not empty and not known:
        return draft
    once = draft.dialect.calls_in_lambdas and not draft.by_function
    read_once = Once.of(draft.bounds, draft.dialect) if once else None
    bounds = draft.bounds if read_once is None else read_once.fields
    bounds = nullified(bounds, known, draft.dialect)
    draft = replace(
        draft,
        null_where=tuple(empty),
        unknown_as_null=tuple(known),
        bounds=bounds,
        read_once=read_once,
    )
    if read_once is None:
        return draft
    return draft.apart() if draft.shared.in_from else draft  # there the fields are not in sight


def sql_or_function(draft: CallDraft) -> CallDraft:
    """The model as an expression, where that is asked for, cheaper, or the only way."""
    if draft.by_function:
        return draft
    made = _expression(draft)
    if made is None and in_lambda(draft.call, draft.scope, draft.dialect):
        made = for_lambda(draft.wanted, draft.options, draft.scope, draft.call)
    return draft if made is None else replace(draft, expression=made)


def _expression(draft: CallDraft) -> Written | None:
    """The model as an expression that the options ask for, or let be the cheapest."""
    if asks_for_sql(draft.options):
        made = draft.wanted.as_asked()
        fails = made.fits is None and refuses_rows(draft.alone.program)
        if fails and draft.dialect.lazy_calls and draft.call.in_try:
            raise ConfigError(
                "backend 'sql' does not support TRY(..), which cannot contain error(): use "
                "backend 'auto'",
                draft.scope.sql,
                draft.call.span.start,
            )
        return made
    if not leaves_open(draft.options):
        return None
    return draft.wanted.cheapest(draft.choice, draft.shared.calls)


def hidden_columns(draft: CallDraft) -> CallDraft:
    """Refuse a star whose columns have names that the engine takes for select items there.

    Raises:
        BindError: it names the column.
    """
    in_place = draft.expression is not None or not (draft.row_in_from or draft.shared.in_from)
    if not draft.dialect.outputs_first or not in_place:
        return draft
    call = draft.call
    hidden = call.hidden
    named = {fold(argument.name) for argument in call.arguments if argument.name is not None}
    for name, bound in draft.bounds.items():
        if fold(name) not in named and fold(bound.sql.strip("`")) in hidden:
            raise BindError(
                f"the star's column {bound.sql} is hidden here by the select item of that name; "
                "write the table's star, as in t.*, or rename the item",
                draft.scope.sql,
                call.span.start,
            )
    return draft


def way_to_run(draft: CallDraft) -> CallDraft:
    """The function's backend for what is left to it, and for the rows that the engine expects."""
    if draft.expression is not None:  # the engine sees by itself which sums are equal
        return draft.apart()
    if not depends_on_rows(draft.prepared.split.core, draft.options):
        return draft
    rows = replace(draft.rows.ask(draft.context.rows), chosen_by=True)
    return replace(draft, rows=rows).chosen(rows.rounded)


STAGES: tuple[Callable[[CallDraft], CallDraft], ...] = (
    bound_arguments,
    literal_arguments,
    packed_layout,
    values_tested,
    sql_or_function,
    hidden_columns,
    way_to_run,
)


def _written(draft: CallDraft) -> PlacedCall:
    """The call as SQL, and as EXPLAIN tells of it."""
    dialect, target, program = draft.dialect, draft.target, draft.model.program
    spec, route = _spec(draft), draft.route
    if route.by_column and not (draft.expression is not None and draft.expression.fits is None):
        route = replace(route, python=draft.context.needs_python(spec, program))
    discarded = no_row(draft.call, draft.scope.sql) if dialect.lazy_calls else None
    missing = either(discarded, any_missing(draft.bounds, draft.null_where, dialect))
    made, column, row = _function_call(draft, spec, missing)
    scored = draft.shared.element(
        dialect.value_of(made), program, target.part, spec.by_column, dialect
    )
    result = decoded(scored, program, target.output, target.chosen, dialect, *_asks(draft.call))
    result, choice = dialect.checked(made, result), draft.choice
    if draft.expression is not None:
        choice, result = draft.expression.choice(choice), draft.expression.or_else(result)
    result = unless(missing, result)
    bounds: Mapping[str, Bound] = draft.bounds
    if draft.read_once is not None:
        bounds, result = draft.read_once.bounds, draft.read_once.around(result)
    split, model = draft.prepared.split, draft.model
    planned = PlannedCall(
        written=" ".join(draft.scope.sql[draft.call.span.start : draft.call.span.end].split()),
        model=model.name,
        version=model.version,
        output=target.text,
        reads=tuple((bounds if draft.columns is None else draft.columns).items()),
        made=_told(draft, bounds),
        fed=len(bounds),
        unread=_unread(draft),
        encoded=tuple(split.encoders.inputs) if split.encoders else (),
        spec=spec,
        choice=choice,
        sql=result,
        type=target.type,
        texts=split.whole,
        has_trees=any(node.op == "tree_ensemble" for node in split.core),
        shared=draft.shared,
        source=program,
        rows=draft.rows,
        others=other_columns(draft.call, model.columns, draft.scope, model.origin.blanks),
        null_where=draft.null_where,
        unknown_as_null=draft.unknown_as_null,
        route=route,
        for_now=draft.call.background is not None,
    )
    if draft.by_function:
        own = numbers(draft.prepared, draft.bounds, "DOUBLE", dialect)
        whole = whole_texts(draft.prepared, draft.bounds)
        return PlacedCall(
            planned=planned, column=None, row=None, numbers=tuple(own), texts=tuple(whole)
        )
    used_row = row is not None and (column is not None or row.name in result)
    return PlacedCall(planned=planned, column=column, row=row if used_row else None)


def _asks(call: ModelCall) -> tuple[bool, bool]:
    """Whether a call asks for the baseline of contributions, and for their standard errors."""
    return call.baseline, call.standard_errors


def _unread(draft: CallDraft) -> tuple[str, ...]:
    """The columns that the model was trained on and that this call does not need."""
    model, transform = draft.model, draft.model.transform
    needed = draft.used if transform is None else transform.reads(draft.used)
    return tuple(column.name for column in model.columns if column.name not in needed)


def _told(draft: CallDraft, bounds: Mapping[str, Bound]) -> tuple[tuple[str, str], ...]:
    """The features that SQL makes of columns, and how."""
    transform = draft.model.transform
    if transform is None:
        return ()
    names = {c: draft.dialect.quote_name(c) for c in transform.columns}
    return tuple((n, transform.sql(n, names)) for n in bounds if n in transform.made)


def _spec(draft: CallDraft) -> FunctionSpec:
    """The function, as its name says it."""
    return FunctionSpec(
        program=draft.model.program.hash,
        parts=draft.shared.parts,
        layout=draft.layout,
        backend=draft.choice.backend,
        strategy=draft.choice.strategy,
        device=draft.choice.device,
        again=draft.shared.again,
        once=draft.shared.once,
        constants=draft.constants,
        rows=batch_rows(draft.options),
        lookup=None if draft.prepared.split.lookup is None else draft.most,
        by_column=draft.route.by_column,
        kept=draft.context.kept,
    )


def _function_call(
    draft: CallDraft, spec: FunctionSpec, missing: str | None
) -> tuple[str, Column | None, Column | None]:
    """The function's call in place of the user's, and what FROM makes for it: column and row."""
    dialect = draft.dialect
    kind = "FLOAT" if draft.layout == "f32" else "DOUBLE"
    row = None
    if draft.by_function:
        return f"{dialect.scorer(spec.name)}({ROW})", None, None
    if spec.by_column:
        arguments = columns(draft.prepared, draft.bounds, kind, dialect)
    else:
        row_of_numbers = packed(draft.prepared, draft.bounds, kind, dialect)
        if draft.row_in_from:
            row = Column.of_row(row_of_numbers, dialect.type(f"{kind}[]"))
            row_of_numbers = dialect.packed_arguments(row.name)
        arguments = row_of_numbers + texts(draft.prepared, draft.bounds, dialect)
    made = f"{dialect.scorer(spec.name)}({arguments})"
    if not draft.shared.in_from:
        return made, None, row
    returned = dialect.returned(draft.shared.type(draft.model.program, spec.by_column))
    column = Column(spec.name, unless(missing, made), arguments, returned)
    return dialect.quote_name(spec.name), column, row
