"""Rules for expressions: calls of models, and nodes that decide when and how often they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType

from sqlglot import exp

from sqlml.parsing.places import ModelName, Span, is_in_text, merge_spans, span
from sqlml.planner.syntax.arguments import METRICS
from sqlml.planner.syntax.call_options import FUNCTIONS
from sqlml.planner.syntax.outline import Comparison, Surroundings
from sqlml.planner.syntax.outline_walk import (
    CONDITIONAL_FUNCTIONS,
    Rule,
    WalkContext,
    Walker,
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
"""Operator of a comparison -> operator of the same comparison with its sides swapped."""


def _walk_lambda(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    local_names = context.local_names | {fold(variable.name) for variable in node.expressions}
    walker.walk_children(node, replace(context, local_names=local_names, is_always_evaluated=False))


def _walk_comprehension(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    variables = [node.args.get("expression"), node.args.get("position")]
    local_names = context.local_names | {fold(n.name) for n in variables if isinstance(n, exp.Expr)}
    walker.walk_children(node, replace(context, local_names=local_names))


def _walk_condition(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    walker.walk_children(node, replace(context, is_always_evaluated=False))


def _walk_window(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    """Walk a window function, whose PARTITION BY and ORDER BY accept no volatile function."""
    for key, child in iterate_children(node):
        must_be_stable = context.must_be_stable or key in ("partition_by", "order")
        walker.walk(child, replace(context, must_be_stable=must_be_stable))


def _walk_order(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    """Walk an ORDER BY, whose keys must be stable in `f(DISTINCT a ORDER BY a)`."""
    must_be_stable = context.must_be_stable or isinstance(node.this, exp.Distinct)
    walker.walk_children(node, replace(context, must_be_stable=must_be_stable))


def _walk_parenthesis(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    walker.walk_children(node, replace(context, depth=context.depth + 1))


def _walk_dot(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    """Walk `a.b`, such as the table form `ML.PREDICT(...)` or a user's `schema.predict(...)`."""
    function = node.args.get("expression")
    if not isinstance(function, exp.Anonymous):
        walker.walk_children(node, context)
        return
    _read_dotted_form(walker, node.this, function, context)
    walker.walk(node.this, context)
    _walk_parenthesis(walker, function, context)


