"""Expressions: calls of models, and what decides about their evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from sqlglot import exp

from sqlml.parsing.places import ModelName, Span, hull, is_written, span
from sqlml.planner.syntax.arguments import FUNCTIONS
from sqlml.planner.syntax.forms import FORMS, form_of
from sqlml.planner.syntax.items import MAYBE, At, Reader, Rule, children, place_of
from sqlml.planner.syntax.outline import Compared
from sqlml.types import fold

_SIGNS: Mapping[type[exp.Expr], str] = MappingProxyType(
    {exp.GT: ">", exp.LT: "<", exp.GTE: ">=", exp.LTE: "<="}
)


TURNED: Mapping[str, str] = MappingProxyType({">": "<", "<": ">", ">=": "<=", "<=": ">="})
"""A sign -> that of the comparison the other way round."""


def _lambda(r: Reader, node: exp.Expr, at: At) -> None:
    names = at.names | {fold(name.name) for name in node.expressions}
    r.into(node, replace(at, names=names, asked=False))


def _comprehension(r: Reader, node: exp.Expr, at: At) -> None:
    held = [node.args.get("expression"), node.args.get("position")]
    names = at.names | {fold(n.name) for n in held if isinstance(n, exp.Expr)}
    r.into(node, replace(at, names=names))


def _condition(r: Reader, node: exp.Expr, at: At) -> None:
    r.into(node, replace(at, asked=False))


def _window(r: Reader, node: exp.Expr, at: At) -> None:
    """A window, and what partitions and orders its rows."""
    for key, child in children(node):
        r.walk(child, replace(at, steady=at.steady or key in ("partition_by", "order")))


def _order(r: Reader, node: exp.Expr, at: At) -> None:
    """In `f(DISTINCT a ORDER BY a)` the engine compares the two."""
    r.into(node, replace(at, steady=at.steady or isinstance(node.this, exp.Distinct)))


def _bracket(r: Reader, node: exp.Expr, at: At) -> None:
    r.into(node, replace(at, depth=at.depth + 1))


def _dot(r: Reader, node: exp.Expr, at: At) -> None:
    """`schema.predict(..)` is a user's own, and `ML.PREDICT(..)` a table form."""
    called = node.args.get("expression")
    if isinstance(called, exp.Anonymous):
        if fold(node.this.name) == "ml" and fold(called.name) in FORMS:
            _form(r, called, place_of(node), at)
        r.walk(node.this, at)
        _bracket(r, called, at)
    else:
        r.into(node, at)


def _table(r: Reader, node: exp.Expr, at: At) -> None:
    """A table, or a function that gives rows."""
    called, db = node.this, node.args.get("db")
    if isinstance(called, exp.Anonymous) and db is not None:
        if fold(db.name) == "ml" and fold(called.name) in FORMS:
            place = hull([db, called])
            assert place is not None
            _form(r, called, place, at)
    r.into(node, at)


def _anonymous(r: Reader, node: exp.Expr, at: At) -> None:
    name = fold(node.name) if isinstance(node.this, str) else ""
    if name in FUNCTIONS:
        _call(r, node, name, at)
    elif form_of(name) is not None:
        _form(r, node, place_of(node), at)
    maybe = name in MAYBE
    inside = replace(
        at,
        depth=at.depth + 1,
        in_try=at.in_try or name == "try",
        steady=at.steady or name == "try",
        asked=at.asked and not maybe,
    )
    r.into(node, inside)


def _call(r: Reader, node: exp.Expr, name: str, at: At) -> None:
    place = r.arguments.call_at(node.meta["start"])  # without an OVER after it
    read = r.arguments.of_call(name, place)
    if read is None:
        return
    indexed = isinstance(node.parent, exp.Bracket) and node.parent.this is node
    key = r.arguments.key_after(place) if indexed and name == "predict_proba" else None
    standing = replace(
        read,
        span=place if key is None else Span(place.start, key.span.end),
        key=key,
        block=at.block,
        clause=at.clause,
        items=at.items,
        local=r.arguments.local(place, at.names),
        has_local_names=bool(at.names),
        depth=at.depth,
        queries=at.queries,
        in_try=at.in_try,
        steady=at.steady,
        output=at.output,
        windows=at.clause == "QUALIFY" and _has_window(node),
        always_asked=at.asked,
        defines=at.defines,
        is_source=isinstance(node.parent, exp.Table | exp.Lateral),
        unused=at.unused,
        compared=None if indexed and key is None else r.compared.get(id(node)),
    )
    r.calls.append(standing)


