"""The walk over sqlglot's tree of a statement: its state, its results and helpers for its rules.

The rules are in `query_rules.py`, `change_rules.py` and `expression_rules.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from sqlglot import exp

from sqlml.parsing.places import Span, merge_spans, span
from sqlml.parsing.tokens import Tokens
from sqlml.planner.syntax.arguments import ArgumentReader
from sqlml.planner.syntax.call_options import FUNCTIONS
from sqlml.planner.syntax.outline import (
    Block,
    Comparison,
    Cte,
    Item,
    MetricCall,
    ModelCall,
    Surroundings,
)
from sqlml.types import fold

_KEYWORDS = (
    "where group having qualify order sort cluster distribute limit offset returning".split()
)
CLAUSES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("expressions", "distinct"), "SELECT"),
        **dict.fromkeys(("from_", "joins", "laterals"), "FROM"),
        **{name: name.upper() for name in _KEYWORDS},
        "windows": "WINDOW",
        "sample": "USING_SAMPLE",
    }
)
"""Name of a part of sqlglot's query node -> keyword of the clause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkContext(Surroundings):
    """The surroundings of a node, which a `ModelCall` at the node inherits.

    Attributes:
        outer_sources: the tables that a SELECT without FROM reads (Spark's `FROM t INSERT INTO ...
            SELECT`).
    """

    local_names: frozenset[str] = frozenset()
    outer_sources: tuple[Span, ...] = ()

    def enter(self, block: Block, clause: str = "") -> WalkContext:
        """Return the surroundings in a clause of the query of `block`."""
        return replace(self, block=block, clause=clause, queries=self.queries + 1)


Rule = Callable[["Walker", exp.Expr, WalkContext], None]
"""A rule for a type of node, which records what the node means and walks the children."""


class Walker:
    """A walk over the tree of a statement, which collects the contents of the outline."""

    def __init__(self, sql: str, tokens: Tokens, rules: Mapping[type[exp.Expr], Rule]) -> None:
        self.sql = sql
        self._rules = rules
        self.arguments: ArgumentReader = ArgumentReader(sql, tokens)
        identifiers = ((fold(t.text), t.start) for t in tokens if t.is_identifier)
        self.identifiers: tuple[tuple[str, int], ...] = tuple(identifiers)
        self._offsets: dict[str, list[int]] = {}
        for word, start in self.identifiers:
            self._offsets.setdefault(word, []).append(start)
        self.calls: list[ModelCall] = []
        self.metrics: list[MetricCall] = []
        self.comparisons: dict[int, Comparison] = {}
        self.scalar_forms: set[int] = set()
        self.created = ""
        self.is_stored = False
        self.selects: list[exp.Expr] = []
        self.comparing_outputs: set[Span] = set()

    def is_used_elsewhere(self, cte: Cte) -> bool:
        """Return whether the name of a CTE is written anywhere outside of the definition."""
        return self.is_written_outside(fold(cte.name), Span(0, len(self.sql)), cte.span)

    def is_written_outside(self, word: str, within: Span, excluded: Span) -> bool:
        """Return whether a folded identifier occurs in the span `within`, outside of `excluded`."""
        starts = self._offsets.get(word, ())
        first_index, end_index = bisect_left(starts, within.start), bisect_left(starts, within.end)
        # Occurrences in `excluded` are adjacent, so any other one is the first or the last.
        candidates = [*starts[first_index:end_index][:1], *starts[first_index:end_index][-1:]]
        return any(not excluded.start <= start < excluded.end for start in candidates)

    def walk(self, node: exp.Expr, context: WalkContext) -> None:
        rule = self._rules.get(type(node))
        if rule is not None:
            rule(self, node, context)
        else:
            self.walk_children(node, context)

    def walk_children(self, node: exp.Expr, context: WalkContext) -> None:
        for child in node.iter_expressions():
            self.walk(child, context)


def iterate_children(node: exp.Expr) -> Iterable[tuple[str, exp.Expr]]:
    """Yield pairs of a part of the node, such as "where", and a child in that part."""
    for key, value in node.args.items():
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, exp.Expr):
                yield key, child


def require_span(node: exp.Expr) -> Span:
    node_span = span(node)
    assert node_span is not None, f"{node!r} has no span in the text"
    return node_span


def list_spans(*nodes: exp.Expr | None) -> tuple[Span, ...]:
    return tuple(node_span for node in nodes if node is not None and (node_span := span(node)))


def find_covering_spans(nodes: Iterable[exp.Expr]) -> tuple[Span, ...]:
    """Return the span that covers the adjacent `nodes` in a 1-tuple, or () without nodes."""
    covering_span = merge_spans(nodes)
    return () if covering_span is None else (covering_span,)


def read_item(walker: Walker, node: exp.Expr, query_span: Span) -> Item:
    item_span = require_span(node)
    if not isinstance(node, exp.Alias | exp.Aliases):
        return Item(item_span, None, _may_expand(node))
    value_span = require_span(node.this)
    alias_span = span(node.args["alias"]) if node.args.get("alias") else None
    is_named = alias_span is not None and (
        alias_span.start < value_span.start
        or walker.sql[value_span.end : alias_span.start].rstrip().upper().endswith("AS")
    )
    is_used = walker.is_written_outside(fold(node.alias), query_span, item_span)
    accepts_volatile = not (is_used or isinstance(node, exp.Aliases))
    return Item(item_span, node.alias or "several", _may_expand(node), accepts_volatile, is_named)


def find_item_name(node: exp.Expr) -> str:
    """Return the folded alias of a select item, or ""."""
    return fold(node.alias) if isinstance(node, exp.Alias) else ""


_GENERATORS = frozenset(
    "explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple".split()
)
"""Spark functions that produce several columns and choose the columns' names."""


def _may_expand(node: exp.Expr) -> bool:
    """Return whether an item is a star or a generator, or contains COLUMNS outside model calls."""
    star = node.this if isinstance(node, exp.Column) else node
    if isinstance(star, exp.Star) or _find_function_name(node) in _GENERATORS:
        return True
    outer_nodes = node.walk(prune=lambda inner: _find_function_name(inner) in FUNCTIONS)
    return any(_find_function_name(inner) == "columns" for inner in outer_nodes)


def _find_function_name(node: exp.Expr) -> str:
    return fold(node.name) if isinstance(node, exp.Anonymous) else ""


_IN_BRACKETS = (
    *(exp.Anonymous, exp.Cast, exp.Paren, exp.Tuple, exp.Query),
    *(exp.Array, exp.Bracket, exp.Struct),
)

CONDITIONAL_FUNCTIONS = frozenset({"coalesce", "if", "ifnull", "nullif", "try"})
"""Functions that may skip arguments, or may hide that an argument fails."""


def list_independent_filters(condition: exp.Expr) -> tuple[Span, ...]:
    """Return the spans of the operands of ANDs, or () if OR or CASE may skip an operand."""
    may_skip_operands = any(
        isinstance(inner, exp.Or | exp.Case | exp.If | exp.Lambda)
        or _find_function_name(inner) in CONDITIONAL_FUNCTIONS
        for inner in condition.walk(prune=lambda inner: isinstance(inner, _IN_BRACKETS))
    )
    return () if may_skip_operands else tuple(map(require_span, split_conjunction(condition)))


def split_conjunction(condition: exp.Expr) -> list[exp.Expr]:
    """Return the operands of the ANDs in `condition`, except ANDs in brackets."""
    return list(condition.flatten(unnest=False)) if isinstance(condition, exp.And) else [condition]
