"""`MadeInFrom`: the columns that one FROM clause makes for calls, besides its own."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sqlml.dialects import Dialect
from sqlml.parsing.places import Span
from sqlml.planner.binding.probe_queries import Text
from sqlml.planner.call.from_column import Column
from sqlml.planner.rewrites.widened_from import Source
from sqlml.planner.syntax.splice import BESIDE, SOURCES


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
