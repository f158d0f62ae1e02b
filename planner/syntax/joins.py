"""`left_joins`: the LEFT JOINs of a query whose table may have a key that is unique."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from sqlglot import exp

from sqlml.errors import ParseError
from sqlml.parsing.parse import trees
from sqlml.parsing.places import Span, span
from sqlml.parsing.tokens import deeply
from sqlml.planner.syntax.items import terms_of
from sqlml.types import fold

_USING, _BRACKET = re.compile(r"\s*USING\s*\(\s*", re.IGNORECASE), re.compile(r"\s*\)")
"""What stands before the keys of USING, and after them."""


@dataclass(frozen=True, slots=True)
class Using:
    """A USING that can become an ON.

    table: the place of the table without its alias; alias: what is written after it, with a blank;
    called: the table's name; end: of the USING. keys: its columns as written.
    """

    table: Span
    alias: str
    called: str
    end: int
    keys: tuple[str, ...]

    def as_on(self, asked: Callable[[str], str]) -> dict[Span, str]:
        """Place -> text of a join that goes by `asked(key)` in place of a key.

        The table calls its keys otherwise then, so that everywhere else they are those of the
        tables before it, as USING has it.
        """
        renamed = {key: f"sqlml_key_{n}" for n, key in enumerate(self.keys)}
        listed = ", ".join(f"{key} AS {name}" for key, name in renamed.items())
        equal = [f"{asked(key)} = {self.called}.{name}" for key, name in renamed.items()]
        begin = f"(SELECT * EXCLUDE ({', '.join(self.keys)}), {listed} FROM "
        return {
            Span(self.table.start, self.table.start): begin,
            Span(self.table.end, self.end): f"){self.alias} ON {' AND '.join(equal)}",
        }


@dataclass(frozen=True, slots=True)
class Grouped:
    """A subquery that groups by columns which it selects as they are.

    A condition about these can stand before it groups: at `place`, where another condition stands
    if that is not empty. functions: what the subquery calls, but for what sqlglot knows.
    """

    place: Span
    functions: frozenset[str]

    def where(self, text: str, condition: str) -> dict[Span, str]:
        """Place -> text of the subquery with one more condition.

        Args:
            text: what stands at `place`.
        """
        if not text:
            return {self.place: f"WHERE {condition} "}
        return {self.place: f"({text}) AND {condition}"}


@dataclass(frozen=True, slots=True)
class LeftJoin:
    """A LEFT JOIN: its place, and its table as written, with its names.

    before: the FROM clause up to it. keys: a column of the table -> what it is equated with, as
    written. distinct: of a subquery the columns whose values no two of its rows share. using: the
    keys are those of USING. others: where an ON has what the keys are equated with. as_using: the
    USING, where it can become an ON. block: the place of the query. grouped: a subquery whose rows
    are groups by the keys, and maybe other columns.
    """

    span: Span
    table: str
    names: frozenset[str]
    before: str
    keys: Mapping[str, str]
    distinct: frozenset[str] | None
    using: bool
    others: tuple[Span, ...] = ()
    as_using: Using | None = None
    block: Span | None = None
    grouped: Grouped | None = None


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
    elif _is_cte(table):
        return None
    elif isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier):
        names = {fold(table.name)}  # elsewhere it would be a CTE of this name, or the table again
        written = _parts(sql, table)
    elif isinstance(table, exp.Table) and fold(table.this.name) in FILES:
        names, written = set[str](), _parts(sql, table)
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
    others = () if using or not keys else _others(join.args["on"], own)
    return LeftJoin(
        place,
        written,
        frozenset({own, *names}),
        sql[begin.start : place.start],
        keys,
        distinct,
        bool(using),
        others,
        _using(sql, join) if using else None,
        span(query),
        _grouped(sql, table.this, keys) if distinct else None,
    )


def _grouped(sql: str, query: exp.Expr, keys: Mapping[str, str]) -> Grouped | None:
    """The subquery, if it groups by all keys, and nothing but aggregates looks at several rows."""
    group = query.args.get("group")
    if group is None or any(query.args.get(key) for key in _OF_SEVERAL_GROUPS):
        return None
    grouped = set(map(_plain, group.expressions))
    if not set(keys) <= grouped or query.find(exp.Window) is not None:
        return None
    where, first = query.args.get("where"), span(group.expressions[0])
    if where is not None:
        place = span(where.this)
    else:
        found = None if first is None else _GROUP_BY.search(sql, 0, first.start)
        place = None if found is None else Span(found.start(), found.start())
    return None if place is None else Grouped(place, functions_of(query))


def functions_of(node: exp.Expr) -> frozenset[str]:
    """The functions that an expression or query calls, by the names that the engine knows."""
    made = {call.name for call in node.find_all(exp.Anonymous)}
    made |= {"random" for _ in node.find_all(exp.Rand)} | {"uuid" for _ in node.find_all(exp.Uuid)}
    return frozenset(made)


FILES = frozenset({"read_parquet", "parquet_scan", "read_csv", "read_csv_auto", "read_json"})
"""Functions that read files, and have the same rows whenever they do."""

_GROUP_BY = re.compile(r"\bGROUP\s+BY\s*\Z", re.IGNORECASE)
_OF_SEVERAL_GROUPS = ("with_", "qualify", "windows", "limit", "offset", "sample", "pivots")


def _using(sql: str, join: exp.Join) -> Using | None:
    """The USING of a join, if nothing counts the columns of the query or names them by place."""
    table, whole = join.this, join.root()
    named = any(alias.args.get("columns") for alias in whole.find_all(exp.TableAlias))
    if named or whole.find(exp.Pivot, exp.Columns) is not None:
        return None
    name = table.args["alias"].this if table.args.get("alias") else table.this
    place, keys = span(name), [span(key) for key in join.args["using"]]
    first, of_table = keys[0], table_place(sql, table)
    if place is None or of_table is None or first is None or None in keys:
        return None
    written = [sql[key.start : key.end] for key in keys if key is not None]
    last = keys[-1]
    assert last is not None
    between = _USING.fullmatch(sql[place.end : first.start])
    closed = _BRACKET.match(sql, last.end)
    if between is None or closed is None:
        return None
    called = sql[place.start : place.end]
    alias = sql[of_table.end : place.end] or f" AS {called}"
    return Using(of_table, alias, called, closed.end(), tuple(written))


def _is_cte(table: exp.Expr) -> bool:
    """Whether a table may be a CTE, of which no keys are known."""
    if not isinstance(table, exp.Table) or table.args.get("db"):
        return False
    names = {fold(cte.alias) for cte in table.root().find_all(exp.CTE)}
    return fold(table.name) in names


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


def table_place(sql: str, table: exp.Expr) -> Span | None:
    """The place of a table or subquery of FROM without its alias."""
    begin = span(table)
    if isinstance(table, exp.Subquery):
        own = _bracketed(sql, table)
    else:
        own = _parts(sql, table) if isinstance(table, exp.Table) else None
    return None if begin is None or own is None else Span(begin.start, begin.start + len(own))


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
    for term in () if condition is None else _terms(condition):
        sides = [term.this, term.expression] if isinstance(term, exp.EQ) else []
        tables = [_table_of(side) for side in sides]
        if len(tables) != 2 or None in tables or (tables[0] == own) == (tables[1] == own):
            return {}
        mine, other = sides if tables[0] == own else sides[::-1]
        keys[fold(mine.name)] = _text(sql, other)
    return keys


def _terms(condition: exp.Expr) -> list[exp.Expr]:
    """The operands of the ANDs of a condition, of those in brackets too."""
    bare = condition.unnest()
    parts = terms_of(bare)
    return [bare] if len(parts) == 1 else [term for part in parts for term in _terms(part)]


def _others(condition: exp.Expr, own: str) -> tuple[Span, ...]:
    """The places of the sides of equations that are not of the table itself."""
    sides = [
        side
        for term in _terms(condition)
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
    if any(is_unnest(node) for item in query.expressions for node in item.walk()):
        return frozenset()  # it makes several rows of one
    names = [fold(item.alias_or_name) for item in query.expressions]
    if len(set(names)) < len(names):
        return frozenset()  # the engine calls one of two otherwise
    selected = [_column(item.unalias()) for item in query.expressions]
    distinct, group = query.args.get("distinct"), query.args.get("group")
    if distinct is not None:
        plain = None not in selected and not distinct.args.get("on")
        return frozenset(names) if plain else frozenset()
    if group is None:
        return frozenset()
    grouped = list(map(_column, group.expressions))
    if not grouped or any(v for k, v in group.args.items() if k != "expressions"):
        return frozenset()
    if None in grouped or not set(grouped) <= set(selected):
        return frozenset()
    return frozenset(n for n, column in zip(names, selected, strict=True) if column in grouped)


def is_unnest(node: exp.Expr) -> bool:
    """Whether it makes several rows of one where a query selects it."""
    made = isinstance(node, exp.Anonymous) and fold(node.name) == "unnest"
    return made or isinstance(node, exp.Unnest | exp.Explode)


def _column(node: exp.Expr) -> tuple[str, str] | None:
    """The folded names of a column's table, as written, and of the column."""
    if not isinstance(node, exp.Column) or node.args.get("db") or isinstance(node.this, exp.Star):
        return None
    return fold(node.table), fold(node.name)


