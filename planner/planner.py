"""Plan a statement: find its model calls, bind them, choose how to run them, splice them in.

The rest of the user's text stays byte for byte as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from sqlml.backends.sql import Linear, expressions, linear_sql
from sqlml.catalog.model import Model
from sqlml.errors import BindError, ParseError, SqlmlError, StatementError, UnknownModelError
from sqlml.front.lexer import Token, closing, quote_name, tokenize
from sqlml.ir.program import Program
from sqlml.passes.split import Layout
from sqlml.planner.binding import bind
from sqlml.planner.blocks import Span, block_at, select_item
from sqlml.planner.build import Prepared, prepare_parts
from sqlml.planner.calls import Call, find_calls
from sqlml.planner.choice import as_sql, choose, leaves_open
from sqlml.planner.column_types import Bound, layout_is_exact
from sqlml.planner.local_names import local_tokens
from sqlml.planner.names import FunctionSpec, Output, Part
from sqlml.planner.parameters import Parameters
from sqlml.planner.plan import Plan, PlannedCall
from sqlml.planner.probe import Describe
from sqlml.planner.results import Chosen, decoded, result_type
from sqlml.planner.scope import Scope
from sqlml.planner.sharing import Shared, shared
from sqlml.planner.stars import is_star
from sqlml.planner.unneeded_joins import UniqueKeys, without_unneeded
from sqlml.types import Labels

OUTPUTS_OF: Mapping[str, tuple[Output, ...]] = {
    "predict": ("label",),
    "predict_proba": ("proba",),
    "predict_score": ("score", "samples"),
    "transform": ("transform",),
}
"""The outputs that a function gives: the first of them that the model has.

A density (KernelDensity, GaussianMixture) has no decision function but scores of samples.
"""

_NO_OUTPUT = {
    "predict": "it predicts nothing",
    "predict_proba": "it gives no probabilities",
    "predict_score": "it has no decision function and no scores of samples",
    "transform": "it transforms nothing",
}


@dataclass(frozen=True, slots=True)
class Context:
    """What the planner may ask: the engine's binder, the catalog, and the user's functions."""

    describe: Describe
    model: Callable[[str], Model]
    is_user_function: Callable[[str], bool]
    unique_keys: UniqueKeys
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
    together = shared(targets, tokens)
    replaced: dict[Call, str] = {}
    nulls = {call: f"CAST(NULL AS {target.type})" for call, target in targets.items()}
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
        done = _plan_call(call, targets[call], together[call], scope, context)
        replaced[call] = done.sql
        planned.append(done)
    names = _column_names(sql, tokens, replaced)
    rewritten = _splice(sql, tokens, replaced, numbers, Span(0, len(sql)), names)
    probed = _splice(sql, tokens, nulls, given.as_nulls(), Span(0, len(sql)))
    rewritten, joins = without_unneeded(rewritten, probed, context.describe, context.unique_keys)
    rest, dropped = given.remaining()
    return Plan(sql, rewritten, tuple(planned), rest, dropped, joins)


@dataclass(frozen=True, slots=True)
class _Target:
    """What a call computes: an output of a model, one class of it when `chosen` is given."""

    model: Model
    output: Output
    chosen: Chosen | None

    @property
    def column(self) -> int | None:
        """The one column of the output that is computed; None for all."""
        return None if self.chosen is None or len(self.chosen) > 1 else self.chosen[0]

    @property
    def part(self) -> Part:
        """What is computed of the model's outputs."""
        return Part(self.output, self.column)

    @property
    def type(self) -> str:
        """The SQL type of the call."""
        return result_type(self.model.program, self.output, self.chosen)

    @property
    def text(self) -> str:
        """The output as EXPLAIN shows it."""
        labels, text = self.model.program.labels, str(self.output)
        if self.chosen is not None:
            t, k = next((t, k) for t, k in enumerate(self.chosen) if k is not None)
            text += f", class {labels[t].values[k]!r}"
        targets = self.model.program.targets
        return text + (f", {targets} targets" if targets > 1 else "")


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
    output = _output(call.function, model.program)
    if output is None:
        others = [f"{f}(..)" for f in OUTPUTS_OF if _output(f, model.program) is not None]
        raise BindError(
            f"{call.function} does not fit model {model.name!r}: {_NO_OUTPUT[call.function]}; "
            f"use {' or '.join(others)}",
            sql,
            tokens[call.start].start,
        )
    return _Target(model, output, _chosen_class(call, model, sql, tokens, given))


