"""Views and CTEs: queries that a statement reads by name, like tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sqlglot import exp

from sqlml.parsing.parse import parse_trees
from sqlml.parsing.places import Span, span
from sqlml.planner.syntax.joins import find_functions, span_without_alias
from sqlml.planner.syntax.resolved_query import analyse_query
from sqlml.types import fold


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table that FROM reads by its name.

    Attributes:
        span: the span of the table without its alias.
        alias_sql: the alias for a query that replaces the table, or "" if the table has an alias.
    """

    span: Span
    parts: tuple[str, ...]
    alias_sql: str


@dataclass(frozen=True, slots=True)
class ViewBody:
    """The query of a view.

    Attributes:
        columns: the column names that the view declares, as written, or "".
        functions: the functions that the query calls, except functions that sqlglot knows.
    """

    sql: str
    columns: str
    tables: tuple[NamedTable, ...]
    functions: frozenset[str]


@analyse_query(default=())
def find_named_tables(sql: str) -> tuple[NamedTable, ...]:
    """Return the tables that the DuckDB query `sql` names, except CTEs, or () if unparsable."""
    statements = parse_trees(sql)
    return tuple(_iterate_named_tables(sql, statements[0])) if len(statements) == 1 else ()


@analyse_query(default=MappingProxyType({}))
def inline_joined_cte(sql: str) -> Mapping[Span, str]:
    """Return edits that turn a DuckDB query's CTE into a subquery if only one join reads the CTE.

    Returns an empty mapping if there is no such CTE. The CTE itself remains as SELECT NULL.
    """
    statements = parse_trees(sql)
    if len(statements) != 1:
        return {}
    (tree,) = statements
    tables = [t for t in tree.find_all(exp.Table) if len(t.parts) == 1]
    cte_names = [fold(cte.alias) for cte in tree.find_all(exp.CTE)]
    for with_ in tree.find_all(exp.With):
        earlier_names = set[str]()
        for cte in with_.expressions:
            cte_name, query_span = fold(cte.alias), span(cte.this)
            uses = [t for t in tables if fold(t.name) == cte_name]
            tables_read = {fold(t.name) for t in cte.this.find_all(exp.Table) if len(t.parts) == 1}
            is_plain = not (with_.args.get("recursive") or cte.args["alias"].args.get("columns"))
            if (
                is_plain
                and cte.args.get("materialized") is None
                and len(uses) == cte_names.count(cte_name) == 1
                and isinstance(uses[0].parent, exp.Join)
                # Inside the join, names of later CTEs would resolve to other tables.
                and not tables_read & (set(cte_names) - earlier_names)
                and query_span is not None
                and (table_span := span_without_alias(sql, uses[0])) is not None
            ):
                alias = "" if uses[0].args.get("alias") else f" AS {uses[0].this.sql('duckdb')}"
                query = sql[query_span.start : query_span.end]
                return {table_span: f"({query}){alias}", query_span: "SELECT NULL"}
            earlier_names.add(cte_name)
    return {}


@analyse_query(default=None)
def read_view(statement: str) -> ViewBody | None:
    """Return the query of a DuckDB CREATE VIEW, or None if it cannot be parsed."""
    (tree,) = parse_trees(statement)
    query = tree.args.get("expression") if isinstance(tree, exp.Create) else None
    query_span = None if query is None else span(query)
    if query is None or query_span is None:
        return None
    characters = list(statement)
    for select in query.find_all(exp.Select):
        for bracket in _find_join_brackets(select):
            characters[bracket.start] = characters[bracket.end - 1] = " "
    sql = "".join(characters)[query_span.start : query_span.end]
    identifiers = tree.this.expressions if isinstance(tree.this, exp.Schema) else []
    columns = ", ".join(identifier.sql("duckdb") for identifier in identifiers)
    (parsed,) = parse_trees(sql)
    return ViewBody(sql, columns, tuple(_iterate_named_tables(sql, parsed)), find_functions(parsed))


@analyse_query(default=None)
def find_created_view(statement: str) -> tuple[str, ...] | None:
    """Return the parts of the name of the view that a DuckDB statement creates.

    Return None for other statements, and for temporary views.

    >>> find_created_view('CREATE OR REPLACE VIEW shop."v" AS SELECT 1')
    ('shop', 'v')
    >>> find_created_view("CREATE TEMP VIEW v AS SELECT 1") is None
    True
    """
    (tree,) = parse_trees(statement)
    if not isinstance(tree, exp.Create) or tree.kind != "VIEW":
        return None
    table = tree.this if isinstance(tree.this, exp.Table) else tree.this.this
    is_stored = tree.find(exp.TemporaryProperty) is None and isinstance(table, exp.Table)
    return tuple(part.name for part in table.parts) if is_stored else None


def _find_join_brackets(select: exp.Select) -> Iterator[Span]:
    """Yield the brackets that DuckDB writes around joins.

    They group joins from left to right, which is the default order without brackets.
    """
    from_ = select.args.get("from_")
    table = None if from_ is None else from_.this
    if select.args.get("joins"):
        return  # More joins follow after the bracket.
    while isinstance(table, exp.Subquery) and not table.args.get("alias"):
        table_span = span(table)
        if not isinstance(table.this, exp.Table | exp.Subquery) or table_span is None:
            return
        yield table_span
        table = table.this


def _iterate_named_tables(sql: str, tree: exp.Expr) -> Iterator[NamedTable]:
    cte_names = {fold(cte.alias) for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        is_cte = len(table.parts) == 1 and fold(table.name) in cte_names
        if is_cte or not all(isinstance(part, exp.Identifier) for part in table.parts):
            continue
        table_span, name_span = span(table), span_without_alias(sql, table)
        # The starts differ in `TABLE t` and `alias: t`.
        if table_span and name_span and table_span.start == name_span.start:
            alias_sql = "" if table.args.get("alias") else table.this.sql("duckdb")
            yield NamedTable(name_span, tuple(part.name for part in table.parts), alias_sql)
