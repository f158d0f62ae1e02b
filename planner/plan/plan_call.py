"""Plan one call of a model: bind its arguments, choose how it runs, and write its SQL.

The call is a `CallDraft`, which passes through `STAGES`. The last step writes the SQL. Unlike the
rules of a statement (`rewrites/apply_rules.py`), stages see one call, and no stage is optional.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlml.catalog.small_models import COVERAGE
from sqlml.dialects.type_names import NUMBERS, UNTYPED
from sqlml.errors import BackendError, BindError, ConfigError
from sqlml.ir.partition_programs import find_partition_columns
from sqlml.planner.binding.bind import bind, find_other_columns
from sqlml.planner.binding.column_types import BoundInput, fits_float32
from sqlml.planner.binding.context import Context
from sqlml.planner.binding.refused_nulls import (
    EvaluatedOnce,
    build_column_arguments,
    build_discarded_test,
    build_missing_test,
    build_null_if,
    build_packed_numbers,
    build_text_argument,
    combine_conditions,
    find_null_inputs,
    list_numbers,
    list_string_columns,
)
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.binding.unknown_categories import (
    find_known_categories,
    replace_unknown_with_null,
)
from sqlml.planner.model_sql.sql_or_function import ModelSql, build_for_lambda, is_in_lambda
from sqlml.planner.plan.call_draft import CallDraft, CallSite, FromColumn, fold_literal_arguments
from sqlml.planner.plan.plan import PlannedCall
from sqlml.planner.program.choose import (
    Route,
    allows_sql,
    asks_for_sql,
    choose_way,
    depends_on_rows,
    read_batch_size,
)
from sqlml.planner.program.cost import count_inline_categories
from sqlml.planner.program.function_spec import Constants, FunctionSpec, admit_constants
from sqlml.planner.program.prepare_program import SharedParts, can_reject_rows, prepare_parts
from sqlml.planner.program.result_sql import decode_result
from sqlml.types import fold

ROW_PLACEHOLDER = "sqlml_row"  # Replaces the arguments of a function that several models share.


@dataclass(frozen=True, slots=True, kw_only=True)
class CallInFrom:
    """A planned call of a model, and the columns that FROM computes for the call."""

    planned: PlannedCall
    column: FromColumn | None = None  # The column with the function's result.
    row: FromColumn | None = None  # The column with the packed row.
    # The SQL of the function's DOUBLE and VARCHAR arguments if several models share the call's SQL.
    # The call's SQL then contains `ROW_PLACEHOLDER` instead of the arguments.
    numbers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


def plan_call(
    site: CallSite,
    *,
    target: Target,
    shared: SharedParts,
    row_in_from: bool = False,
    bound_inputs: Mapping[str, BoundInput] | None = None,
    by_function: bool = False,
) -> CallInFrom:
    """Plan one call of a model, or raise an error if an argument or an option does not fit.

    `bound_inputs` maps features to the SQL that feeds them. If it is None, the call's arguments are
    bound. If `row_in_from` is true, the packed numbers can be a column of FROM. If `by_function` is
    true, several models will share the SQL, so a function computes as much as possible.
    """
    program, context = target.model.program, site.context
    options = {**target.model.options, **context.settings}
    route = _choose_route(options, row_in_from, context)
    if by_function and route.by_column and "[]" in shared.find_type(program, True):
        route = Route(False, "each row names its model, and its result is a list")
    max_categories = None if asks_for_sql(options) else count_inline_categories()
    if by_function or (max_categories is not None and route.by_column):
        max_categories = 0
    constants = _fold_coverage_or_trees(target)
    prepared = prepare_parts(
        program, shared.parts, constants=constants, max_categories=max_categories
    )
    draft = CallDraft(
        **vars(site),
        target=target,
        shared=shared,
        row_in_from=row_in_from,
        options=options,
        max_categories=max_categories,
        route=route,
        constants=constants,
        used_features=frozenset(prepared.program.inputs),
        choice=choose_way(prepared.split.core, options, by_column=route.by_column),
        bound_inputs=dict(bound_inputs or {}),
        for_shared_sql=by_function,
    )
    for stage in STAGES:
        draft = stage(draft)
    return _build_call_in_from(draft)


def _fold_coverage_or_trees(target: Target) -> Constants:
    """Return the number of trees, or a known coverage, as a constant.

    Return () if the model cannot have more constants, with which only coverages can be computed.
    """
    program = target.model.program
    if target.trees is not None:
        return ((len(program.inputs), float(target.trees)),)
    if target.coverage is None:
        return ()
    constants: Constants = ((list(program.inputs).index(COVERAGE), target.coverage),)
    return constants if admit_constants(program, constants) else ()


def _choose_route(options: Mapping[str, Any], row_in_from: bool, context: Context) -> Route:
    setting = str(options.get("route", "auto"))
    if setting == "arrow":
        return Route(False, "requested")
    reason = "FROM packs the rows" if row_in_from else context.why_no_columns(setting == "native")
    if setting == "native" and reason is not None:
        raise BackendError(f"the native route is not available: {reason}; RESET sqlml_route")
    return Route(reason is None, reason)


def bind_arguments(draft: CallDraft) -> CallDraft:
    """Build the SQL that feeds each feature from the call's arguments and TRANSFORM."""
    if draft.bound_inputs:
        return draft
    model, transform = draft.model, draft.model.transform
    inner_names = {COVERAGE} if draft.target.coverage_sql else set()
    columns = bind(
        draft.call,
        model.columns,
        draft.used_columns - inner_names,
        f"model {model.name!r}",
        draft.scope,
        fold_blanks=model.origin.may_replace_blanks,
        missing_is_null=draft.options.get("on_missing_column") == "null",
    )
    coverage = _bind_coverage(draft) if COVERAGE in draft.used_features & inner_names else {}
    if transform is None:
        return replace(draft, bound_inputs={**columns, **coverage})
    sql_by_column = {name: bound.sql for name, bound in columns.items()}
    bound_inputs = {
        name: BoundInput(transform.sql(name, sql_by_column), transform.expressions[name].type)
        if name in transform.expressions
        else columns[name]
        for name in sorted(draft.used_features - coverage.keys())
    }
    return replace(draft, bound_inputs={**bound_inputs, **coverage}, columns=columns)


