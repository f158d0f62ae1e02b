"""Queries that a small model can speed up: sources that become idle, and top-K queries.

A cascade runs its full model only for rows of which its small model is not sure. For other rows, a
joined table or the call of an expensive function is idle if only features that the full model
alone reads depend on it. `find_idle_sources` returns these sources.

`find_top_k` analyses a query that returns the rows with the best scores, and finds the table that
can be filtered for it::

    SELECT id FROM s LEFT JOIN a ON s.k = a.k WHERE s.y > 0 ORDER BY score(...) DESC LIMIT 20

Rows of `s` that a small model does not rank among the best can be removed before the join if each
row of `s` yields one row of the result: joins are LEFT and on unique keys, conditions use `s`
alone, and nothing combines several rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from sqlml.dialects import DUCKDB
from sqlml.parsing.parse import parse_trees
from sqlml.parsing.places import Span, is_in_text, span
from sqlml.planner.syntax.joins import find_functions, is_left_join, span_without_alias
from sqlml.planner.syntax.lineage import FeatureSource, Lineage, ReturnTypeOf, Sources, find_join
from sqlml.planner.syntax.outline_walk import iterate_children, split_conjunction
from sqlml.planner.syntax.resolved_query import NAME_KEY, ColumnsOf, analyse_query
from sqlml.types import fold


@dataclass(frozen=True, slots=True)
class CascadedCall:
    """A call that first runs a small model for each row.

    Attributes:
        block: the span of the query block that contains the call.
        features: name of a feature -> its SQL in that block.
        small_features: the names of the features that the small model reads.
    """

    call: Span
    block: Span
    features: Mapping[str, str]
    small_features: frozenset[str]


@dataclass(frozen=True, slots=True)
class CallsOfQuery:
    """The model calls of one DuckDB query, with functions that describe its tables and functions.

    Attributes:
        cascaded: the calls that run a small model first.
        other_reads: the expressions that other calls read, as pairs of a block's span and SQL.
    """

    cascaded: Sequence[CascadedCall]
    other_reads: Sequence[tuple[Span, str]]
    spans: Sequence[Span]
    columns_of: ColumnsOf
    return_type_of: ReturnTypeOf


@dataclass(frozen=True, slots=True)
class IdleSource:
    """A source that is needed only for rows for which a small model is unsure.

    Attributes:
        call_index: the index of the call in `CallsOfQuery.cascaded`.
        features: name of a feature of the small model -> its SQL in the block of the source.
    """

    source: FeatureSource
    call_index: int
    features: Mapping[str, str]


@analyse_query(default=(), errors=Exception)  # The optimizer of sqlglot may raise any exception.
def find_idle_sources(sql: str, calls: CallsOfQuery) -> Sequence[IdleSource]:
    """Return the idle sources of the query `sql`, or () if the query is not supported."""
    sources = CascadeSources(sql, calls)
    idle_sources = []
    for index in range(len(calls.cascaded)):
        for source in sources.find_idle_sources(index):
            features = sources.build_features(index, source.block, source.kind, source.table_names)
            if features is not None:
                idle_sources.append(IdleSource(source, index, features))
    return idle_sources


class CascadeSources:
    """The sources of the features of each cascaded call, and of all other expressions."""

    def __init__(self, sql: str, calls: CallsOfQuery) -> None:
        extra_items: dict[Span, list[str]] = {}
        offsets = []
        for call in calls.cascaded:
            expressions = extra_items.setdefault(call.block, [])
            offsets.append(len(expressions))
            expressions += call.features.values()
        feature_counts = {block: len(items) for block, items in extra_items.items()}
        for block, item_sql in calls.other_reads:
            extra_items.setdefault(block, []).append(item_sql)
        self._return_type_of = return_type_of = calls.return_type_of
        self.lineage = Lineage(sql, calls.columns_of, return_type_of, extra_items, calls.spans)
        self._cascaded_calls = calls.cascaded
        self._item_names = [
            self.lineage.added_names[call.block][offset : offset + len(call.features)]
            for call, offset in zip(calls.cascaded, offsets, strict=True)
        ]
        self._other_sources = _find_other_sources(self.lineage, feature_counts)
        self._sources_of_calls = [self._split_sources(n) for n in range(len(calls.cascaded))]

    def find_idle_sources(self, index: int) -> list[FeatureSource]:
        """Return the sources that only the full model of the call at `index` needs, by position."""
        full_sources, small_sources = self._sources_of_calls[index]
        idle_sources = full_sources - small_sources - self._other_sources - self.lineage.across_rows
        for i, sources in enumerate(self._sources_of_calls):
            idle_sources = idle_sources if i == index else idle_sources.difference(*sources)
        return sorted(idle_sources, key=lambda source: source.span.start)

    def build_features(
        self, index: int, block: Span, kind: str = "call", own_tables: frozenset[str] = frozenset()
    ) -> Mapping[str, str] | None:
        """Return the SQL of the small model's features in `block`, for the call at `index`.

        `block` is the block of the call, or a block nested in it. Returns None if the rows of
        `block` differ from those of the call, or if a feature cannot be computed in `block`.

        Args:
            kind: the kind of source that is computed only if the small model is not sure. For a
                "call", features may call user functions: the engine evaluates these once if a block
                selects them twice, but twice for a join. For a "subquery" or "lateral", features
                must be qualified columns of tables other than `own_tables`.
        """
        call = self._cascaded_calls[index]
        expressions: dict[str, str] = {}
        for feature, item_name in zip(call.features, self._item_names[index], strict=True):
            if feature not in call.small_features:
                continue
            node = _trace_item(self.lineage, call.block, item_name, block)
            nodes = () if node is None else node.walk()
            if node is None or not all(self._is_deterministic(n, kind == "call") for n in nodes):
                return None
            if kind in ("subquery", "lateral"):
                feature_sql = _qualify_column(node, own_tables)
            elif block == call.block:
                feature_sql = call.features[feature]
            else:
                feature_sql = _build_item_sql(self.lineage.sql, node)
            if feature_sql is None:
                return None
            expressions[feature] = feature_sql
        return expressions or None

    def _is_deterministic(self, node: exp.Expr, allow_user_functions: bool) -> bool:
        if allow_user_functions and isinstance(node, exp.Anonymous):
            return self._return_type_of(node.name) is not None
        return isinstance(node, _DETERMINISTIC_NODES)

    def _split_sources(self, index: int) -> tuple[Sources, Sources]:
        """Return the sources of features that only the full model reads, and all other sources."""
        call = self._cascaded_calls[index]
        scope = self.lineage.find_scope(call.block)
        full_sources, small_sources = set[FeatureSource](), set[FeatureSource]()
        for feature, item_name in zip(call.features, self._item_names[index], strict=True):
            item = None if scope is None else self.lineage.find_select_item(scope, item_name)
            if scope is None or item is None:
                raise ValueError("a feature has no select item")
            sources = self.lineage.find_sources(item, scope)
            (small_sources if feature in call.small_features else full_sources).update(sources)
        return frozenset(full_sources), frozenset(small_sources)


def _find_other_sources(lineage: Lineage, feature_counts: Mapping[Span, int]) -> Sources:
    """Return the sources that anything except a cascaded call needs.

    `feature_counts` maps each block to the number of items that were added for cascaded calls.
    These items are the first of the block's added items.
    """
    sources = set[FeatureSource]()
    for scope in lineage.root.traverse():
        select = scope.expression
        if not isinstance(select, exp.Select) or lineage.is_one_row_subquery(scope):
            continue
        call_items: set[str] = set()
        if (block := span(select)) is not None:
            call_items.update(lineage.added_names.get(block, ())[: feature_counts.get(block, 0)])
        is_outermost = not (scope.is_derived_table or scope.is_cte)
        needs_all_items = is_outermost or _rows_depend_on_items(lineage, select)
        if is_outermost and lineage.has_star(scope):
            sources |= lineage.find_struct_sources(scope)
        for item in select.selects:
            if item.alias_or_name not in call_items and (needs_all_items or lineage.is_added(item)):
                sources |= lineage.find_sources(item, scope)
        for key, node in iterate_children(select):
            if key not in ("expressions", "with_", "from_", "joins"):
                sources |= lineage.find_sources(node, scope)
        for join in select.args.get("joins") or ():
            if (on := join.args.get("on")) is not None:
                sources |= lineage.find_sources(on, scope) - lineage.find_join_sources(join, scope)
    return frozenset(sources)


def _rows_depend_on_items(lineage: Lineage, select: exp.Select) -> bool:
    """Return whether the items of a block determine the rows, even if nothing reads the items."""
    if select.args.get("distinct") is not None or any(map(lineage.unnests_lists, select.selects)):
        return True
    group, order = select.args.get("group"), select.args.get("order")
    if group is not None and any(v for k, v in group.args.items() if k != "expressions"):
        return True
    keys = [k for clause in (group, order) if clause is not None for k in clause.expressions]
    return not all(k.find(exp.Column, exp.Func) is not None and not _is_all_key(k) for k in keys)


def _is_all_key(key: exp.Expr) -> bool:
    key = key.this if isinstance(key, exp.Ordered) else key
    return isinstance(key, exp.Column) and not key.table and fold(key.name) == "all"


def _trace_item(lineage: Lineage, block: Span, name: str, inner_block: Span) -> exp.Expr | None:
    """Return the item `name` of `block` as an expression over the nested block `inner_block`.

    Returns None unless each row of `block` comes from one row of `inner_block`.
    """
    scope = lineage.find_scope(block)
    item = None if scope is None else lineage.find_select_item(scope, name)
    while scope is not None and item is not None and span(scope.expression) != inner_block:
        node = item.unalias()
        if not isinstance(node, exp.Column) or find_join(scope, node.table) is not None:
            return None
        inner_scope = scope.sources.get(node.table)
        if not isinstance(inner_scope, Scope) or not _is_row_by_row(inner_scope):
            return None
        scope, item = inner_scope, lineage.find_select_item(inner_scope, node.name)
    return None if item is None else item.unalias()


def _is_row_by_row(scope: Scope) -> bool:
    """Return whether a block yields exactly one row for each row that it reads."""
    select = scope.expression
    clauses = ("distinct", "group", "having", "qualify")
    if not isinstance(select, exp.Select) or any(map(select.args.get, clauses)):
        return False
    nodes = (n for i in select.selects for n in i.walk(prune=lambda n: isinstance(n, exp.Subquery)))
    return not any(isinstance(n, exp.AggFunc) for n in nodes)


_DETERMINISTIC_NODES = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.Cast),
    *(exp.DataType, exp.DataTypeParam, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Coalesce),
    exp.Dot,
)
"""Nodes of expressions that have the same value each time they are evaluated.

