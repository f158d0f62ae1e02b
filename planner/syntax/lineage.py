"""Column lineage: which tables, subqueries and calls each expression of a DuckDB query depends on.

`Lineage` answers this for the expressions of one query. `feature_sources` returns it for the
columns of a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from sqlml.parsing.places import Span, span
from sqlml.parsing.tokens import run_deeply
from sqlml.planner.syntax.correlated import (
    CorrelatedSubquery,
    find_correlated,
    find_laterals,
    walk_outside,
)
from sqlml.planner.syntax.joins import is_unnest
from sqlml.planner.syntax.outline import splice
from sqlml.planner.syntax.resolved_query import (
    NAME_KEY,
    STAR_KEY,
    ColumnsOf,
    resolve_query,
    table_name_span,
)
from sqlml.types import fold

ReturnTypeOf = Callable[[str], str | None]
"""A function from the name of a function to its return type; None unless the user has defined it.
"""


@dataclass(frozen=True, slots=True)
class FeatureSource:
    """A joined table, function call, correlated subquery or part of a LATERAL that feeds features.

    Attributes:
        name: its name in EXPLAIN.
        kind: "join", "call", "subquery" or "lateral".
        span: its span, for a table without the alias.
        block: the span of its query block.
        called: the name of a table without alias, as written.
        outer: the spans of a subquery's outer columns.
        names: the folded names of a subquery's own tables.
    """

    name: str
    kind: str
    span: Span
    block: Span
    table_name: str = ""
    outer: tuple[Span, ...] = ()
    names: frozenset[str] = frozenset()

    def idle_sql(self, sql: str) -> str:
        """Return the text that replaces the source in `sql` if it is not needed: no rows, or
        NULL.
        """
        written = sql[self.span.start : self.span.end]
        if self.kind == "join":
            return f"(SELECT * FROM {written} LIMIT 0) {self.table_name}".rstrip()
        if self.kind == "lateral" and self.outer:
            nulls = {p: f"CASE WHEN false THEN {sql[p.start : p.end]} END" for p in self.outer}
            return splice(sql, {}, nulls, self.span)
        return f"CASE WHEN false THEN {written} END"


_EXPENSIVE_PREFIXES = (
    *("list_", "array_", "regexp_", "string_split", "str_split", "json_", "levenshtein"),
    *("damerau_levenshtein", "jaccard", "jaro_", "hamming", "editdist3"),
)
"""Prefixes of the engine's own functions whose calls may take long."""

_CHEAP_PREFIXES = ("array_agg", "json_group_")