def _walk_table(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    function, db = node.this, node.args.get("db")
    if isinstance(function, exp.Anonymous) and db is not None:
        _read_dotted_form(walker, db, function, context)
    walker.walk_children(node, context)


def _read_dotted_form(
    walker: Walker, schema: exp.Expr, function: exp.Anonymous, context: WalkContext
) -> None:
    form_span = merge_spans([schema, function])
    if form_span is not None and fold(schema.name) == "ml" and fold(function.name) in FORMS:
        _read_form(walker, function, form_span, context)


def _walk_function(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    name = fold(node.name) if isinstance(node.this, str) else ""
    if name in FUNCTIONS:
        _read_call(walker, node, name, context)
    elif name in METRICS and not isinstance(node.parent, _NO_AGGREGATES):
        metric = walker.arguments.read_metric(name, node.meta["start"])
        surroundings = {attribute: getattr(context, attribute) for attribute in _SURROUNDINGS}
        walker.metrics.append(replace(metric, **surroundings))
    elif find_form(name) is not None:
        _read_form(walker, node, require_span(node), context)
    is_conditional = name in CONDITIONAL_FUNCTIONS
    inner_context = replace(
        context,
        depth=context.depth + 1,
        in_try=context.in_try or name == "try",
        must_be_stable=context.must_be_stable or name == "try",
        is_always_evaluated=context.is_always_evaluated and not is_conditional,
    )
    walker.walk_children(node, inner_context)


def _read_call(walker: Walker, node: exp.Expr, function: str, context: WalkContext) -> None:
    # This span excludes an OVER after the call.
    call_span = walker.arguments.find_call_span(node.meta["start"])
    call = walker.arguments.read_call(function, call_span)
    if call is None:
        return
    is_indexed = isinstance(node.parent, exp.Bracket) and node.parent.this is node
    may_have_key = is_indexed and function in ("predict_proba", "predict_leaf")
    key = walker.arguments.find_key_after(call_span) if may_have_key else None
    call_in_context = replace(
        call,
        **{attribute: getattr(context, attribute) for attribute in _SURROUNDINGS},
        span=call_span if key is None else Span(call_span.start, key.span.end),
        key=key,
        local_names=walker.arguments.find_local_names(call_span, context.local_names),
        has_local_names=bool(context.local_names),
        has_windows=context.clause == "QUALIFY" and _has_window(node),
        is_source=isinstance(node.parent, exp.Table | exp.Lateral),
        comparison=None if is_indexed and key is None else walker.comparisons.get(id(node)),
    )
    walker.calls.append(call_in_context)


_NO_AGGREGATES = (exp.Table, exp.Lateral, exp.UserDefinedFunction, exp.Create)
"""Parents of a name with brackets that is a table, or is defined there."""

_SURROUNDINGS = tuple(field.name for field in fields(Surroundings))


def _has_window(node: exp.Expr) -> bool:
    """Return whether a call's arguments contain a window function outside of nested queries."""
    nodes = node.walk(prune=lambda inner: isinstance(inner, exp.Query))
    return any(isinstance(inner, exp.Window) for inner in nodes)


def _read_form(walker: Walker, node: exp.Expr, form_span: Span, context: WalkContext) -> None:
    """Record a table form that is used as one value instead of as a table."""
    has_rows = not FORMS[find_form(node.name) or fold(node.name)].has_model
    is_form = has_rows or (node.expressions and isinstance(node.expressions[0], ModelName))
    if is_form and context.clause in _SCALAR_CLAUSES:
        walker.scalar_forms.add(form_span.start)


_SCALAR_CLAUSES = frozenset("SELECT WHERE GROUP HAVING QUALIFY ORDER LIMIT".split())

_CONDITION_PARENTS = (
    *(exp.Where, exp.Having, exp.Qualify, exp.Join, exp.Filter, exp.Ordered),
    *(exp.And, exp.Or, exp.Not, exp.Paren, exp.Case, exp.If),
    *(exp.Select, exp.Alias, exp.Anonymous, exp.Tuple),
)
"""Types of parents under which the engines and sqlglot parse a comparison alike.

They parse `a > 0 = b > 1` differently, for example, since they rank these operators differently.
"""


def _is_condition(node: exp.Expr) -> bool:
    parent = node.parent
    is_synthetic = isinstance(parent, exp.Paren) and not is_in_text(parent)
    return isinstance(parent, _CONDITION_PARENTS) and not is_synthetic


def _walk_comparison(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    """Record a comparison such as `predict_proba(...) > 0.8` or `0.8 < predict_proba(...)`."""
    left, right = node.this, node.expression
    operator = _OPERATORS[type(node)]
    for side, other_side, is_reversed in ((left, right, False), (right, left, True)):
        call, bound = _strip_key(side), walker.arguments.read_number(span(other_side))
        if not (isinstance(call, exp.Anonymous) and bound is not None and _is_condition(node)):
            continue
        start, end = require_span(left).end, require_span(right).start
        operator_span = walker.arguments.find_operator(start, end, operator)
        if operator_span is not None:
            operator = REVERSED_OPERATORS[operator] if is_reversed else operator
            bounds = ((operator, bound, require_span(other_side)),)
            walker.comparisons[id(call)] = Comparison(bounds, operator_span, is_reversed)
            break
    walker.walk_children(node, context)


def _strip_key(node: exp.Expr) -> exp.Expr:
    """Return the call in `call['key']`, or any other node unchanged."""
    return node.this if isinstance(node, exp.Bracket) else node


def _walk_between(walker: Walker, node: exp.Expr, context: WalkContext) -> None:
    low, high, call = node.args.get("low"), node.args.get("high"), _strip_key(node.this)
    is_call = _is_condition(node) and isinstance(call, exp.Anonymous)
    if is_call and low is not None and high is not None and not node.args.get("symmetric"):
        low_number, high_number = map(walker.arguments.read_number, (span(low), span(high)))
        if low_number is not None and high_number is not None:
            bounds = (">=", low_number, require_span(low)), ("<=", high_number, require_span(high))
            walker.comparisons[id(call)] = Comparison(bounds)
    walker.walk_children(node, context)


RULES: Mapping[type[exp.Expr], Rule] = MappingProxyType(
    {
        exp.Lambda: _walk_lambda,
        exp.Comprehension: _walk_comprehension,
        **dict.fromkeys((exp.Or, exp.Case, exp.If), _walk_condition),
        exp.Paren: _walk_parenthesis,
        exp.Window: _walk_window,
        exp.Order: _walk_order,
        exp.Dot: _walk_dot,
        exp.Table: _walk_table,
        exp.Anonymous: _walk_function,
        **dict.fromkeys(_OPERATORS, _walk_comparison),
        exp.Between: _walk_between,
    }
)
