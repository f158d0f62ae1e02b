"""Name resolution: sqlglot's tree of a DuckDB query, in which each column names its table.

sqlglot's optimizer resolves the names in a copy in which each table has the columns that the engine
reports. The text of the query does not change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlglot import exp
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, build_scope, traverse_scope

from sqlml.errors import ParseError
from sqlml.parsing.parse import parse_trees
from sqlml.parsing.places import Span, is_in_text, merge_spans, span
from sqlml.parsing.tokens import run_deeply
from sqlml.types import fold

P = ParamSpec("P")
T = TypeVar("T")

ColumnsOf = Callable[[str], Sequence[str]]
"""A function that returns the column names of a query."""

SPAN_KEY, NAME_KEY, STAR_KEY = "sqlml_table", "sqlml_called", "sqlml_star"
"""Metadata keys for a table's span without the alias, the name of a table without an alias, and
whether a block selects a star."""


def analyse_query(
    default: Any, errors: type[Exception] = ParseError
) -> Callable[[Callable[Concatenate[str, P], T]], Callable[Concatenate[str, P], T]]:
    """Decorate an analysis of DuckDB's SQL: allow deep nesting, and return `default` on errors."""

    def decorate(analyse: Callable[Concatenate[str, P], T]) -> Callable[Concatenate[str, P], T]:
        @wraps(analyse)
        def analyse_deeply(sql: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return run_deeply(sql, "duckdb", partial(analyse, sql, *args, **kwargs))
            except errors:
                return default  # type: ignore[no-any-return]

        return analyse_deeply

    return decorate


_is_resolving = ContextVar("is_resolving", default=False)
logging.getLogger("sqlglot").addFilter(lambda _: not _is_resolving.get())


@contextmanager
def _silence_sqlglot() -> Iterator[None]:
    """Suppress sqlglot's warnings about unresolved names, which the caller handles."""
    token = _is_resolving.set(True)
    try:
        yield
    finally:
        _is_resolving.reset(token)


@_silence_sqlglot()
def resolve_query(
    sql: str,
    columns_of: ColumnsOf,
    extra_items: Mapping[Span, Sequence[str]],
    ignored_calls: Sequence[Span],
) -> tuple[str, Mapping[Span, tuple[str, ...]], Scope]:
    """Resolve the names in the query `sql`, in which calls at `ignored_calls` become NULL.

    `extra_items` maps the span of a block to SQL expressions that the block selects in addition.
    Returns the prefix of the added names, the added names keyed by block, and the root scope.
    Raises ParseError, SqlglotError or ValueError for a query that is not supported.
    """
    (tree,) = parse_trees(sql)
    _check_supported(tree)
    _replace_calls_with_null(tree, ignored_calls)
    schema: dict[str, object] = {}
    used_names = [sql]
    for n, table in enumerate(_find_tables(tree)):
        table_span = table_name_span(table)
        if table_span is None:
            raise ValueError("a table has no span")
        column_names = columns_of(f"SELECT * FROM {sql[table_span.start : table_span.end]}")
        schema[f"t{n}"] = dict.fromkeys(column_names, "UNKNOWN")
        _rename_table(table, f"t{n}", table_span)
        used_names += column_names
    prefix = "sqlml_"
    while any(prefix in fold(name) for name in used_names):
        prefix += "_"
    added_names = {b: _add_items(tree, b, prefix, items) for b, items in extra_items.items()}
    for select in tree.find_all(exp.Select):
        select.meta[STAR_KEY] = any(item.find(exp.Star) for item in select.expressions)
    qualified = qualify(
        tree,
        schema=schema,
        dialect="duckdb",
        quote_identifiers=False,
        validate_qualify_columns=False,
    )
    for coalesce in list(qualified.find_all(exp.Coalesce)):
        if _is_using_column(coalesce):
            coalesce.replace(coalesce.this)
    root = build_scope(qualified)
    if root is None:
        raise ValueError("the statement is not a query")
    return prefix, added_names, root


def _is_using_column(node: exp.Coalesce) -> bool:
    """Return whether a node is the COALESCE into which `qualify` turns a column of USING."""
    if is_in_text(node) or SPAN_KEY in node.meta or not isinstance(node.this, exp.Column):
        return False
    return all(isinstance(c, exp.Column) and c.name == node.this.name for c in node.expressions)


def _add_items(tree: exp.Expr, block: Span, prefix: str, items: Sequence[str]) -> tuple[str, ...]:
    """Add SQL expressions to the SELECT list of a block, and return the names of their columns."""
    select = next((s for s in tree.find_all(exp.Select) if span(s) == block), None)
    if select is None:
        raise ValueError("the block is not in the tree")
    names = tuple(f"{prefix}{n}" for n in range(len(items)))
    for name, item_sql in zip(names, items, strict=True):
        (query,) = parse_trees(f"SELECT {item_sql}")
        (item,) = query.expressions
        for node in item.walk():
            node.meta.clear()  # The node has no span in the statement.
        select.append("expressions", exp.alias_(item, name, quoted=True))
    return names


def _check_supported(tree: exp.Expr) -> None:
    """Raise ValueError if FROM contains anything but tables, subqueries and their joins."""
    if tree.find(exp.Pivot) is not None:
        raise ValueError("PIVOT is not supported")
    if any(not isinstance(join.parent, exp.Select) for join in tree.find_all(exp.Join)):
        raise ValueError("joins in brackets are not supported")
    for select in tree.find_all(exp.Select):
        for clause in (select.args.get("from_"), *(select.args.get("joins") or ())):
            table = None if clause is None else clause.this
            is_lateral = isinstance(table, exp.Lateral) and isinstance(table.this, exp.Subquery)
            if table is None or isinstance(table, exp.Subquery) or is_lateral:
                continue
            if not isinstance(table, exp.Table) or table.find(exp.Column) is not None:
                raise ValueError("a table function of earlier tables is not supported")


def _replace_calls_with_null(tree: exp.Expr, spans: Sequence[Span]) -> None:
    starts = {call_span.start for call_span in spans}
    for call in list(tree.find_all(exp.Anonymous)):
        if call.meta.get("start") in starts or (p := span(call)) is not None and p.start in starts:
            call.replace(exp.Null())


def _find_tables(tree: exp.Expr) -> list[exp.Table]:
    sources = (source for scope in traverse_scope(tree) for source in scope.sources.values())
    return list({id(s): s for s in sources if isinstance(s, exp.Table)}.values())


def table_name_span(table: exp.Table) -> Span | None:
    """Return the span of a table, file or table function without its alias."""
    return Span(*table.meta[SPAN_KEY]) if SPAN_KEY in table.meta else merge_spans(table.parts)


def _rename_table(table: exp.Table, name: str, name_span: Span) -> None:
    table.meta[SPAN_KEY] = name_span.start, name_span.end
    if not table.alias:
        table.meta[NAME_KEY] = table.this.sql("duckdb") if table.name else ""
        table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
    table.set("this", exp.to_identifier(name))
    table.set("db", None)
    table.set("catalog", None)
