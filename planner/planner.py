"""Plan a statement: find its model calls, bind them, choose how to run them, splice them in.

The rest of the user's text stays byte for byte as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from sqlml.dialects import Dialect
from sqlml.errors import BackendError, BindError, ParseError, SqlmlError, StatementError
from sqlml.front.lexer import Token, tokenize
from sqlml.ir.program import Program
from sqlml.passes.split import Layout
from sqlml.planner.arguments import packed, texts
from sqlml.planner.binding import bind, other_columns
from sqlml.planner.blocks import Span, block_at
from sqlml.planner.build import Prepared, prepare_parts
from sqlml.planner.by_rows import depends_on_rows
from sqlml.planner.calls import Call, find_calls
from sqlml.planner.choice import Choice, asks_for_sql, batch_rows, choose, leaves_open
from sqlml.planner.column_types import Bound, layout_is_exact
from sqlml.planner.constants import Constants
from sqlml.planner.context import Context
from sqlml.planner.literals import allowed, literals, pays
from sqlml.planner.literals import constants as constants_of
from sqlml.planner.local_names import local_names, local_tokens
from sqlml.planner.margins import Margins, margins
from sqlml.planner.names import FunctionSpec
from sqlml.planner.nulls import Once, any_missing, either, no_row, refused, unless
from sqlml.planner.once import Column, Moved, Way, hidden_columns, query_start, row_source, ways
from sqlml.planner.parameters import Parameters
from sqlml.planner.plan import Plan, PlannedCall
from sqlml.planner.probe import Describe, ProbeError
from sqlml.planner.results import decoded
from sqlml.planner.rows import Rows, rows_of
from sqlml.planner.scope import Scope
from sqlml.planner.sharing import Shared, shared
from sqlml.planner.splicing import column_names, inner_first, splice
from sqlml.planner.table_form import WrittenOut, refuse_hidden, written_out
from sqlml.planner.target import Target, target_of
from sqlml.planner.unneeded_joins import without_unneeded
from sqlml.planner.written import Wanted, Written, as_asked, written
from sqlml.types import fold


def plan(sql: str, parameters: Any, context: Context) -> Plan | None:
    """The plan of one statement, or None when it calls no model.

    Raises:
        BindError and its kin, UnknownModelError, ConfigError: each says what to change.
    """
    try:
        tokens = tokenize(sql, context.dialect.name)
    except ParseError:
        return None  # not SQL: the engine says what is wrong, in its own words
    subqueries = written_out(sql, tokens, context.model, context.dialect)
    if subqueries is None:
        return _plan(sql, tokens, parameters, context, None)
    try:
        text = subqueries.sql
        again = tokenize(text, context.dialect.name)
        found = _plan(text, again, parameters, context, subqueries)
    except SqlmlError as error:
        raise subqueries.located(error) from None
    return None if found is None else replace(found, statement=sql)


def _plan(
    sql: str,
    tokens: Sequence[Token],
    parameters: Any,
    context: Context,
    subqueries: WrittenOut | None,
) -> Plan | None:
    """The plan of a statement without table forms; `subqueries` are those that stand for them."""
    calls = find_calls(sql, tokens)
    if not calls:
        return None
    context = replace(
        context,
        model=cache(context.model),
        describe=cache(context.describe),
        rows=cache(context.rows),
    )
    given = Parameters(tokens, parameters)
    targets = {c: t for c in calls if (t := target_of(c, sql, tokens, given, context)) is not None}
    if not targets:
        return None
    inside = any(
        c.start < i < c.end for c in targets for i, t in enumerate(tokens) if t.kind == "param"
    )
    compared = margins(targets, tokens, given)
    numbers = {**given.renumbered(inside), **compared.patches}
    statement = _Statement(sql, tokens, given, numbers, context, compared, subqueries)
    made = (_rewritten(statement, way) for way in ways(context.dialect))
    rewritten, planned = next(m for m in made if m is not None)
    joins: tuple[str, ...] = ()
    if context.unique_keys is not None:
        rewritten, joins = without_unneeded(
            rewritten, statement.probed(), context.describe, context.unique_keys
        )
    rest, dropped = given.remaining()
    if inside:
        rewritten, rest, dropped = given.fitted(rewritten)
    return Plan(sql, rewritten, planned, rest, dropped, joins)


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement, and what is known of it before its calls are planned.

    `numbers` are the tokens of parameters as they go to the engine, and of numbers that scores are
    compared with.
    """

    sql: str
    tokens: Sequence[Token]
    given: Parameters
    numbers: Mapping[int, str]
    context: Context
    margins: Margins
    subqueries: WrittenOut | None

    @property
    def targets(self) -> Mapping[Call, Target]:
        """The calls, and what they compute."""
        return self.margins.targets

    @property
    def whole(self) -> Span:
        """All of the text."""
        return Span(0, len(self.sql))

    @property
    def nulls(self) -> dict[Call, str]:
        """The calls in probes: NULLs of their types."""
        spelled = self.context.dialect.type
        return {c: f"CAST(NULL AS {spelled(t.type)})" for c, t in self.targets.items()}

    def probed(self, names: Mapping[int, str] | None = None) -> str:
        """The statement as a probe."""
        return splice(self.sql, self.tokens, self.nulls, self.given.as_nulls(), self.whole, names)


