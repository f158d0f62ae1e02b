"""Probes: small queries by which the engine tells what a call's arguments are.

`SELECT <the arguments> FROM <the call's own FROM>` is bound but never run. It returns names and
types exactly as the engine sees them, with stars, EXCLUDE, views, USING, quoting and case.
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
    """Name and type of a result column, as the engine prints them.

    It is a tuple because wide tables create many of them for each probe.
    """

    name: str
    type: str


Describe = Callable[[str], tuple[Column, ...]]
"""A function that binds a query without running it. Raises ProbeError if the engine cannot."""


class ProbeError(Exception):
    """The engine could not bind a probe; the text is the engine's message."""


TextOf = Callable[[Span], str]
"""A function from a span to its text, with planned calls replaced and others blanked."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The surroundings of a call, in which the engine binds its arguments.

    Attributes:
        text: returns parts of the statement as it goes to the engine.
        probed: returns parts of the statement in probes, where calls and parameters are NULLs of
            their types.
        untyped: the spans of parameters and local names without a type.
        types: the types of parameters whose values determine it.
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
        """The statement as the user wrote it."""
        return self.outline.sql

    def columns(self, spans: Sequence[Span]) -> tuple[tuple[Column, ...], ...]:
        """Return the columns of the select items at these spans, or raise BindError."""
        described = self.describe_items([self.probed(place) for place in spans])
        return tuple(
            (Column("NULL", "NULL"),) if self._is_untyped(place) else columns
            for place, columns in zip(spans, described, strict=True)
        )

    def single_columns(self, spans: Sequence[Span]) -> tuple[Column, ...]:
        """Return the only column of each of the expressions at these spans, or raise BindError."""
        probed_spans = [place for place in spans if place not in self.types]
        probed_columns = self.columns(probed_spans) if probed_spans else ()
        described = dict(zip(probed_spans, probed_columns, strict=True))
        for place, columns in described.items():
            if len(columns) != 1:
                raise BindError(
                    f"{self.text(place)} stands for {len(columns)} columns; write * or "
                    "COLUMNS(..) on its own, or one expression per feature",
                    self.sql,
                    place.start,
                )
        return tuple(
            Column("", self.types[place]) if place in self.types else described[place][0]
            for place in spans
        )

    def _is_untyped(self, place: Span) -> bool:
        """Return whether a span is NULL (INTEGER in DuckDB 1.5), or has no type."""
        return place in self.untyped or self.sql[place.start : place.end].upper() == "NULL"

    def describe_items(self, items: Sequence[str]) -> tuple[tuple[Column, ...], ...]:
        """Return the columns of each of `items`, select items as SQL.

        Raises BindError with the engine's message if it can bind them in no reading.
        """
        first_error: ProbeError | None = None
        tried: set[str] = set()
        for query, skip in _write_probes(items, self.block, self.probed):
            query = _replace_asof(query)
            if query in tried:  # an enclosing block without FROM adds nothing
                continue
            tried.add(query)
            try:
                columns = self.describe(query)[skip:]
            except ProbeError as error:
                first_error = first_error or error
                continue
            if len(items) == 1:
                return (columns,)
            if len(columns) == len(items):
                return tuple((c,) for c in columns)
            # A star among several items is described by itself.
            return tuple(self.describe_items([item])[0] for item in items)
        raise BindError(str(first_error))

    def is_row_of_table(self, written: str, name: str, fields: Sequence[str]) -> bool:
        """Return whether a name means the row of a table in FROM, and not a column.

        The table may belong to an outer query, if the name means nothing in the block itself.

        Args:
            written: a bare name as SQL, which the engine reads as a struct with these `fields`.
            name: the same name, folded.
        """
        block = self.block
        while block is not None:
            if block.sources:
                names = self._names_of(f"{written}.*, *", block)
                if names is not None:
                    width = len(fields)
                    return names[:width] == list(fields) and name not in map(fold, names[width:])
                names = self._names_of("*", block)
                if names is None or name in map(fold, names):
                    return False
            block = block.parent
        return False

    def _names_of(self, items: str, block: Block) -> list[str] | None:
        try:
            query = _replace_asof(_write_query(items, block, self.probed))
            return [column.name for column in self.describe(query)]
        except ProbeError:
            return None


def _replace_asof(query: str) -> str:
    """Return a query with plain joins instead of ASOF joins; names and types are the same.

    An ASOF join needs an inequality of columns, but a call is NULL in a probe.

    >>> _replace_asof("FROM t ASOF LEFT JOIN u ON t.a >= u.a")
    'FROM t  LEFT JOIN u ON t.a >= u.a'
    """
    return _ASOF.sub("", query)


def _write_probes(
    items: Sequence[str], block: Block | None, text: TextOf
) -> Iterator[tuple[str, int]]:
    """Yield probes, the simplest first, each with the number of leading columns to skip."""
    select = ", ".join(items)
    if block is None:
        yield f"SELECT {select}", 0
        return
    yield _write_query(select, block, text), 0
    if block.excluded_table is not None:  # a bare name is the table's
        table = _write_from(block, text)
        excluded = f"(SELECT * FROM {table}) AS excluded"
        inner = f"LATERAL (SELECT {select} FROM {table}) sqlml_probe"
        yield _add_all_ctes(f"SELECT sqlml_probe.* FROM {excluded}, {inner}", block, text), 0
        both = f"SELECT {select} FROM {table}, {excluded}"  # 1.5: `excluded.*`
        yield _add_all_ctes(both, block, text), 0
    readings = _list_readings(select, block, text)
    for reading, skip, tail in readings[1:]:
        yield _write_query(reading, block, text, tail), skip
    for reading, skip, tail in readings:
        for query in _write_correlated_probes(reading, block, text, tail):
            yield query, skip


def _list_readings(select: str, block: Block, text: TextOf) -> list[tuple[str, int, str]]:
    """Return select lists, the number of leading columns to skip, and the text after FROM.

    Aggregates may stand beside columns only in a query that groups, by its own GROUP BY if it has
    one. This may name other items, and so may an argument.
    """
    readings = [(select, 0, "")]
    tail = " GROUP BY ALL" if block.group is None else f" {text(block.group)}"
    if block.sources or block.window:
        readings.append((select, 0, tail))
    if block.group is not None and block.items and not any(i.may_expand for i in block.items):
        items = [text(item.span) for item in block.items]
        readings.append((", ".join([*items, select]), len(items), tail))
    named_items = [text(item.span) for item in block.items if item.is_named]
    if named_items:
        select_list, skip = ", ".join([*named_items, select]), len(named_items)
        readings += [(select_list, skip, ""), (select_list, skip, " GROUP BY ALL")]
    return readings


def _write_correlated_probes(select: str, block: Block, text: TextOf, tail: str) -> Iterator[str]:
    """Yield probes of a correlated or lateral query, with the outer rows in scope."""
    for query, outer in _write_lateral_queries(select, block, text, tail):
        yield query
        yield _write_query(select, outer, text, tail)  # 1.5: `outer.*` in a subquery without FROM


def _write_lateral_queries(
    select: str, block: Block, text: TextOf, tail: str
) -> Iterator[tuple[str, Block]]:
    """Yield a block's query with the rows of each block around it, from the nearest on."""
    query, outer = _write_query(select, block, text, tail, outer=False), block.parent
    while outer is not None:
        if outer.sources:
            sources = _write_from(outer, text)
            query = f"SELECT sqlml_probe.* FROM {sources}, LATERAL ({query}) sqlml_probe"
        yield _add_all_ctes(query, outer, text), outer
        query, outer = _add_own_ctes(query, outer, text), outer.parent


