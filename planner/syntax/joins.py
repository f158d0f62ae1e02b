"""LEFT JOINs by equations, whose tables may have a unique key, and the first table of a block."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from sqlglot import exp

from sqlml.errors import ParseError
from sqlml.parsing.parse import parse_trees
from sqlml.parsing.places import Span, span
from sqlml.parsing.tokens import run_deeply
from sqlml.planner.syntax.outline_walk import split_conjunction
from sqlml.types import fold

_USING, _BRACKET = re.compile(r"\s*USING\s*\(\s*", re.IGNORECASE), re.compile(r"\s*\)")
"""The text before the keys of USING, and that after them."""


@dataclass(frozen=True, slots=True)
class Using:
    """A USING that can become an ON.

    Attributes:
        table: the span of the table without its alias.
        alias: the text after the table, with a blank.
        name: the table's name.
        end: the end of the USING.
        keys: its columns as written.
    """

    table: Span
    alias: str
    name: str
    end: int
    keys: tuple[str, ...]

    def as_on(self, probe_key: Callable[[str], str]) -> dict[Span, str]:
        """Return edits that turn the USING into an ON which compares each key with
        `probe_key(key)`.

        The table's keys are renamed, so that everywhere else their names mean the columns of the
        earlier tables, as USING does.
        """
        renamed = {key: f"sqlml_key_{n}" for n, key in enumerate(self.keys)}
        key_list = ", ".join(f"{key} AS {name}" for key, name in renamed.items())
        equations = [f"{probe_key(key)} = {self.name}.{name}" for key, name in renamed.items()]
        begin = f"(SELECT * EXCLUDE ({', '.join(self.keys)}), {key_list} FROM "
        return {
            Span(self.table.start, self.table.start): begin,
            Span(self.table.end, self.end): f"){self.alias} ON {' AND '.join(equations)}",
        }


@dataclass(frozen=True, slots=True)
class GroupedSubquery:
    """A subquery that groups by columns which it also selects unchanged.

    A condition about these columns can be applied before it groups.

    Attributes:
        filter_span: its condition, or the empty span where a WHERE can be inserted.
        functions: the functions that it calls, except those that sqlglot knows.
    """

    filter_span: Span
    functions: frozenset[str]

    def add_condition(self, text: str, condition: str) -> dict[Span, str]:
        """Return the edit that adds a condition to the subquery.

        Args:
            text: the text at `filter_span`.
        """
        if not text:
            return {self.filter_span: f"WHERE {condition} "}
        return {self.filter_span: f"({text}) AND {condition}"}


@dataclass(frozen=True, slots=True)
class LeftJoin:
    """A LEFT JOIN by equations.

    Attributes:
        span: the join.
        table: its table as written.
        names: the names of the table.
        before: the FROM clause up to the join.
        keys: columns of the table with the expressions that they must equal, as written.
        distinct_columns: the columns of a subquery whose values are unique; None for a table.
        is_using: the join has a USING.
        other_sides: the spans of the expressions in ON that the keys must equal.
        using: the USING, if it can become an ON.
        block: the span of the query.
        grouped: the subquery, if its rows are groups by the keys and maybe other columns.
    """

    span: Span
    table: str
    names: frozenset[str]
    before: str
    keys: Mapping[str, str]
    distinct_columns: frozenset[str] | None
    is_using: bool
    other_sides: tuple[Span, ...] = ()
    using: Using | None = None
    block: Span | None = None
    grouped: GroupedSubquery | None = None


def find_left_joins(sql: str) -> list[LeftJoin]:
    """Return the LEFT JOINs by equations of a text that is one DuckDB query.

    Returns none if some join compares all columns (NATURAL) or none (POSITIONAL).
    """
    try:
        return run_deeply(sql, "duckdb", partial(_find_left_joins, sql))
    except ParseError:
        return []


def _find_left_joins(sql: str) -> list[LeftJoin]:
    statements = parse_trees(sql)
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        return []
    joins = list(statements[0].find_all(exp.Join))
    if any(str(j.args.get("method") or "").upper() in ("NATURAL", "POSITIONAL") for j in joins):
        return []
    return [left_join for join in joins if (left_join := _read_left_join(sql, join)) is not None]


def _read_left_join(sql: str, join: exp.Join) -> LeftJoin | None:
    if str(join.args.get("side") or "").upper() != "LEFT" or join.args.get("kind") not in (
        None,
        "",
        "OUTER",
    ):
        return None
    join_span, table, query = span(join), join.this, join.parent
    if (
        join_span is None
        or not isinstance(query, exp.Select | exp.Table)
        or _has_parameter_or_reserved_name(join)
    ):
        return None
    first = query.args["from_"].this if isinstance(query, exp.Select) else query
    from_span = span(first)
    alias = fold(table.alias) if table.args.get("alias") else None
    if alias is not None and table.args["alias"].args.get("columns"):
        return None
    distinct: frozenset[str] | None = None
    if isinstance(table, exp.Subquery):
        query_span, names, distinct = (
            span(table.this),
            set[str](),
            _find_distinct_columns(table.this),
        )
        written = None if query_span is None else _subquery_sql(sql, table)
    elif _may_be_cte(table):
        return None
    elif isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier):
        # Elsewhere the name could be that of a CTE, or the table could be joined again.
        names = {fold(table.name)}
        written = _table_name_sql(sql, table)
    elif isinstance(table, exp.Table) and fold(table.this.name) in FILE_FUNCTIONS:
        names, written = set[str](), _table_name_sql(sql, table)
    else:
        return None
    own_name = alias or (next(iter(names)) if names else None)
    if own_name is None or written is None or from_span is None:
        return None
    using = join.args.get("using")
    if using:
        keys = {fold(u.name): _sql_of(sql, u) for u in using}
    else:
        keys = _find_equated_keys(sql, join.args.get("on"), own_name)
    others = () if using or not keys else _find_other_sides(join.args["on"], own_name)
    return LeftJoin(
        join_span,
        written,
        frozenset({own_name, *names}),
        sql[from_span.start : join_span.start],
        keys,
        distinct,
        bool(using),
        others,
        _read_using(sql, join) if using else None,
        span(query),
        _read_grouped_subquery(sql, table.this, keys) if distinct else None,
    )


def _read_grouped_subquery(
    sql: str, query: exp.Expr, keys: Mapping[str, str]
) -> GroupedSubquery | None:
    """Return the subquery if it groups by all keys, and only its aggregates combine several
    rows.
    """
    group = query.args.get("group")
    if group is None or any(query.args.get(key) for key in _CROSS_GROUP_CLAUSES):
        return None
    grouped = set(map(_bare_column_name, group.expressions))
    if not set(keys) <= grouped or query.find(exp.Window) is not None:
        return None
    where, first = query.args.get("where"), span(group.expressions[0])
    if where is not None:
        filter_span = span(where.this)
    else:
        match = None if first is None else _GROUP_BY.search(sql, 0, first.start)
        filter_span = None if match is None else Span(match.start(), match.start())
    return None if filter_span is None else GroupedSubquery(filter_span, find_functions(query))


def find_functions(node: exp.Expr) -> frozenset[str]:
    """Return the functions that an expression or query calls, by the names that the engine
    knows.
    """
    names = {call.name for call in node.find_all(exp.Anonymous)}
    names |= {"random" for _ in node.find_all(exp.Rand)} | {"uuid" for _ in node.find_all(exp.Uuid)}
    return frozenset(names)


FILE_FUNCTIONS = frozenset(
    {"read_parquet", "parquet_scan", "read_csv", "read_csv_auto", "read_json"}
)
"""Functions that read files, and return the same rows each time."""

_GROUP_BY = re.compile(r"\bGROUP\s+BY\s*\Z", re.IGNORECASE)
_CROSS_GROUP_CLAUSES = ("with_", "qualify", "windows", "limit", "offset", "sample", "pivots")


def _read_using(sql: str, join: exp.Join) -> Using | None:
    """Return the USING of a join if nothing in the query depends on the number or order of
    columns.
    """
    table, root = join.this, join.root()
    has_column_aliases = any(alias.args.get("columns") for alias in root.find_all(exp.TableAlias))
    if has_column_aliases or root.find(exp.Pivot, exp.Columns) is not None:
        return None
    name = table.args["alias"].this if table.args.get("alias") else table.this
    name_span, keys = span(name), [span(key) for key in join.args["using"]]
    first, table_only = keys[0], span_without_alias(sql, table)
    if name_span is None or table_only is None or first is None or None in keys:
        return None
    written = [sql[key.start : key.end] for key in keys if key is not None]
    last = keys[-1]
    assert last is not None
    between = _USING.fullmatch(sql[name_span.end : first.start])
    closing_bracket = _BRACKET.match(sql, last.end)
    if between is None or closing_bracket is None:
        return None
    name_sql = sql[name_span.start : name_span.end]
    alias = sql[table_only.end : name_span.end] or f" AS {name_sql}"
    return Using(table_only, alias, name_sql, closing_bracket.end(), tuple(written))


def _may_be_cte(table: exp.Expr) -> bool:
    """Return whether a table may be a CTE, whose keys are unknown."""
    if not isinstance(table, exp.Table) or table.args.get("db"):
        return False
    names = {fold(cte.alias) for cte in table.root().find_all(exp.CTE)}
    return fold(table.name) in names


def _has_parameter_or_reserved_name(join: exp.Expr) -> bool:
    """Return whether a parameter, or a name that starts with sqlml_, is in the join."""
    return any(
        isinstance(n, exp.Placeholder)
        or (isinstance(n, exp.Anonymous | exp.Identifier) and fold(n.name).startswith("sqlml_"))
        for n in join.walk()
    )


def _sql_of(sql: str, node: exp.Expr) -> str:
    place = span(node)
    return "" if place is None else sql[place.start : place.end]


def span_without_alias(sql: str, table: exp.Expr) -> Span | None:
    """Return the span of a table or subquery of FROM without its alias."""
    begin = span(table)
    if isinstance(table, exp.Subquery):
        written = _subquery_sql(sql, table)
    else:
        written = _table_name_sql(sql, table) if isinstance(table, exp.Table) else None
    return (
        None if begin is None or written is None else Span(begin.start, begin.start + len(written))
    )


def _subquery_sql(sql: str, table: exp.Subquery) -> str | None:
    """Return a subquery with its brackets and without its alias."""
    outer, inner = span(table), span(table.this)
    if outer is None or inner is None:
        return None
    end = sql.find(")", inner.end)
    return sql[outer.start : end + 1] if end >= 0 else None


def _table_name_sql(sql: str, table: exp.Table) -> str | None:
    """Return a table's qualified name without its alias."""
    parts = [span(part) for part in table.parts]
    written = [p for p in parts if p is not None]
    return sql[written[0].start : written[-1].end] if written else None


