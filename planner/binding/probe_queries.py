"""Probes: small queries with which the engine reports the names and types of a call's arguments.

The engine binds `SELECT <the arguments> FROM <the FROM of the call's query>`, but never runs it.
So stars, EXCLUDE, views, USING, quoting and case mean exactly what they mean in the engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from sqlml.dialects import Dialect
from sqlml.errors import BindError
from sqlml.parsing.places import Span
from sqlml.planner.syntax.outline import Block, Outline
from sqlml.types import fold

_HALF_JOIN = re.compile(r"\b(SEMI|ANTI)\b(?=\s+JOIN\b)", re.IGNORECASE)
_ASOF = re.compile(r"\bASOF\b(?=\s+(LEFT|RIGHT|FULL|INNER|JOIN)\b)", re.IGNORECASE)


class Column(NamedTuple):
    """The name and the type of a result column, as printed by the engine."""

    name: str
    type: str


Describe = Callable[[str], tuple[Column, ...]]
"""A function that returns a query's columns without running it. Raises ProbeError."""


class ProbeError(Exception):
    """Raised with the engine's message if the engine cannot bind a probe."""


TextOf = Callable[[Span], str]
"""A function that returns the SQL at a span of a statement, with calls and parameters replaced."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The surroundings of a call, in which the engine binds the call's arguments.

    Attributes:
        text: returns parts of the statement for the engine.
        probed: returns parts of the statement in probes, where calls and parameters are NULLs of
            their types.
        untyped: the spans of parameters and local names without a type.
        types: span of a parameter -> SQL type, if the parameter's value determines the type.
    """

    outline: Outline
    block: Block | None
    text: TextOf
    probed: TextOf
    untyped: frozenset[Span]
    describe: Describe
    dialect: Dialect
    types: Mapping[Span, str]

    @property
    def sql(self) -> str:
        return self.outline.sql

    def describe_spans(self, spans: Sequence[Span]) -> tuple[tuple[Column, ...], ...]:
        """Return the columns of the select item at each span, or raise BindError."""
        described = self.describe_items([self.probed(span) for span in spans])
        return tuple(
            (Column("NULL", "NULL"),) if self._is_untyped(span) else columns
            for span, columns in zip(spans, described, strict=True)
        )

    def describe_values(self, spans: Sequence[Span]) -> tuple[Column, ...]:
        """Return the column of the expression at each span, or raise BindError for a star."""
        probed_spans = [span for span in spans if span not in self.types]
        probed_columns = self.describe_spans(probed_spans) if probed_spans else ()
        described = dict(zip(probed_spans, probed_columns, strict=True))
        for span, columns in described.items():
            if len(columns) != 1:
                message = (
                    f"{self.text(span)} stands for {len(columns)} columns; write * or "
                    "COLUMNS(..) on its own, or one expression per feature"
                )
                raise BindError(message, self.sql, span.start)
        return tuple(
            Column("", self.types[span]) if span in self.types else described[span][0]
            for span in spans
        )

    def _is_untyped(self, span: Span) -> bool:
        """Return whether a span is untyped or a bare NULL, whose type is INTEGER in DuckDB 1.5."""
        return span in self.untyped or self.sql[span.start : span.end].upper() == "NULL"

    def describe_items(self, items: Sequence[str]) -> tuple[tuple[Column, ...], ...]:
        """Return the columns of each select item in `items`, which are SQL.

        Raises BindError with the engine's message if no probe binds.
        """
        first_error: ProbeError | None = None
        tried_queries: set[str] = set()
        for query, skip in _iterate_probes(items, self.block, self.probed):
            query = _remove_asof(query)
            if query in tried_queries:  # An enclosing block without FROM adds nothing.
                continue
            tried_queries.add(query)
            try:
                columns = self.describe(query)[skip:]
            except ProbeError as error:
                first_error = first_error or error
                continue
            if len(items) == 1:
                return (columns,)
            if len(columns) == len(items):
                return tuple((column,) for column in columns)
            # A star among several items is described by itself.
            return tuple(self.describe_items([item])[0] for item in items)
        raise BindError(str(first_error))

    def is_row_of_table(self, written_name: str, folded_name: str, fields: Sequence[str]) -> bool:
        """Return whether a name means the row of a table in FROM instead of a column.

        The table may belong to an outer query, if the name means nothing in the block itself.
        `written_name` is the name as SQL, which the engine reads as a struct with these `fields`.
        """
        block = self.block
        while block is not None:
            if block.sources:
                names = self._list_column_names(f"{written_name}.*, *", block)
                if names is not None:
                    row_names, other_names = names[: len(fields)], names[len(fields) :]
                    return row_names == list(fields) and folded_name not in map(fold, other_names)
                names = self._list_column_names("*", block)
                if names is None or folded_name in map(fold, names):
                    return False
            block = block.parent
        return False

    def _list_column_names(self, items: str, block: Block) -> list[str] | None:
        try:
            query = _remove_asof(_build_query(items, block, self.probed))
            return [column.name for column in self.describe(query)]
        except ProbeError:
            return None


