"""Column lineage: which tables, subqueries and calls each expression of a DuckDB query depends on.

`Lineage` finds the sources of any expression in a query, and `find_feature_sources` those of the
result columns. Both follow correlated subqueries and LATERAL joins with one row per outer row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from types import MappingProxyType

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from sqlml.parsing.places import Span, is_in_text, span
from sqlml.planner.syntax.joins import is_left_join, is_unnest, span_without_alias
from sqlml.planner.syntax.outline import splice
from sqlml.planner.syntax.outline_walk import list_spans
from sqlml.planner.syntax.resolved_query import (
    NAME_KEY,
    STAR_KEY,
    ColumnsOf,
    analyse_query,
    resolve_query,
)
from sqlml.types import fold

ReturnTypeOf = Callable[[str], str | None]
"""A function that maps the name of a user's function to its return type, or other names to None."""


@dataclass(frozen=True, slots=True)
class FeatureSource:
    """A joined table, function call, correlated subquery or part of a LATERAL that feeds features.

    Attributes:
        name: the source's name in EXPLAIN.
        kind: "join", "call", "subquery" or "lateral".
        span: the span of the source, without the alias of a joined table.
        block: the span of the query block that contains the source.
        table_name: the written name of a joined table that has no alias, or else "".
        outer_spans: the spans of a subquery's references to outer columns.
        table_names: the folded names of the tables that a subquery reads.
    """

    name: str
    kind: str
    span: Span
    block: Span
    table_name: str = ""
    outer_spans: tuple[Span, ...] = ()
    table_names: frozenset[str] = frozenset()

    def build_idle_sql(self, sql: str) -> str:
        """Return SQL that replaces this source in the query `sql` by no rows or by NULL."""
        source_sql = sql[self.span.start : self.span.end]
        if self.kind == "join":
            return f"(SELECT * FROM {source_sql} LIMIT 0) {self.table_name}".rstrip()
        if self.kind == "lateral" and self.outer_spans:
            idle = {p: f"CASE WHEN false THEN {sql[p.start : p.end]} END" for p in self.outer_spans}
            return splice(sql, {}, idle, self.span)
        return f"CASE WHEN false THEN {source_sql} END"


Sources = frozenset[FeatureSource]

_NO_SOURCES: Sources = frozenset()

_EXPENSIVE_PREFIXES = (
    *("list_", "array_", "regexp_", "string_split", "str_split", "json_", "levenshtein"),
    *("damerau_levenshtein", "jaccard", "jaro_", "hamming", "editdist3"),
)
"""Name prefixes of engine functions that may be slow."""

_CHEAP_PREFIXES = ("array_agg", "json_group_")


