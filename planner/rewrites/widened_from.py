"""FROM clauses that compute additional columns for calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sqlml.dialects import Dialect
from sqlml.parsing.places import Span, overlaps
from sqlml.planner.binding.probe_queries import TextOf
from sqlml.planner.plan.call_draft import FromColumn
from sqlml.planner.syntax.outline import (
    ADJUSTMENTS,
    SOURCES,
    ModelCall,
    Outline,
    WidenableSource,
)

_NUMBER = "sqlml_number"
"""The column with each row's original number, while rows are sorted."""


def find_source(call: ModelCall, outline: Outline) -> WidenableSource | None:
    """Return the FROM clause of a call's block; None if it must stay as it is."""
    block = call.block
    if block is None or outline.prefix is None or block.is_chain:
        return None
    source = outline.widenable_sources.get(block.span)
    filters = tuple(f for f in block.filters if not overlaps(f, outline.outer_calls))
    return None if source is None else replace(source, filters=filters)


def find_row_source(call: ModelCall, outline: Outline) -> WidenableSource | None:
    """Return the FROM clause that can pack the row of a call; None if the row would differ there.

    The row would differ if a window reads the rows that WHERE keeps, or if a name in ORDER BY
    means both a select item and a column.
    """
    if "over" in call.identifiers or call.uses_select_names:
        return None
    return find_source(call, outline)


@dataclass(frozen=True, slots=True)
class WidenedSource:
    """A FROM clause with the columns that it computes for calls.

    Attributes:
        final_text: the clause without these columns, and the filters on it, for the engine.
        probe_text: the same in probes.
        rows: columns of packed numbers by name.
        models: columns of model results by name, computed from `rows`.
    """

    source: WidenableSource
    dialect: Dialect
    final_text: tuple[str, tuple[str, ...]]
    probe_text: tuple[str, tuple[str, ...]]
    rows: Mapping[str, FromColumn] = field(default_factory=dict)
    models: Mapping[str, FromColumn] = field(default_factory=dict)

    @classmethod
    def create(
        cls, source: WidenableSource, dialect: Dialect, text: TextOf, probed: TextOf
    ) -> WidenedSource:
        """Return a source that computes no columns yet.

        `text` and `probed` return the text at a span, for the engine and for probes.
        """
        final_text, probe_text = (
            (text_of(source.span), tuple(map(text_of, source.filters)))
            for text_of in (text, probed)
        )
        return cls(source, dialect, final_text, probe_text)

    def with_columns(self, row: FromColumn | None, model: FromColumn | None) -> WidenedSource:
        """Return the source with a packed row and a model's column."""
        rows = {**self.rows, row.name: row} if row is not None else self.rows
        models = {**self.models, model.name: model} if model is not None else self.models
        return replace(self, rows=rows, models=models)

    def probe(self, filters_first: bool) -> str:
        """Return the clause for probes, before the functions are registered."""
        return self._write(*self.probe_text, lambda c: c.probe(self.dialect), filters_first)

    def adjustments(self, filters_first: bool) -> dict[Span, str]:
        """Return the edits outside of the clause.

        They exclude the columns from stars, and remove the filters that moved into the clause.
        """
        names = [self.dialect.quote_name(name) for name in (*self.rows, *self.models)]
        filters = self.source.filters if self._filters_inside(filters_first) else ()
        return (
            dict.fromkeys(self.source.stars, self.dialect.star_without(names))
            | dict.fromkeys(self.source.exclude_lists, f"({', '.join(names)}, ")
            | dict.fromkeys(filters, "TRUE")
        )

    def edits_by_layer(self, filters_first: bool) -> dict[int, dict[Span, str]]:
        """Return the edits of the clause by the layers of `Edits`."""
        clause = self._write(*self.final_text, lambda column: column.sql, filters_first)
        return {
            SOURCES: {self.source.span: clause},
            ADJUSTMENTS: self.adjustments(filters_first),
        }

    def _write(
        self,
        clause: str,
        filters: tuple[str, ...],
        write_column: Callable[[FromColumn], str],
        filters_first: bool,
    ) -> str:
        """Write the clause as nested subqueries: filters inside packed rows inside results."""
        alias, where = self.source.alias, ""
        if filters and self._filters_inside(filters_first):
            where = f" WHERE {' AND '.join(filters)}"
        order = dict.fromkeys(c.order for c in self.models.values() if c.order is not None)
        if order:
            number = f"{self.dialect.row_number} AS {_NUMBER}"
            by = ", ".join(order)
            clause = f"(SELECT *, {number} FROM {clause}{where} ORDER BY {by}) AS {alias}"
            where = ""
        for layer in filter(None, (self.rows, self.models)):
            columns = ", ".join(
                f"{write_column(column)} AS {self.dialect.quote_name(name)}"
                for name, column in layer.items()
            )
            clause, where = f"(SELECT *, {columns} FROM {clause}{where}) AS {alias}", ""
        if not order:
            return clause
        columns = self.dialect.star_without([_NUMBER])
        return f"(SELECT {columns} FROM {clause} ORDER BY {_NUMBER}) AS {alias}"

    def _filters_inside(self, filters_first: bool) -> bool:
        """Return whether filters move into the clause; they must if it sorts rows."""
        sorts = any(column.order is not None for column in self.models.values())
        return bool(self.models) and (filters_first or sorts)
