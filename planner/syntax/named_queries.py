"""What stands for a table in a query by a name alone: the query of a view, and that of a CTE."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from sqlglot import exp

from sqlml.errors import ParseError
from sqlml.parsing.parse import trees
from sqlml.parsing.places import Span, span
from sqlml.parsing.tokens import deeply
from sqlml.planner.syntax.joins import functions_of, table_place
from sqlml.types import fold


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table of FROM by its name: its place without the alias, the parts of its name, and how the
    query calls it where that is no alias."""

    place: Span
    parts: tuple[str, ...]
    called: str


@dataclass(frozen=True, slots=True)
class ViewBody:
    """The query of a view. columns: the names that the view gives to its columns, as written, if it
    gives some. functions: that the query calls, but for what sqlglot knows."""

    sql: str
    columns: str
    tables: tuple[NamedTable, ...]
    functions: frozenset[str]


def view_body(statement: str) -> ViewBody | None:
    """The query of a CREATE VIEW of DuckDB; None where it cannot be read."""
    try:
        return deeply(statement, "duckdb", partial(_body, statement))
    except ParseError:
        return None


def named_tables(sql: str) -> tuple[NamedTable, ...]:
    """The tables that a DuckDB query names, but for CTEs; none where it cannot be read."""
    try:
        return deeply(sql, "duckdb", partial(_of_query, sql))
    except ParseError:
        return ()


def joined_cte(sql: str) -> dict[Span, str]:
    """Place -> text of a DuckDB query in which a CTE that is joined once is a subquery there.

    Nothing if there is none. The CTE itself stays without a meaning.
    """
    try:
        return deeply(sql, "duckdb", partial(_joined_cte, sql))
    except ParseError:
        return {}


def _joined_cte(sql: str) -> dict[Span, str]:
    found = trees(sql)
    if len(found) != 1:
        return {}
    (tree,) = found
    tables = [t for t in tree.find_all(exp.Table) if len(t.parts) == 1]
    every = [fold(cte.alias) for cte in tree.find_all(exp.CTE)]
    for with_ in tree.find_all(exp.With):
        before = set[str]()
        for cte in with_.expressions:
            name, inner = fold(cte.alias), span(cte.this)
            uses = [t for t in tables if fold(t.name) == name]
            read = {fold(t.name) for t in cte.this.find_all(exp.Table) if len(t.parts) == 1}
            plain = not (with_.args.get("recursive") or cte.args["alias"].args.get("columns"))
            if (
                plain
                and cte.args.get("materialized") is None
                and len(uses) == every.count(name) == 1
                and isinstance(uses[0].parent, exp.Join)
                and not read & (set(every) - before)  # there they would be other tables
                and inner is not None
                and (place := table_place(sql, uses[0])) is not None
            ):
                called = "" if uses[0].args.get("alias") else f" AS {uses[0].this.sql('duckdb')}"
                query = sql[inner.start : inner.end]
                return {place: f"({query}){called}", inner: "SELECT NULL"}
            before.add(name)
    return {}


def _of_query(sql: str) -> tuple[NamedTable, ...]:
    found = trees(sql)
    return tuple(_named(sql, found[0])) if len(found) == 1 else ()


def _body(statement: str) -> ViewBody | None:
    (tree,) = trees(statement)
    query = tree.args.get("expression") if isinstance(tree, exp.Create) else None
    place = None if query is None else span(query)
    if query is None or place is None:
        return None
    text = list(statement)
    for select in query.find_all(exp.Select):
        for bracket in _brackets_of_joins(select):
            text[bracket.start] = text[bracket.end - 1] = " "
    sql = "".join(text)[place.start : place.end]
    names = tree.this.expressions if isinstance(tree.this, exp.Schema) else []
    columns = ", ".join(name.sql("duckdb") for name in names)
    (read,) = trees(sql)
    return ViewBody(sql, columns, tuple(_named(sql, read)), functions_of(read))


def _brackets_of_joins(select: exp.Select) -> Iterator[Span]:
    """The brackets that DuckDB writes around joins: they group them from left to right, as they are
    without brackets."""
    from_ = select.args.get("from_")
    table = None if from_ is None else from_.this
    if select.args.get("joins"):
        return  # others follow behind the bracket
    while isinstance(table, exp.Subquery) and not table.args.get("alias"):
        place = span(table)
        if not isinstance(table.this, exp.Table | exp.Subquery) or place is None:
            return
        yield place
        table = table.this


def _named(sql: str, tree: exp.Expr) -> Iterator[NamedTable]:
    ctes = {fold(cte.alias) for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if not all(isinstance(part, exp.Identifier) for part in table.parts):
            continue
        if len(table.parts) == 1 and fold(table.name) in ctes:
            continue
        place = table_place(sql, table)
        if place is not None:
            called = "" if table.args.get("alias") else table.this.sql("duckdb")
            yield NamedTable(place, tuple(part.name for part in table.parts), called)
