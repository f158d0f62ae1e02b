"""`Source`: a FROM clause that can take a column more, as text."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlml.dialects import Dialect
from sqlml.parsing.places import Span, overlaps
from sqlml.planner.binding.probe_queries import Text
from sqlml.planner.plan.call_draft import Column
from sqlml.planner.syntax.outline import BESIDE, SOURCES, ModelCall, Outline, SingleSource


@dataclass(frozen=True, slots=True)
class Source:
    """A FROM clause that can take a column more, and its name.

    `stars` are the places of the block's stars, and `lists` what opens a star's own list of columns
    to leave out. `filters` are the operands of WHERE's ANDs that call no model.
    """

    span: Span
    alias: str
    stars: tuple[Span, ...]
    lists: tuple[Span, ...]
    filters: tuple[Span, ...]

    def text(
        self, written: str, columns: Mapping[str, str], where: Sequence[str], dialect: Dialect
    ) -> str:
        """The FROM clause `written` with `columns` (name -> expression) besides its own."""
        made = ", ".join(f"{sql} AS {dialect.quote_name(name)}" for name, sql in columns.items())
        return f"(SELECT *, {made} FROM {written}{_where(where)}) AS {self.alias}"

    def numbered(
        self, written: str, order: Sequence[str], where: Sequence[str], dialect: Dialect
    ) -> str:
        """The FROM clause `written` sorted by `order`, each row with its number from before."""
        made = f"{dialect.row_number} AS {_NUMBER}"
        by = ", ".join(order)
        return f"(SELECT *, {made} FROM {written}{_where(where)} ORDER BY {by}) AS {self.alias}"

    def as_numbered(self, written: str, dialect: Dialect) -> str:
        """What `numbered` made as it was before, but for other columns."""
        columns = dialect.star_without([_NUMBER])
        return f"(SELECT {columns} FROM {written} ORDER BY {_NUMBER}) AS {self.alias}"

    def patches(self, columns: Iterable[str], dialect: Dialect) -> dict[Span, str]:
        """Place -> text: stars that leave `columns` out."""
        names = [dialect.quote_name(name) for name in columns]
        return dict.fromkeys(self.stars, dialect.star_without(names)) | dict.fromkeys(
            self.lists, f"({', '.join(names)}, "
        )


_NUMBER = "sqlml_number"


def _where(terms: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(terms)}" if terms else ""


def source_of(call: ModelCall, outline: Outline) -> Source | None:
    """The FROM clause of the block around a call; None if it must stay as it is."""
    block = call.block
    if block is None or outline.prefix is None or block.is_chain:
        return None
    single: SingleSource | None = outline.singles.get(block.span)
    if single is None:
        return None
    filters = tuple(f for f in block.filters if not overlaps(f, outline.outer_calls))
    alias = outline.sql[single.alias.start : single.alias.end]
    return Source(single.span, alias, single.stars, single.lists, filters)


def row_source(call: ModelCall, outline: Outline) -> Source | None:
    """The FROM clause that can make the row of a call; None if the row would differ there.

    It would if a window reads the rows that WHERE keeps, or if ORDER BY means a select item by a
    name that a column also has.
    """
    if "over" in call.words or call.means_outputs:
        return None
    return source_of(call, outline)


# `MadeInFrom`: the columns that one FROM clause makes for calls, besides its own.


@dataclass(frozen=True, slots=True)
class _Written:
    """The texts of a FROM clause and of the filters on it."""

    source: str
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MadeInFrom:
    """What `source` makes, by name: `rows` of packed numbers, and what `models` compute of them.

    written: the clause as it goes to the engine, but for these columns; probed: for its binder.
    """

    source: Source
    dialect: Dialect
    written: _Written
    probed: _Written
    rows: Mapping[str, Column] = field(default_factory=dict)
    models: Mapping[str, Column] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Source, dialect: Dialect, text: Text, probed: Text) -> MadeInFrom:
        """A clause that makes nothing yet; both texts are the statement's, as it is."""
        written, asked = (
            _Written(of(source.span), tuple(map(of, source.filters))) for of in (text, probed)
        )
        return cls(source, dialect, written, asked)

    def adding(self, row: Column | None, model: Column | None) -> MadeInFrom:
        """The clause with a row, and what a model computes."""
        rows = {**self.rows, row.name: row} if row is not None else self.rows
        models = {**self.models, model.name: model} if model is not None else self.models
        return replace(self, rows=rows, models=models)

    def sql(self, filters_first: bool) -> str:
        """What takes the clause's place."""
        return self._text(self.written, operator.attrgetter("sql"), filters_first)

    def probe(self, filters_first: bool) -> str:
        """What takes its place before the functions are registered, for the engine's binder."""
        return self._text(self.probed, lambda column: column.probe(self.dialect), filters_first)

    def edits(self, filters_first: bool) -> dict[Span, str]:
        """Place -> text: stars that leave the columns out, and filters that go below models."""
        names = [*self.rows, *self.models]
        filters = self.source.filters if self._filters(filters_first) else ()
        return self.source.patches(names, self.dialect) | dict.fromkeys(filters, "TRUE")

    def texts(self, filters_first: bool) -> dict[int, dict[Span, str]]:
        """Return what the clause changes, by the layers of `Edits`."""
        return {
            SOURCES: {self.source.span: self.sql(filters_first)},
            BESIDE: self.edits(filters_first),
        }

    def _text(self, written: _Written, of: Callable[[Column], str], filters_first: bool) -> str:
        """Rows are made below models, and filters below both."""
        where = written.filters if self._filters(filters_first) else ()
        made = written.source
        order = {column.order: None for column in self.models.values() if column.order is not None}
        if order:
            made, where = self.source.numbered(made, list(order), where, self.dialect), ()
        for layer in filter(None, (self.rows, self.models)):
            columns = {name: of(column) for name, column in layer.items()}
            made, where = self.source.text(made, columns, where, self.dialect), ()
        return self.source.as_numbered(made, self.dialect) if order else made

    def _filters(self, filters_first: bool) -> bool:
        """Whether filters go below the models: what is sorted or numbered keeps them above."""
        sorts = any(column.order is not None for column in self.models.values())
        return bool(self.models) and (filters_first or sorts)