def _remove_asof(query: str) -> str:
    """Return the query with plain joins instead of ASOF joins, which yield the same types.

    An ASOF join needs an inequality of columns, but a call is NULL in a probe.

    >>> _remove_asof("FROM t ASOF LEFT JOIN u ON t.a >= u.a")
    'FROM t  LEFT JOIN u ON t.a >= u.a'
    """
    return _ASOF.sub("", query)


def _iterate_probes(
    items: Sequence[str], block: Block | None, text_of: TextOf
) -> Iterator[tuple[str, int]]:
    """Yield probes, simplest first, each in a pair with the number of leading columns to skip."""
    select = ", ".join(items)
    if block is None:
        yield f"SELECT {select}", 0
        return
    yield _build_query(select, block, text_of), 0
    if block.excluded_table is not None:  # A bare name means a column of the table.
        table_sql = _build_from(block, text_of)
        excluded = f"(SELECT * FROM {table_sql}) AS excluded"
        lateral = f"LATERAL (SELECT {select} FROM {table_sql}) sqlml_probe"
        yield add_all_ctes(f"SELECT sqlml_probe.* FROM {excluded}, {lateral}", block, text_of), 0
        # DuckDB 1.5 needs this query for `excluded.*`.
        yield add_all_ctes(f"SELECT {select} FROM {table_sql}, {excluded}", block, text_of), 0
    variants = _list_select_variants(select, block, text_of)
    for select_list, skip, tail in variants[1:]:
        yield _build_query(select_list, block, text_of, tail), skip
    for select_list, skip, tail in variants:
        for query, outer_block in _iterate_lateral_queries(select_list, block, text_of, tail):
            yield query, skip
            # DuckDB 1.5 needs this query for `outer.*` in a subquery without FROM.
            yield _build_query(select_list, outer_block, text_of, tail), skip


def _list_select_variants(select: str, block: Block, text_of: TextOf) -> list[tuple[str, int, str]]:
    """Return triples of a select list to probe, the number of leading columns to skip, and a tail.

    The tail follows FROM and groups the rows, since engines mix aggregates and columns only in
    groups. The tail is the block's GROUP BY clause, or else GROUP BY ALL. Items of the block come
    before `select` if GROUP BY or `select` may use their names.
    """
    variants = [(select, 0, "")]
    group_by_sql = " GROUP BY ALL" if block.group is None else f" {text_of(block.group)}"
    if block.sources or block.window:
        variants.append((select, 0, group_by_sql))
    if block.group is not None and block.items and not any(i.may_expand for i in block.items):
        items = [text_of(item.span) for item in block.items]
        variants.append((", ".join([*items, select]), len(items), group_by_sql))
    named_items = [text_of(item.span) for item in block.items if item.is_named]
    if named_items:
        select_list, skip = ", ".join([*named_items, select]), len(named_items)
        variants += [(select_list, skip, ""), (select_list, skip, " GROUP BY ALL")]
    return variants


def _iterate_lateral_queries(
    select: str, block: Block, text_of: TextOf, tail: str
) -> Iterator[tuple[str, Block]]:
    """Yield queries that read `select` from `block` in a LATERAL of each enclosing block.

    Each query is paired with its enclosing block. The innermost block comes first.
    """
    query, parent = _build_query(select, block, text_of, tail, with_outer_ctes=False), block.parent
    while parent is not None:
        if parent.sources:
            sources_sql = _build_from(parent, text_of)
            query = f"SELECT sqlml_probe.* FROM {sources_sql}, LATERAL ({query}) sqlml_probe"
        yield add_all_ctes(query, parent, text_of), parent
        query, parent = _add_own_ctes(query, parent, text_of), parent.parent


