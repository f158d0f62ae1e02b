"""`left_joins`: the LEFT JOINs of a query whose table may have a key that is unique."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from sqlglot import exp

from sqlml.errors import ParseError
from sqlml.parsing.places import Span, span
from sqlml.parsing.recursion_limit import deeply
from sqlml.parsing.trees import trees
from sqlml.planner.syntax.items import terms_of
from sqlml.types import fold


@dataclass(frozen=True, slots=True)
class LeftJoin:
    """A LEFT JOIN: its place, and its table as written, with its names.

    before: the FROM clause up to it. keys: a column of the table -> what it is equated with, as
    written. distinct: of a subquery the columns whose values no two of its rows share. using: the
    keys are those of USING. others: where an ON has what the keys are equated with.
    """

    span: Span
    table: str
    names: frozenset[str]
    before: str
    keys: Mapping[str, str]
    distinct: frozenset[str] | None
    using: bool
    others: tuple[Span, ...] = ()


def left_joins(sql: str) -> list[LeftJoin]:
    """The LEFT JOINs of a text that is one DuckDB query, if all are by equations only; none if a
    join looks at all columns (NATURAL, POSITIONAL).
    """
    try:
        return deeply(sql, "duckdb", partial(_left_joins, sql))
    except ParseError:
        return []


def _left_joins(sql: str) -> list[LeftJoin]:
    found = trees(sql)
    if len(found) != 1 or not isinstance(found[0], exp.Query):
        return []
    joins = list(found[0].find_all(exp.Join))
    if any(str(j.args.get("method") or "").upper() in ("NATURAL", "POSITIONAL") for j in joins):
        return []
    return [made for join in joins if (made := _left_join(sql, join)) is not None]


def _left_join(sql: str, join: exp.Join) -> LeftJoin | None:
    if str(join.args.get("side") or "").upper() != "LEFT" or join.args.get("kind") not in (
        None,
        "",
        "OUTER",
    ):
        return None
    place, table, query = span(join), join.this, join.parent
    if place is None or not isinstance(query, exp.Select | exp.Table) or _has_parameter(join):
        return None
    first = query.args["from_"].this if isinstance(query, exp.Select) else query
    begin = span(first)
    alias = fold(table.alias) if table.args.get("alias") else None
    if alias is not None and table.args["alias"].args.get("columns"):
        return None
    distinct: frozenset[str] | None = None
    if isinstance(table, exp.Subquery):
        whole, names, distinct = span(table.this), set[str](), _distinct(table.this)
        written = None if whole is None else _bracketed(sql, table)
    elif isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier):
        names = {fold(table.name)}  # elsewhere it would be a CTE of this name, or the table again
        written = _parts(sql, table)
    else:
        return None
    own = alias or (next(iter(names)) if names else None)
    if own is None or written is None or begin is None:
        return None
    using = join.args.get("using")
    if using:
        keys = {fold(u.name): _text(sql, u) for u in using}
    else:
        keys = _equated(sql, join.args.get("on"), own)
    others = () if using else _others(join.args.get("on"), own)
    return LeftJoin(
        place,
        written,
        frozenset({own, *names}),
        sql[begin.start : place.start],
        keys,
        distinct,
        bool(using),
        others,
    )


def _has_parameter(join: exp.Expr) -> bool:
    """Whether a parameter, or a name of ours, stands in the join."""
    return any(
        isinstance(n, exp.Placeholder)
        or (isinstance(n, exp.Anonymous | exp.Identifier) and fold(n.name).startswith("sqlml_"))
        for n in join.walk()
    )


def _text(sql: str, node: exp.Expr) -> str:
    place = span(node)
    return "" if place is None else sql[place.start : place.end]


def _bracketed(sql: str, table: exp.Subquery) -> str | None:
    """A subquery with its brackets, without its alias."""
    whole, inner = span(table), span(table.this)
    if whole is None or inner is None:
        return None
    end = sql.find(")", inner.end)
    return sql[whole.start : end + 1] if end >= 0 else None


def _parts(sql: str, table: exp.Table) -> str | None:
    """The table's name with its schema and database, without its alias."""
    parts = [span(part) for part in table.parts]
    known = [p for p in parts if p is not None]
    return sql[known[0].start : known[-1].end] if known else None


def _equated(sql: str, condition: exp.Expr | None, own: str) -> dict[str, str]:
    """The columns c of `own.c = other.d` (or the other way round) among the terms of an AND, and
    what they are equated with.

    Nothing if there is anything but such equations: other conditions would be correct too, but
    OR and NOT are not.
    """
    keys: dict[str, str] = {}
    for term in () if condition is None else terms_of(condition):
        sides = [term.this, term.expression] if isinstance(term, exp.EQ) else []
        tables = [_table_of(side) for side in sides]
        if len(tables) != 2 or None in tables or (tables[0] == own) == (tables[1] == own):
            return {}
        mine, other = sides if tables[0] == own else sides[::-1]
        keys[fold(mine.name)] = _text(sql, other)
    return keys


def _others(condition: exp.Expr | None, own: str) -> tuple[Span, ...]:
    """The places of the sides of equations that are not of the table itself."""
    sides = [
        side
        for term in (() if condition is None else terms_of(condition))
        for side in (term.this, term.expression)
        if _table_of(side) != own
    ]
    return tuple(place for side in sides if (place := span(side)) is not None)


def _table_of(node: exp.Expr) -> str | None:
    """The table of a column `table.name`, folded."""
    if not isinstance(node, exp.Column) or node.args.get("db") or not node.table:
        return None
    return fold(node.table)


def _distinct(query: exp.Expr) -> frozenset[str]:
    """The columns whose values no two rows of a subquery share; none if that is not obvious."""
    if not isinstance(query, exp.Select):
        return frozenset()
    selected = list(map(_plain, query.expressions))
    distinct, group = query.args.get("distinct"), query.args.get("group")
    if distinct is not None:
        plain = None not in selected and not distinct.args.get("on")
        return frozenset(s for s in selected if s) if plain else frozenset()
    if group is None:
        return frozenset()
    grouped = list(map(_plain, group.expressions))
    if not grouped or any(v for k, v in group.args.items() if k != "expressions"):
        return frozenset()
    if None in grouped or not set(grouped) <= set(selected):
        return frozenset()
    return frozenset(g for g in grouped if g)


def _plain(node: exp.Expr) -> str | None:
    """The folded name of a bare column."""
    bare = isinstance(node, exp.Column) and not node.table and not isinstance(node.this, exp.Star)
    return fold(node.name) if bare else None