def _bind_coverage(draft: CallDraft) -> dict[str, BoundInput]:
    """Bind the coverage that each row computes, or a known one that is not part of the function."""
    argument = draft.call.coverage
    if draft.target.coverage is not None or argument is None:
        coverage_sql = repr(draft.target.coverage)
    else:
        coverage_sql = draft.scope.text(argument.span)
        (column,) = draft.scope.describe_values([argument.span])
        if not NUMBERS.fullmatch(column.type) and column.type not in UNTYPED:
            message = f"coverage := takes a number between 0 and 1, not {column.type}"
            raise BindError(message, draft.scope.sql, argument.span.start)
    sql = f"CAST({coverage_sql} AS {draft.dialect.type('DOUBLE')})"
    return {COVERAGE: BoundInput(sql, "DOUBLE")}


def choose_layout(draft: CallDraft) -> CallDraft:
    """Choose FLOAT instead of DOUBLE for packed numbers if that is exact for all features."""
    is_exact = fits_float32(draft.bound_inputs, draft.prepared.program)
    return replace(draft, layout="f32") if is_exact else draft


def find_null_rows(draft: CallDraft) -> CallDraft:
    """Find the features that make the result NULL if they are NULL, or have unknown categories."""
    inputs = draft.prepared.program.inputs.keys()
    null_features = sorted(find_null_inputs(draft.options, draft.model.program) & inputs)
    known_categories = find_known_categories(draft.options, draft.model.program)
    categories = {name: values for name, values in known_categories.items() if name in inputs}
    if not null_features and not categories:
        return draft
    # The SQL now repeats each column, so it is better to evaluate each column only once.
    can_read_once = draft.dialect.calls_in_lambdas and not draft.for_shared_sql
    read_once = EvaluatedOnce.create(draft.bound_inputs, draft.dialect) if can_read_once else None
    bound_inputs = draft.bound_inputs if read_once is None else read_once.fields
    bound_inputs = replace_unknown_with_null(bound_inputs, categories, draft.dialect)
    draft = replace(
        draft,
        null_where=tuple(null_features),
        unknown_as_null=tuple(categories),
        bound_inputs=bound_inputs,
        read_once=read_once,
    )
    if read_once is None:
        return draft
    # The fields of the struct are not visible in FROM.
    return draft.without_sharing() if draft.shared.in_from else draft


