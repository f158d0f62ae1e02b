"""Plan a statement: find its model calls, bind them, choose how to run them, splice them in.

The rest of the user's text stays byte for byte as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from sqlml.errors import BindError, ParseError, SqlmlError, StatementError
from sqlml.front.lexer import Token, brackets_around, tokenize
from sqlml.planner.binding import other_columns
from sqlml.planner.blocks import block_at
from sqlml.planner.calls import Call, find_calls
from sqlml.planner.clauses import Span
from sqlml.planner.context import Context
from sqlml.planner.local_names import local_tokens
from sqlml.planner.margins import Margins, margins
from sqlml.planner.once import Moved, Way, ways
from sqlml.planner.one_call import plan_call
from sqlml.planner.parameters import Parameters
from sqlml.planner.plan import Plan, PlannedCall
from sqlml.planner.probe import Describe, ProbeError
from sqlml.planner.rows import rows_of
from sqlml.planner.scope import Scope
from sqlml.planner.sharing import shared
from sqlml.planner.single_source import before_query, row_source
from sqlml.planner.splicing import column_names, inner_first, splice
from sqlml.planner.table_form import WrittenOut, refuse_hidden, written_out
from sqlml.planner.target import Target, target_of
from sqlml.planner.unneeded_joins import without_unneeded


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
    given = Parameters(tokens, parameters, context.type_of)
    targets = {c: t for c in calls if (t := target_of(c, sql, tokens, given, context)) is not None}
    if not targets:
        return None
    inside = any(
        c.start < i < c.end for c in targets for i, t in enumerate(tokens) if t.kind == "param"
    )
    compared = margins(targets, tokens, given)
    numbers = {**given.renumbered(inside), **compared.patches}
    statement = _Statement(sql, tokens, given, numbers, context, compared, subqueries)
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

    def probed(
        self, names: Mapping[int, str] | None = None, patches: Mapping[int, str] | None = None
    ) -> str:
        """The statement as a probe; `names` and `patches` are `splice`'s."""
        own = {**self.given.as_nulls(), **(patches or {})}
        return splice(self.sql, self.tokens, self.nulls, own, self.whole, names)


_DEEP = 200
"""Brackets around a call from which on the engine is asked first whether it takes so many."""


def _is_too_deep(s: _Statement) -> bool:
    """Whether the engine's parser refuses the statement for its depth: planning would take long.

    Raises:
        BindError: its binder does.
    """
    if max(len(brackets_around(s.tokens, call.start)) for call in s.targets) <= _DEEP:
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
    together = shared(s.targets, s.sql, s.tokens, way.models, s.context.dialect)
    replaced: dict[Call, str] = {}
    nulls = s.nulls
    shown = dict(nulls)
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
            partial(splice, s.sql, s.tokens, nulls, {**s.given.as_nulls(), **blanks}),
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
            done, model, row = plan_call(
                call, target, together[call], scope, s.context, rows, apart
            )
        except StatementError:
            raise
        except SqlmlError as error:  # what the model is, or is asked to run on
            place = s.tokens[call.start].start
            raise error.at(s.sql, place, f"model {target.model.name!r}: ") from None
        replaced[call] = s.margins.result(call, done.sql, s.context.dialect)
        inner = any(call.start < c.start < call.end for c in s.targets)
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
    names = column_names(s.sql, s.tokens, replaced, s.context.column_name, s.context.dialect)
    patches = {**s.numbers, **moved.patches}
    text = splice(s.sql, s.tokens, replaced, patches, s.whole, names, moved.sources)
    if moved.sources:
        prefix = dict.fromkeys(before_query(s.tokens) or (), "")
        patches = {**s.given.as_nulls(), **moved.patches, **prefix}
        after = splice(s.sql, s.tokens, shown, patches, s.whole, names, moved.probes)
        if not _same_columns(s.probed(names, prefix), after, s.context.describe):
            return None
    return text, tuple(planned)


def _same_columns(before: str, after: str, describe: Describe) -> bool:
    """Whether both queries bind, with columns of the same names and types."""
    try:
        return describe(before) == describe(after)
    except ProbeError:
        return False
