"""Plan a statement: find its model calls, bind them, choose how to run them, splice them in.

The rest of the user's text stays byte for byte as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from sqlml.backends.sql import expressions, string_literal
from sqlml.catalog.model import Model
from sqlml.errors import BindError, ParseError, SqlmlError, StatementError, UnknownModelError
from sqlml.front.lexer import Token, closing, quote_name, tokenize
from sqlml.passes.split import Layout
from sqlml.planner.binding import bind
from sqlml.planner.blocks import Span, block_at, select_item
from sqlml.planner.build import Prepared, prepare
from sqlml.planner.calls import Call, find_calls
from sqlml.planner.choice import choose
from sqlml.planner.column_types import Bound, layout_is_exact
from sqlml.planner.local_names import local_tokens
from sqlml.planner.names import FunctionSpec, Output
from sqlml.planner.parameters import Parameters
from sqlml.planner.plan import Plan, PlannedCall
from sqlml.planner.probe import Describe
from sqlml.planner.scope import Scope
from sqlml.planner.stars import is_star
from sqlml.types import Labels

OUTPUT_OF: Mapping[str, Output] = {
    "predict": "label",
    "predict_proba": "proba",
    "predict_score": "score",
    "transform": "transform",
}

_NO_OUTPUT = {
    "predict": "it is a transformer: use transform(..)",
    "predict_proba": "it gives no probabilities: use predict(..) or predict_score(..)",
    "predict_score": "it has no decision function: use predict(..) or predict_proba(..)",
    "transform": "it is a predictor: use predict(..)",
}


@dataclass(frozen=True, slots=True)
class Context:
    """What the planner may ask: the engine's binder, the catalog, and the user's functions."""

    describe: Describe
    model: Callable[[str], Model]
    is_user_function: Callable[[str], bool]
    settings: Mapping[str, Any]


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
    targets = {c: t for c in calls if (t := _target(c, sql, tokens, given, context)) is not None}
    if not targets:
        return None
    inside = any(
        c.start < i < c.end for c in targets for i, t in enumerate(tokens) if t.kind == "param"
    )
    numbers = given.renumbered(inside)
    replaced: dict[Call, str] = {}
    nulls: dict[Call, str] = dict.fromkeys(targets, "NULL")
    planned: list[PlannedCall] = []
    for call in _inner_first(tokens, targets):
        own = local_tokens(tokens, call.start, call.end)
        firsts = {i for i in own if not tokens[i - 1].is_symbol(".") and tokens[i].text != "."}
        blanks = {i: "NULL" if i in firsts else "" for i in own}
        scope = Scope(
            sql,
            tokens,
            block_at(tokens, call.start),
            partial(_splice, sql, tokens, replaced, numbers),
            partial(_splice, sql, tokens, nulls, {**given.as_nulls(), **blanks}),
            given.untyped() | own,
            context.describe,
        )
        done = _plan_call(call, targets[call], scope, context)
        replaced[call] = done.sql
        nulls[call] = f"CAST(NULL AS {done.type})"
        planned.append(done)
    names = _column_names(sql, tokens, replaced)
    rewritten = _splice(sql, tokens, replaced, numbers, Span(0, len(sql)), names)
    rest, dropped = given.remaining()
    return Plan(sql, rewritten, tuple(planned), rest, dropped)


@dataclass(frozen=True, slots=True)
class _Target:
    """What a call computes: an output of a model, one class of it when `column` is given."""

    model: Model
    output: Output
    column: int | None


def _inner_first(tokens: Sequence[Token], calls: Iterable[Call]) -> list[Call]:
    """Calls that others may depend on first: arguments of calls, FROM clauses, CTEs."""

    def depth(call: Call) -> int:
        level = 0
        for token in tokens[: call.start]:
            if token.kind == "symbol":
                level += token.text in "([{"
                level -= token.text in ")]}"
        return level

    return sorted(calls, key=lambda c: (-depth(c), c.start))


def _splice(
    sql: str,
    tokens: Sequence[Token],
    replaced: Mapping[Call, str],
    patches: Mapping[int, str],
    span: Span,
    insertions: Mapping[int, str] | None = None,
) -> str:
    """sql[span] with calls and single tokens (`patches`: token index -> text) replaced.

    `insertions` puts text behind a character.
    """
    edits = [(tokens[c.start].start, tokens[c.end - 1].end, text) for c, text in replaced.items()]
    edits += [(tokens[i].start, tokens[i].end, text) for i, text in patches.items()]
    edits += [(at, at, text) for at, text in (insertions or {}).items()]
    edits = [e for e in edits if span.start <= e[0] and e[1] <= span.end]
    pieces, at = [], span.start
    for start, end, text in sorted(edits, key=lambda e: (e[0], -e[1])):
        if start < at:  # inside a call that has been replaced as a whole
            continue
        pieces += [sql[at:start], text]
        at = end
    return "".join([*pieces, sql[at : span.end]])


def _target(
    call: Call, sql: str, tokens: Sequence[Token], given: Parameters, context: Context
) -> _Target | None:
    """What the call is to compute; None when the function is a user's own."""
    token = tokens[call.model]
    name = given.text(call.model) if token.kind == "param" else token.text
    if name is None:
        if context.is_user_function(call.function):
            return None
        raise BindError(
            f"the model name {token.text} is not given as a text; pass it when the statement is "
            "executed, or write it out",
            sql,
            token.start,
        )
    try:
        model = context.model(name)
    except UnknownModelError as error:
        starred = any(a.name is None and is_star(tokens, a) for a in call.arguments)
        if not starred and context.is_user_function(call.function):
            return None
        raise UnknownModelError(error.message, sql, token.start) from None
    given.use_up(call.model)
    if _defines_a_table(tokens, call.start):
        raise BindError(
            "a model call cannot stand in a generated column, DEFAULT or CHECK: nobody could read "
            "the table without sqlml; make a view of the table instead",
            sql,
            tokens[call.start].start,
        )
    output = OUTPUT_OF[call.function]
    if output not in model.program.outputs:
        raise BindError(
            f"{call.function} does not fit model {model.name!r}: {_NO_OUTPUT[call.function]}",
            sql,
            tokens[call.start].start,
        )
    return _Target(model, output, _class_index(call, model, sql, tokens, given))