def _find_equated_keys(sql: str, condition: exp.Expr | None, own_name: str) -> dict[str, str]:
    """Return the columns c of `own.c = other.d` among the terms of an AND, with the expressions
    that they must equal.

    Returns nothing if there is any other condition. Some would be correct too, but OR and NOT are
    not.
    """
    keys: dict[str, str] = {}
    for term in () if condition is None else _flatten_conjunction(condition):
        sides = [term.this, term.expression] if isinstance(term, exp.EQ) else []
        tables = [_table_of(side) for side in sides]
        if len(tables) != 2 or None in tables or (tables[0] == own_name) == (tables[1] == own_name):
            return {}
        mine, other = sides if tables[0] == own_name else sides[::-1]
        keys[fold(mine.name)] = _sql_of(sql, other)
    return keys


def _flatten_conjunction(condition: exp.Expr) -> list[exp.Expr]:
    """Return the operands of a condition's ANDs, including those in brackets."""
    bare = condition.unnest()
    terms = split_conjunction(bare)
    return (
        [bare]
        if len(terms) == 1
        else [term for part in terms for term in _flatten_conjunction(part)]
    )


def _find_other_sides(condition: exp.Expr, own_name: str) -> tuple[Span, ...]:
    """Return the spans of the sides of equations that do not belong to the table."""
    sides = [
        side
        for term in _flatten_conjunction(condition)
        for side in (term.this, term.expression)
        if _table_of(side) != own_name
    ]
    return tuple(place for side in sides if (place := span(side)) is not None)


