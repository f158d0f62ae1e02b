"""The items of a SELECT list, and the terms of a condition."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from sqlml.parsing.places import Span, span
from sqlml.planner.syntax.arguments import FUNCTIONS
from sqlml.planner.syntax.outline import Item
from sqlml.planner.syntax.walk import Reader, place_of
from sqlml.types import fold


def item_of(r: Reader, node: exp.Expr, query: Span) -> Item:
    """Return a select item of the query at a place."""
    place = place_of(node)
    if not isinstance(node, exp.Alias | exp.Aliases):
        return Item(place, None, _is_several(node))
    value, alias = place_of(node.this), span(node.args["alias"]) if node.args.get("alias") else None
    before = alias is not None and alias.start < value.start
    between = "" if alias is None else r.sql[value.end : alias.start]
    named = before or between.rstrip().upper().endswith("AS")
    used = isinstance(node, exp.Aliases) or r.is_written(fold(node.alias), query, place)
    return Item(place, node.alias or "several", _is_several(node), not used, named)


def own_name(node: exp.Expr) -> str:
    """What a select item calls itself, folded."""
    return fold(node.alias) if isinstance(node, exp.Alias) else ""


def _is_several(node: exp.Expr) -> bool:
    """Whether an item is a star or a generator, or has COLUMNS(..) outside of a model's call."""
    star = node.this if isinstance(node, exp.Column) else node
    if isinstance(star, exp.Star):
        return True
    return _called(node) in _GENERATORS or _has_columns(node)


def _has_columns(node: exp.Expr) -> bool:
    outside = node.walk(prune=lambda n: _called(n) in FUNCTIONS)
    return any(_called(part) == "columns" for part in outside)


def _called(node: exp.Expr) -> str:
    """The function that a node calls, folded."""
    return fold(node.name) if isinstance(node, exp.Anonymous) else ""


_GENERATORS = frozenset(
    "explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple".split()
)
"""Functions of Spark's that give several columns, which have names of their own."""


def _outside_of_brackets(node: exp.Expr) -> Iterator[exp.Expr]:
    """A node, and what it holds but for what stands in brackets."""
    return node.walk(prune=lambda part: isinstance(part, _IN_BRACKETS))


_IN_BRACKETS = (
    *(exp.Anonymous, exp.Cast, exp.Paren, exp.Tuple, exp.Query),
    *(exp.Array, exp.Bracket, exp.Struct),
)

MAYBE = frozenset({"coalesce", "if", "ifnull", "nullif", "try"})
"""Functions whose arguments may not be evaluated, or may fail unseen."""


def filters_of(condition: exp.Expr) -> tuple[Span, ...]:
    """The operands of the ANDs of a condition; none if another condition decides about them."""
    return () if _decides(condition) else tuple(map(place_of, terms_of(condition)))


def terms_of(condition: exp.Expr) -> list[exp.Expr]:
    """The operands of the ANDs of a condition."""
    and_ = isinstance(condition, exp.And)
    return list(condition.flatten(unnest=False)) if and_ else [condition]


def _decides(node: exp.Expr) -> bool:
    """Whether something outside of brackets may keep a part of it from being evaluated."""
    return any(
        isinstance(part, exp.Or | exp.Case | exp.If | exp.Lambda) or _called(part) in MAYBE
        for part in _outside_of_brackets(node)
    )