def _has_window(node: exp.Expr) -> bool:
    """Whether a call's arguments have a window function, outside of queries in them."""
    inside = node.walk(prune=lambda part: isinstance(part, exp.Query))
    return any(isinstance(part, exp.Window) for part in inside)


def _form(r: Reader, node: exp.Expr, place: Span, at: At) -> None:
    has_rows = not FORMS[form_of(node.name) or fold(node.name)].has_model
    if has_rows or (node.expressions and isinstance(node.expressions[0], ModelName)):
        if at.clause in _CLAUSES_OF_VALUES:
            r.values.add(place.start)


_CLAUSES_OF_VALUES = frozenset("SELECT WHERE GROUP HAVING QUALIFY ORDER LIMIT".split())


_AROUND_CONDITIONS = (
    *(exp.Where, exp.Having, exp.Qualify, exp.Join, exp.Filter, exp.Ordered),
    *(exp.And, exp.Or, exp.Not, exp.Paren, exp.Case, exp.If),
    *(exp.Select, exp.Alias, exp.Anonymous, exp.Tuple),
)
"""What a comparison stands in where both engines and sqlglot read it alike.

Of `a > 0 = b > 1` they do not: which operator binds closer is not the same.
"""


def _is_condition(node: exp.Expr) -> bool:
    around = node.parent
    put_in = isinstance(around, exp.Paren) and not is_written(around)
    return isinstance(around, _AROUND_CONDITIONS) and not put_in


def _compared(r: Reader, node: exp.Expr, at: At) -> None:
    """`predict_proba(..) > 0.8`, `predict_proba(..)['yes'] > 0.8`, either way round."""
    left, right = node.this, node.expression
    sign = _SIGNS[type(node)]
    for side, number, turned in ((left, right, False), (right, left, True)):
        call, bound = _indexed(side), r.arguments.number(span(number))
        if not (isinstance(call, exp.Anonymous) and bound is not None and _is_condition(node)):
            continue
        place = r.arguments.sign(place_of(left).end, place_of(right).start, sign)
        if place is not None:
            meant = TURNED[sign] if turned else sign
            r.compared[id(call)] = Compared(((meant, bound, place_of(number)),), place, turned)
            break
    r.into(node, at)


def _indexed(node: exp.Expr) -> exp.Expr:
    """What a key in brackets follows; else the node itself."""
    return node.this if isinstance(node, exp.Bracket) else node


def _between(r: Reader, node: exp.Expr, at: At) -> None:
    low, high, call = node.args.get("low"), node.args.get("high"), _indexed(node.this)
    plain = _is_condition(node) and isinstance(call, exp.Anonymous)
    if plain and low is not None and high is not None and not node.args.get("symmetric"):
        bounds = r.arguments.number(span(low)), r.arguments.number(span(high))
        if bounds[0] is not None and bounds[1] is not None:
            both = (">=", bounds[0], place_of(low)), ("<=", bounds[1], place_of(high))
            r.compared[id(call)] = Compared(both)
    r.into(node, at)


RULES: Mapping[type[exp.Expr], Rule] = MappingProxyType(
    {
        exp.Lambda: _lambda,
        exp.Comprehension: _comprehension,
        exp.Or: _condition,
        exp.Case: _condition,
        exp.If: _condition,
        exp.Paren: _bracket,
        exp.Window: _window,
        exp.Order: _order,
        exp.Dot: _dot,
        exp.Table: _table,
        exp.Anonymous: _anonymous,
        **dict.fromkeys(_SIGNS, _compared),
        exp.Between: _between,
    }
)
