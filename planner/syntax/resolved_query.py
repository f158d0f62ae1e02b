"""`resolved`: a DuckDB query as sqlglot's tree in which each column has its table.

sqlglot's optimizer resolves the names, in a tree in which each table has the columns that the
engine says. The text of the query stays as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from sqlglot import exp
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, build_scope, traverse_scope

from sqlml.parsing.parse import trees
from sqlml.parsing.places import Span, is_written, span
from sqlml.types import fold

ColumnsOf = Callable[[str], Sequence[str]]
"""The names of the columns of a query."""

PLACE, CALLED, STAR = "sqlml_table", "sqlml_called", "sqlml_star"
"""What the tree keeps of a table: its place without the alias, and its name if it has no alias; and
of a block whether it selects a star."""


def resolved(
    sql: str,
    columns: ColumnsOf,
    more: Mapping[Span, Sequence[str]],
    without: Sequence[Span],
) -> tuple[str, Mapping[Span, tuple[str, ...]], Scope]:
    """How the names of added items begin, these names by block, and the query.

    Args:
        more: expressions that a block, by its place, is to select besides its own.
        without: the places of calls that count for nothing.

    Raises:
        ParseError, SqlglotError, ValueError: it cannot be followed.
    """
    (tree,) = trees(sql)
    _check_followed(tree)
    with _quiet():
        return _resolved(sql, tree, columns, more, without)


def _resolved(
    sql: str,
    tree: exp.Expr,
    columns: ColumnsOf,
    more: Mapping[Span, Sequence[str]],
    without: Sequence[Span],
) -> tuple[str, Mapping[Span, tuple[str, ...]], Scope]:
    _take_out(tree, without)
    schema: dict[str, object] = {}
    known = [sql]
    for number, table in enumerate(_tables(tree)):
        place = named_place(table)
        if place is None:
            raise ValueError("a table without a place")
        written = sql[place.start : place.end]
        names = columns(f"SELECT * FROM {written}")
        schema[f"t{number}"] = dict.fromkeys(names, "UNKNOWN")
        _rename(table, f"t{number}", place)
        known += names
    prefix = _unused("sqlml_", known)
    added = {place: _select(tree, place, prefix, texts) for place, texts in more.items()}
    for select in tree.find_all(exp.Select):
        select.meta[STAR] = any(item.find(exp.Star) for item in select.expressions)
    made = qualify(
        tree,
        schema=schema,
        dialect="duckdb",
        quote_identifiers=False,
        validate_qualify_columns=False,
    )
    for joined in list(made.find_all(exp.Coalesce)):
        if not is_written(joined) and joined.meta.get(PLACE) is None:
            if isinstance(joined.this, exp.Column) and _is_of_using(joined):
                joined.replace(joined.this)
    whole = build_scope(made)
    if whole is None:
        raise ValueError("not a query")
    return prefix, added, whole


_following = ContextVar("following", default=False)
logging.getLogger("sqlglot").addFilter(lambda _: not _following.get())


@contextmanager
def _quiet() -> Iterator[None]:
    """sqlglot says nothing of what it cannot follow: nobody has asked."""
    before = _following.set(True)
    try:
        yield
    finally:
        _following.reset(before)


def _unused(prefix: str, texts: Sequence[str]) -> str:
    """A beginning of a name that nothing in some texts has."""
    while any(prefix in fold(text) for text in texts):
        prefix += "_"
    return prefix


def _is_of_using(node: exp.Coalesce) -> bool:
    """Whether it is what qualify makes of a column of USING."""
    return all(isinstance(c, exp.Column) and c.name == node.this.name for c in node.expressions)


def _select(tree: exp.Expr, place: Span, prefix: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Let the block at a place select some expressions; the names of these."""
    select = next((s for s in tree.find_all(exp.Select) if span(s) == place), None)
    if select is None:
        raise ValueError("a block that is not in the tree")
    names = tuple(f"{prefix}{n}" for n in range(len(texts)))
    for name, text in zip(names, texts, strict=True):
        (query,) = trees(f"SELECT {text}")
        (item,) = query.expressions
        for node in item.walk():
            node.meta.clear()  # it stands nowhere in the text
        select.append("expressions", exp.alias_(item, name, quoted=True))
    return names


def _check_followed(tree: exp.Expr) -> None:
    """Raise ValueError for what is in FROM but tables, subqueries and joins of these."""
    if tree.find(exp.Pivot) is not None:
        raise ValueError("a PIVOT")
    if any(not isinstance(join.parent, exp.Select) for join in tree.find_all(exp.Join)):
        raise ValueError("joins in brackets")
    for select in tree.find_all(exp.Select):
        joins = select.args.get("joins") or ()
        for made in (select.args.get("from_"), *joins):
            table = None if made is None else made.this
            lateral = isinstance(table, exp.Lateral) and isinstance(table.this, exp.Subquery)
            if table is None or isinstance(table, exp.Subquery) or lateral:
                continue
            if not isinstance(table, exp.Table) or table.find(exp.Column) is not None:
                raise ValueError("a table that depends on those before it")


def _take_out(tree: exp.Expr, places: Sequence[Span]) -> None:
    """NULL in place of the calls at some places."""
    starts = {place.start for place in places}
    for call in list(tree.find_all(exp.Anonymous)):
        if call.meta.get("start") in starts or (p := span(call)) is not None and p.start in starts:
            call.replace(exp.Null())


def _tables(tree: exp.Expr) -> list[exp.Table]:
    """The tables of the database that a query reads, each where it is named."""
    found = {}
    for scope in traverse_scope(tree):
        for source in scope.sources.values():
            if isinstance(source, exp.Table):
                found[id(source)] = source
    return list(found.values())


def named_place(table: exp.Table) -> Span | None:
    """The place of a table, a file or a table function, without its alias."""
    if PLACE in table.meta:
        return Span(*table.meta[PLACE])
    parts = [place for part in table.parts if (place := span(part)) is not None]
    return Span(parts[0].start, parts[-1].end) if parts else None


def _rename(table: exp.Table, name: str, place: Span) -> None:
    """Call a table by a name that the schema has, in the tree alone."""
    table.meta[PLACE] = place.start, place.end
    if not table.alias:
        table.meta[CALLED] = table.this.sql("duckdb") if table.name else ""
        table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
    table.set("this", exp.to_identifier(name))
    table.set("db", None)
    table.set("catalog", None)
