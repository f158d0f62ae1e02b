"""`top_k`: a query that wants the best rows by a call, and which table may be filtered for it.

::

    SELECT id FROM s LEFT JOIN a ON s.k = a.k WHERE s.y > 0 ORDER BY score(..) DESC LIMIT 20

Rows of `s` that are not among the best by a small model can go before the join, if each row of `s`
is one of the result's: joins are LEFT and on unique keys, conditions are about `s` alone, and
nothing looks at several rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from sqlml.parsing.parse import trees
from sqlml.parsing.places import Span, is_written, span
from sqlml.parsing.tokens import deeply
from sqlml.planner.syntax.items import terms_of
from sqlml.planner.syntax.joins import functions_of
from sqlml.planner.syntax.lineage import FeatureSource, Lineage, TypeOf, is_left, joined
from sqlml.planner.syntax.resolved_query import ColumnsOf
from sqlml.types import fold

# `idle_sources`: what a query computes for the sake of cascades alone.
#
# A joined table, or a call of a function that may take long, is idle for the rows of which a
# small model is sure if nothing but features of the full model needs it.


@dataclass(frozen=True, slots=True)
class Cascaded:
    """A call that asks a small model first, and its block.

    reads: feature -> the expression that feeds it there. small: the features that the small model
    reads.
    """

    call: Span
    block: Span
    reads: Mapping[str, str]
    small: frozenset[str]


@dataclass(frozen=True, slots=True)
class IdleSource:
    """What only the rows need of which a small model is not sure.

    cascaded: the number of the call. features: of the small model, as expressions in the block of
    the source.
    """

    source: FeatureSource
    cascaded: int
    features: Mapping[str, str]


def idle_sources(
    sql: str,
    cascaded: Sequence[Cascaded],
    exact: Sequence[tuple[Span, str]],
    calls: Sequence[Span],
    columns: ColumnsOf,
    returned: TypeOf,
) -> list[IdleSource]:
    """What is idle in a DuckDB statement that is one query; nothing where it cannot be followed.

    Args:
        exact: what other calls read: a block, and an expression in it.
        calls: the places of all calls.
    """
    work = partial(_idle, sql, cascaded, exact, calls, columns, returned)
    try:
        return deeply(sql, "duckdb", work)
    except Exception:  # sqlglot's optimizer raises what it likes
        return []


def _idle(
    sql: str,
    cascaded: Sequence[Cascaded],
    exact: Sequence[tuple[Span, str]],
    calls: Sequence[Span],
    columns: ColumnsOf,
    returned: TypeOf,
) -> list[IdleSource]:
    needs = Needs(sql, cascaded, exact, calls, columns, returned)
    found = []
    for n in range(len(cascaded)):
        for source in needs.idle(n):
            features = needs.features(n, source.block, source.kind, source.names)
            if features is not None:
                found.append(IdleSource(source, n, features))
    return found


class Needs:
    """What the cascaded calls of a statement need, and what the rest of it does.

    Raises:
        ParseError, SqlglotError, ValueError: it cannot be followed.
    """

    def __init__(
        self,
        sql: str,
        cascaded: Sequence[Cascaded],
        exact: Sequence[tuple[Span, str]],
        calls: Sequence[Span],
        columns: ColumnsOf,
        returned: TypeOf,
    ) -> None:
        more: dict[Span, list[str]] = {}
        first = []
        for one in cascaded:
            texts = more.setdefault(one.block, [])
            first.append(len(texts))
            texts += one.reads.values()
        own = {block: len(texts) for block, texts in more.items()}
        for block, text in exact:
            more.setdefault(block, []).append(text)
        self.lineage = Lineage(sql, columns, returned, more, calls)
        self._returned = returned
        self._cascaded = cascaded
        self._names = [
            self.lineage.added[one.block][at : at + len(one.reads)]
            for one, at in zip(cascaded, first, strict=True)
        ]
        self._rest = _rest(self.lineage, own)
        self._of_calls = [self._needs(n) for n in range(len(cascaded))]

    def idle(self, n: int) -> list[FeatureSource]:
        """What only features of a call need that its small model does not read."""
        full, small = self._of_calls[n]
        others = (f | s for m, (f, s) in enumerate(self._of_calls) if m != n)
        left = full - small - self._rest - self.lineage.across_rows
        return sorted(left.difference(*others), key=lambda source: source.span.start)

    def features(
        self, n: int, block: Span, kind: str = "call", names: frozenset[str] = frozenset()
    ) -> Mapping[str, str] | None:
        """The features of a call's small model as expressions of its block or one below it; None
        where they cannot be written there, or where its rows are not those of the call.

        Args:
            kind: of the source that asks for them. Beside a "call" they may call functions of the
                user's: the engine evaluates them once where a block selects them twice, but for a
                join once more. In a "subquery" or "lateral" they are columns of tables by their
                names, none of which may be among `names`.
        """
        one, made = self._cascaded[n], {}
        for feature, name in zip(one.reads, self._names[n], strict=True):
            if feature not in one.small:
                continue
            node = _followed(self.lineage, one.block, name, block)
            calls = kind == "call"
            if node is None or not all(self._is_steady(part, calls) for part in node.walk()):
                return None
            if kind in ("subquery", "lateral"):
                text = _qualified(node, names)
            elif block == one.block:
                text = one.reads[feature]
            else:
                text = _text(self.lineage.sql, node)
            if text is None:
                return None
            made[feature] = text
        return made if made else None

    def _is_steady(self, node: exp.Expr, calls: bool) -> bool:
        if calls and isinstance(node, exp.Anonymous):
            return self._returned(node.name) is not None
        return isinstance(node, _STEADY)

    def _needs(self, n: int) -> tuple[Found, Found]:
        """What the features of a call need that only the full model reads, and the others."""
        one = self._cascaded[n]
        scope = self.lineage.block(one.block)
        full, small = set[FeatureSource](), set[FeatureSource]()
        for feature, name in zip(one.reads, self._names[n], strict=True):
            item = None if scope is None else self.lineage.item(scope, name)
            if scope is None or item is None:
                raise ValueError("a feature that cannot be followed")
            (small if feature in one.small else full).update(self.lineage.needs(item, scope))
        return frozenset(full), frozenset(small)


Found = frozenset[FeatureSource]


def _rest(lineage: Lineage, own: Mapping[Span, int]) -> Found:
    """What anything but a cascaded call needs.

    Args:
        own: how many of the items that were added to a block are such calls'; they come first.
    """
    found = set[FeatureSource]()
    for scope in lineage.whole.traverse():
        select = scope.expression
        if not isinstance(select, exp.Select) or lineage.is_followed(scope):
            continue
        place = span(select)
        names = lineage.added.get(place, ()) if place is not None else ()
        calls = set(names[: own.get(place, 0)]) if place is not None else set()
        whole = not (scope.is_derived_table or scope.is_cte)
        every = whole or _rows_depend_on_items(lineage, select)
        if whole and lineage.has_star(scope):
            found |= lineage.unnamed(scope)
        for item in select.selects:
            if item.alias_or_name not in calls and (every or lineage.is_added(item)):
                found |= lineage.needs(item, scope)
        for key, value in select.args.items():
            if key in ("expressions", "with_", "from_", "joins"):
                continue
            for node in value if isinstance(value, list) else [value]:
                if isinstance(node, exp.Expr):
                    found |= lineage.needs(node, scope)
        for join in select.args.get("joins") or ():
            if (on := join.args.get("on")) is not None:
                found |= lineage.needs(on, scope) - lineage.of_join(join, scope)
    return frozenset(found)


def _rows_depend_on_items(lineage: Lineage, select: exp.Select) -> bool:
    """Whether the items of a block decide which rows it has, though nobody reads them."""
    if select.args.get("distinct") is not None:
        return True
    if any(lineage.makes_rows(item) for item in select.selects):
        return True
    group, order = select.args.get("group"), select.args.get("order")
    if group is not None and any(v for k, v in group.args.items() if k != "expressions"):
        return True
    keys = [k for clause in (group, order) if clause is not None for k in clause.expressions]
    return not all(k.find(exp.Column, exp.Func) is not None and not _is_all(k) for k in keys)


def _is_all(key: exp.Expr) -> bool:
    """Whether a key of GROUP BY or ORDER BY is ALL, or stands for an item by its place."""
    key = key.this if isinstance(key, exp.Ordered) else key
    return isinstance(key, exp.Column) and not key.table and fold(key.name) == "all"


def _followed(lineage: Lineage, begin: Span, name: str, end: Span) -> exp.Expr | None:
    """What an item of a block is in another block below it, from which it takes its rows."""
    scope = lineage.block(begin)
    item = None if scope is None else lineage.item(scope, name)
    while scope is not None and item is not None and span(scope.expression) != end:
        node = item.unalias()
        if not isinstance(node, exp.Column) or joined(scope, node.table) is not None:
            return None
        below = scope.sources.get(node.table)
        if not isinstance(below, Scope) or not keeps_rows(below):
            return None
        scope, item = below, lineage.item(below, node.name)
    return None if item is None else item.unalias()


def keeps_rows(scope: Scope) -> bool:
    """Whether a block makes a row of each of its rows, whatever is in them."""
    select = scope.expression
    if not isinstance(select, exp.Select):
        return False
    if any(select.args.get(key) for key in ("distinct", "group", "having", "qualify")):
        return False
    own = (n for i in select.selects for n in i.walk(prune=lambda n: isinstance(n, exp.Subquery)))
    return not any(isinstance(n, exp.AggFunc) for n in own)


_STEADY = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.Cast),
    *(exp.DataType, exp.DataTypeParam, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Coalesce),
    exp.Dot,
)
"""Nodes of expressions that are the same whenever they are evaluated, as functions of the user's
are: a row's small model is asked where a source stands, and once more where the call stands."""


