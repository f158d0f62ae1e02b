"""`FittedRows`: the rows that a model is fitted to, as a query, for what is computed over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb

from sqlml.catalog.connection import without_excerpt
from sqlml.catalog.row_expressions import RowExpression
from sqlml.dialects.duckdb import DUCKDB, builtin
from sqlml.host import RowHost
from sqlml.training.options.request import Request
from sqlml.types import fold


@dataclass(frozen=True)
class FittedRows:
    """The rows of a query without those that are held out.

    columns: name -> type. request: its split and seed say which rows are.
    """

    host: RowHost
    query: str
    columns: Mapping[str, str]
    request: Request

    def types(self, expressions: Sequence[RowExpression]) -> list[str]:
        """The types that the engine gives to expressions over the query's columns.

        Raises:
            duckdb.Error: it cannot bind one of them.
        """
        if not expressions:
            return []
        listed = ", ".join(
            f"{e.plain({c: DUCKDB.quote_name(c) for c in e.columns})} AS c{n}"
            for n, e in enumerate(expressions)
        )
        query = f"SELECT {listed} FROM (\n{self.query}\n) AS sqlml_rows"
        try:
            return [kind for _, kind in self.host.describe(query)]
        except duckdb.Error as error:  # which shows the expressions as they are kept
            raise type(error)(without_excerpt(error)) from None

    def ask(self, aggregates: str) -> tuple[Any, ...]:
        """The values of aggregates over these rows."""
        (found,) = self.host.read(f"SELECT {aggregates} FROM {self._rows} WHERE {self._condition}")
        return found

    def most_frequent(self, lists: str, most: int) -> list[str]:
        """The most frequent entries of lists of texts, an expression; of equally frequent ones the
        first in order."""
        item = f"{builtin('unnest')}({lists}) AS item"
        items = f"SELECT {item} FROM {self._rows} WHERE {self._condition}"
        found = self.host.read(
            f"SELECT item FROM ({items}) AS sqlml_items WHERE item IS NOT NULL GROUP BY item "
            f"ORDER BY {builtin('count')}(*) DESC, item LIMIT {most}"
        )
        return [text for (text,) in found]

    @cached_property
    def _rows(self) -> str:
        """The rows with a label."""
        label = next((c for c in self.columns if fold(c) == fold(self.request.label or "")), None)
        where = "" if label is None else f" WHERE {DUCKDB.quote_name(label)} IS NOT NULL"
        return f"(SELECT * FROM (\n{self.query}\n) AS sqlml_query{where}) AS sqlml_rows"

    @cached_property
    def _condition(self) -> str:
        """Whether a row is fitted to."""
        hashed = hashed_columns(self.columns)
        place = self.request.split.place(hashed, self.request.seed)
        if place is None:
            return "true"
        ((count,),) = self.host.read(f"SELECT {builtin('count')}(*) FROM {self._rows}")
        split = self.request.split.settled(count)
        if split.method == "none":
            return "true"
        last = None
        if split.method == "seq":
            trained = split.trained(count)
            text, kind = f"CAST({place} AS VARCHAR)", DUCKDB.call("typeof", place)
            found = self.host.read(
                f"SELECT {text}, {kind} FROM {self._rows} ORDER BY {place} NULLS LAST "
                f"LIMIT 1 OFFSET {max(trained, 1) - 1}"
            )
            if found and trained < count:
                last = f"CAST({DUCKDB.text(str(found[0][0]))} AS {found[0][1]})"
        return split.fitted_sql(place, last)


def hashed_columns(columns: Mapping[str, str]) -> list[str]:
    """What makes a row, for who holds out some: an ENUM is the text that it would be in a file, and
    not its number.

    Args:
        columns: name -> type.
    """
    quoted = {name: DUCKDB.quote_name(name) for name in columns}
    return [
        f"CAST({quoted[name]} AS VARCHAR)" if kind.startswith("ENUM(") else quoted[name]
        for name, kind in columns.items()
    ]