A small model is evaluated twice for a row: at the position of the source, and at the position of
the call. User functions are assumed to be deterministic, too.
"""


def _build_item_sql(sql: str, node: exp.Expr) -> str | None:
    """Return an expression as written in `sql`, or a qualified column if it comes from a star."""
    item_span = span(node)
    if is_in_text(node) and item_span is not None:
        return f"({sql[item_span.start : item_span.end]})"
    return _qualify_column(node)


def _qualify_column(node: exp.Expr, excluded_tables: frozenset[str] = frozenset()) -> str | None:
    """Return a column with its table's name, or None if `excluded_tables` contains that name."""
    if not isinstance(node, exp.Column) or not node.table or fold(node.table) in excluded_tables:
        return None
    return ".".join(map(DUCKDB.quote_name, (node.table, node.name)))


@dataclass(frozen=True, slots=True)
class TopK:
    """A query for the rows with the best scores of a call, and the table that may be filtered.

    Attributes:
        k: the number of best rows, including rows that OFFSET skips.
        block: the span of the query block that reads the table.
        source: the span of the table or subquery with its alias.
        alias: the alias as written, or the table's name.
        filters: the spans of the conditions on the table's rows.
        functions: the functions that the conditions call (`find_functions`).
        joins: the spans of the tables that are joined to the source on keys that must be unique.
        features: name of a feature of the small model -> its SQL over the table.
        idle_names: the names of the sources that are computed only for the remaining rows.
    """

    k: int
    block: Span
    source: Span
    source_without_alias: Span
    alias: str
    filters: tuple[Span, ...]
    functions: frozenset[str]
    joins: tuple[Span, ...]
    features: Mapping[str, str]
    idle_names: tuple[str, ...]