def _text(sql: str, node: exp.Expr) -> str | None:
    """An expression as its block has it, a column of a star by its table."""
    place = span(node)
    if is_written(node) and place is not None:
        return f"({sql[place.start : place.end]})"
    return _qualified(node)


def _qualified(node: exp.Expr, names: frozenset[str] = frozenset()) -> str | None:
    """A column by the name of its table, unless that is among `names`."""
    if not isinstance(node, exp.Column) or not node.table or fold(node.table) in names:
        return None
    quoted = [part.replace('"', '""') for part in (node.table, node.name)]
    return ".".join(f'"{part}"' for part in quoted)


@dataclass(frozen=True, slots=True)
class TopK:
    """The best `k` rows by a call, OFFSET included.

    Attributes:
        block: the place of the query of which it is the first table.
        source: the place of the table or subquery that may be filtered, with its alias; written:
            without it; alias: as it is written, or the table's own name.
        filters: the places of the conditions that hold for its rows; functions: that these call,
            but for what sqlglot knows.
        joins: the places of the tables that are joined to it, and must have unique keys.
        features: of the small model, as expressions over the table.
        idle: what is computed for the rows that are left alone.
    """

    k: int
    block: Span
    source: Span
    written: Span
    alias: str
    filters: tuple[Span, ...]
    functions: frozenset[str]
    joins: tuple[Span, ...]
    features: Mapping[str, str]
    idle: tuple[str, ...]