def _plain(node: exp.Expr) -> str | None:
    """The folded name of a bare column."""
    bare = isinstance(node, exp.Column) and not node.table and not isinstance(node.this, exp.Star)
    return fold(node.name) if bare else None


# `first_table`: where a block's rows come from, to which other tables are joined.


@dataclass(frozen=True, slots=True)
class FirstTable:
    """The first table of FROM in a block to which a WITH clause can be added.

    Attributes:
        place: of the table with its alias; written: without it; alias: by which the block calls it.
        conditions: the places of the terms of WHERE.
        functions: that these call, but for what sqlglot knows.
    """

    place: Span
    written: Span
    alias: str
    conditions: tuple[Span, ...]
    functions: frozenset[str]


def first_table(sql: str, block: Span) -> FirstTable | None:
    """The first table of the block at a place of a DuckDB statement that is one query; None if it
    cannot be followed."""
    try:
        return deeply(sql, "duckdb", partial(_first_table, sql, block))
    except ParseError:
        return None


def _first_table(sql: str, block: Span) -> FirstTable | None:
    (tree,) = trees(sql)
    select = next((s for s in tree.find_all(exp.Select) if span(s) == block), None)
    if select is None or select.args.get("with_") is not None or select.args.get("from_") is None:
        return None
    if not isinstance(select.parent, exp.Subquery | exp.CTE | None):
        return None  # a part of a UNION takes no WITH
    table, where = select.args["from_"].this, select.args.get("where")
    named = table.args.get("alias")
    if table.args.get("sample") or (named is not None and named.args.get("columns")):
        return None
    place, written = span(table), table_place(sql, table)
    name = span(named.this if named is not None else table.this)
    if place is None or written is None or name is None:
        return None
    terms = [] if where is None else terms_of(where.this)
    conditions = [span(term) for term in terms]
    if None in conditions:
        return None
    return FirstTable(
        place,
        written,
        sql[name.start : name.end],
        tuple(c for c in conditions if c is not None),
        frozenset[str]().union(*map(functions_of, terms)),
    )
