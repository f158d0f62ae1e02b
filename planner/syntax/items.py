"""The items of a SELECT list, and the terms of a condition."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from sqlglot import exp

from sqlml.parsing.places import Span, hull, span
from sqlml.parsing.tokens import Tokens
from sqlml.planner.syntax.arguments import FUNCTIONS, Arguments
from sqlml.planner.syntax.outline import Block, Compared, Cte, Item, ModelCall
from sqlml.types import fold

# `Reader`: the walk over sqlglot's tree of a statement, and what is found on the way.


CLAUSES: Mapping[str, str] = MappingProxyType(
    {
        "expressions": "SELECT",
        "distinct": "SELECT",
        "from_": "FROM",
        "joins": "FROM",
        "laterals": "FROM",
        "where": "WHERE",
        "group": "GROUP",
        "having": "HAVING",
        "windows": "WINDOW",
        "qualify": "QUALIFY",
        "order": "ORDER",
        "sort": "SORT",
        "cluster": "CLUSTER",
        "distribute": "DISTRIBUTE",
        "limit": "LIMIT",
        "offset": "OFFSET",
        "sample": "USING_SAMPLE",
        "returning": "RETURNING",
    }
)
"""Where a query's node has a part -> the keyword of its clause."""


@dataclass(frozen=True, slots=True)
class At:
    """Where the walk is: what `ModelCall` says of a call there.

    `reads` is what a SELECT without a FROM clause reads. `output` is `ModelCall.output`.
    """

    block: Block | None = None
    clause: str = ""
    items: tuple[Item, ...] = ()
    names: frozenset[str] = frozenset()
    depth: int = 0
    queries: int = 0
    in_try: bool = False
    steady: bool = False
    output: Span | None = None
    asked: bool = True
    defines: bool = False
    unused: bool = False
    reads: tuple[Span, ...] = ()


Rule = Callable[["Reader", exp.Expr, At], None]
"""What a kind of node means: it walks on into the node's parts."""


class Reader:
    """What is found on the way."""

    def __init__(self, sql: str, tokens: Tokens, rules: Mapping[type[exp.Expr], Rule]) -> None:
        self.sql = sql
        self._rules = rules
        self.arguments = Arguments(sql, tokens)
        self.words = tuple((fold(t.text), t.start) for t in tokens if t.is_identifier)
        self._places: dict[str, list[int]] = {}
        for word, start in self.words:
            self._places.setdefault(word, []).append(start)
        self.calls: list[ModelCall] = []
        self.compared: dict[int, Compared] = {}
        self.values: set[int] = set()
        self.created = ""
        self.kept = False
        self.selects: list[exp.Expr] = []
        self.comparing: set[Span] = set()

    def is_written_beside(self, cte: Cte) -> bool:
        """Whether the name of a definition is written anywhere else."""
        return self.is_written(fold(cte.name), Span(0, len(self.sql)), cte.span)

    def is_written(self, word: str, place: Span, apart: Span) -> bool:
        """Whether an identifier, folded, is written at a place, but for what stands `apart`."""
        starts = self._places.get(word, ())
        first, last = bisect_left(starts, place.start), bisect_left(starts, place.end)
        # Those apart are in a row, so the first or the last is another one if any is.
        ends = [*starts[first:last][:1], *starts[first:last][-1:]]
        return any(not apart.start <= start < apart.end for start in ends)

    def walk(self, node: exp.Expr, at: At) -> None:
        """A node, by the rule of its kind."""
        rule = self._rules.get(type(node))
        if rule is not None:
            rule(self, node, at)
        else:
            self.into(node, at)

    def into(self, node: exp.Expr, at: At) -> None:
        """All that a node holds."""
        for child in node.iter_expressions():
            self.walk(child, at)

    def parts(self, node: exp.Expr, at: At, clause: Callable[[str], str]) -> None:
        """All that a query's node holds but its WITH, each in its clause."""
        for key, child in children(node):
            if key != "with_":
                self.walk(child, replace(at, clause=clause(key)))


def clause_of(key: str) -> str:
    """The keyword of the clause that a part of a query's node is, or ""."""
    return CLAUSES.get(key, "")


def children(node: exp.Expr) -> Iterable[tuple[str, exp.Expr]]:
    """All nodes that a node holds, with the names of its parts."""
    for key, value in node.args.items():
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, exp.Expr):
                yield key, child


def place_of(node: exp.Expr) -> Span:
    """Where a node stands that is in the text."""
    place = span(node)
    assert place is not None, f"{node!r} stands in the text"
    return place


def spans_of(*nodes: exp.Expr | None) -> tuple[Span, ...]:
    """Where nodes stand, of those that are there."""
    return tuple(place for node in nodes if node is not None and (place := span(node)))


def together(nodes: Iterable[exp.Expr]) -> tuple[Span, ...]:
    """One place for neighbours; none for no nodes."""
    place = hull(nodes)
    return () if place is None else (place,)


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