def _defines_a_table(tokens: Sequence[Token], place: int) -> bool:
    """Whether the token stands in a table's definition: a column list, or an ALTER of one."""
    words = [t.upper for t in tokens[:place]]
    if words[:2] == ["ALTER", "TABLE"] and {"DEFAULT", "GENERATED", "AS"} & set(words):
        return True
    if words[:1] != ["CREATE"] or "TABLE" not in words[:5] or "AS" in words[:8]:
        return False
    opening = next((i for i, t in enumerate(tokens) if t.is_symbol("(")), place)
    close = closing(tokens, opening) if opening < place else None
    return close is not None and opening < place < close


def _column_names(sql: str, tokens: Sequence[Token], calls: Iterable[Call]) -> dict[int, str]:
    """` AS "<the item as written>"` for each select item with a call and without a name.

    The engine names a column after its expression, which would now be our rewritten text.
    """
    names: dict[int, str] = {}
    for call in calls:
        item = select_item(tokens, call.start)
        if item is not None and not _has_name(tokens, *item):
            written = sql[tokens[item[0]].start : tokens[item[1] - 1].end]
            names[tokens[item[1] - 1].end] = f" AS {quote_name(' '.join(written.split()))}"
    return names


def _has_name(tokens: Sequence[Token], start: int, end: int) -> bool:
    """Whether a select item names itself: `x AS a`, `x a`, `a: x`."""
    last, before = tokens[end - 1], tokens[end - 2] if end - start > 1 else None
    if end - start > 2 and tokens[start].is_identifier and tokens[start + 1].is_symbol(":"):
        return True
    if before is None or not (last.is_identifier or last.kind == "string"):
        return False
    return not before.is_symbol(".") and last.upper not in ("END", "NULL", "TRUE", "FALSE")


def _plan_call(call: Call, target: _Target, scope: Scope, context: Context) -> PlannedCall:
    model, output, column = target.model, target.output, target.column
    options = {**model.options, **context.settings}
    try:
        prepared = prepare(model.program, output, column)
        choice = choose(prepared.split.core, options)
    except StatementError:
        raise
    except SqlmlError as error:
        raise type(error)(f"model {model.name!r}: {error}") from None
    used = frozenset(prepared.program.inputs)
    bounds = bind(call, model.features, used, f"model {model.name!r}", scope)
    codes_fit = all(
        n.attrs["categories"].size < 1 << 24 for n in prepared.program.nodes if n.op == "encode"
    )
    layout: Layout = "f32" if codes_fit and layout_is_exact(bounds) else "f64"
    if layout == "f32":
        prepared = prepare(model.program, output, column, "f32")
    spec = FunctionSpec(
        model.program.hash,
        output,
        column,
        layout,
        choice.backend,
        choice.strategy,
        choice.device,
    )
    packed = _packed(prepared, bounds, "FLOAT" if layout == "f32" else "DOUBLE")
    result = _decoded(f"{spec.name}({packed})", output, column, model.program.labels, prepared)
    start, end = scope.tokens[call.start].start, scope.tokens[call.end - 1].end
    return PlannedCall(
        " ".join(scope.sql[start:end].split()),
        model.name,
        model.version,
        output if column is None else f"{output}, class {_value(model.program.labels, column)!r}",
        tuple(bounds.items()),
        tuple(f.name for f in model.features if f.name not in used),
        tuple(
            n
            for n, i in prepared.program.inputs.items()
            if prepared.program.nodes[i].type.dtype == "string"
        ),
        spec,
        model.program.hash,
        choice,
        result,
        _result_type(prepared, output, column),
    )