UNSUPPORTED_QUERY = (
    "a top-K filter needs ORDER BY <the call> DESC LIMIT <number>, without GROUP BY, DISTINCT and "
    "windows"
)
MIXED_ROWS = "a row of the first table may become several rows of the query, or none"


@analyse_query(default="this statement is too complex to analyse", errors=Exception)
def find_top_k(sql: str, calls: CallsOfQuery) -> TopK | str:
    """Return the top-K query of the only cascaded call in `sql`, or the reason for no filter."""
    (call,) = calls.cascaded
    k = _read_limit(sql, call)
    if k is None:
        return UNSUPPORTED_QUERY
    sources = CascadeSources(sql, calls)
    lineage, idle_sources = sources.lineage, sources.find_idle_sources(0)
    blocks = {source.block for source in idle_sources}
    filtered_block = next(iter(blocks)) if len(blocks) == 1 else call.block
    path = _find_path(lineage, lineage.find_scope(call.block), filtered_block)
    features = sources.build_features(0, filtered_block)
    if path is None or features is None or path[0].external_columns:
        return MIXED_ROWS
    table_names = [t.name for t in lineage.root.expression.find_all(exp.Table) if not t.db]
    upper_selects, filtered_select = [scope.expression for scope in path[:-1]], path[-1].expression
    upper_tables = [select.args["from_"].this for select in upper_selects]
    if any(isinstance(t, exp.Table) and table_names.count(t.name) > 1 for t in upper_tables):
        return "the query reads the CTE whose table would be filtered several times"
    if any(select.args.get("where") is not None for select in upper_selects):
        return "a condition stands outside of the subquery whose table would be filtered"
    source, where = filtered_select.args["from_"].this, filtered_select.args.get("where")
    source_span, without_alias = span(source), span_without_alias(sql, source)
    filter_spans = [] if where is None else list(map(span, split_conjunction(where.this)))
    join_spans = [
        span_without_alias(sql, join.this)
        for scope in path
        for join in scope.expression.args.get("joins") or ()
        if not lineage.is_lateral(join)
    ]
    if source_span is None or without_alias is None or None in join_spans or None in filter_spans:
        return MIXED_ROWS
    table_name = source.meta.get(NAME_KEY)
    return TopK(
        k,
        filtered_block,
        source_span,
        without_alias,
        str(table_name) if table_name else DUCKDB.quote_name(source.alias_or_name),
        tuple(filter_span for filter_span in filter_spans if filter_span is not None),
        frozenset() if where is None else find_functions(where.this),
        tuple(table_span for table_span in join_spans if table_span is not None),
        features,
        tuple(dict.fromkeys(source.name for source in idle_sources)),
    )


