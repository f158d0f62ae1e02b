"""`rows_of`: the rows that a user names, as a query or as a table, as they may stand in FROM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import duckdb

from sqlml.catalog.connection import without_excerpt
from sqlml.errors import ConfigError, ParseError
from sqlml.parsing.cut_statements import cut
from sqlml.planner.rewrites.table_form import parsable


def rows_of(data: str, read: Callable[[str], Sequence[Any]]) -> str:
    """What a FROM takes: a query in brackets, or the name of a table as it was written.

    Args:
        read: the engine's parser, text to statements. Nothing is run.

    Raises:
        ParseError: it is neither.
    """
    if not isinstance(data, str):
        raise ConfigError(
            "a report takes the text of a query or the name of a table; a frame has a name after "
            "con.register('rows', frame)"
        )
    pieces = [piece for piece in cut(data, "duckdb") if piece.strip()]
    if not pieces:
        raise ParseError("the data of a report is empty: name a table, or write a query")
    if len(pieces) > 1:
        raise ParseError(
            f"the data of a report is one query or one table, and this is {len(pieces)} statements"
        )
    text = pieces[0].strip()
    try:
        kinds = [statement.type for statement in read(parsable(text))]
    except (duckdb.Error, ValueError) as error:
        if _is_table(text, read):
            return text
        raise ParseError(
            f"the data of a report is neither a query nor the name of a table "
            f"({_first_line(error)}); an unusual name of a table stands in double quotes"
        ) from None
    rows = f"(\n{text}\n)"
    if kinds == [duckdb.StatementType.SELECT] and _parses(f"SELECT * FROM {parsable(rows)}", read):
        return rows
    raise ParseError("the data of a report is a query, such as SELECT * FROM customers")


def _is_table(text: str, read: Callable[[str], Sequence[Any]]) -> bool:
    return _parses(f"FROM {text}\n", read)


def _parses(sql: str, read: Callable[[str], Sequence[Any]]) -> bool:
    try:
        return [s.type for s in read(sql)] == [duckdb.StatementType.SELECT]
    except (duckdb.Error, ValueError):
        return False


def _first_line(error: Exception) -> str:
    told = without_excerpt(error) if isinstance(error, duckdb.Error) else str(error)
    return told.splitlines()[0].removeprefix("Parser Error: ")