class Lineage:
    """The columns of one DuckDB query and the sources that they depend on.

    Args:
        extra_items: expressions that a block, given by its span, additionally selects.
        ignored_calls: the spans of calls that are ignored.

    Raises:
        ParseError, SqlglotError: the query is not supported.
    """

    def __init__(
        self,
        sql: str,
        columns: ColumnsOf,
        return_type: ReturnTypeOf,
        extra_items: Mapping[Span, Sequence[str]] = MappingProxyType({}),
        ignored_calls: Sequence[Span] = (),
    ) -> None:
        self.sql = sql
        self._return_type = return_type
        self.across_rows = set[FeatureSource]()
        self._entered = set[int]()
        self._added_prefix, self.added_names, self.root = resolve_query(
            sql, columns, extra_items, ignored_calls
        )
        self._laterals: dict[int, tuple[CorrelatedSubquery, Scope]] = {}
        self._one_row_nodes = set[int]()
        for scope in self.root.traverse():
            self._laterals |= find_laterals(sql, scope)
            self._one_row_nodes |= {
                id(s.node) for s in find_correlated(sql, scope.expression, scope)
            }
        self._one_row_nodes |= {id(subquery.node) for subquery, _ in self._laterals.values()}

    def is_added(self, item: exp.Expr) -> bool:
        """Return whether an item is one of the extra items of a block."""
        return item.alias_or_name.startswith(self._added_prefix)

    def is_one_row_subquery(self, scope: Scope) -> bool:
        """Return whether a block is a subquery or LATERAL of one row, so that only its readers need
        it.
        """
        return id(scope.expression.parent) in self._one_row_nodes

    def is_lateral(self, join: exp.Join) -> bool:
        """Return whether a join is a LATERAL that adds one row to each row."""
        return id(join.this) in self._laterals

    def find_block(self, place: Span) -> Scope | None:
        """Return the query block at a span."""
        blocks = [s for s in self.root.traverse() if span(s.expression) == place]
        return blocks[0] if blocks else None

    def find_item(self, scope: Scope, name: str) -> exp.Expr | None:
        """Return the item of a block by its name."""
        if not isinstance(scope.expression, exp.Select):
            return None
        items = scope.expression.selects
        return next((i for i in items if i.alias_or_name == name), None)

    def find_sources(self, node: exp.Expr, scope: Scope) -> frozenset[FeatureSource]:
        """Return the sources of an expression that are not computed for all columns.

        Sources of an aggregate, a window or an unnested list are also added to `across_rows`, since
        results of other rows depend on them.
        """
        sources = set[FeatureSource]()
        subqueries = find_correlated(self.sql, node, scope)
        for subquery in subqueries:
            sources.add(self._source_of_subquery(subquery, scope))
            for outer in subquery.outer:
                sources |= self._sources_of_column(outer, scope)
            for below in subquery.sources:
                sources |= self.find_all_sources(below)
        nodes = list(walk_outside(node, subqueries))
        for call in self._find_expensive_calls(nodes):
            sources |= self._sources_of_call(call, scope)
        if any(map(_may_be_any_column, nodes)):
            sources |= self.find_all_sources(scope)
        for column in nodes:
            if isinstance(column, exp.Column):
                sources |= self._sources_of_column(column, scope)
        if any(isinstance(n, exp.AggFunc | exp.Window) for n in nodes):
            self.across_rows |= sources
        return frozenset(sources)

    def find_all_sources(self, scope: Scope) -> frozenset[FeatureSource]:
        """Return the sources of all columns of a block.

        This is used if the column is unknown: a field of an unnested struct, a whole row, or an
        outer column.
        """
        if id(scope) in self._entered:
            return frozenset()  # a CTE that reads itself
        self._entered.add(id(scope))
        sources = set[FeatureSource]()
        for call in self._find_expensive_calls(list(scope.expression.walk())):
            sources |= self._sources_of_call(call, scope)
        for join in scope.expression.args.get("joins") or ():
            sources |= self.sources_of_join(join, scope)
        for below in scope.sources.values():
            if isinstance(below, Scope):
                sources |= self.find_all_sources(below)
        self._entered.remove(id(scope))
        return frozenset(sources)

    def _find_expensive_calls(self, nodes: Sequence[exp.Expr]) -> Iterator[exp.Anonymous]:
        """Yield the calls of expensive functions, without those inside another one's arguments."""
        calls = [
            n
            for n in nodes
            if isinstance(n, exp.Anonymous) and self._type_of_expensive_call(n) is not None
        ]
        expensive = set(map(id, calls))
        for call in calls:
            parent = call.parent
            while parent is not None and id(parent) not in expensive:
                parent = parent.parent
            if parent is None:
                yield call

    def _source_of_subquery(self, subquery: CorrelatedSubquery, scope: Scope) -> FeatureSource:
        written = " ".join(self.sql[subquery.span.start : subquery.span.end].split())
        return FeatureSource(
            written,
            "subquery",
            subquery.span,
            _block_span(scope),
            "",
            subquery.outer_spans,
            subquery.names,
        )

    def _type_of_expensive_call(self, call: exp.Anonymous) -> str | None:
        """Return the type of a function that may take long; None for other functions."""
        name = fold(call.name)
        if name.startswith(_EXPENSIVE_PREFIXES) and not name.startswith(_CHEAP_PREFIXES):
            return "ANY"
        return self._return_type(call.name)

    def _sources_of_call(self, call: exp.Anonymous, scope: Scope) -> set[FeatureSource]:
        call_span, return_type = span(call), self._type_of_expensive_call(call)
        if (
            call_span is None
            or return_type is None
            or self.sql[: call_span.start].rstrip().endswith(".")
        ):
            return set()  # a call qualified by a schema cannot be replaced
        written = " ".join(self.sql[call_span.start : call_span.end].split())
        block = span(call.find_ancestor(exp.Select) or scope.expression) or _block_span(scope)
        source = FeatureSource(written, "call", call_span, block)
        if _is_inside_unnest(call) and not _is_unnested_as_struct(call, return_type):
            self.across_rows.add(source)
        return {source}

    def _sources_of_column(self, column: exp.Column, scope: Scope) -> frozenset[FeatureSource]:
        if not column.table:
            # An unqualified name is the alias of an item, as in ORDER BY.
            item = self.find_item(scope, column.name)
            if item is None or any(n is column for n in item.walk()):
                return self.find_all_sources(scope)
            return self.find_sources(item, scope)
        join, below = find_join(scope, column.table), scope.sources.get(column.table)
        if join is not None and id(join.this) in self._laterals:
            return self._sources_of_lateral_column(join.this, column.name, scope)
        join_sources = (
            frozenset[FeatureSource]() if join is None else self.sources_of_join(join, scope)
        )
        if below is None:
            return join_sources | self.find_all_sources(self.root)
        if not isinstance(below, Scope):
            return join_sources
        item = self.find_item(below, column.name)
        return join_sources | (
            self.find_all_sources(below) if item is None else self.find_sources(item, below)
        )

    def _sources_of_lateral_column(
        self, table: exp.Expr, name: str, scope: Scope
    ) -> frozenset[FeatureSource]:
        subquery, inner_scope = self._laterals[id(table)]
        source_name = f"lateral {table.alias_or_name}"
        sources = set[FeatureSource]()
        block = _block_span(scope)
        if subquery.outer:
            sources.add(
                FeatureSource(
                    source_name,
                    "lateral",
                    subquery.span,
                    block,
                    "",
                    subquery.outer_spans,
                    subquery.names,
                )
            )
            for outer in subquery.outer:
                sources |= self._sources_of_column(outer, scope)
            for below in subquery.sources:
                sources |= self.find_all_sources(below)
            return frozenset(sources)
        item, select = self.find_item(inner_scope, name), inner_scope.expression
        if item is None or not isinstance(select, exp.Select):
            return self.find_all_sources(self.root)
        nodes = list(item.walk())
        aliases = frozenset(fold(str(name)) for name in select.named_selects)
        for call in self._find_expensive_calls(nodes):
            sources |= {
                FeatureSource(s.name, "lateral", s.span, block, "", (), aliases)
                for s in self._sources_of_call(call, inner_scope)
            }
        for node in nodes:
            if isinstance(node, exp.Column):
                sources |= self._sources_of_column(node, scope)
        return frozenset(sources)

    def sources_of_join(self, join: exp.Join, scope: Scope) -> frozenset[FeatureSource]:
        place = self.span_without_alias(join.this) if is_left_join(join) else None
        if place is None:
            return frozenset()
        table_name, table = join.this.meta.get(NAME_KEY, ""), join.this.alias_or_name
        return frozenset(
            {FeatureSource(f"join {table}", "join", place, _block_span(scope), table_name)}
        )

    def sources_of_unnested_structs(self, scope: Scope) -> frozenset[FeatureSource]:
        """Return the sources of structs that a block unnests, or that blocks below unnest if it
        selects them by a star.

        Their fields become columns whose names the tree does not know.
        """
        sources, stack, visited = set[FeatureSource](), [scope], set[int]()
        while stack:
            block = stack.pop()
            visited.add(id(block))
            select = block.expression
            for item in select.selects if isinstance(select, exp.Select) else ():
                if any(fold(f.name) == "unnest" for f in find_unknown_functions(item)):
                    sources |= self.find_all_sources(block)
            if self.has_star(block):
                below = [s for s in block.sources.values() if isinstance(s, Scope)]
                stack += [s for s in below if id(s) not in visited]
        return frozenset(sources)

    def makes_rows(self, item: exp.Expr) -> bool:
        """Return whether an item unnests lists, so that a row becomes several or none."""
        return any(is_unnest(node) and not self._is_unnested_struct(node) for node in item.walk())

    def _is_unnested_struct(self, node: exp.Expr) -> bool:
        """Return whether UNNEST turns the struct of a user's function into columns, and not into
        rows.
        """
        inner = node.expressions[0] if len(node.expressions) == 1 else node.this
        return_type = self._return_type(inner.name) if isinstance(inner, exp.Anonymous) else None
        return return_type is not None and _is_unnested_as_struct(inner, return_type)

    def has_star(self, scope: Scope) -> bool:
        """Return whether a block selects all columns of a table by a star."""
        return bool(scope.expression.meta.get(STAR_KEY))

    def table_sql(self, table: exp.Expr) -> str:
        """Return the name of a table or subquery in its block, as SQL."""
        name = table.meta.get(NAME_KEY)
        if name:
            return str(name)
        return exp.to_identifier(table.alias_or_name, quoted=True).sql("duckdb")

    def span_without_alias(self, table: exp.Expr) -> Span | None:
        """Return the span of a table or subquery of FROM without its alias."""
        if isinstance(table, exp.Subquery):
            outer, inner = span(table), span(table.this)
            if outer is None or inner is None:
                return None
            end = self.sql.find(")", inner.end)
            return Span(outer.start, end + 1) if end >= 0 else None
        return table_name_span(table) if isinstance(table, exp.Table) else None