def _read_limit(sql: str, call: CascadedCall) -> int | None:
    """Return LIMIT plus OFFSET of a block, or None unless the block sorts by `call` DESC."""
    (tree,) = parse_trees(sql)
    select = next((s for s in tree.find_all(exp.Select) if span(s) == call.block), None)
    if select is None or select.find(exp.Window) or any(map(select.args.get, _CROSS_ROW_CLAUSES)):
        return None
    order, limit = select.args.get("order"), select.args.get("limit")
    if order is None or not isinstance(limit, exp.Limit) or not order.expressions:
        return None
    if limit.args.get("limit_options") is not None:  # PERCENT or WITH TIES changes the number.
        return None
    key = order.expressions[0]
    is_descending = isinstance(key, exp.Ordered) and key.args.get("desc")
    if not is_descending or not _is_order_by_call(key.this, select, call.call):
        return None
    offset = select.args.get("offset")
    limit_nodes = [limit.expression, *([] if offset is None else [offset.expression])]
    if not all(isinstance(n, exp.Literal) and n.is_int for n in limit_nodes):
        return None
    return sum(int(n.name) for n in limit_nodes)


_CROSS_ROW_CLAUSES = ("distinct", "group", "having", "qualify", "windows", "sample", "pivots")


def _is_order_by_call(node: exp.Expr, select: exp.Select, call: Span) -> bool:
    """Return whether an ORDER BY key is the call, its alias or its position in the SELECT list."""
    node = node.unnest()
    if isinstance(node, exp.Column) and not node.table:
        aliases = [i for i in select.expressions if isinstance(i, exp.Alias)]
        return any(i.alias.lower() == node.name.lower() and span(i.this) == call for i in aliases)
    if isinstance(node, exp.Literal) and node.is_int:
        index = int(node.name) - 1
        if not 0 <= index < len(select.expressions):
            return False
        if any(item.find(exp.Star) is not None for item in select.expressions[:index]):
            return False
        node = select.expressions[index].unalias()
    return span(node) == call


def _find_path(lineage: Lineage, scope: Scope | None, end_block: Span) -> list[Scope] | None:
    """Return the blocks from `scope` to `end_block`, or None if rows may be lost or repeated."""
    path: list[Scope] = []
    while scope is not None:
        path.append(scope)
        select = scope.expression
        if not isinstance(select, exp.Select) or select.args.get("from_") is None:
            return None
        joins = select.args.get("joins") or ()
        joins_keep_rows = all(is_left_join(join) or lineage.is_lateral(join) for join in joins)
        if select.args.get("laterals") or not joins_keep_rows:
            return None
        chooses_rows = any(map(select.args.get, ("limit", "offset", "order", "sample")))
        if len(path) > 1 and (chooses_rows or not _is_row_by_row(scope)):
            return None
        if span(select) == end_block:
            return path
        inner_scope = scope.sources.get(select.args["from_"].this.alias_or_name)
        scope = inner_scope if isinstance(inner_scope, Scope) else None
    return None