def choose_sql_or_function(draft: CallDraft) -> CallDraft:
    """Write the model as SQL if options request it, if it is cheapest, or if a lambda needs it."""
    if draft.for_shared_sql:
        return draft
    expression = _build_expression(draft)
    if expression is None and is_in_lambda(draft.call, draft.scope, draft.dialect):
        model = draft.model_expression
        expression = build_for_lambda(model, draft.options, draft.scope, draft.call)
    return draft if expression is None else replace(draft, expression=expression)


def _build_expression(draft: CallDraft) -> ModelSql | None:
    """Build the model as SQL, or return None unless options request SQL or SQL is cheapest."""
    if asks_for_sql(draft.options):
        expression = draft.model_expression.build()
        may_fail = expression.valid_rows is None and can_reject_rows(draft.prepared_alone.program)
        if may_fail and draft.dialect.lazy_calls and draft.call.in_try:
            message = (
                "backend 'sql' does not support TRY(...), which cannot contain error(): use "
                "backend 'auto'"
            )
            raise ConfigError(message, draft.scope.sql, draft.call.span.start)
        return expression
    if not allows_sql(draft.options):
        return None
    in_filter = draft.call.clause in _FILTERS
    return draft.model_expression.build_if_cheapest(draft.choice, draft.shared.calls, in_filter)


_FILTERS = ("WHERE", "HAVING", "QUALIFY")


def reject_hidden_columns(draft: CallDraft) -> CallDraft:
    """Raise BindError if the call's `*` includes a column that a select item of that name hides."""
    in_place = draft.expression is not None or not (draft.row_in_from or draft.shared.in_from)
    if not draft.dialect.outputs_first or not in_place:
        return draft
    call = draft.call
    named_arguments = {fold(a.name) for a in call.arguments if a.name is not None}
    for name, bound in draft.bound_inputs.items():
        if fold(name) not in named_arguments and fold(bound.sql.strip("`")) in call.hidden_names:
            message = (
                f"the star's column {bound.sql} is hidden here by the select item of that name; "
                "write the table's star, as in t.*, or rename the item"
            )
            raise BindError(message, draft.scope.sql, call.span.start)
    return draft


def choose_backend(draft: CallDraft) -> CallDraft:
    """Choose the function's backend again if the estimated row count may change the choice."""
    if draft.expression is not None:
        return draft.without_sharing()  # The engine itself shares equal expressions.
    if not depends_on_rows(draft.prepared.split.core, draft.options):
        return draft
    rows = replace(draft.rows.ask_engine(draft.context.estimate_rows), chosen_by=True)
    return replace(draft, rows=rows).choose_again(rows.rounded)


STAGES: tuple[Callable[[CallDraft], CallDraft], ...] = (
    bind_arguments,
    fold_literal_arguments,
    choose_layout,
    find_null_rows,
    choose_sql_or_function,
    reject_hidden_columns,
    choose_backend,
)


def _build_call_in_from(draft: CallDraft) -> CallInFrom:
    dialect, target, model = draft.dialect, draft.target, draft.model
    spec = _make_function_spec(draft)
    discard_test = build_discarded_test(draft.call, draft.scope.sql) if dialect.lazy_calls else None
    missing_test = build_missing_test(draft.bound_inputs, draft.null_where, dialect)
    null_condition = combine_conditions(discard_test, missing_test)
    call_sql, column, row = _build_function_call_sql(draft, spec, null_condition)
    result_sql = _build_result_sql(draft, call_sql, spec.by_column, null_condition)
    choice, expression = draft.choice, draft.expression
    if expression is not None:
        choice = expression.to_choice(choice)
    route = draft.route
    if route.by_column and (expression is None or expression.valid_rows is not None):
        route = replace(route, python_reason=draft.context.why_python(spec, model.program))
    bound_inputs = draft.bound_inputs if draft.read_once is None else draft.read_once.bound_inputs
    split = draft.prepared.split
    planned = PlannedCall(
        call_text=" ".join(draft.scope.sql[draft.call.span.start : draft.call.span.end].split()),
        model=model.name,
        version=model.version,
        output=target.text,
        reads=tuple((bound_inputs if draft.columns is None else draft.columns).items()),
        transformed=_list_transformed_features(draft, bound_inputs),
        feature_count=len(bound_inputs),
        unread=tuple(c.name for c in model.columns if c.name not in draft.used_columns),
        encoded=tuple(split.encoders.inputs) if split.encoders else (),
        spec=spec,
        choice=choice,
        sql=result_sql,
        type=target.type,
        texts=split.text_inputs,
        has_trees=any(node.op == "tree_ensemble" for node in split.core),
        shared=draft.shared,
        source=model.program,
        rows=draft.rows,
        other_columns=find_other_columns(
            draft.call, model.columns, draft.scope, model.origin.may_replace_blanks
        ),
        null_where=draft.null_where,
        unknown_as_null=draft.unknown_as_null,
        route=route,
        is_temporary=draft.call.background is not None,
    )
    if draft.for_shared_sql:
        return CallInFrom(
            planned=planned,
            numbers=tuple(list_numbers(draft.prepared, draft.bound_inputs, "DOUBLE", dialect)),
            texts=tuple(list_string_columns(draft.prepared, draft.bound_inputs)),
        )
    reads_row = row is not None and (column is not None or row.name in result_sql)
    return CallInFrom(planned=planned, column=column, row=row if reads_row else None)


