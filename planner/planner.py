"""Plan a statement: find its model calls, bind them, choose how to run them, splice them in.

The rest of the user's text stays byte for byte as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from sqlml.errors import BindError, ParseError, SqlmlError, StatementError
from sqlml.parsing.places import Span
from sqlml.planner.binding import other_columns
from sqlml.planner.context import Context
from sqlml.planner.margins import Margins, margins
from sqlml.planner.once import Moved, Way, ways
from sqlml.planner.one_call import plan_call
from sqlml.planner.parameters import Parameters
from sqlml.planner.plan import Plan, PlannedCall
from sqlml.planner.probe import Describe, ProbeError
from sqlml.planner.rows import rows_of
from sqlml.planner.scope import Scope
from sqlml.planner.sharing import shared
from sqlml.planner.single_source import row_source
from sqlml.planner.splicing import column_names, inner_first, splice
from sqlml.planner.syntax.arguments import without_calls
from sqlml.planner.syntax.outline import ModelCall, Outline
from sqlml.planner.syntax.read import outline_of
from sqlml.planner.table_form import WrittenOut, refuse_hidden, written_out
from sqlml.planner.target import Target, target_of
from sqlml.planner.unneeded_joins import without_unneeded


def plan(sql: str, parameters: Any, context: Context) -> Plan | None:
    """The plan of one statement, or None when it calls no model.

    Raises:
        ParseError: it calls a model, and is SQL that cannot be read here.
        BindError and its kin, UnknownModelError, ConfigError: each says what to change.
    """
    try:
        outline = outline_of(sql, context.dialect.name)
    except ParseError as error:
        return _unread(sql, error, context)
    subqueries = written_out(outline, context.model, context.dialect)
    if subqueries is None:
        return _plan(outline, parameters, context, None)
    try:
        again = outline_of(subqueries.sql, context.dialect.name)
        found = _plan(again, parameters, context, subqueries)
    except SqlmlError as error:
        raise subqueries.located(error) from None
    return None if found is None else replace(found, statement=sql)


def _unread(sql: str, error: ParseError, context: Context) -> Plan | None:
    """A statement that cannot be read here, without its calls, for the engine to say what is wrong;
    None where it calls no model.

    Raises:
        ParseError: the engine can read it.
    """
    try:
        rest = without_calls(sql, context.dialect.name)
    except ParseError:
        return None
    if rest is None:
        return None
    try:
        context.describe(rest)
    except ProbeError as refused:
        if str(refused).startswith(("Parser", "Syntax")):
            return Plan(sql, rest, ())
    raise ParseError(
        f"sqlml cannot read this statement ({error.message}); put the part that it cannot read "
        "into a view, and call the model on that",
        sql,
        error.offset,
    ) from None


def _plan(
    outline: Outline, parameters: Any, context: Context, subqueries: WrittenOut | None
) -> Plan | None:
    """The plan of a statement without table forms; `subqueries` are those that stand for them."""
    if not outline.calls:
        return None
    context = replace(
        context,
        model=cache(context.model),
        describe=cache(context.describe),
        rows=cache(context.rows),
    )
    sql = outline.sql
    given = Parameters(outline.parameters, parameters, context.type_of)
    found = {call: target_of(call, sql, given, context) for call in outline.calls}
    targets = {call: target for call, target in found.items() if target is not None}
    if not targets:
        return None
    inside = any(c.span.holds(p.span) for c in targets for p in outline.parameters)
    compared = margins(targets, given)
    numbers = {**given.renumbered(inside), **compared.patches}
    statement = _Statement(outline, given, numbers, context, compared, subqueries)
    if _is_too_deep(statement):
        return None  # the engine's parser says so, in its own words
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
    return Plan(sql, rewritten, planned, rest, dropped, joins, kept=outline.kept)


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement, and what is known of it before its calls are planned.

    `numbers` are parameters as they go to the engine, and numbers that scores are compared with, by
    their places.
    """

    outline: Outline
    given: Parameters
    numbers: Mapping[Span, str]
    context: Context
    margins: Margins
    subqueries: WrittenOut | None

    @property
    def sql(self) -> str:
        """The text."""
        return self.outline.sql

    @property
    def targets(self) -> Mapping[ModelCall, Target]:
        """The calls, and what they compute."""
        return self.margins.targets

    @property
    def whole(self) -> Span:
        """All of the text."""
        return Span(0, len(self.sql))

    @property
    def nulls(self) -> dict[ModelCall, str]:
        """The calls in probes: NULLs of their types."""
        spelled = self.context.dialect.type
        return {c: f"CAST(NULL AS {spelled(t.type)})" for c, t in self.targets.items()}

    def probed(
        self, names: Mapping[int, str] | None = None, patches: Mapping[Span, str] | None = None
    ) -> str:
        """The statement as a probe; `names` and `patches` are `splice`'s."""
        own = {**self.given.as_nulls(), **(patches or {})}
        return splice(self.sql, self.nulls, own, self.whole, names)