def _value(labels: Labels | None, column: int) -> Any:
    return None if labels is None else labels.values[column]


def _class_index(
    call: Call, model: Model, sql: str, tokens: Sequence[Token], given: Parameters
) -> int | None:
    """The index of the class in `class := ..`, or None when the call names none."""
    chosen = call.class_argument
    if chosen is None:
        return None
    labels = model.program.labels
    place = tokens[chosen.start].start
    if labels is None:
        raise BindError(f"model {model.name!r} has no classes", sql, place)
    value = given.literal(chosen.start, chosen.end)
    if value is None:
        raise BindError(
            "class := takes a literal or a parameter, since it decides what is computed",
            sql,
            place,
        )
    for i, label in enumerate(labels.values):
        same_kind = isinstance(label, str) == isinstance(value[0], str)
        if (same_kind and label == value[0]) or str(label) == str(value[0]):
            return i
    known = ", ".join(repr(v) for v in labels.values[:20])
    raise BindError(
        f"model {model.name!r} has no class {value[0]!r}; its classes are {known}", sql, place
    )


def _packed(prepared: Prepared, bounds: Mapping[str, Bound], kind: str) -> str:
    """The one argument of the engine function: all columns as a fixed-size array."""
    encoded: dict[str, str] = {}
    if prepared.split.encoders is not None:
        texts = {n: bounds[n].sql for n in prepared.split.encoders.inputs}
        encoded = expressions(prepared.split.encoders, texts)
    parts = [encoded[c.name] if c.encoded else bounds[c.name].sql for c in prepared.split.columns]
    if not parts:
        parts = ["0"]
    # A cast list and not array_value(..): that takes 6 times as long (28 FLOATs, 2.0 and 1.5).
    return f"[{', '.join(f'CAST({p} AS {kind})' for p in parts)}]::{kind}[{len(parts)}]"


def _decoded(
    call: str, output: str, column: int | None, labels: Labels | None, prepared: Prepared
) -> str:
    """The function's numbers as the user's type: labels in their own, probabilities as a MAP."""
    if output == "label" and labels is not None:
        values = [label_literal(v, labels.kind) for v in labels.values]
        if len(values) <= 16:
            cases = " ".join(f"WHEN {i} THEN {v}" for i, v in enumerate(values))
            return f"CASE {call} {cases} END"
        return f"([{', '.join(values)}])[{call} + 1]"
    if output == "proba" and column is None and labels is not None:
        keys = ", ".join(label_literal(v, labels.kind) for v in labels.values)
        return f"MAP([{keys}], {call})"
    return call


_LABEL_TYPES = {"string": "VARCHAR", "int64": "BIGINT", "bool": "BOOLEAN", "float64": "DOUBLE"}


def _result_type(prepared: Prepared, output: str, column: int | None) -> str:
    """The type of the call's result in the engine."""
    labels = prepared.program.labels
    if output == "label":
        return "DOUBLE" if labels is None else _LABEL_TYPES[labels.kind]
    if output == "proba" and column is None and labels is not None:
        return f"MAP({_LABEL_TYPES[labels.kind]}, DOUBLE)"
    return "DOUBLE" if prepared.program.output_type(output).width == 1 else "DOUBLE[]"


def label_literal(value: Any, kind: str) -> str:
    """A class label as a SQL literal of its own type."""
    if kind == "string":
        return string_literal(str(value))
    if kind == "bool":
        return "true" if value else "false"
    if kind == "int64":
        return f"'{int(value)}'::BIGINT"  # quoted: -2^63 has no literal of its own
    return f"'{float(value)!r}'::DOUBLE"
