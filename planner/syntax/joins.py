"""LEFT JOINs on equations, whose tables may have a unique key, and the first table of a block."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlml.parsing.parse import parse_trees
from sqlml.parsing.places import Span, span
from sqlml.planner.syntax.outline_walk import list_spans, split_conjunction
from sqlml.planner.syntax.resolved_query import analyse_query, table_name_span
from sqlml.types import fold

_USING, _CLOSING_BRACKET = re.compile(r"\s*USING\s*\(\s*", re.IGNORECASE), re.compile(r"\s*\)")
"""The text before the keys of USING, and the text after them."""


@dataclass(frozen=True, slots=True)
class UsingClause:
    """The USING clause of a join, if it can be rewritten as ON.

    Attributes:
        table: the span of the joined table without its alias.
        alias_sql: the text between the table and USING, such as ` AS t`.
        end: the offset of the end of the USING clause.
        keys: the columns in USING, as written.
    """

    table: Span
    alias_sql: str
    name: str
    end: int
    keys: tuple[str, ...]

    def build_on_edits(self, left_key: Callable[[str], str]) -> dict[Span, str]:
        """Return edits that rewrite USING as ON, which compares each key with `left_key(key)`.

        The edits also rename the key columns of the joined table. Elsewhere in the query, the key
        names then mean the columns of earlier tables, as they do with USING.
        """
        new_names = {key: f"sqlml_key_{n}" for n, key in enumerate(self.keys)}
        key_list = ", ".join(f"{key} AS {name}" for key, name in new_names.items())
        equations = [f"{left_key(key)} = {self.name}.{name}" for key, name in new_names.items()]
        select_start = f"(SELECT * EXCLUDE ({', '.join(self.keys)}), {key_list} FROM "
        return {
            Span(self.table.start, self.table.start): select_start,
            Span(self.table.end, self.end): f"){self.alias_sql} ON {' AND '.join(equations)}",
        }


@dataclass(frozen=True, slots=True)
class GroupedSubquery:
    """A subquery that groups by columns, and also selects these columns unchanged.

    A condition on these columns can be applied before the subquery groups the rows.

    Attributes:
        filter_span: the span of the WHERE condition, or an empty span at which to insert WHERE.
        functions: the functions that the subquery calls (`find_functions`).
    """

    filter_span: Span
    functions: frozenset[str]

    def add_condition(self, old_condition: str, condition: str) -> dict[Span, str]:
        """Return the edit that adds `condition` to WHERE, after `old_condition` unless it is ""."""
        if not old_condition:
            return {self.filter_span: f"WHERE {condition} "}
        return {self.filter_span: f"({old_condition}) AND {condition}"}


@dataclass(frozen=True, slots=True)
class LeftJoin:
    """A LEFT JOIN on equations.

    Attributes:
        table: the joined table or subquery as written, without its alias.
        names: the folded name and alias of the joined table.
        preceding_sql: the FROM clause up to the join.
        keys: folded column of the table -> the expression that it must equal, as written.
        distinct_columns: the columns of a subquery that are unique together, or None for a table.
        other_sides: the spans of the expressions in ON that the keys must equal.
        using: the USING clause, if it can be rewritten as ON.
        block: the span of the query that contains the join.
        grouped_subquery: the subquery, if it groups by all keys.
    """

    span: Span
    table: str
    names: frozenset[str]
    preceding_sql: str
    keys: Mapping[str, str]
    distinct_columns: frozenset[str] | None
    is_using: bool
    other_sides: tuple[Span, ...] = ()
    using: UsingClause | None = None
    block: Span | None = None
    grouped_subquery: GroupedSubquery | None = None


@analyse_query(default=())
def find_left_joins(sql: str) -> Sequence[LeftJoin]:
    """Return the LEFT JOINs on equations in the DuckDB query `sql`.

    Returns () if `sql` is not a single query, or if a join is NATURAL or POSITIONAL.
    """
    statements = parse_trees(sql)
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        return ()
    joins = list(statements[0].find_all(exp.Join))
    if any(str(j.args.get("method") or "").upper() in ("NATURAL", "POSITIONAL") for j in joins):
        return ()
    return [left_join for join in joins if (left_join := _read_left_join(sql, join)) is not None]


def is_left_join(join: exp.Join) -> bool:
    return str(join.args.get("side") or "").upper() == "LEFT"


def _read_left_join(sql: str, join: exp.Join) -> LeftJoin | None:
    """Return a LEFT JOIN of a table, file or subquery, or None for any other join."""
    join_span, table, query = span(join), join.this, join.parent
    if not is_left_join(join) or join.args.get("kind") not in (None, "", "OUTER"):
        return None
    if not isinstance(query, exp.Select | exp.Table) or _has_parameter_or_reserved_name(join):
        return None
    first_table_span = span(query.args["from_"].this if isinstance(query, exp.Select) else query)
    table_span, alias = span_without_alias(sql, table), table.args.get("alias")
    if join_span is None or first_table_span is None or table_span is None:
        return None
    if _may_be_cte(table) or (alias is not None and alias.args.get("columns")):
        return None
    table_names: set[str] = set()
    distinct_columns: frozenset[str] | None = None
    if isinstance(table, exp.Subquery):
        distinct_columns = _find_distinct_columns(table.this)
    elif isinstance(table.this, exp.Identifier):
        # Another mention of the table's name could be a CTE, or a second join of the table.
        table_names.add(fold(table.name))
    elif fold(table.this.name) not in FILE_FUNCTIONS:
        return None
    name = fold(table.alias) or next(iter(table_names), "")
    if not name:
        return None
    using = join.args.get("using")
    equations = [] if using else _find_equations(join.args.get("on"), name)
    keys = {fold(key.name): _get_text(sql, key) for key in using or ()}
    keys |= {column: _get_text(sql, other_side) for column, other_side in equations}
    return LeftJoin(
        join_span,
        _slice(sql, table_span),
        frozenset({name, *table_names}),
        sql[first_table_span.start : join_span.start],
        keys,
        distinct_columns,
        bool(using),
        list_spans(*(other_side for _, other_side in equations)),
        _read_using(sql, join) if using else None,
        span(query),
        _read_grouping(sql, table.this, keys) if distinct_columns else None,
    )


def _read_grouping(sql: str, query: exp.Expr, keys: Mapping[str, str]) -> GroupedSubquery | None:
    """Return a subquery that groups by all `keys`, or None if windows or LIMIT combine groups."""
    group = query.args.get("group")
    if group is None or any(query.args.get(key) for key in _CROSS_GROUP_CLAUSES):
        return None
    columns = filter(None, map(_make_column_key, group.expressions))
    grouped_names = {name for table, name in columns if not table}
    if not keys.keys() <= grouped_names or query.find(exp.Window) is not None:
        return None
    where, first_key_span = query.args.get("where"), span(group.expressions[0])
    if where is not None:
        filter_span = span(where.this)
    else:
        match = None if first_key_span is None else _GROUP_BY.search(sql, 0, first_key_span.start)
        filter_span = None if match is None else Span(match.start(), match.start())
    return None if filter_span is None else GroupedSubquery(filter_span, find_functions(query))


def find_functions(node: exp.Expr) -> frozenset[str]:
    """Return the names of the functions in `node`, except deterministic ones that sqlglot knows."""
    names = {call.name for call in node.find_all(exp.Anonymous)}
    names |= {"random" for _ in node.find_all(exp.Rand)} | {"uuid" for _ in node.find_all(exp.Uuid)}
    return frozenset(names)


FILE_FUNCTIONS = frozenset("read_parquet parquet_scan read_csv read_csv_auto read_json".split())
"""Functions that read files, and return the same rows each time."""

_GROUP_BY = re.compile(r"\bGROUP\s+BY\s*\Z", re.IGNORECASE)
_CROSS_GROUP_CLAUSES = ("with_", "qualify", "windows", "limit", "offset", "sample", "pivots")


def _read_using(sql: str, join: exp.Join) -> UsingClause | None:
    """Return the USING clause of a join, or None if the clause cannot be rewritten as ON."""
    table, root = join.this, join.root()
    has_column_aliases = any(alias.args.get("columns") for alias in root.find_all(exp.TableAlias))
    if has_column_aliases or root.find(exp.Pivot, exp.Columns) is not None:
        return None
    name_span = span(table.args["alias"].this if table.args.get("alias") else table.this)
    key_spans = list_spans(*join.args["using"])
    table_span = span_without_alias(sql, table)
    if name_span is None or table_span is None or len(key_spans) < len(join.args["using"]):
        return None
    closing_bracket = _CLOSING_BRACKET.match(sql, key_spans[-1].end)
    if closing_bracket is None or not _USING.fullmatch(sql, name_span.end, key_spans[0].start):
        return None
    name_sql = _slice(sql, name_span)
    alias_sql = sql[table_span.end : name_span.end] or f" AS {name_sql}"
    written_keys = tuple(_slice(sql, key_span) for key_span in key_spans)
    return UsingClause(table_span, alias_sql, name_sql, closing_bracket.end(), written_keys)


def _may_be_cte(table: exp.Expr) -> bool:
    if not isinstance(table, exp.Table) or table.args.get("db"):
        return False
    return any(fold(cte.alias) == fold(table.name) for cte in table.root().find_all(exp.CTE))


def _has_parameter_or_reserved_name(join: exp.Expr) -> bool:
    return any(
        isinstance(n, exp.Placeholder)
        or (isinstance(n, exp.Anonymous | exp.Identifier) and fold(n.name).startswith("sqlml_"))
        for n in join.walk()
    )


def _slice(sql: str, text_span: Span) -> str:
    return sql[text_span.start : text_span.end]


def _get_text(sql: str, node: exp.Expr) -> str:
    node_span = span(node)
    return "" if node_span is None else _slice(sql, node_span)


def span_without_alias(sql: str, table: exp.Expr) -> Span | None:
    """Return the span of a table or subquery in FROM, without the alias."""
    if isinstance(table, exp.Table):
        return table_name_span(table)
    outer, inner = span(table), span(table.this) if isinstance(table, exp.Subquery) else None
    end = -1 if inner is None else sql.find(")", inner.end)
    return None if outer is None or end < 0 else Span(outer.start, end + 1)


def _find_equations(condition: exp.Expr | None, joined_table: str) -> list[tuple[str, exp.Expr]]:
    """Return the column name `c` and the other side of each equation `table.c = other.d` in ON.

    Returns an empty list unless the condition consists of such equations, combined by AND.
    """
    equations = []
    for term in () if condition is None else _flatten_conjunction(condition):
        operands = [term.this, term.expression] if isinstance(term, exp.EQ) else []
        tables = [_find_table_name(side) for side in operands]
        if None in tables or tables.count(joined_table) != 1:
            return []
        index = tables.index(joined_table)
        equations.append((fold(operands[index].name), operands[1 - index]))
    return equations


def _flatten_conjunction(condition: exp.Expr) -> list[exp.Expr]:
    """Return the operands of all ANDs in `condition`, including ANDs in brackets."""
    terms = split_conjunction(condition.unnest())
    return terms if len(terms) == 1 else [t for term in terms for t in _flatten_conjunction(term)]


def _find_table_name(node: exp.Expr) -> str | None:
    if not isinstance(node, exp.Column) or node.args.get("db") or not node.table:
        return None
    return fold(node.table)


def _find_distinct_columns(query: exp.Expr) -> frozenset[str]:
    """Return columns of a subquery that are unique together, or an empty set if unknown."""
    if not isinstance(query, exp.Select):
        return frozenset()
    if any(is_unnest(node) for item in query.expressions for node in item.walk()):
        return frozenset()  # UNNEST turns one row into several.
    names = [fold(item.alias_or_name) for item in query.expressions]
    if len(set(names)) < len(names):
        return frozenset()  # The engine renames one of two equal names.
    item_keys = [_make_column_key(item.unalias()) for item in query.expressions]
    distinct, group = query.args.get("distinct"), query.args.get("group")
    if distinct is not None:
        is_plain = None not in item_keys and not distinct.args.get("on")
        return frozenset(names) if is_plain else frozenset()
    if group is None or any(v for k, v in group.args.items() if k != "expressions"):
        return frozenset()
    group_keys = set(map(_make_column_key, group.expressions))
    if None in group_keys or not group_keys <= set(item_keys):
        return frozenset()
    return frozenset(n for n, column in zip(names, item_keys, strict=True) if column in group_keys)


def is_unnest(node: exp.Expr) -> bool:
    """Return whether selecting a node turns one row into several rows."""
    is_function = isinstance(node, exp.Anonymous) and fold(node.name) == "unnest"
    return is_function or isinstance(node, exp.Unnest | exp.Explode)


def _make_column_key(node: exp.Expr) -> tuple[str, str] | None:
    """Return a column's folded qualifier, or "", and folded name, or None for any other node."""
    if not isinstance(node, exp.Column) or node.args.get("db") or isinstance(node.this, exp.Star):
        return None
    return fold(node.table), fold(node.name)