_DEEP = 200
"""Brackets around a call from which on the engine is asked first whether it takes so many."""


def _is_too_deep(s: _Statement) -> bool:
    """Whether the engine's parser refuses the statement for its depth: planning would take long.

    Raises:
        BindError: its binder does.
    """
    if max(call.depth + call.queries for call in s.targets) <= _DEEP:
        return False
    try:
        s.context.describe(s.probed())
    except ProbeError as error:
        message = str(error)
        if "expression depth" not in message:
            return False  # no query, or an error that is told better where it is
        if message.startswith("Parser"):
            return True
        raise BindError(message) from None
    return False


def _rewritten(s: _Statement, way: Way) -> tuple[str, tuple[PlannedCall, ...]] | None:
    """The statement for the engine, and its calls as planned; None where it cannot go this way."""
    together = shared(s.targets, s.outline, way.models, s.context.dialect)
    replaced: dict[ModelCall, str] = {}
    nulls = s.nulls
    shown = dict(nulls)
    moved = Moved(s.context.dialect, way)
    planned: list[PlannedCall] = []
    for call in inner_first(s.targets):
        blanks = dict.fromkeys(call.local, "NULL")
        scope = Scope(
            s.outline,
            call.block,
            lambda span: splice(
                s.sql, replaced, {**s.numbers, **moved.patches}, span, None, moved.sources
            ),
            partial(splice, s.sql, nulls, {**s.given.as_nulls(), **blanks}),
            s.given.untyped() | frozenset(call.local),
            s.context.describe,
            s.context.dialect,
        )
        if s.subqueries is not None and s.subqueries.added(call.span.start):
            refuse_hidden(s.outline, call, other_columns(call, (), scope), s.context.dialect)
        rows = rows_of(call, scope)
        target = s.targets[call]
        source = together[call].source
        if source is None and way.rows:
            source = row_source(call, s.outline)
        apart = way.rows and source is not None
        try:
            done, model, row = plan_call(
                call, target, together[call], scope, s.context, rows, apart
            )
        except StatementError:
            if call.unused:
                continue  # the engine does not bind it
            raise
        except SqlmlError as error:  # what the model is, or is asked to run on
            raise error.at(s.sql, call.span.start, f"model {target.model.name!r}: ") from None
        replaced[call] = s.margins.result(call, done.sql, s.context.dialect)
        inner = any(c is not call and call.span.holds(c.span) for c in s.targets)
        if not done.calls_function and not inner:  # it must bind, too, where FROM is another
            shown[call] = (
                f"CASE WHEN ({done.sql}) IS NULL THEN {shown[call]} ELSE {shown[call]} END"
            )
        if row is not None and source is not None:
            moved.add_row(source, row, scope.text, scope.probed)
            shown[call] = f"CASE WHEN {row.name} IS NULL THEN NULL ELSE {shown[call]} END"
        if model is not None and source is not None:
            moved.add_model(source, model, scope.text, scope.probed)
            shown[call] = replaced[call]
        planned.append(done)
    names = column_names(s.sql, replaced, s.context.column_name, s.context.dialect)
    patches = {**s.numbers, **moved.patches}
    text = splice(s.sql, replaced, patches, s.whole, names, moved.sources)
    if moved.sources:
        prefix = {} if s.outline.prefix is None else {s.outline.prefix: ""}
        patches = {**s.given.as_nulls(), **moved.patches, **prefix}
        after = splice(s.sql, shown, patches, s.whole, names, moved.probes)
        if not _same_columns(s.probed(names, prefix), after, s.context.describe):
            return None
    return text, tuple(planned)


def _same_columns(before: str, after: str, describe: Describe) -> bool:
    """Whether both queries bind, with columns of the same names and types."""
    try:
        return describe(before) == describe(after)
    except ProbeError:
        return False