def find_unknown_functions(node: exp.Expr) -> Iterator[exp.Anonymous]:
    """Yield the calls of functions that sqlglot does not know."""
    yield from node.find_all(exp.Anonymous)


def find_join(scope: Scope, table: str) -> exp.Join | None:
    """Return the join of a block that adds a table."""
    joins = scope.expression.args.get("joins") or ()
    return next((join for join in joins if join.this.alias_or_name == table), None)


def _may_be_any_column(node: exp.Expr) -> bool:
    """Return whether a node stands for unknown columns: a star in a function, COLUMNS(...) or a
    whole row.
    """
    if isinstance(node, exp.Star):
        parent = node.parent
        is_count = isinstance(parent, exp.Anonymous) and fold(parent.name) == "count"
        return not (is_count or isinstance(parent, exp.Count | exp.Column))
    is_columns = isinstance(node, exp.Anonymous) and fold(node.name) == "columns"
    return is_columns or isinstance(node, exp.Columns | exp.Pivot | exp.TableColumn)


def _is_inside_unnest(call: exp.Anonymous) -> bool:
    parent = call.parent
    while parent is not None and not isinstance(parent, exp.Select):
        if isinstance(parent, exp.Anonymous) and fold(parent.name) == "unnest":
            return True
        parent = parent.parent
    return False