class Lineage:
    """The columns of one DuckDB query and the sources that they depend on.

    `across_rows` holds the sources that feed an aggregate, a window or an unnested list, since one
    of their rows may affect several result rows. The arguments are those of `resolve_query`.
    """

    def __init__(
        self,
        sql: str,
        columns_of: ColumnsOf,
        return_type_of: ReturnTypeOf,
        extra_items: Mapping[Span, Sequence[str]] = MappingProxyType({}),
        ignored_calls: Sequence[Span] = (),
    ) -> None:
        self.sql = sql
        self._return_type_of = return_type_of
        self.across_rows = set[FeatureSource]()
        self._entered_scopes = set[int]()
        resolved = resolve_query(sql, columns_of, extra_items, ignored_calls)
        self._added_prefix, self.added_names, self.root = resolved
        self._laterals: dict[int, tuple[_CorrelatedSubquery, Scope]] = {}
        self._one_row_nodes = set[int]()
        for scope in self.root.traverse():
            self._laterals |= _find_laterals(sql, scope)
            subqueries = _find_subqueries(sql, scope.expression, scope)
            self._one_row_nodes |= {id(subquery.node) for subquery in subqueries}
        self._one_row_nodes |= {id(subquery.node) for subquery, _ in self._laterals.values()}

    def is_added(self, item: exp.Expr) -> bool:
        return item.alias_or_name.startswith(self._added_prefix)

    def is_one_row_subquery(self, scope: Scope) -> bool:
        """Return whether a block is a subquery that yields exactly one row per outer row."""
        return id(scope.expression.parent) in self._one_row_nodes

    def is_lateral(self, join: exp.Join) -> bool:
        """Return whether a join is a LATERAL with exactly one row for each row on the left."""
        return id(join.this) in self._laterals

    def find_scope(self, block: Span) -> Scope | None:
        return next((s for s in self.root.traverse() if span(s.expression) == block), None)

    def find_select_item(self, scope: Scope, name: str) -> exp.Expr | None:
        if not isinstance(scope.expression, exp.Select):
            return None
        return next((i for i in scope.expression.selects if i.alias_or_name == name), None)

    def find_sources(self, node: exp.Expr, scope: Scope) -> Sources:
        """Return the sources on which an expression depends."""
        sources = set[FeatureSource]()
        subqueries = _find_subqueries(self.sql, node, scope)
        for subquery in subqueries:
            name = self._get_normalized_text(subquery.span)
            sources |= self._find_subquery_sources(subquery, name, "subquery", scope)
        nodes = list(_walk_outside(node, subqueries))
        for call in self._find_expensive_calls(nodes):
            sources |= self._find_call_sources(call, scope)
        if any(map(_may_be_any_column, nodes)):
            sources |= self.find_all_sources(scope)
        sources |= self._find_sources_of_columns(nodes, scope)
        if any(isinstance(n, exp.AggFunc | exp.Window) for n in nodes):
            self.across_rows |= sources
        return frozenset(sources)

    def find_all_sources(self, scope: Scope) -> Sources:
        """Return all sources in the block of `scope` and in the blocks that this block reads.

        A column of unknown origin may depend on any of these sources.
        """
        if id(scope) in self._entered_scopes:
            return _NO_SOURCES  # The block is a CTE that reads itself.
        self._entered_scopes.add(id(scope))
        sources = set[FeatureSource]()
        for call in self._find_expensive_calls(list(scope.expression.walk())):
            sources |= self._find_call_sources(call, scope)
        for join in scope.expression.args.get("joins") or ():
            sources |= self.find_join_sources(join, scope)
        for inner_scope in scope.sources.values():
            if isinstance(inner_scope, Scope):
                sources |= self.find_all_sources(inner_scope)
        self._entered_scopes.remove(id(scope))
        return frozenset(sources)

    def _get_normalized_text(self, source_span: Span) -> str:
        """Return the text at `source_span`, with one blank for each run of whitespace."""
        return " ".join(self.sql[source_span.start : source_span.end].split())

    def _find_expensive_calls(self, nodes: Sequence[exp.Expr]) -> Iterator[exp.Anonymous]:
        """Yield the outermost calls of expensive functions among the nodes."""
        functions = (node for node in nodes if isinstance(node, exp.Anonymous))
        calls = [f for f in functions if self._find_expensive_call_type(f) is not None]
        expensive_ids = set(map(id, calls))
        for call in calls:
            if not any(id(ancestor) in expensive_ids for ancestor in _iterate_ancestors(call)):
                yield call

    def _find_subquery_sources(
        self, subquery: _CorrelatedSubquery, name: str, kind: str, scope: Scope
    ) -> Sources:
        """Return a source of `kind` for the subquery, and the sources that feed the subquery."""
        block = _get_block_span(scope)
        spans = list_spans(*subquery.outer_columns)
        source = FeatureSource(name, kind, subquery.span, block, "", spans, subquery.table_names)
        inner_sources = map(self.find_all_sources, subquery.cte_scopes)
        outer_sources = self._find_sources_of_columns(subquery.outer_columns, scope)
        return frozenset({source}).union(outer_sources, *inner_sources)

    def _find_expensive_call_type(self, call: exp.Anonymous) -> str | None:
        """Return the result type of a call that may be slow, or None if the call is cheap."""
        name = fold(call.name)
        if name.startswith(_EXPENSIVE_PREFIXES) and not name.startswith(_CHEAP_PREFIXES):
            return "ANY"
        return self._return_type_of(call.name)

    def _find_call_sources(self, call: exp.Anonymous, scope: Scope) -> Sources:
        call_span, return_type = span(call), self._find_expensive_call_type(call)
        if call_span is None or return_type is None:
            return _NO_SOURCES
        if self.sql[: call_span.start].rstrip().endswith("."):
            return _NO_SOURCES  # A call that is qualified by a schema cannot be replaced.
        block = span(call.find_ancestor(exp.Select) or scope.expression) or _get_block_span(scope)
        source = FeatureSource(self._get_normalized_text(call_span), "call", call_span, block)
        ancestors = takewhile(lambda n: not isinstance(n, exp.Select), _iterate_ancestors(call))
        if any(map(_is_unnest_call, ancestors)) and not _is_unnested_as_struct(call, return_type):
            self.across_rows.add(source)
        return frozenset({source})

    def _find_sources_of_columns(self, nodes: Iterable[exp.Expr], scope: Scope) -> Sources:
        columns = (node for node in nodes if isinstance(node, exp.Column))
        return _NO_SOURCES.union(*(self._find_column_sources(column, scope) for column in columns))

    def _find_column_sources(self, column: exp.Column, scope: Scope) -> Sources:
        """Return the join that provides a column's table, and the sources inside that table."""
        if not column.table:
            # An unqualified name is the alias of an item, as in ORDER BY.
            item = self.find_select_item(scope, column.name)
            if item is None or any(n is column for n in item.walk()):
                return self.find_all_sources(scope)
            return self.find_sources(item, scope)
        join, inner_scope = find_join(scope, column.table), scope.sources.get(column.table)
        if join is not None and self.is_lateral(join):
            return self._find_lateral_sources(join.this, column.name, scope)
        join_sources = _NO_SOURCES if join is None else self.find_join_sources(join, scope)
        if inner_scope is None:
            return join_sources | self.find_all_sources(self.root)
        if not isinstance(inner_scope, Scope):
            return join_sources
        item = self.find_select_item(inner_scope, column.name)
        if item is None:
            return join_sources | self.find_all_sources(inner_scope)
        return join_sources | self.find_sources(item, inner_scope)

    def _find_lateral_sources(self, table: exp.Expr, column_name: str, scope: Scope) -> Sources:
        """Return the sources of the column `column_name` of the LATERAL `table`.

        If the LATERAL has a FROM clause, the LATERAL itself is a source. Otherwise, the sources are
        the expensive calls in the column's expression and the sources of the expression's columns.
        """
        subquery, inner_scope = self._laterals[id(table)]
        if subquery.outer_columns:
            source_name = f"lateral {table.alias_or_name}"
            return self._find_subquery_sources(subquery, source_name, "lateral", scope)
        item, select = self.find_select_item(inner_scope, column_name), inner_scope.expression
        if item is None or not isinstance(select, exp.Select):
            return self.find_all_sources(self.root)
        nodes = list(item.walk())
        block = _get_block_span(scope)
        aliases = frozenset(fold(str(alias)) for alias in select.named_selects)
        calls = {
            FeatureSource(source.name, "lateral", source.span, block, "", (), aliases)
            for call in self._find_expensive_calls(nodes)
            for source in self._find_call_sources(call, inner_scope)
        }
        return self._find_sources_of_columns(nodes, scope) | calls

    def find_join_sources(self, join: exp.Join, scope: Scope) -> Sources:
        table_span = span_without_alias(self.sql, join.this) if is_left_join(join) else None
        if table_span is None:
            return _NO_SOURCES
        table_name = join.this.meta.get(NAME_KEY, "")
        name = f"join {join.this.alias_or_name}"
        block = _get_block_span(scope)
        return frozenset({FeatureSource(name, "join", table_span, block, table_name)})

    def find_struct_sources(self, scope: Scope) -> Sources:
        """Return the sources of structs whose fields become columns of a block.

        Either the block unnests the structs, or a star selects the fields from a subquery that
        unnests them. The syntax tree does not contain the names of these columns.
        """
        sources, stack, visited = set[FeatureSource](), [scope], set[int]()
        while stack:
            block_scope = stack.pop()
            visited.add(id(block_scope))
            select = block_scope.expression
            for item in select.selects if isinstance(select, exp.Select) else ():
                if any(map(_is_unnest_call, item.walk())):
                    sources |= self.find_all_sources(block_scope)
            if self.has_star(block_scope):
                inner_scopes = [s for s in block_scope.sources.values() if isinstance(s, Scope)]
                stack += [s for s in inner_scopes if id(s) not in visited]
        return frozenset(sources)

    def unnests_lists(self, item: exp.Expr) -> bool:
        """Return whether a select item unnests a list, which removes or repeats rows."""
        return any(is_unnest(node) and not self._is_unnested_struct(node) for node in item.walk())

    def _is_unnested_struct(self, node: exp.Expr) -> bool:
        """Return whether an UNNEST turns the struct result of a user's function into columns."""
        value = node.expressions[0] if len(node.expressions) == 1 else node.this
        return_type = self._return_type_of(value.name) if isinstance(value, exp.Anonymous) else None
        return return_type is not None and _is_unnested_as_struct(value, return_type)

    def has_star(self, scope: Scope) -> bool:
        return bool(scope.expression.meta.get(STAR_KEY))