def write_row_queries(block: Block | None, text: TextOf, where: Span | None) -> Iterator[str]:
    """Yield queries with as many rows as `block` has after its FROM and the condition `where`.

    Queries without the condition follow, since it does not bind if it names a select item.
    """
    for condition in dict.fromkeys((where, None)):
        yield from _write_row_queries("1", block, text, condition)


def write_value_queries(
    value: Span, block: Block | None, text: TextOf, where: Span | None
) -> Iterator[str]:
    """Yield queries with an expression of `block` as their last column, `sqlml_name`.

    The first queries have only the rows that pass the condition `where`.
    """
    item = f"{text(value)} AS sqlml_name"
    for condition in dict.fromkeys((where, None)):
        yield from _write_row_queries(item, block, text, condition)
    if block is not None:
        named_items = [
            text(i.span) for i in block.items if i.is_named and not i.span.contains(value)
        ]
        yield from _write_row_queries(", ".join([*named_items, item]), block, text, None)


def _write_row_queries(
    select: str, block: Block | None, text: TextOf, where: Span | None
) -> Iterator[str]:
    if block is None:
        yield f"SELECT {select}"
        return
    tail = "" if where is None else f" WHERE {text(where)}"
    yield _write_query(select, block, text, tail)
    for query, _ in _write_lateral_queries(select, block, text, tail):
        yield query