def _rewritten(s: _Statement, way: Way) -> tuple[str, tuple[PlannedCall, ...]] | None:
    """The statement for the engine, and its calls as planned; None where it cannot go this way."""
    together = shared(s.targets, s.sql, s.tokens, way.models)
    replaced: dict[Call, str] = {}
    shown = dict(s.nulls)
    moved = Moved(s.tokens, s.context.dialect, way)
    planned: list[PlannedCall] = []
    for call in inner_first(s.tokens, s.targets):
        own = local_tokens(s.tokens, call.start, call.end)
        firsts = {i for i in own if not s.tokens[i - 1].is_symbol(".") and s.tokens[i].text != "."}
        blanks = {i: "NULL" if i in firsts else "" for i in own}
        scope = Scope(
            s.sql,
            s.tokens,
            block_at(s.tokens, call.start),
            lambda span: splice(
                s.sql, s.tokens, replaced, {**s.numbers, **moved.patches}, span, None, moved.sources
            ),
            partial(splice, s.sql, s.tokens, s.nulls, {**s.given.as_nulls(), **blanks}),
            s.given.untyped() | own,
            s.context.describe,
            s.context.dialect,
        )
        if s.subqueries is not None and s.subqueries.added(s.tokens[call.start].start):
            others = other_columns(call, (), scope)
            refuse_hidden(s.sql, s.tokens, call.start, others, s.context.dialect)
        rows = rows_of(call, tuple(s.targets), scope)
        target = s.targets[call]
        source = together[call].source
        if source is None and way.rows:
            source = row_source(s.sql, s.tokens, call, s.targets)
        apart = way.rows and source is not None
        try:
            done, model, row = _plan_call(
                call, target, together[call], scope, s.context, rows, apart
            )
        except StatementError:
            raise
        except SqlmlError as error:  # what the model is, or is asked to run on
            place = s.tokens[call.start].start
            raise error.at(s.sql, place, f"model {target.model.name!r}: ") from None
        replaced[call] = s.margins.result(call, done.sql)
        if row is not None and source is not None:
            moved.add_row(source, row, scope.text, scope.probed)
            shown[call] = f"CASE WHEN {row.name} IS NULL THEN NULL ELSE {shown[call]} END"
        if model is not None and source is not None:
            moved.add_model(source, model, scope.text, scope.probed)
            shown[call] = replaced[call]
        planned.append(done)
    names = column_names(s.sql, s.tokens, replaced, s.context.column_name, s.context.dialect)
    patches = {**s.numbers, **moved.patches}
    text = splice(s.sql, s.tokens, replaced, patches, s.whole, names, moved.sources)
    if moved.sources:
        patches = {**s.given.as_nulls(), **moved.patches}
        after = splice(s.sql, s.tokens, shown, patches, s.whole, names, moved.probes)
        begin = s.tokens[query_start(s.tokens) or 0].start
        if not _same_columns(s.probed(names)[begin:], after[begin:], s.context.describe):
            return None
    return text, tuple(planned)


def _same_columns(before: str, after: str, describe: Describe) -> bool:
    """Whether both queries bind, with columns of the same names and types."""
    try:
        return describe(before) == describe(after)
    except ProbeError:
        return False