def _build_result_sql(
    draft: CallDraft, call_sql: str, by_column: bool, null_condition: str | None
) -> str:
    """Build the SQL of a call's value, which is NULL for rows that meet `null_condition`."""
    dialect, target, program = draft.dialect, draft.target, draft.model.program
    value_sql = dialect.value_of(call_sql)
    element_sql = draft.shared.build_part_sql(
        value_sql, target.program, target.part, by_column, dialect
    )
    output, chosen, call = target.output, target.chosen, draft.call
    result = decode_result(
        element_sql, program, output, chosen, dialect, call.baseline, call.standard_errors
    )
    result = dialect.require_success(call_sql, result)
    if draft.expression is not None:
        result = draft.expression.with_fallback(result)
    result = build_null_if(null_condition, result)
    return result if draft.read_once is None else draft.read_once.wrap(result)


def _list_transformed_features(
    draft: CallDraft, bound_inputs: Mapping[str, BoundInput]
) -> tuple[tuple[str, str], ...]:
    transform = draft.model.transform
    if transform is None:
        return ()
    names = [name for name in bound_inputs if name in transform.expressions]
    return tuple(transform.build_feature_sql(names, draft.dialect.quote_name).items())


def _make_function_spec(draft: CallDraft) -> FunctionSpec:
    return FunctionSpec(
        program_hash=draft.model.program.hash,
        parts=draft.shared.parts,
        layout=draft.layout,
        backend=draft.choice.backend,
        strategy=draft.choice.strategy,
        device=draft.choice.device,
        remembers_rows=draft.shared.again,
        once=draft.shared.once,
        constants=draft.constants,
        batch_rows=read_batch_size(draft.options),
        max_categories=None if draft.prepared.split.lookup is None else draft.max_categories,
        by_column=draft.route.by_column,
        is_stored=draft.context.is_stored,
    )


def _build_function_call_sql(
    draft: CallDraft, spec: FunctionSpec, null_condition: str | None
) -> tuple[str, FromColumn | None, FromColumn | None]:
    """Return the SQL of the function call, and the FROM columns of the result and of the row.

    The row's column holds the packed numbers. A column is None if FROM does not compute it.
    """
    dialect, prepared, bound_inputs = draft.dialect, draft.prepared, draft.bound_inputs
    number_type = "FLOAT" if draft.layout == "f32" else "DOUBLE"
    row = None
    if draft.for_shared_sql:
        return f"{dialect.scorer(spec.name)}({ROW_PLACEHOLDER})", None, None
    if spec.by_column:
        arguments = build_column_arguments(prepared, bound_inputs, number_type, dialect)
    else:
        packed_row = build_packed_numbers(prepared, bound_inputs, number_type, dialect)
        if draft.row_in_from:
            row = FromColumn.of_row(packed_row, dialect.type(f"{number_type}[]"))
            packed_row = dialect.packed_arguments(row.name)
        arguments = packed_row + build_text_argument(prepared, bound_inputs, dialect)
    call_sql = f"{dialect.scorer(spec.name)}({arguments})"
    if not draft.shared.in_from:
        return call_sql, None, row
    result_type = dialect.returned(draft.shared.find_type(draft.model.program, spec.by_column))
    order = None
    if draft.shared.by_partition:
        keys = find_partition_columns(draft.model.program)
        order = ", ".join(bound_inputs[name].sql for name in keys)
    value_sql = build_null_if(null_condition, call_sql)
    column = FromColumn(spec.name, value_sql, arguments, result_type, order)
    return dialect.quote_name(spec.name), column, row