def find_join(scope: Scope, table: str) -> exp.Join | None:
    joins = scope.expression.args.get("joins") or ()
    return next((join for join in joins if join.this.alias_or_name == table), None)


def _may_be_any_column(node: exp.Expr) -> bool:
    """Return whether a node may read any column: a star in a call, COLUMNS(...) or a whole row."""
    if isinstance(node, exp.Star):
        parent = node.parent
        is_count = isinstance(parent, exp.Anonymous) and fold(parent.name) == "count"
        return not (is_count or isinstance(parent, exp.Count | exp.Column))
    is_columns = isinstance(node, exp.Anonymous) and fold(node.name) == "columns"
    return is_columns or isinstance(node, exp.Columns | exp.Pivot | exp.TableColumn)


def _iterate_ancestors(node: exp.Expr) -> Iterator[exp.Expr]:
    parent = node.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def _is_unnest_call(node: exp.Expr | None) -> bool:
    return isinstance(node, exp.Anonymous) and fold(node.name) == "unnest"


def _is_unnested_as_struct(call: exp.Anonymous, return_type: str) -> bool:
    """Return whether UNNEST turns the result of a call into columns instead of rows."""
    is_struct = return_type.upper().startswith("STRUCT") and return_type.endswith(")")
    return is_struct and _is_unnest_call(call.parent)