def _plan_call(
    call: Call,
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
    alone = prepare_parts(model.program, (target.part,))
    prepared = prepare_parts(model.program, together.parts)
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
    literal = {} if asks_for_sql(options) else literals(call, model.features, used, scope.tokens)
    constants = _constants(literal, model.program, prepared, together, choice, rows, context)
    if constants:
        alone = prepare_parts(model.program, (target.part,), constants=constants)
        prepared = prepare_parts(model.program, together.parts, constants=constants)
        choice = choose(prepared.split.core, options)
        bounds = {name: b for name, b in bounds.items() if name in prepared.program.inputs}
    codes_fit = all(
        n.attrs["categories"].size < 1 << 24 for n in prepared.program.nodes if n.op == "encode"
    )
    layout: Layout = "f32" if codes_fit and layout_is_exact(bounds) else "f64"
    if layout == "f32":
        alone = prepare_parts(model.program, (target.part,), "f32", constants)
        prepared = prepare_parts(model.program, together.parts, "f32", constants)
    empty = sorted(refused(options, model.program) & prepared.program.inputs.keys())
    read_once = Once.of(bounds, dialect) if empty and dialect.calls_in_lambdas else None
    if read_once is not None:
        bounds = read_once.fields
        if together.source is not None:  # there the fields are not in sight
            prepared, together = alone, Shared((target.part,), False, 1)
            choice = choose(alone.split.core, options)
    wanted = Wanted(model.program, target.output, target.column, target.chosen, dialect)
    as_sql = None
    if asks_for_sql(options):
        as_sql = as_asked(wanted, alone, bounds, layout)
    elif leaves_open(options):
        as_sql = written(wanted, alone, bounds, layout, choice, together.calls)
    if as_sql is None and _in_lambda(call, scope, dialect):
        as_sql = _for_lambda(wanted, alone, bounds, layout, options, scope, call)
    if dialect.outputs_first and (as_sql is not None or not (apart or together.source)):
        _refuse_hidden(call, bounds, scope)
    if as_sql is not None:  # the engine sees by itself which sums are equal
        prepared, together = alone, Shared((target.part,), False, 1)
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
        once=together.source is not None,
        constants=constants,
        rows=batch_rows(options),
    )
    missing = either(no_row(scope, call.start), any_missing(bounds, empty))
    kind = "FLOAT" if layout == "f32" else "DOUBLE"
    columns = packed(prepared, bounds, kind, dialect)
    row = Column.of_row(columns, dialect.type(f"{kind}[]")) if apart else None
    if row is not None:
        columns = dialect.packed_arguments(row.name)
    arguments = columns + texts(prepared, bounds, dialect)
    made = f"{spec.name}({arguments})"
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
    start, end = scope.tokens[call.start].start, scope.tokens[call.end - 1].end
    done = PlannedCall(
        " ".join(scope.sql[start:end].split()),
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
        prepared.split.texts,
        any(node.op == "tree_ensemble" for node in prepared.split.core),
        together,
        model.program,
        rows,
        other_columns(call, model.features, scope),
        tuple(empty),
    )
    used_row = row is not None and (column is not None or row.name in result)
    return done, column, row if used_row else None


def _refuse_hidden(call: Call, bounds: Mapping[str, Bound], scope: Scope) -> None:
    """Refuse a star whose columns have names that the engine takes for select items there."""
    hidden = hidden_columns(scope.tokens, call)
    named = {fold(argument.name) for argument in call.arguments if argument.name is not None}
    for name, bound in bounds.items():
        if fold(name) not in named and fold(bound.sql.strip("`")) in hidden:
            raise BindError(
                f"the star's column {bound.sql} is hidden here by the select item of that name; "
                "write the table's star, as in t.*, or rename the item",
                scope.sql,
                scope.tokens[call.start].start,
            )


def _in_lambda(call: Call, scope: Scope, dialect: Dialect) -> bool:
    """Whether a call stands inside a lambda, where the engine cannot call a function of ours."""
    if dialect.calls_in_lambdas or scope.tokens[0].upper == "CREATE":
        return False
    return bool(local_names(scope.tokens, call.start))


def _for_lambda(
    wanted: Wanted,
    prepared: Prepared,
    bounds: Mapping[str, Bound],
    layout: Layout,
    options: Mapping[str, Any],
    scope: Scope,
    call: Call,
) -> Written:
    """The model as an expression, whatever it costs, since there is no other way."""
    if leaves_open(options):
        with suppress(BackendError):
            made = as_asked(wanted, prepared, bounds, layout)
            if len(made.value) <= _LONGEST:
                return replace(made, reason="a lambda calls no function of Python")
    raise BindError(
        f"{wanted.dialect.name} calls no function of Python inside a lambda, and the model is no "
        "short expression; unfold the list first, as in SELECT .. FROM t LATERAL VIEW "
        "explode(list) l AS x",
        scope.sql,
        scope.tokens[call.start].start,
    )


_LONGEST = 20_000
"""Characters of an expression that nobody asked for."""


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