def _is_unnested_as_struct(call: exp.Anonymous, return_type: str) -> bool:
    """Return whether UNNEST turns the result of a call into columns, and not into rows."""
    parent = call.parent
    is_direct = isinstance(parent, exp.Anonymous) and fold(parent.name) == "unnest"
    return is_direct and return_type.upper().startswith("STRUCT") and return_type.endswith(")")


def is_left_join(join: exp.Join) -> bool:
    return str(join.args.get("side") or "").upper() == "LEFT"


def _block_span(scope: Scope) -> Span:
    place = span(scope.expression)
    if place is None:
        raise ValueError("a block that does not stand in the text")
    return place


Sources = Mapping[str, frozenset[FeatureSource]]
"""The sources of a query's columns by folded column name."""


def find_feature_sources(sql: str, columns: ColumnsOf, return_type: ReturnTypeOf) -> Sources:
    """Return the sources of each column of a DuckDB query that are not computed for all of them.

    Sources are LEFT JOINs, which remove no rows, and calls of user functions and of functions over
    lists and texts, in the query itself and in the subqueries and CTEs that it reads. The result is
    empty if the query is not supported.
    """
    try:
        return run_deeply(sql, "duckdb", partial(_feature_sources, sql, columns, return_type))
    except Exception:  # sqlglot's optimizer may raise any exception
        return {}


def _feature_sources(sql: str, columns: ColumnsOf, return_type: ReturnTypeOf) -> Sources:
    lineage = Lineage(sql, columns, return_type)
    root = lineage.root
    if not isinstance(root.expression, exp.Select):
        return {}
    items = {fold(item.alias_or_name): item for item in root.expression.selects}
    return {
        name: lineage.find_sources(items[name], root)
        if name in items
        else lineage.find_all_sources(root)
        for name in map(fold, columns(sql))
    }