UNFIT = (
    "a top-K filter is for ORDER BY the call DESC LIMIT a number, without GROUP BY, DISTINCT and "
    "windows"
)
MIXED = "rows of the query may be several of its first table, or none"


def top_k(
    sql: str,
    call: Cascaded,
    exact: Sequence[tuple[Span, str]],
    calls: Sequence[Span],
    columns: ColumnsOf,
    returned: TypeOf,
) -> TopK | str:
    """What a DuckDB statement that is one query wants of a call; or why nothing can be filtered.

    Args:
        exact, calls: as `idle_sources` takes them.
    """
    work = partial(_top_k, sql, call, exact, calls, columns, returned)
    try:
        return deeply(sql, "duckdb", work)
    except Exception:  # sqlglot's optimizer raises what it likes
        return "this statement cannot be followed"


def _top_k(
    sql: str,
    call: Cascaded,
    exact: Sequence[tuple[Span, str]],
    calls: Sequence[Span],
    columns: ColumnsOf,
    returned: TypeOf,
) -> TopK | str:
    k = _wanted(sql, call)
    if k is None:
        return UNFIT
    needs = Needs(sql, [call], exact, calls, columns, returned)
    lineage, idle = needs.lineage, needs.idle(0)
    blocks = {source.block for source in idle}
    end = next(iter(blocks)) if len(blocks) == 1 else call.block
    path = _path(lineage, lineage.block(call.block), end)
    features = needs.features(0, end)
    if path is None or features is None or path[0].external_columns:
        return MIXED
    tables = [t.name for t in lineage.whole.expression.find_all(exp.Table) if not t.db]
    above = [block.expression.args["from_"].this for block in path[:-1]]
    if any(isinstance(t, exp.Table) and tables.count(t.name) > 1 for t in above):
        return "the query reads the CTE whose table would be filtered several times"
    last = path[-1].expression
    if any(block.expression.args.get("where") is not None for block in path[:-1]):
        return "a condition stands outside of the subquery whose table would be filtered"
    source = last.args["from_"].this
    place, written = span(source), lineage.place_of(source)
    if place is None or written is None:
        return MIXED
    where = last.args.get("where")
    filters = () if where is None else tuple(map(span, terms_of(where.this)))
    joins = [
        lineage.place_of(join.this)
        for block in path
        for join in block.expression.args.get("joins") or ()
        if not lineage.is_lateral(join)
    ]
    if None in joins or None in filters:
        return MIXED
    return TopK(
        k,
        end,
        place,
        written,
        lineage.called(source),
        tuple(p for p in filters if p is not None),
        frozenset() if where is None else functions_of(where.this),
        tuple(p for p in joins if p is not None),
        features,
        tuple(dict.fromkeys(source.name for source in idle)),
    )


