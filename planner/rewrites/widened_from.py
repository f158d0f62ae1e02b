"""FROM clauses that compute additional columns for calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sqlml.dialects import Dialect
from sqlml.parsing.places import Span, overlaps
from sqlml.planner.binding.probe_queries import TextOf
from sqlml.planner.plan.call_draft import FromColumn
from sqlml.planner.syntax.outline import ADJUSTMENTS, SOURCES, ModelCall, Outline, WidenableSource

_ROW_NUMBER = "sqlml_number"
"""The column that holds each row's original number while the rows are sorted."""


def find_source(call: ModelCall, outline: Outline) -> WidenableSource | None:
    """Return the FROM clause of a call's block, or None if FROM cannot produce a new column."""
    block = call.block
    if block is None or outline.prefix is None or block.is_chain:
        return None
    source = outline.widenable_sources.get(block.span)
    filters = tuple(f for f in block.filters if not overlaps(f, outline.outer_calls))
    return None if source is None else replace(source, filters=filters)


def find_row_source(call: ModelCall, outline: Outline) -> WidenableSource | None:
    """Return the FROM clause that can pack the row of a call, or None if the row would differ.

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
        final_text: the SQL of the clause without these columns, and the SQL of each filter.
        probe_text: the same texts for probes.
        needs_order: whether the block may return something else for rows in another order.
        rows: name -> column with the packed numbers of a row.
        models: name -> column with a model's results, which may be computed from `rows`.
    """

    source: WidenableSource
    dialect: Dialect
    final_text: tuple[str, tuple[str, ...]]
    probe_text: tuple[str, tuple[str, ...]]
    needs_order: bool
    rows: Mapping[str, FromColumn] = field(default_factory=dict)
    models: Mapping[str, FromColumn] = field(default_factory=dict)

    @classmethod
    def create(
        cls,
        source: WidenableSource,
        dialect: Dialect,
        text_of: TextOf,
        probe_text_of: TextOf,
        needs_order: bool,
    ) -> WidenedSource:
        """Create a source that computes no columns yet.

        `text_of` returns the final SQL at a span, and `probe_text_of` returns the SQL for probes.
        """
        final_text = text_of(source.span), tuple(map(text_of, source.filters))
        probe_text = probe_text_of(source.span), tuple(map(probe_text_of, source.filters))
        return cls(source, dialect, final_text, probe_text, needs_order)

    def with_columns(self, row: FromColumn | None, model: FromColumn | None) -> WidenedSource:
        rows = {**self.rows, row.name: row} if row is not None else self.rows
        models = {**self.models, model.name: model} if model is not None else self.models
        return replace(self, rows=rows, models=models)

    def build_probe(self, filters_first: bool) -> str:
        """Return the FROM clause for probes, which run before the functions are registered."""
        return self._build_clause(
            *self.probe_text, lambda column: column.build_probe(self.dialect), filters_first
        )

    def build_adjustments(self, filters_first: bool) -> dict[Span, str]:
        """Return the edits that the rest of the block needs, outside of this FROM clause.

        They exclude the new columns from stars, and put TRUE for filters that the clause applies.
        """
        quoted_names = [self.dialect.quote_name(name) for name in (*self.rows, *self.models)]
        filters = self.source.filters if self._moves_filters(filters_first) else ()
        return (
            dict.fromkeys(self.source.stars, self.dialect.star_without(quoted_names))
            | dict.fromkeys(self.source.exclude_lists, f"({', '.join(quoted_names)}, ")
            | dict.fromkeys(filters, "TRUE")
        )

    def build_edits(self, filters_first: bool) -> dict[int, dict[Span, str]]:
        clause = self._build_clause(*self.final_text, lambda column: column.sql, filters_first)
        adjustments = self.build_adjustments(filters_first)
        return {SOURCES: {self.source.span: clause}, ADJUSTMENTS: adjustments}

    def _build_clause(
        self,
        clause: str,
        filters: tuple[str, ...],
        build_column_sql: Callable[[FromColumn], str],
        filters_first: bool,
    ) -> str:
        """Build nested subqueries: the filters innermost, then packed rows, then the results.

        Sorted rows get their original order back only if `needs_order`.
        """
        alias = self.source.alias
        where = ""
        if filters and self._moves_filters(filters_first):
            where = f" WHERE {' AND '.join(filters)}"
        sort_keys = dict.fromkeys(c.order for c in self.models.values() if c.order is not None)
        if sort_keys:
            number = f", {self.dialect.row_number} AS {_ROW_NUMBER}" if self.needs_order else ""
            order_by = ", ".join(sort_keys)
            clause = f"(SELECT *{number} FROM {clause}{where} ORDER BY {order_by}) AS {alias}"
            where = ""
        for layer in filter(None, (self.rows, self.models)):
            columns = ", ".join(
                f"{build_column_sql(column)} AS {self.dialect.quote_name(name)}"
                for name, column in layer.items()
            )
            clause, where = f"(SELECT *, {columns} FROM {clause}{where}) AS {alias}", ""
        if not sort_keys or not self.needs_order:
            return clause
        columns = self.dialect.star_without([_ROW_NUMBER])
        return f"(SELECT {columns} FROM {clause} ORDER BY {_ROW_NUMBER}) AS {alias}"

    def _moves_filters(self, filters_first: bool) -> bool:
        """Return whether the clause also applies the filters, which sorting rows requires."""
        sorts_rows = any(column.order is not None for column in self.models.values())
        return bool(self.models) and (filters_first or sorts_rows)