@dataclass(frozen=True, slots=True)
class FirstTable:
    """The first table of FROM in a block to which a WITH clause can be added.

    Attributes:
        span: the span of the table with its alias.
        condition_spans: the spans of the conditions in WHERE, combined by AND.
        functions: the functions that the conditions call (`find_functions`).
    """

    span: Span
    span_without_alias: Span
    alias: str
    condition_spans: tuple[Span, ...]
    functions: frozenset[str]


@analyse_query(default=None)
def find_first_table(sql: str, block: Span) -> FirstTable | None:
    """Return the first table of FROM in `block`, or None if no CTE of the block can replace it."""
    (tree,) = parse_trees(sql)
    select = next((s for s in tree.find_all(exp.Select) if span(s) == block), None)
    if select is None or select.args.get("with_") is not None or select.args.get("from_") is None:
        return None
    if not isinstance(select.parent, exp.Subquery | exp.CTE | None):
        return None  # An operand of UNION cannot have a WITH clause.
    table, where = select.args["from_"].this, select.args.get("where")
    alias = table.args.get("alias")
    if table.args.get("sample") or (alias is not None and alias.args.get("columns")):
        return None
    table_span, without_alias = span(table), span_without_alias(sql, table)
    name_span = span(alias.this if alias is not None else table.this)
    terms = [] if where is None else split_conjunction(where.this)
    condition_spans = list_spans(*terms)
    has_spans = len(condition_spans) == len(terms)
    if table_span is None or without_alias is None or name_span is None or not has_spans:
        return None
    functions = frozenset[str]().union(*map(find_functions, terms))
    return FirstTable(table_span, without_alias, _slice(sql, name_span), condition_spans, functions)
