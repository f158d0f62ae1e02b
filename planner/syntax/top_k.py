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

from sqlml.parsing.places import Span, span
from sqlml.parsing.recursion_limit import deeply
from sqlml.parsing.trees import trees
from sqlml.planner.syntax.idle_sources import Cascaded, Needs, keeps_rows
from sqlml.planner.syntax.items import terms_of
from sqlml.planner.syntax.joins import functions_of
from sqlml.planner.syntax.lineage import Lineage, TypeOf, is_left
from sqlml.planner.syntax.resolved_query import ColumnsOf


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
