"""The probe: a small query that asks the engine what a call's arguments are.

`SELECT <the arguments> FROM <the call's own FROM>`, bound and never run, gives names and types
just as the engine sees them: stars, EXCLUDE, views, USING columns, quoting, case and all.
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

# Kinds of joins that a probe leaves out: they change which rows there are, but no name or type.


_SEMI = re.compile(r"\b(SEMI|ANTI)\b(?=\s+JOIN\b)", re.IGNORECASE)
_ASOF = re.compile(r"\bASOF\b(?=\s+(LEFT|RIGHT|FULL|INNER|JOIN)\b)", re.IGNORECASE)


def without_semi(join: str) -> str:
    """A SEMI or ANTI JOIN as an inner one, behind which both sides are in sight.

    >>> without_semi("ANTI JOIN t ON a")
    ' JOIN t ON a'
    """
    return _SEMI.sub("", join, count=1)


def without_asof(query: str) -> str:
    """A query with plain joins for ASOF ones: names and types are the same.

    >>> without_asof("FROM t ASOF LEFT JOIN u ON t.a >= u.a")
    'FROM t  LEFT JOIN u ON t.a >= u.a'
    """
    return _ASOF.sub("", query)


class Column(NamedTuple):
    """Name and type of a result column, as the engine prints them.

    A tuple, since tables with many columns make many of them, each time that they are asked for.
    """

    name: str
    type: str


Describe = Callable[[str], tuple[Column, ...]]
"""Bind a query without running it. Raises ProbeError when the engine cannot."""


class ProbeError(Exception):
    """The engine could not bind a probe; the text is its own message."""


Text = Callable[[Span], str]
"""The statement's text of a span, calls already planned replaced, others blanked."""


def columns_of(
    items: Sequence[str], block: Block | None, text: Text, describe: Describe
) -> tuple[tuple[Column, ...], ...]:
    """The columns that each of `items` (select items, as SQL) yields in the scope of `block`.

    Raises:
        BindError: the engine cannot bind them in any reading; carries the engine's message.
    """
    first: ProbeError | None = None
    tried: set[str] = set()
    for query, skip in _queries(items, block, text):
        # An ASOF join wants an inequality of columns, and finds the NULL of a call. Any other join
        # has the same names and types.
        query = without_asof(query)
        if query in tried:  # an enclosing block without FROM adds nothing
            continue
        tried.add(query)
        try:
            columns = describe(query)
        except ProbeError as error:
            first = first or error
            continue
        return _share(columns[skip:], items, block, text, describe)
    raise BindError(str(first))


def is_row_of_table(
    written: str,
    name: str,
    fields: Sequence[str],
    block: Block | None,
    text: Text,
    describe: Describe,
) -> bool:
    """Return whether a name stands for the row of a table in FROM, and for no column.

    The table may be one of a query around, if the name means nothing in the block itself.

    Args:
        written: a bare name as SQL, which the engine reads as a struct; `name`: the same, folded.
        fields: the names of the struct's fields.
    """

    def names_of(items: str, block: Block) -> list[str] | None:
        try:
            return [c.name for c in describe(without_asof(_nest(items, block, text)))]
        except ProbeError:
            return None

    while block is not None:
        if block.sources:
            names = names_of(f"{written}.*, *", block)
            if names is not None:
                width = len(fields)
                return names[:width] == list(fields) and name not in map(fold, names[width:])
            names = names_of("*", block)
            if names is None or name in map(fold, names):
                return False
        block = block.parent
    return False


def _share(
    columns: tuple[Column, ...],
    items: Sequence[str],
    block: Block | None,
    text: Text,
    describe: Describe,
) -> tuple[tuple[Column, ...], ...]:
    """Deal the columns out to the items; a star among several items is counted by itself."""
    if len(items) == 1:
        return (columns,)
    if len(columns) == len(items):
        return tuple((c,) for c in columns)
    return tuple(columns_of([item], block, text, describe)[0] for item in items)