def _wanted(sql: str, call: Cascaded) -> int | None:
    """How many of the best rows by a call its block wants; None if it wants others."""
    (tree,) = trees(sql)
    select = next((s for s in tree.find_all(exp.Select) if span(s) == call.block), None)
    if select is None or any(select.args.get(k) for k in _OF_SEVERAL_ROWS):
        return None
    if select.find(exp.Window) is not None:
        return None
    order, limit = select.args.get("order"), select.args.get("limit")
    if order is None or not isinstance(limit, exp.Limit) or not order.expressions:
        return None
    if limit.args.get("limit_options") is not None:  # PERCENT, WITH TIES
        return None
    first = order.expressions[0]
    if not isinstance(first, exp.Ordered) or not first.args.get("desc"):
        return None
    if not _is_call(first.this, select, call.call):
        return None
    offset = select.args.get("offset")
    rows = [limit.expression, *([] if offset is None else [offset.expression])]
    if not all(isinstance(n, exp.Literal) and n.is_int for n in rows):
        return None
    return sum(int(n.name) for n in rows)


_OF_SEVERAL_ROWS = ("distinct", "group", "having", "qualify", "windows", "sample", "pivots")


def _is_call(node: exp.Expr, select: exp.Select, call: Span) -> bool:
    """Whether a key of ORDER BY is the call, a select item that is, or its number."""
    node = node.unnest()
    if isinstance(node, exp.Column) and not node.table:
        named = [i for i in select.expressions if isinstance(i, exp.Alias)]
        return any(i.alias.lower() == node.name.lower() and span(i.this) == call for i in named)
    if isinstance(node, exp.Literal) and node.is_int:
        place = int(node.name) - 1
        if not 0 <= place < len(select.expressions):
            return False
        if any(item.find(exp.Star) is not None for item in select.expressions[:place]):
            return False
        node = select.expressions[place].unalias()
    return span(node) == call


def _path(lineage: Lineage, begin: Scope | None, end: Span) -> list[Scope] | None:
    """The blocks from one to another below it, each of which takes its rows from the next one's;
    None if a row of theirs may be several, or none."""
    path: list[Scope] = []
    while begin is not None:
        path.append(begin)
        select = begin.expression
        if not isinstance(select, exp.Select) or select.args.get("from_") is None:
            return None
        joins = select.args.get("joins") or ()
        if not all(is_left(join) or lineage.is_lateral(join) for join in joins):
            return None
        if select.args.get("laterals"):
            return None
        if len(path) > 1 and not (keeps_rows(begin) and _takes_all(select)):
            return None
        if span(select) == end:
            return path
        below = begin.sources.get(select.args["from_"].this.alias_or_name)
        begin = below if isinstance(below, Scope) else None
    return None


def _takes_all(select: exp.Select) -> bool:
    return not any(select.args.get(key) for key in ("limit", "offset", "order", "sample"))
