"""One call of a model as planned: what its arguments are, how it runs, and its SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlml.errors import BindError, ConfigError
from sqlml.ir.program import Program
from sqlml.passes.split import Layout
from sqlml.planner.arguments import packed, texts
from sqlml.planner.binding import bind, other_columns
from sqlml.planner.build import Prepared, prepare_parts
from sqlml.planner.by_rows import depends_on_rows
from sqlml.planner.choice import Choice, asks_for_sql, batch_rows, choose, leaves_open
from sqlml.planner.column_types import Bound, layout_is_exact
from sqlml.planner.constants import Constants
from sqlml.planner.context import Context
from sqlml.planner.cost import most_categories
from sqlml.planner.in_lambdas import for_lambda, in_lambda
from sqlml.planner.literals import allowed, literals, pays
from sqlml.planner.literals import constants as constants_of
from sqlml.planner.names import FunctionSpec
from sqlml.planner.nulls import Once, any_missing, either, no_row, refused, unless
from sqlml.planner.once import Column
from sqlml.planner.plan import PlannedCall
from sqlml.planner.refusals import refuses_rows
from sqlml.planner.results import decoded
from sqlml.planner.rows import Rows
from sqlml.planner.scope import Scope
from sqlml.planner.sharing import Shared
from sqlml.planner.syntax.outline import ModelCall
from sqlml.planner.target import Target
from sqlml.planner.written import Wanted, as_asked, written
from sqlml.types import fold


def plan_call(
    call: ModelCall,
    target: Target,
    together: Shared,
    scope: Scope,
    context: Context,
    rows: Rows,
    apart: bool,
) -> tuple[PlannedCall, Column | None, Column | None]:
    """The call as planned, and what FROM is to make for it: its function's column, and its row.

    `apart` says that FROM can make the row.
    """
    model, dialect = target.model, context.dialect
    options = {**model.options, **context.settings}
    most = None if asks_for_sql(options) else most_categories()
    alone = prepare_parts(model.program, (target.part,), lookup=most)
    prepared = prepare_parts(model.program, together.parts, lookup=most)
    choice = choose(prepared.split.core, options)
    used = frozenset(prepared.program.inputs)
    bounds = bind(
        call,
        model.features,
        used,
        f"model {model.name!r}",
        scope,
        model.origin.library,
        options.get("on_missing_column") == "null",
    )
    literal = {} if asks_for_sql(options) else literals(call, model.features, used)
    constants = _constants(literal, model.program, prepared, together, choice, rows, context)
    if constants:
        alone = prepare_parts(model.program, (target.part,), "f64", constants, most)
        prepared = prepare_parts(model.program, together.parts, "f64", constants, most)
        choice = choose(prepared.split.core, options)
        bounds = {name: b for name, b in bounds.items() if name in prepared.program.inputs}
    codes_fit = all(
        n.attrs["categories"].size < 1 << 24 for n in prepared.program.nodes if n.op == "encode"
    )
    layout: Layout = "f32" if codes_fit and layout_is_exact(bounds) else "f64"
    if layout == "f32":
        alone = prepare_parts(model.program, (target.part,), "f32", constants, most)
        prepared = prepare_parts(model.program, together.parts, "f32", constants, most)
    empty = sorted(refused(options, model.program) & prepared.program.inputs.keys())
    read_once = Once.of(bounds, dialect) if empty and dialect.calls_in_lambdas else None
    if read_once is not None:
        bounds = read_once.fields
        if together.source is not None:  # there the fields are not in sight
            prepared, together = alone, together.apart(target.part)
            choice = choose(alone.split.core, options)
    wanted = Wanted(model.program, target.output, target.column, target.chosen, dialect)
    as_sql = None
    if asks_for_sql(options):
        as_sql = as_asked(wanted, alone, bounds, layout)
        fails = as_sql.fits is None and refuses_rows(alone.program)
        if fails and dialect.lazy_calls and call.in_try:
            raise ConfigError(
                "backend 'sql' has no TRY(..), since the engine's error() cannot stand in one: "
                "use backend 'auto'",
                scope.sql,
                call.span.start,
            )
    elif leaves_open(options):
        as_sql = written(wanted, alone, bounds, layout, choice, together.calls)
    if as_sql is None and in_lambda(call, scope, dialect):
        as_sql = for_lambda(wanted, alone, bounds, layout, options, scope, call)
    if dialect.outputs_first and (as_sql is not None or not (apart or together.source)):
        _refuse_hidden(call, bounds, scope)
    if as_sql is not None:  # the engine sees by itself which sums are equal
        prepared, together = alone, together.apart(target.part)
        choice = choose(alone.split.core, options)
    elif depends_on_rows(prepared.split.core, options):
        rows = replace(rows.ask(context.rows), chosen_by=True)
        choice = choose(prepared.split.core, options, rows.rounded)
    spec = FunctionSpec(
        model.program.hash,
        together.parts,
        layout,
        choice.backend,
        choice.strategy,
        choice.device,
        together.again,
        once=together.once,
        constants=constants,
        rows=batch_rows(options),
        lookup=None if prepared.split.lookup is None else most,
    )
    missing = either(no_row(call, scope.sql), any_missing(bounds, empty, dialect))
    kind = "FLOAT" if layout == "f32" else "DOUBLE"
    columns = packed(prepared, bounds, kind, dialect)
    row = Column.of_row(columns, dialect.type(f"{kind}[]")) if apart else None
    if row is not None:
        columns = dialect.packed_arguments(row.name)
    arguments = columns + texts(prepared, bounds, dialect)
    made = f"{dialect.scorer(spec.name)}({arguments})"
    column = None
    if together.source is not None:
        returned = dialect.returned(together.type(model.program))
        column = Column(spec.name, unless(missing, made), arguments, returned)
        made = dialect.quote_name(spec.name)
    scored = together.element(dialect.value_of(made), model.program, target.part, dialect)
    result = decoded(scored, model.program, target.output, target.chosen, dialect)
    result = dialect.checked(made, result)
    if as_sql is not None:
        choice, result = as_sql.choice(choice), as_sql.or_else(result)
    result = unless(missing, result)
    if read_once is not None:
        bounds, result = read_once.bounds, read_once.around(result)
    done = PlannedCall(
        " ".join(scope.sql[call.span.start : call.span.end].split()),
        model.name,
        model.version,
        target.text,
        tuple(bounds.items()),
        tuple(f.name for f in model.features if f.name not in used),
        tuple(prepared.split.encoders.inputs) if prepared.split.encoders else (),
        spec,
        model.program.hash,
        choice,
        result,
        target.type,
        prepared.split.whole,
        any(node.op == "tree_ensemble" for node in prepared.split.core),
        together,
        model.program,
        rows,
        other_columns(call, model.features, scope),
        tuple(empty),
    )
    used_row = row is not None and (column is not None or row.name in result)
    return done, column, row if used_row else None


def _refuse_hidden(call: ModelCall, bounds: Mapping[str, Bound], scope: Scope) -> None:
    """Refuse a star whose columns have names that the engine takes for select items there."""
    hidden = call.hidden
    named = {fold(argument.name) for argument in call.arguments if argument.name is not None}
    for name, bound in bounds.items():
        if fold(name) not in named and fold(bound.sql.strip("`")) in hidden:
            raise BindError(
                f"the star's column {bound.sql} is hidden here by the select item of that name; "
                "write the table's star, as in t.*, or rename the item",
                scope.sql,
                call.span.start,
            )


def _constants(
    literal: Mapping[str, float | str | None],
    program: Program,
    prepared: Prepared,
    together: Shared,
    choice: Choice,
    rows: Rows,
    context: Context,
) -> Constants:
    """The literal arguments that become part of the model, since it then reads fewer columns."""
    trees = any(node.op == "tree_ensemble" for node in prepared.split.core)
    if not literal or not trees or prepared.split.texts:
        return ()
    if any(node.type.sparse for node in program.nodes) or not pays(
        choice, rows.ask(context.rows).count
    ):
        return ()
    found = constants_of(program, literal)
    if not found:
        return ()
    folded = prepare_parts(program, together.parts, constants=found)
    fewer = len(folded.program.inputs) < len(prepared.program.inputs)
    return found if fewer and allowed(program, found) else ()