def iterate_row_queries(block: Block | None, text_of: TextOf, where: Span | None) -> Iterator[str]:
    """Yield queries with as many rows as `block` has after FROM and the condition `where`.

    A condition that names a select item does not bind, so queries without a condition come last.
    """
    for condition in dict.fromkeys((where, None)):
        yield from _iterate_row_queries("1", block, text_of, condition)


def iterate_value_queries(
    value_span: Span,
    block: Block | None,
    text_of: TextOf,
    where: Span | None,
    first_items: str = "",
) -> Iterator[str]:
    """Yield queries whose last column, `sqlml_name`, is the expression of `block` at `value_span`.

    The first queries only have the rows that pass the condition `where`. `first_items` come before
    the expression, and end with a comma.
    """
    item_sql = f"{first_items}{text_of(value_span)} AS sqlml_name"
    for condition in dict.fromkeys((where, None)):
        yield from _iterate_row_queries(item_sql, block, text_of, condition)
    if block is not None:
        item_spans = [i.span for i in block.items if i.is_named and not i.span.contains(value_span)]
        yield from _iterate_row_queries(
            ", ".join([*map(text_of, item_spans), item_sql]), block, text_of, None
        )


def _iterate_row_queries(
    select: str, block: Block | None, text_of: TextOf, where: Span | None
) -> Iterator[str]:
    if block is None:
        yield f"SELECT {select}"
        return
    tail = "" if where is None else f" WHERE {text_of(where)}"
    yield _build_query(select, block, text_of, tail)
    for query, _ in _iterate_lateral_queries(select, block, text_of, tail):
        yield query


def _build_query(
    select: str, block: Block, text_of: TextOf, tail: str = "", with_outer_ctes: bool = True
) -> str:
    query = f"SELECT {select}"
    if block.sources:
        query += f" FROM {_build_from(block, text_of)}"
    query += tail
    if block.window is not None:
        query += f" WINDOW {text_of(block.window)}"
    add_ctes = add_all_ctes if with_outer_ctes else _add_own_ctes
    return add_ctes(query, block, text_of)


def _build_from(block: Block, text_of: TextOf) -> str:
    sources_sql = ", ".join(map(text_of, block.sources))
    if block.is_chain:
        sources_sql = f"({sources_sql}) {block.name}"
    joins = list(map(text_of, block.joins))
    if block.is_half_join:  # After an inner join, both sides are in scope.
        joins[-1] = _HALF_JOIN.sub("", joins[-1], count=1)
    return " ".join([sources_sql, *joins])


def _add_own_ctes(query: str, block: Block, text_of: TextOf) -> str:
    definitions = _find_used_ctes(query, block, text_of)
    if not definitions:
        return query
    return f"WITH {'RECURSIVE ' if block.is_recursive else ''}{', '.join(definitions)} {query}"


def _find_used_ctes(query: str, block: Block, text_of: TextOf) -> list[str]:
    """Return the CTE definitions in a block's WITH clause whose names `query` contains.

    With all definitions, each probe of a statement with many CTEs would be as long as the text.
    """
    if not block.ctes:
        return []
    words = _find_words(query)
    definitions: dict[int, str] = {}
    unused_indices = list(range(len(block.ctes)))[::-1]  # A definition mostly uses earlier ones.
    while True:
        for index in unused_indices:
            cte = block.ctes[index]
            name = _fold_plain_name(cte.name)
            if name is None or name in words:
                definitions[index] = text_of(cte.span)
                words |= _find_words(definitions[index])
        remaining_indices = [index for index in unused_indices if index not in definitions]
        if not block.is_recursive or len(remaining_indices) == len(unused_indices):
            return [definitions[index] for index in sorted(definitions)]
        unused_indices = remaining_indices


_WORD = re.compile(r"\w+")


@lru_cache(1 << 14)
def _fold_plain_name(name: str) -> str | None:
    """Return the folded name, or None if the name needs quotes because it is not a single word."""
    return fold(name) if _WORD.fullmatch(name) else None


def _find_words(sql: str) -> set[str]:
    return set(_WORD.findall(fold(sql)))


def add_all_ctes(query: str, block: Block, text_of: TextOf) -> str:
    """Return the query with the WITH clauses of the block and of all enclosing blocks."""
    query = _add_own_ctes(query, block, text_of)
    parent = block.parent
    while parent is not None:
        if parent.ctes:
            query = _add_own_ctes(f"SELECT * FROM ({query})", parent, text_of)
        parent = parent.parent
    return query