def _get_block_span(scope: Scope) -> Span:
    block = span(scope.expression)
    if block is None:
        raise ValueError("the block has no span in the text")
    return block


@dataclass(frozen=True, slots=True)
class _CorrelatedSubquery:
    """A correlated subquery that has exactly one row for each outer row, for example an aggregate.

    ::

        SELECT u.id, (SELECT avg(amount) FROM orders o WHERE o.user = u.id) AS mean FROM users u
        SELECT u.id, l.mean FROM users u, LATERAL (SELECT avg(...) AS mean FROM orders ...) AS l

    If `u.id` is NULL, the engine reads no row of `orders`. For a LATERAL without FROM, all
    attributes except `node` and `table_names` are empty, since the outer query can compute the
    LATERAL.

    Attributes:
        span: the span of the subquery, including its brackets.
        outer_columns: the references to columns of outer tables.
        table_names: the folded names of the tables in the subquery's FROM.
        cte_scopes: the CTEs that the subquery reads.
    """

    node: exp.Expr
    span: Span
    outer_columns: tuple[exp.Column, ...]
    table_names: frozenset[str]
    cte_scopes: tuple[Scope, ...]


def _find_subqueries(sql: str, node: exp.Expr, scope: Scope) -> list[_CorrelatedSubquery]:
    """Return the correlated subqueries in an expression that have one row for each outer row."""
    subqueries = []
    for inner_scope in scope.subquery_scopes:
        query = inner_scope.expression.parent
        if isinstance(query, exp.Subquery) and any(n is query for n in node.walk()):
            subquery = _read_subquery(sql, query, inner_scope)
            if subquery is not None:
                subqueries.append(subquery)
    return subqueries


