"""Plan a statement: find its model calls, bind them, choose how to run them, splice them in.

The rest of the user's text stays byte for byte as it was.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

from sqlml.errors import ParseError, SqlmlError, StatementError
from sqlml.front.lexer import tokenize
from sqlml.passes.split import Layout
from sqlml.planner.arguments import packed, texts, written_out
from sqlml.planner.binding import bind
from sqlml.planner.blocks import Span, block_at
from sqlml.planner.build import prepare_parts
from sqlml.planner.calls import Call, find_calls
from sqlml.planner.choice import as_sql, choose, leaves_open
from sqlml.planner.column_types import layout_is_exact
from sqlml.planner.context import Context
from sqlml.planner.local_names import local_tokens
from sqlml.planner.names import FunctionSpec
from sqlml.planner.parameters import Parameters
from sqlml.planner.plan import Plan, PlannedCall
from sqlml.planner.results import decoded
from sqlml.planner.scope import Scope
from sqlml.planner.sharing import Shared, shared
from sqlml.planner.splicing import column_names, inner_first, splice
from sqlml.planner.target import Target, target_of
from sqlml.planner.unneeded_joins import without_unneeded


def plan(sql: str, parameters: Any, context: Context) -> Plan | None:
    """The plan of one statement, or None when it calls no model.

    Raises:
        BindError and its kin, UnknownModelError, ConfigError: each says what to change.
    """
    try:
        tokens = tokenize(sql)
    except ParseError:
        return None  # not SQL: the engine says what is wrong, in its own words
    calls = find_calls(sql, tokens)
    if not calls:
        return None
    context = replace(context, model=cache(context.model), describe=cache(context.describe))
    given = Parameters(tokens, parameters)
    targets = {c: t for c in calls if (t := target_of(c, sql, tokens, given, context)) is not None}
    if not targets:
        return None
    inside = any(
        c.start < i < c.end for c in targets for i, t in enumerate(tokens) if t.kind == "param"
    )
    numbers = given.renumbered(inside)
    together = shared(targets, tokens)
    replaced: dict[Call, str] = {}
    nulls = {call: f"CAST(NULL AS {target.type})" for call, target in targets.items()}
    planned: list[PlannedCall] = []
    for call in inner_first(tokens, targets):
        own = local_tokens(tokens, call.start, call.end)
        firsts = {i for i in own if not tokens[i - 1].is_symbol(".") and tokens[i].text != "."}
        blanks = {i: "NULL" if i in firsts else "" for i in own}
        scope = Scope(
            sql,
            tokens,
            block_at(tokens, call.start),
            partial(splice, sql, tokens, replaced, numbers),
            partial(splice, sql, tokens, nulls, {**given.as_nulls(), **blanks}),
            given.untyped() | own,
            context.describe,
        )
        done = _plan_call(call, targets[call], together[call], scope, context)
        replaced[call] = done.sql
        planned.append(done)
    names = column_names(sql, tokens, replaced)
    rewritten = splice(sql, tokens, replaced, numbers, Span(0, len(sql)), names)
    probed = splice(sql, tokens, nulls, given.as_nulls(), Span(0, len(sql)))
    rewritten, joins = without_unneeded(rewritten, probed, context.describe, context.unique_keys)
    rest, dropped = given.remaining()
    return Plan(sql, rewritten, tuple(planned), rest, dropped, joins)


def _plan_call(
    call: Call, target: Target, together: Shared, scope: Scope, context: Context
) -> PlannedCall:
    model = target.model
    options = {**model.options, **context.settings}
    try:
        alone = prepare_parts(model.program, (target.part,))
        prepared = prepare_parts(model.program, together.parts)
        choice = choose(prepared.split.core, options)
    except StatementError:
        raise
    except SqlmlError as error:
        raise type(error)(f"model {model.name!r}: {error}") from None
    used = frozenset(prepared.program.inputs)
    bounds = bind(call, model.features, used, f"model {model.name!r}", scope, model.library)
    codes_fit = all(
        n.attrs["categories"].size < 1 << 24 for n in prepared.program.nodes if n.op == "encode"
    )
    layout: Layout = "f32" if codes_fit and layout_is_exact(bounds) else "f64"
    if layout == "f32":
        alone = prepare_parts(model.program, (target.part,), "f32")
        prepared = prepare_parts(model.program, together.parts, "f32")
    written = written_out(alone, bounds) if leaves_open(options) else None
    if written is not None:  # the engine sees by itself which sums are equal
        prepared, together = alone, Shared((target.part,), False, 1)
        choice = choose(alone.split.core, options)
    spec = FunctionSpec(
        model.program.hash,
        together.parts,
        layout,
        choice.backend,
        choice.strategy,
        choice.device,
        together.again,
    )
    columns = packed(prepared, bounds, "FLOAT" if layout == "f32" else "DOUBLE")
    function = f"{spec.name}({columns}{texts(prepared, bounds)})"
    scored = together.element(function, model.program, target.part)
    if written is not None:
        choice = as_sql(prepared.split.core, choice)
        scored = f"CASE WHEN isfinite({written.sum}) THEN {written.value} ELSE {scored} END"
    result = decoded(scored, model.program, target.output, target.chosen)
    start, end = scope.tokens[call.start].start, scope.tokens[call.end - 1].end
    return PlannedCall(
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
    )