def _queries(items: Sequence[str], block: Block | None, text: Text) -> Iterator[tuple[str, int]]:
    """Probes from the plainest reading on, each with the number of leading columns to skip."""
    select = ", ".join(items)
    if block is None:
        yield f"SELECT {select}", 0
        return
    yield _nest(select, block, text), 0
    if block.excluded is not None:  # a bare name is the table's
        table = _from(block, text)
        excluded = f"(SELECT * FROM {table}) AS excluded"
        inner = f"LATERAL (SELECT {select} FROM {table}) sqlml_probe"
        yield _with_outer(f"SELECT sqlml_probe.* FROM {excluded}, {inner}", block, text), 0
        both = f"SELECT {select} FROM {table}, {excluded}"  # 1.5: `excluded.*`
        yield _with_outer(both, block, text), 0
    readings = _readings(select, block, text)
    for reading, skip, tail in readings[1:]:
        yield _nest(reading, block, text, tail), skip
    for reading, skip, tail in readings:
        for query in _correlated(reading, block, text, tail):
            yield query, skip


def _readings(select: str, block: Block, text: Text) -> list[tuple[str, int, str]]:
    """Return what may be selected, the number of leading columns to skip, and what follows FROM.

    Aggregates stand beside columns only in a query that groups, by its own GROUP BY if it has one.
    This may name other items, as an argument may.
    """
    found = [(select, 0, "")]
    tail = " GROUP BY ALL" if block.group is None else f" {text(block.group)}"
    if block.sources or block.window:
        found.append((select, 0, tail))
    if block.group is not None and block.items and not any(i.several for i in block.items):
        items = [text(item.span) for item in block.items]
        found.append((", ".join([*items, select]), len(items), tail))
    named = [text(item.span) for item in block.items if item.named]
    if named:
        listed = ", ".join([*named, select])
        found += [(listed, len(named), ""), (listed, len(named), " GROUP BY ALL")]
    return found


def _correlated(select: str, block: Block, text: Text, tail: str) -> Iterator[str]:
    """Yield probes of a correlated or lateral query, in which the outer rows are in scope."""
    outer = block.parent
    inner = _nest(select, block, text, tail, outer=False)
    while outer is not None:
        if outer.sources:
            inner = f"SELECT sqlml_probe.* FROM {_from(outer, text)}, LATERAL ({inner}) sqlml_probe"
        yield _with_outer(inner, outer, text)
        yield _nest(select, outer, text, tail)  # 1.5: `outer.*` in a subquery without FROM
        inner = _with_own(inner, outer, text)
        outer = outer.parent


def row_queries(block: Block | None, text: Text, where: str = "") -> Iterator[str]:
    """Queries with as many rows as `block` has after its FROM, and the condition `where`."""
    yield from _row_queries("1", block, text, where)


def value_queries(
    value: Span, block: Block | None, text: Text, where: Span | None
) -> Iterator[str]:
    """Queries of the value that an expression of `block` has in each row: `sqlml_name`, their last
    column. The first have the rows that pass the condition `where`."""
    item = f"{text(value)} AS sqlml_name"
    if where is not None:
        yield from _row_queries(item, block, text, text(where))
    yield from _row_queries(item, block, text)
    if block is not None:
        named = [text(i.span) for i in block.items if i.named and not i.span.holds(value)]
        yield from _row_queries(", ".join([*named, item]), block, text)


def _row_queries(select: str, block: Block | None, text: Text, where: str = "") -> Iterator[str]:
    tail = f" WHERE {where}" if where else ""
    if block is None:
        yield f"SELECT {select}"
        return
    yield _nest(select, block, text, tail)
    outer, inner = block.parent, _nest(select, block, text, tail, outer=False)
    while outer is not None:  # correlated, or lateral
        if outer.sources:
            inner = f"SELECT sqlml_probe.* FROM {_from(outer, text)}, LATERAL ({inner}) sqlml_probe"
        yield _with_outer(inner, outer, text)
        inner, outer = _with_own(inner, outer, text), outer.parent


def _nest(select: str, block: Block, text: Text, tail: str = "", outer: bool = True) -> str:
    query = f"SELECT {select}"
    if block.sources:
        query += f" FROM {_from(block, text)}"
    query += tail
    if block.window is not None:
        query += f" WINDOW {text(block.window)}"
    return _with_outer(query, block, text) if outer else _with_own(query, block, text)