def _write_query(
    select: str, block: Block, text: TextOf, tail: str = "", outer: bool = True
) -> str:
    query = f"SELECT {select}"
    if block.sources:
        query += f" FROM {_write_from(block, text)}"
    query += tail
    if block.window is not None:
        query += f" WINDOW {text(block.window)}"
    return _add_all_ctes(query, block, text) if outer else _add_own_ctes(query, block, text)


def _write_from(block: Block, text: TextOf) -> str:
    sources = ", ".join(map(text, block.sources))
    if block.is_chain:
        sources = f"({sources}) {block.name}"
    joins = list(map(text, block.joins))
    if block.is_half_join:  # as an inner join, after which both sides are in scope
        joins[-1] = _HALF_JOIN.sub("", joins[-1], count=1)
    return " ".join([sources, *joins])


def _add_own_ctes(query: str, block: Block, text: TextOf) -> str:
    definitions = _find_used_ctes(query, block, text)
    if not definitions:
        return query
    return f"WITH {'RECURSIVE ' if block.is_recursive else ''}{', '.join(definitions)} {query}"


def _find_used_ctes(query: str, block: Block, text: TextOf) -> list[str]:
    """Return the definitions of a block's WITH whose names a query contains.

    All of them would make each probe of a statement with many CTEs as long as the statement.
    """
    if not block.ctes:
        return []
    names = _find_words(query)
    definitions: dict[int, str] = {}
    rest = list(range(len(block.ctes)))[::-1]  # a definition mostly uses earlier ones
    while True:
        for number in rest:
            cte = block.ctes[number]
            name = _fold_plain_name(cte.name)
            if name is None or name in names:
                definitions[number] = text(cte.span)
                names |= _find_words(definitions[number])
        unused = [number for number in rest if number not in definitions]
        if not block.is_recursive or len(unused) == len(rest):
            return [definitions[number] for number in sorted(definitions)]
        rest = unused


_WORD = re.compile(r"\w+")


@lru_cache(1 << 14)
def _fold_plain_name(name: str) -> str | None:
    """Return a folded name; None for one that is not a word."""
    return fold(name) if _WORD.fullmatch(name) else None


def _find_words(sql: str) -> set[str]:
    """Return all words of a text that may be plain names, folded."""
    return set(_WORD.findall(fold(sql)))


def _add_all_ctes(query: str, block: Block, text: TextOf) -> str:
    """Put the WITH clauses of the block and of all blocks around it before the query."""
    query = _add_own_ctes(query, block, text)
    parent = block.parent
    while parent is not None:
        if parent.ctes:
            query = _add_own_ctes(f"SELECT * FROM ({query})", parent, text)
        parent = parent.parent
    return query