def _walk_outside(node: exp.Expr, subqueries: list[_CorrelatedSubquery]) -> Iterator[exp.Expr]:
    subquery_ids = {id(s.node) for s in subqueries}
    for inner_node in node.walk(prune=lambda n: id(n) in subquery_ids):
        if id(inner_node) not in subquery_ids:
            yield inner_node


def _find_laterals(sql: str, scope: Scope) -> dict[int, tuple[_CorrelatedSubquery, Scope]]:
    """Return the subquery and scope of each LATERAL that a block joins, keyed by the node's `id`.

    Raises ValueError if a LATERAL may have no row or several rows for an outer row.
    """
    laterals = {}
    for join in scope.expression.args.get("joins") or ():
        table = join.this
        table_scope = scope.sources.get(table.alias_or_name)
        if not isinstance(table_scope, Scope):
            continue
        if isinstance(table, exp.Lateral):
            inner_scopes = table_scope.subquery_scopes
            inner_scope = inner_scopes[0] if len(inner_scopes) == 1 else None
        elif isinstance(table, exp.Subquery) and table_scope.external_columns:
            inner_scope = table_scope
        else:
            continue
        subquery = None if inner_scope is None else _read_lateral(sql, join, inner_scope)
        if inner_scope is None or subquery is None:
            raise ValueError("a LATERAL may have several rows, or none")
        laterals[id(table)] = subquery, inner_scope
    return laterals


def _read_lateral(sql: str, join: exp.Join, scope: Scope) -> _CorrelatedSubquery | None:
    """Return a joined LATERAL as a subquery, or None unless it has one row per outer row."""
    query = join.this.this if isinstance(join.this, exp.Lateral) else join.this
    select, keeps_rows = scope.expression, _is_left_join_on_true(join)
    if not isinstance(query, exp.Subquery) or not isinstance(select, exp.Select):
        return None
    if any(select.args.get(key) for key in ("with_", "joins", "qualify", "windows", "distinct")):
        return None
    if not (keeps_rows or _is_cross_join(join)) or not _is_supported(scope):
        return None
    item_nodes = [list(item.walk()) for item in select.selects]
    has_row_clause = any(select.args.get(key) for key in _ROW_CLAUSES)
    if select.args.get("from_") is None:
        has_unnest = any(is_unnest(node) for nodes in item_nodes for node in nodes)
        if has_unnest or select.args.get("where") or has_row_clause:
            return None
        return _CorrelatedSubquery(query, Span(0, 0), (), frozenset(map(fold, scope.sources)), ())
    subquery = _make_subquery(sql, query, scope)
    if keeps_rows and _is_limited_to_one(select):
        return subquery
    if has_row_clause or not all(_is_one_row_item(nodes, subquery) for nodes in item_nodes):
        return None
    return subquery


_ROW_CLAUSES = ("group", "having", "limit", "offset", "sample")


def _read_subquery(sql: str, query: exp.Subquery, scope: Scope) -> _CorrelatedSubquery | None:
    """Return a subquery in an expression, or None unless it selects a single aggregate."""
    select = query.this
    if not isinstance(select, exp.Select) or len(select.selects) != 1:
        return None
    if any(select.args.get(key) for key in _NOT_ONE_ROW_CLAUSES) or not _is_supported(scope):
        return None
    subquery = _make_subquery(sql, query, scope)
    return subquery if _is_one_row_item(list(select.selects[0].walk()), subquery) else None


