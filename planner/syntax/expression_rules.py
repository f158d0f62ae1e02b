"""Rules for expressions: calls of models, and nodes that decide when and how often they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType

from sqlglot import exp

from sqlml.parsing.places import ModelName, Span, hull, is_written, span
from sqlml.planner.syntax.arguments import FUNCTIONS
from sqlml.planner.syntax.outline import Comparison, Surroundings
from sqlml.planner.syntax.outline_walk import (
    CONDITIONAL_FUNCTIONS,
    Reader,
    Rule,
    WalkContext,
    iterate_children,
    require_span,
)
from sqlml.planner.syntax.table_forms import FORMS, find_form
from sqlml.types import fold

_OPERATORS: Mapping[type[exp.Expr], str] = MappingProxyType(
    {exp.GT: ">", exp.LT: "<", exp.GTE: ">=", exp.LTE: "<="}
)

REVERSED_OPERATORS: Mapping[str, str] = MappingProxyType(
    {">": "<", "<": ">", ">=": "<=", "<=": ">="}
)
"""The operator of a comparison whose sides are swapped."""


def _read_lambda(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    names = context.local_names | {fold(name.name) for name in node.expressions}
    reader.walk_children(node, replace(context, local_names=names, is_always_evaluated=False))


def _read_comprehension(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    variables = [node.args.get("expression"), node.args.get("position")]
    names = context.local_names | {fold(n.name) for n in variables if isinstance(n, exp.Expr)}
    reader.walk_children(node, replace(context, local_names=names))


def _read_condition(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    reader.walk_children(node, replace(context, is_always_evaluated=False))


def _read_window(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    """Walk a window function; PARTITION BY and ORDER BY accept no volatile function."""
    for key, child in iterate_children(node):
        is_stable = context.must_be_stable or key in ("partition_by", "order")
        reader.walk(child, replace(context, must_be_stable=is_stable))


def _read_order(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    """Walk an ORDER BY; in `f(DISTINCT a ORDER BY a)` the engine compares both expressions."""
    is_stable = context.must_be_stable or isinstance(node.this, exp.Distinct)
    reader.walk_children(node, replace(context, must_be_stable=is_stable))


def _read_parenthesis(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    reader.walk_children(node, replace(context, depth=context.depth + 1))


def _read_dot(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    """Walk `a.b`: `schema.predict(...)` is a user's function, `ML.PREDICT(...)` is a table form."""
    function = node.args.get("expression")
    if not isinstance(function, exp.Anonymous):
        reader.walk_children(node, context)
        return
    _read_dotted_form(reader, node.this, function, context)
    reader.walk(node.this, context)
    _read_parenthesis(reader, function, context)