def _output(function: str, program: Program) -> Output | None:
    """The output of `program` that `function` gives; None where it has none of them."""
    return next((o for o in OUTPUTS_OF[function] if o in program.outputs), None)


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


def _plan_call(
    call: Call, target: _Target, together: Shared, scope: Scope, context: Context
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
    written = _as_sql(alone, bounds) if leaves_open(options) else None
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
    packed = _packed(prepared, bounds, "FLOAT" if layout == "f32" else "DOUBLE")
    texts = _texts(prepared, bounds)
    scored = together.element(f"{spec.name}({packed}{texts})", model.program, target.part)
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


def _chosen_class(
    call: Call, model: Model, sql: str, tokens: Sequence[Token], given: Parameters
) -> Chosen | None:
    """The class in `class := ..` as its index in each target; None when the call names none."""
    chosen = call.class_argument
    if chosen is None:
        return None
    labels = model.program.labels
    place = tokens[chosen.start].start
    if not labels:
        raise BindError(f"model {model.name!r} has no classes", sql, place)
    value = given.literal(chosen.start, chosen.end)
    if value is None:
        raise BindError(
            "class := takes a literal or a parameter, since it decides what is computed",
            sql,
            place,
        )
    found = tuple(_index(known, value[0]) for known in labels)
    if any(i is not None for i in found):
        return found
    all_known = dict.fromkeys(v for known in labels for v in known.values)
    known = ", ".join(repr(v) for v in list(all_known)[:20])
    raise BindError(
        f"model {model.name!r} has no class {value[0]!r}; its classes are {known}", sql, place
    )


def _index(labels: Labels, wanted: Any) -> int | None:
    """The place of the label that `wanted` is, or else that it spells ('1' is 1, 'true' True)."""
    for same in (_is_equal, lambda a, b: str(a) == str(b), _is_spelled):
        for i, label in enumerate(labels.values):
            if same(label, wanted):
                return i
    return None


def _is_equal(label: Any, wanted: Any) -> bool:
    return isinstance(label, str) == isinstance(wanted, str) and bool(label == wanted)


def _is_spelled(label: Any, wanted: Any) -> bool:
    """As SQL writes the two: a boolean in any case, a whole number with or without a fraction."""
    if isinstance(label, bool) or isinstance(wanted, bool):
        return str(label).casefold() == str(wanted).casefold()
    return _digits(label) == _digits(wanted)


def _digits(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value)


def _texts(prepared: Prepared, bounds: Mapping[str, Bound]) -> str:
    """The second argument, where the model reads whole texts: their bytes as a list."""
    texts = [f"encode({bounds[name].sql})" for name in prepared.split.texts]
    return f", [{', '.join(texts)}]::BLOB[]" if texts else ""


def _as_sql(prepared: Prepared, bounds: Mapping[str, Bound]) -> Linear | None:
    """The model as an expression, where it is a linear one of plain columns."""
    columns = [bounds[c.name].sql for c in prepared.split.columns if not c.encoded]
    if prepared.split.encoders is not None or not all(map(_COLUMN.fullmatch, columns)):
        return None
    return linear_sql(prepared.split.core, columns)


_COLUMN = re.compile(r'(\w+|"([^"]|"")*")(\.(\w+|"([^"]|"")*"))*')
"""What may be written several times: it is cheap, and the same each time."""


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