_NOT_ONE_ROW_CLAUSES = tuple("group having qualify windows distinct with_ limit offset".split())


def _is_supported(scope: Scope) -> bool:
    """Return whether a subquery has no nested query, and all outer columns have spans."""
    outer_columns = scope.external_columns
    has_queries = any(inner_scope is not scope for inner_scope in scope.traverse())
    return not has_queries and all(is_in_text(column) and span(column) for column in outer_columns)


def _make_subquery(sql: str, query: exp.Subquery, scope: Scope) -> _CorrelatedSubquery | None:
    """Return a subquery, or None if it reads no outer column or hides an outer table."""
    outer_columns, table_names = tuple(scope.external_columns), frozenset(map(fold, scope.sources))
    query_span = span_without_alias(sql, query)
    hides_outer_table = any(fold(column.table) in table_names for column in outer_columns)
    if query_span is None or not outer_columns or hides_outer_table:
        return None
    cte_scopes = tuple(s for s in scope.sources.values() if isinstance(s, Scope))
    return _CorrelatedSubquery(query, query_span, outer_columns, table_names, cte_scopes)


def _is_one_row_item(nodes: list[exp.Expr], subquery: _CorrelatedSubquery | None) -> bool:
    """Return whether a select item of `subquery` computes one value from all rows.

    `nodes` are the nodes of the item. They must contain an aggregate and no outer column, since the
    outer query would compute an aggregate of outer columns.
    """
    if subquery is None or not any(map(_is_aggregate, nodes)):
        return False
    outer_ids = set(map(id, subquery.outer_columns))
    return not any(isinstance(n, exp.Window) or is_unnest(n) or id(n) in outer_ids for n in nodes)


def _is_cross_join(join: exp.Join) -> bool:
    """Return whether a join is a comma or CROSS JOIN."""
    has_condition = any(join.args.get(key) for key in ("on", "using", "side", "method"))
    return not has_condition and join.args.get("kind") in (None, "", "CROSS")


def _is_left_join_on_true(join: exp.Join) -> bool:
    on = join.args.get("on")
    return isinstance(on, exp.Boolean) and bool(on.this) and is_left_join(join)


def _is_limited_to_one(select: exp.Select) -> bool:
    limit = select.args.get("limit")
    if not isinstance(limit, exp.Limit) or limit.args.get("limit_options") is not None:
        return False
    count = limit.expression
    return isinstance(count, exp.Literal) and count.this == "1" and not select.args.get("offset")


def _is_aggregate(node: exp.Expr) -> bool:
    is_function = isinstance(node, exp.Anonymous) and fold(node.name) in _AGGREGATES
    return is_function or isinstance(node, exp.AggFunc)


_AGGREGATES = frozenset(
    "any_value arg_max arg_min avg bool_and bool_or count first kurtosis last list max max_by "
    "median min min_by mode product quantile_cont quantile_disc skewness stddev stddev_pop "
    "stddev_samp string_agg sum var_pop var_samp variance".split()
)


@analyse_query(default=MappingProxyType({}), errors=Exception)
def find_feature_sources(
    sql: str, columns_of: ColumnsOf, return_type_of: ReturnTypeOf
) -> Mapping[str, Sources]:
    """Return the sources of each result column of a DuckDB query, keyed by the folded column name.

    Sources are LEFT JOINs, which remove no rows, and calls of user functions or of functions over
    lists and strings. They may be in the query itself or in subqueries and CTEs that the query
    reads. If sqlglot's optimizer fails, with any exception, the mapping is empty.
    """
    lineage = Lineage(sql, columns_of, return_type_of)
    root = lineage.root
    if not isinstance(root.expression, exp.Select):
        return {}
    items = {fold(item.alias_or_name): item for item in root.expression.selects}
    return {
        name: lineage.find_sources(items[name], root)
        if name in items
        else lineage.find_all_sources(root)
        for name in map(fold, columns_of(sql))
    }
