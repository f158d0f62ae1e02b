"""FROM clauses that compute additional columns for calls."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlml.dialects import Dialect
from sqlml.parsing.places import Span, overlaps
from sqlml.planner.binding.probe_queries import TextOf
from sqlml.planner.plan.call_draft import FromColumn
from sqlml.planner.syntax.outline import ADJUSTMENTS, SOURCES, ModelCall, Outline, SingleSource


@dataclass(frozen=True, slots=True)
class WidenableSource:
    """A FROM clause that can compute additional columns, and its name.

    Attributes:
        stars: the spans of the block's stars.
        exclude_lists: the opening brackets of the lists of columns that a star leaves out.
        filters: the operands of WHERE's ANDs that call no model.
    """

    span: Span
    alias: str
    stars: tuple[Span, ...]
    exclude_lists: tuple[Span, ...]
    filters: tuple[Span, ...]

    def add_columns(
        self, written: str, columns: Mapping[str, str], where: Sequence[str], dialect: Dialect
    ) -> str:
        """Return the FROM clause `written` with additional columns, given as expressions by
        name.
        """
        column_list = ", ".join(
            f"{sql} AS {dialect.quote_name(name)}" for name, sql in columns.items()
        )
        return f"(SELECT *, {column_list} FROM {written}{_write_where(where)}) AS {self.alias}"

    def sort_numbered(
        self, written: str, order: Sequence[str], where: Sequence[str], dialect: Dialect
    ) -> str:
        """Return the FROM clause `written` sorted by `order`, with each row's original number."""
        number = f"{dialect.row_number} AS {_NUMBER}"
        by = ", ".join(order)
        filters = _write_where(where)
        return f"(SELECT *, {number} FROM {written}{filters} ORDER BY {by}) AS {self.alias}"

    def restore_order(self, written: str, dialect: Dialect) -> str:
        """Return the result of `sort_numbered` in its original order, without the number."""
        columns = dialect.star_without([_NUMBER])
        return f"(SELECT {columns} FROM {written} ORDER BY {_NUMBER}) AS {self.alias}"

    def adjust_stars(self, columns: Iterable[str], dialect: Dialect) -> dict[Span, str]:
        """Return the edits that exclude `columns` from stars."""
        names = [dialect.quote_name(name) for name in columns]
        return dict.fromkeys(self.stars, dialect.star_without(names)) | dict.fromkeys(
            self.exclude_lists, f"({', '.join(names)}, "
        )


_NUMBER = "sqlml_number"


def _write_where(terms: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(terms)}" if terms else ""


def find_source(call: ModelCall, outline: Outline) -> WidenableSource | None:
    """Return the FROM clause of a call's block; None if it must stay as it is."""
    block = call.block
    if block is None or outline.prefix is None or block.is_chain:
        return None
    single_source: SingleSource | None = outline.single_sources.get(block.span)
    if single_source is None:
        return None
    filters = tuple(f for f in block.filters if not overlaps(f, outline.outer_calls))
    alias = outline.sql[single_source.alias.start : single_source.alias.end]
    return WidenableSource(
        single_source.span, alias, single_source.stars, single_source.exclude_lists, filters
    )


def find_row_source(call: ModelCall, outline: Outline) -> WidenableSource | None:
    """Return the FROM clause that can pack the row of a call; None if the row would differ there.

    It would if a window reads the rows that WHERE keeps, or if a name in ORDER BY means a select
    item and also a column.
    """
    if "over" in call.identifiers or call.uses_select_names:
        return None
    return find_source(call, outline)


@dataclass(frozen=True, slots=True)
class _SourceText:
    """The texts of a FROM clause and of the filters on it."""

    source: str
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WidenedSource:
    """A FROM clause with the columns that it computes for calls.

    Attributes:
        final_text: the clause as it goes to the engine, without these columns.
        probe_text: the clause in probes.
        rows: columns of packed numbers by name.
        models: columns of model results by name, computed from `rows`.
    """

    source: WidenableSource
    dialect: Dialect
    final_text: _SourceText
    probe_text: _SourceText
    rows: Mapping[str, FromColumn] = field(default_factory=dict)
    models: Mapping[str, FromColumn] = field(default_factory=dict)

    @classmethod
    def create(
        cls, source: WidenableSource, dialect: Dialect, text: TextOf, probed: TextOf
    ) -> WidenedSource:
        """Return a source without columns yet; both functions return the statement's texts."""
        final_text, probe_text = (
            _SourceText(of(source.span), tuple(map(of, source.filters))) for of in (text, probed)
        )
        return cls(source, dialect, final_text, probe_text)

    def with_columns(self, row: FromColumn | None, model: FromColumn | None) -> WidenedSource:
        """Return the source with a packed row and a model's column."""
        rows = {**self.rows, row.name: row} if row is not None else self.rows
        models = {**self.models, model.name: model} if model is not None else self.models
        return replace(self, rows=rows, models=models)

    def sql(self, filters_first: bool) -> str:
        """Return the replacement of the clause."""
        return self._write(self.final_text, operator.attrgetter("sql"), filters_first)

    def probe(self, filters_first: bool) -> str:
        """Return its replacement in probes, before the functions are registered."""
        return self._write(
            self.probe_text, lambda column: column.probe(self.dialect), filters_first
        )

    def adjustments(self, filters_first: bool) -> dict[Span, str]:
        """Return edits that exclude the columns from stars, and move filters below models."""
        names = [*self.rows, *self.models]
        filters = self.source.filters if self._filters_inside(filters_first) else ()
        return self.source.adjust_stars(names, self.dialect) | dict.fromkeys(filters, "TRUE")

    def edits_by_layer(self, filters_first: bool) -> dict[int, dict[Span, str]]:
        """Return the edits of the clause by the layers of `Edits`."""
        return {
            SOURCES: {self.source.span: self.sql(filters_first)},
            ADJUSTMENTS: self.adjustments(filters_first),
        }

    def _write(
        self, written: _SourceText, of: Callable[[FromColumn], str], filters_first: bool
    ) -> str:
        """Write the clause with rows below models, and filters below both."""
        where = written.filters if self._filters_inside(filters_first) else ()
        source_sql = written.source
        order = {column.order: None for column in self.models.values() if column.order is not None}
        if order:
            source_sql, where = (
                self.source.sort_numbered(source_sql, list(order), where, self.dialect),
                (),
            )
        for layer in filter(None, (self.rows, self.models)):
            columns = {name: of(column) for name, column in layer.items()}
            source_sql, where = (
                self.source.add_columns(source_sql, columns, where, self.dialect),
                (),
            )
        return self.source.restore_order(source_sql, self.dialect) if order else source_sql

    def _filters_inside(self, filters_first: bool) -> bool:
        """Return whether filters go below the models; if rows are sorted or numbered they must."""
        sorts = any(column.order is not None for column in self.models.values())
        return bool(self.models) and (filters_first or sorts)
