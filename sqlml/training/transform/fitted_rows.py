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
        (found,) = self.host.read(f"SELECT {aggregates} FROM {self._fitted}")
        return found

    def most_frequent(self, lists: str, most: int) -> list[str]:
        """The most frequent entries of lists of texts, an expression; of equally frequent ones the
        first in order."""
        item = f"{builtin('unnest')}({lists}) AS item"
        items = f"SELECT {item} FROM {self._fitted}"
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
    def _fitted(self) -> str:
        """The rows that are fitted to, in brackets."""
        request = self.request
        names = {fold(name): name for name in self.columns}
        group = names.get(fold(request.group or ""))
        keys = request.split.keys(self.columns, request.label, group, request.seed)
        ((count,),) = self.host.read(f"SELECT {builtin('count')}(*) FROM {self._rows}")
        split = request.split.settled(count)
        last = None
        if split.method == "seq" and split.trained(count) < count:
            (key,) = keys
            text, kind = f"CAST({key} AS VARCHAR)", DUCKDB.call("typeof", key)
            ((value, kind),) = self.host.read(
                f"SELECT {text}, {kind} FROM {self._rows} ORDER BY {key} NULLS LAST "
                f"LIMIT 1 OFFSET {max(split.trained(count), 1) - 1}"
            )
            last = f"CAST({'NULL' if value is None else DUCKDB.text(value)} AS {kind})"
        if split.method == "none":
            keys = ()
        return f"({split.side_sql(self._rows, keys, last, held_out=False)}) AS sqlml_fitted"