def _read_table(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    """Walk a table or a table function."""
    function, db = node.this, node.args.get("db")
    if isinstance(function, exp.Anonymous) and db is not None:
        _read_dotted_form(reader, db, function, context)
    reader.walk_children(node, context)


def _read_dotted_form(
    reader: Reader, schema: exp.Expr, function: exp.Anonymous, context: WalkContext
) -> None:
    form_span = hull([schema, function])
    if form_span is not None and fold(schema.name) == "ml" and fold(function.name) in FORMS:
        _read_form(reader, function, form_span, context)


def _read_function(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    name = fold(node.name) if isinstance(node.this, str) else ""
    if name in FUNCTIONS:
        _read_call(reader, node, name, context)
    elif find_form(name) is not None:
        _read_form(reader, node, require_span(node), context)
    is_conditional = name in CONDITIONAL_FUNCTIONS
    inside = replace(
        context,
        depth=context.depth + 1,
        in_try=context.in_try or name == "try",
        must_be_stable=context.must_be_stable or name == "try",
        is_always_evaluated=context.is_always_evaluated and not is_conditional,
    )
    reader.walk_children(node, inside)


def _read_call(reader: Reader, node: exp.Expr, name: str, context: WalkContext) -> None:
    call_span = reader.arguments.call_span(node.meta["start"])  # without an OVER after it
    call = reader.arguments.read_call(name, call_span)
    if call is None:
        return
    is_indexed = isinstance(node.parent, exp.Bracket) and node.parent.this is node
    key = reader.arguments.key_after(call_span) if is_indexed and name == "predict_proba" else None
    call_in_context = replace(
        call,
        **{name: getattr(context, name) for name in _SURROUNDINGS},
        span=call_span if key is None else Span(call_span.start, key.span.end),
        key=key,
        local_names=reader.arguments.find_local_names(call_span, context.local_names),
        has_local_names=bool(context.local_names),
        has_windows=context.clause == "QUALIFY" and _has_window(node),
        is_source=isinstance(node.parent, exp.Table | exp.Lateral),
        comparison=None if is_indexed and key is None else reader.comparisons.get(id(node)),
    )
    reader.calls.append(call_in_context)


_SURROUNDINGS = tuple(field.name for field in fields(Surroundings))


def _has_window(node: exp.Expr) -> bool:
    """Return whether the arguments of a call have a window function outside of nested queries."""
    nodes = node.walk(prune=lambda part: isinstance(part, exp.Query))
    return any(isinstance(part, exp.Window) for part in nodes)


def _read_form(reader: Reader, node: exp.Expr, form_span: Span, context: WalkContext) -> None:
    has_rows = not FORMS[find_form(node.name) or fold(node.name)].has_model
    if has_rows or (node.expressions and isinstance(node.expressions[0], ModelName)):
        if context.clause in _SCALAR_CLAUSES:
            reader.scalar_forms.add(form_span.start)


_SCALAR_CLAUSES = frozenset("SELECT WHERE GROUP HAVING QUALIFY ORDER LIMIT".split())

_CONDITION_PARENTS = (
    *(exp.Where, exp.Having, exp.Qualify, exp.Join, exp.Filter, exp.Ordered),
    *(exp.And, exp.Or, exp.Not, exp.Paren, exp.Case, exp.If),
    *(exp.Select, exp.Alias, exp.Anonymous, exp.Tuple),
)
"""Parents under which both engines and sqlglot parse a comparison alike.

They disagree about `a > 0 = b > 1`, for example, since their operators bind differently.
"""


def _is_condition(node: exp.Expr) -> bool:
    parent = node.parent
    is_synthetic = isinstance(parent, exp.Paren) and not is_written(parent)
    return isinstance(parent, _CONDITION_PARENTS) and not is_synthetic


def _read_comparison(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    """Record a comparison such as `predict_proba(...) > 0.8`, or with the sides swapped."""
    left, right = node.this, node.expression
    operator = _OPERATORS[type(node)]
    for side, number, is_reversed in ((left, right, False), (right, left, True)):
        call, bound = _strip_key(side), reader.arguments.read_number(span(number))
        if not (isinstance(call, exp.Anonymous) and bound is not None and _is_condition(node)):
            continue
        sign = reader.arguments.find_operator(
            require_span(left).end, require_span(right).start, operator
        )
        if sign is not None:
            operator = REVERSED_OPERATORS[operator] if is_reversed else operator
            bounds = ((operator, bound, require_span(number)),)
            reader.comparisons[id(call)] = Comparison(bounds, sign, is_reversed)
            break
    reader.walk_children(node, context)


def _strip_key(node: exp.Expr) -> exp.Expr:
    """Return the call in `call['key']`; any other node itself."""
    return node.this if isinstance(node, exp.Bracket) else node


def _read_between(reader: Reader, node: exp.Expr, context: WalkContext) -> None:
    low, high, call = node.args.get("low"), node.args.get("high"), _strip_key(node.this)
    is_call = _is_condition(node) and isinstance(call, exp.Anonymous)
    if is_call and low is not None and high is not None and not node.args.get("symmetric"):
        low_number, high_number = map(reader.arguments.read_number, (span(low), span(high)))
        if low_number is not None and high_number is not None:
            bounds = (">=", low_number, require_span(low)), ("<=", high_number, require_span(high))
            reader.comparisons[id(call)] = Comparison(bounds)
    reader.walk_children(node, context)


RULES: Mapping[type[exp.Expr], Rule] = MappingProxyType(
    {
        exp.Lambda: _read_lambda,
        exp.Comprehension: _read_comprehension,
        **dict.fromkeys((exp.Or, exp.Case, exp.If), _read_condition),
        exp.Paren: _read_parenthesis,
        exp.Window: _read_window,
        exp.Order: _read_order,
        exp.Dot: _read_dot,
        exp.Table: _read_table,
        exp.Anonymous: _read_function,
        **dict.fromkeys(_OPERATORS, _read_comparison),
        exp.Between: _read_between,
    }
)
