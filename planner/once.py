"""What FROM makes besides its own columns: a model evaluated once, or a row's packed numbers.

The engine evaluates WHERE in one operator and SELECT in another, so that a call in both is made
twice, and a column that is computed in FROM is computed again in the filter, unless its function
is called volatile. So, where f is volatile::

    SELECT a, predict('m', *) FROM t WHERE predict_proba('m', *, class := 1) > 0.8 AND b
    SELECT a, f[1] FROM (SELECT *, f(..) AS f FROM t) AS t WHERE f[2] > 0.8 AND b

Filters that do not need the column still go below it, and into the scan: DuckDB sees to that
itself, and for Spark, which leaves them above a volatile column, `b` goes into the inner query.
This is done where FROM is one table, file or subquery, and where nobody can see that it has another
column now: stars leave it out, and nobody takes whole rows. The engine's binder has the last word:
the rewritten block must bind, with columns of the same names and types. And only where WHERE asks
for each row: `a IS NULL OR predict('m', *) = 1` keeps rows from the model that it might refuse.

Packed numbers, of which the function is called in its own place::

    SELECT a, predict('m', *) FROM t
    SELECT a, f(r, r) FROM (SELECT *, array(..) AS r FROM t) AS t

Spark copies each column of the rows that it hands to Python several times; r is one column, and a
column that is used twice is not written out where it is used.
"""

from __future__ import annotations

import hashlib
import operator
from dataclasses import dataclass

from sqlml.dialects import Dialect
from sqlml.parsing.places import Span
from sqlml.planner.probe import Text
from sqlml.planner.single_source import Source


@dataclass(frozen=True, slots=True)
class Way:
    """What FROM may be asked to make.

    Columns of models that WHERE asks, too (`models`); with the filters that call no model below
    them (`filters`); and the packed numbers of other calls (`rows`).
    """

    models: bool = False
    filters: bool = False
    rows: bool = False


def ways(dialect: Dialect) -> tuple[Way, ...]:
    """The ways to write a statement of a dialect, the best first; the last one always does."""
    if dialect.copies_rows:
        return Way(True, True, True), Way(True), Way()
    return Way(True), Way()


@dataclass(frozen=True, slots=True)
class Column:
    """What FROM is to make besides its own columns.

    name: of the column. sql: what it is. arguments: what must bind that it may be so. type: as the
    dialect spells it.
    """

    name: str
    sql: str
    arguments: str
    type: str

    @staticmethod
    def of_row(packed: str, kind: str) -> Column:
        """The packed numbers of one row, of type `kind`."""
        digest = hashlib.blake2b(packed.encode(), digest_size=12).hexdigest()
        return Column(f"sqlml_row_{digest}", packed, packed, kind)

    def probe(self, dialect: Dialect) -> str:
        """A NULL of the same type, which binds where the function's arguments bind."""
        row = dialect.row(self.arguments)
        return f"CASE WHEN {row} IS NULL THEN CAST(NULL AS {self.type}) END"


class Moved:
    """The FROM clauses of a statement that make columns, as texts that take their places.

    sources: for the engine; probes: for its binder, before the functions are registered. patches:
    place -> text, for the stars of their blocks.
    """

    def __init__(self, dialect: Dialect, way: Way) -> None:
        self._dialect, self._way = dialect, way
        self.sources: dict[Span, str] = {}
        self.probes: dict[Span, str] = {}
        self.patches: dict[Span, str] = {}
        self._rows: dict[Source, dict[str, Column]] = {}
        self._models: dict[Source, dict[str, Column]] = {}
        self._written: dict[Source, tuple[_Written, _Written]] = {}

    def add_row(self, source: Source, column: Column, text: Text, probed: Text) -> None:
        """Let `source` make a row's packed numbers; both texts are the statement's, as it is."""
        self._rows.setdefault(source, {})[column.name] = column
        self._write(source, text, probed)

    def add_model(self, source: Source, column: Column, text: Text, probed: Text) -> None:
        """Let `source` make what a model computes, and filter before where that is the way."""
        self._models.setdefault(source, {})[column.name] = column
        self._write(source, text, probed)

    def _write(self, source: Source, text: Text, probed: Text) -> None:
        if source not in self._written:
            self._written[source] = (
                _Written(text(source.span), tuple(map(text, source.filters))),
                _Written(probed(source.span), tuple(map(probed, source.filters))),
            )
        rows, models = self._rows.get(source, {}), self._models.get(source, {})
        filters = source.filters if models and self._way.filters else ()
        sql, probe = self._written[source]
        layers = [layer for layer in (rows, models) if layer]
        for written, texts, of in (
            (sql, self.sources, operator.attrgetter("sql")),
            (probe, self.probes, operator.methodcaller("probe", self._dialect)),
        ):
            made, where = written.source, written.filters if filters else ()
            for layer in layers:
                columns = {name: of(column) for name, column in layer.items()}
                made, where = source.text(made, columns, where, self._dialect), ()
            texts[source.span] = made
        self.patches.update(source.patches([*rows, *models], self._dialect))
        self.patches |= dict.fromkeys(filters, "TRUE")


@dataclass(frozen=True, slots=True)
class _Written:
    """The texts of a FROM clause and of the filters on it."""

    source: str
    filters: tuple[str, ...]