def _from(block: Block, text: Text) -> str:
    made = ", ".join(map(text, block.sources))
    if block.is_chain:
        made = f"({made}) {block.name}"
    joins = list(map(text, block.joins))
    if block.half:
        joins[-1] = without_semi(joins[-1])
    return " ".join([made, *joins])


def _with_own(query: str, block: Block, text: Text) -> str:
    definitions = _used_definitions(query, block, text)
    if not definitions:
        return query
    return f"WITH {'RECURSIVE ' if block.recursive else ''}{', '.join(definitions)} {query}"


def _used_definitions(query: str, block: Block, text: Text) -> list[str]:
    """Return the definitions of a block's WITH that a query may need: those whose names it has.

    Others are left out, since every probe of a statement with very many would be as long as that.
    """
    if not block.ctes:
        return []
    words = _words(query)
    definitions: dict[int, str] = {}
    rest = list(range(len(block.ctes)))[::-1]  # a definition mostly uses earlier ones
    while True:
        for number in rest:
            cte = block.ctes[number]
            name = _plain_name(cte.name)
            if name is None or name in words:
                definitions[number] = text(cte.span)
                words |= _words(definitions[number])
        left = [number for number in rest if number not in definitions]
        if not block.recursive or len(left) == len(rest):
            return [definitions[number] for number in sorted(definitions)]
        rest = left


_WORD = re.compile(r"\w+")


@lru_cache(1 << 14)
def _plain_name(name: str) -> str | None:
    """Return a name folded; None for one that is not a word."""
    return fold(name) if _WORD.fullmatch(name) else None


def _words(sql: str) -> set[str]:
    """Return all that may be plain names in a text, folded."""
    return set(_WORD.findall(fold(sql)))


def _with_outer(query: str, block: Block, text: Text) -> str:
    """Put the WITH clauses of the block and of all blocks around it before the query."""
    query = _with_own(query, block, text)
    around = block.parent
    while around is not None:
        if around.ctes:
            query = _with_own(f"SELECT * FROM ({query})", around, text)
        around = around.parent
    return query


# `Scope`: where a call stands, and how the engine binds its arguments there.


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a call stands: the statement, the block around it, and the engine.

    `text` is the statement as it goes to the engine, `probed` as it stands in probes: there calls
    and parameters are NULLs of their types. `untyped` are the parameters and local names, which
    have no type yet, `types` the types of parameters that their values tell.
    """

    outline: Outline
    block: Block | None
    text: Text
    probed: Text
    untyped: frozenset[Span]
    describe: Describe
    dialect: Dialect
    types: Mapping[Span, str]

    @property
    def sql(self) -> str:
        """The statement as the user wrote it."""
        return self.outline.sql

    def columns(self, places: Sequence[Span]) -> tuple[tuple[Column, ...], ...]:
        """The columns that the select items at these places yield here.

        Raises:
            BindError: the engine cannot bind them.
        """
        found = self.ask([self.probed(place) for place in places])
        return tuple(
            (Column("NULL", "NULL"),) if self._is_untyped(place) else columns
            for place, columns in zip(places, found, strict=True)
        )

    def single(self, places: Sequence[Span]) -> tuple[Column, ...]:
        """The one column that each of the expressions at these places yields.

        Raises:
            BindError: the engine cannot bind one, or it yields several columns.
        """
        asked = [place for place in places if place not in self.types]
        found = dict(zip(asked, self.columns(asked) if asked else (), strict=True))
        for place, columns in found.items():
            if len(columns) != 1:
                raise BindError(
                    f"{self.text(place)} stands for {len(columns)} columns; write * or "
                    "COLUMNS(..) on its own, or one expression per feature",
                    self.sql,
                    place.start,
                )
        known = {place: (Column("", kind),) for place, kind in self.types.items()}
        return tuple((found.get(place) or known[place])[0] for place in places)

    def _is_untyped(self, place: Span) -> bool:
        """NULL itself (1.5 says that it is INTEGER), or a name or parameter without a type."""
        return place in self.untyped or self.sql[place.start : place.end].upper() == "NULL"

    def ask(self, items: Sequence[str]) -> tuple[tuple[Column, ...], ...]:
        """The columns that `items`, written as SQL, yield here."""
        return columns_of(items, self.block, self.probed, self.describe)