def _table_of(node: exp.Expr) -> str | None:
    """Return the folded table of a column `table.name`."""
    if not isinstance(node, exp.Column) or node.args.get("db") or not node.table:
        return None
    return fold(node.table)


def _find_distinct_columns(query: exp.Expr) -> frozenset[str]:
    """Return the columns of a subquery whose values are unique; none if that is not obvious."""
    if not isinstance(query, exp.Select):
        return frozenset()
    if any(is_unnest(node) for item in query.expressions for node in item.walk()):
        return frozenset()  # UNNEST turns one row into several
    names = [fold(item.alias_or_name) for item in query.expressions]
    if len(set(names)) < len(names):
        return frozenset()  # the engine renames one of two equal names
    selected = [_column_key(item.unalias()) for item in query.expressions]
    distinct, group = query.args.get("distinct"), query.args.get("group")
    if distinct is not None:
        is_plain = None not in selected and not distinct.args.get("on")
        return frozenset(names) if is_plain else frozenset()
    if group is None:
        return frozenset()
    grouped = list(map(_column_key, group.expressions))
    if not grouped or any(v for k, v in group.args.items() if k != "expressions"):
        return frozenset()
    if None in grouped or not set(grouped) <= set(selected):
        return frozenset()
    return frozenset(n for n, column in zip(names, selected, strict=True) if column in grouped)


def is_unnest(node: exp.Expr) -> bool:
    """Return whether a node turns one row into several when a query selects it."""
    is_function = isinstance(node, exp.Anonymous) and fold(node.name) == "unnest"
    return is_function or isinstance(node, exp.Unnest | exp.Explode)


def _column_key(node: exp.Expr) -> tuple[str, str] | None:
    """Return the folded names of a column's table, as written, and of the column."""
    if not isinstance(node, exp.Column) or node.args.get("db") or isinstance(node.this, exp.Star):
        return None
    return fold(node.table), fold(node.name)


def _bare_column_name(node: exp.Expr) -> str | None:
    """Return the folded name of an unqualified column."""
    is_bare = (
        isinstance(node, exp.Column) and not node.table and not isinstance(node.this, exp.Star)
    )
    return fold(node.name) if is_bare else None


@dataclass(frozen=True, slots=True)
class FirstTable:
    """The first table of FROM in a block to which a WITH clause can be added.

    Attributes:
        span: the table with its alias.
        span_without_alias: the table.
        alias: its name in the block.
        conditions: the spans of the terms of WHERE.
        functions: the functions that these call, except those that sqlglot knows.
    """

    span: Span
    span_without_alias: Span
    alias: str
    conditions: tuple[Span, ...]
    functions: frozenset[str]


def find_first_table(sql: str, block: Span) -> FirstTable | None:
    """Return the first table of a block in a DuckDB statement that is one query.

    Returns None if the block is not supported.
    """
    try:
        return run_deeply(sql, "duckdb", partial(_find_first_table, sql, block))
    except ParseError:
        return None


def _find_first_table(sql: str, block: Span) -> FirstTable | None:
    (tree,) = parse_trees(sql)
    select = next((s for s in tree.find_all(exp.Select) if span(s) == block), None)
    if select is None or select.args.get("with_") is not None or select.args.get("from_") is None:
        return None
    if not isinstance(select.parent, exp.Subquery | exp.CTE | None):
        return None  # an operand of UNION cannot have a WITH
    table, where = select.args["from_"].this, select.args.get("where")
    alias = table.args.get("alias")
    if table.args.get("sample") or (alias is not None and alias.args.get("columns")):
        return None
    place, without_alias = span(table), span_without_alias(sql, table)
    name = span(alias.this if alias is not None else table.this)
    if place is None or without_alias is None or name is None:
        return None
    terms = [] if where is None else split_conjunction(where.this)
    conditions = [span(term) for term in terms]
    if None in conditions:
        return None
    return FirstTable(
        place,
        without_alias,
        sql[name.start : name.end],
        tuple(c for c in conditions if c is not None),
        frozenset[str]().union(*map(find_functions, terms)),
    )
