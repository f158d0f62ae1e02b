"""DuckDB's errors as the user of a Session sees them.

`UserCall` surrounds a user's call of a Session, `user_errors` surrounds every call of DuckDB, and
`reworded_errors` surrounds rewritten queries. These context managers are classes, because a
contextlib generator would be slower than the rest of a call, and would add a stack frame.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import duckdb

from sqlml.catalog.catalog_connection import damaged_catalog_error, is_catalog_table_missing
from sqlml.errors import SqlmlError, excerpt
from sqlml.interruption import Stop, interruption_stops
from sqlml.parsing.statements import Statement
from sqlml.parsing.tokens import find_original_offset
from sqlml.planner.binding.function_hints import suggest_fix
from sqlml.udfs.batch_function import claim_error
from sqlml.udfs.duckdb.engine import DuckDBEngine, is_interrupt
from sqlml.udfs.duckdb.user_frame import find_user_frame

_EXCERPT = re.compile(r"\n\nLINE (\d+): (.*)\n( *)\^[~^]*", re.DOTALL)


class UserCall(interruption_stops):
    """A context manager around a user's call of a Session method.

    In the block, the engine sees the variables of the user's stack frame, and Ctrl-C stops the
    engine's threads. Errors have sqlml's types and show their position in the user's SQL.
    """

    def __init__(self, engine: DuckDBEngine, query: Any = None) -> None:
        super().__init__(engine.native.interrupt)
        self._engine = engine
        self._query = query
        self._statement_offset = 0
        self._is_outermost = engine.frame is None

    def __enter__(self) -> UserCall:
        if self._is_outermost:
            super().__enter__()
            self._engine.frame = find_user_frame()
            self._engine.begin_statement(about_models=self._query is None)
        return self

    def begin_statement(self, statement: Statement) -> None:
        offset = self._query.find(statement.sql, self._statement_offset)
        self._statement_offset = max(offset, self._statement_offset)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._is_outermost:
            super().__exit__(kind, error, trace)
            self._engine.frame = None
        if error is None:
            return
        texts = [self._query] if isinstance(self._query, str) else []
        translated_error = translate_error(error, texts, self._engine, self.stopped)
        if translated_error is not error:
            raise translated_error from None
        relocated_error = self._relocate(error) if isinstance(error, SqlmlError) else None
        if relocated_error is not None:
            raise relocated_error from error.__cause__

    def _relocate(self, error: SqlmlError) -> SqlmlError | None:
        """Return a copy of `error` with the position in the whole query, or None if unknown."""
        if error.offset is None or not error.sql or not isinstance(self._query, str):
            return None
        offset = self._query.find(error.sql, self._statement_offset)
        is_inside = offset >= 0 and len(error.sql) < len(self._query)
        return error.at(self._query, offset + error.offset) if is_inside else None


class user_errors(interruption_stops):
    """A context manager that translates the engine's errors with `translate_error`.

    A Ctrl-C calls `stop`, which is the `interrupt` method of the connection and stops all threads
    of the engine. If `stop` is None, only the current thread is stopped.
    """

    __slots__ = ("_engine", "_texts")

    def __init__(
        self, stop: Stop | None, texts: Sequence[str] = (), engine: DuckDBEngine | None = None
    ) -> None:
        super().__init__(stop)
        self._texts = texts
        self._engine = engine

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        super().__exit__(kind, error, trace)
        if isinstance(error, duckdb.Error | RuntimeError):
            raise translate_error(error, self._texts, self._engine, self.stopped) from None


def translate_error(
    error: BaseException,
    texts: Sequence[str] = (),
    engine: DuckDBEngine | None = None,
    stopped: bool = False,
) -> BaseException:
    """Return the error to raise instead of `error`, or `error` if it needs no translation.

    If a batch function raised an exception, the exception replaces the engine's error. If a call in
    `texts`, the user's SQL, was meant for sqlml, a hint is added. If Ctrl-C was pressed, a
    KeyboardInterrupt is returned. `engine` is None for the results of a relation.
    """
    was_interrupted = is_interrupt if engine is None else engine.is_interrupt
    if was_interrupted(error, stopped):
        return KeyboardInterrupt()
    if not isinstance(error, duckdb.Error | RuntimeError):
        return error
    function_error = claim_error(str(error))
    if function_error is not None or not isinstance(error, duckdb.Error):
        return function_error or error
    if isinstance(error, duckdb.CatalogException) and is_catalog_table_missing(error, texts):
        return damaged_catalog_error(error)
    is_function = (lambda name: False) if engine is None else engine.knows_function
    for text in texts:
        hint = suggest_fix(text, str(error), is_function)
        if hint is not None:
            return type(error)(f"{error}\n\nsqlml: {hint}")
    return error


class reworded_errors:
    """A context manager that makes errors about rewritten SQL point to the user's SQL."""

    __slots__ = ("_rewritten_sql", "_user_sql")

    def __init__(self, rewritten_sql: str, user_sql: str) -> None:
        self._rewritten_sql = rewritten_sql
        self._user_sql = user_sql

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, duckdb.Error) and self._rewritten_sql != self._user_sql:
            raise relocate_error(error, self._rewritten_sql, self._user_sql) from None


def relocate_error(error: duckdb.Error, rewritten_sql: str, user_sql: str) -> duckdb.Error:
    """Return a copy of an error about rewritten SQL with an excerpt of the user's SQL.

    If the position in the user's SQL cannot be found, return `error` unchanged.
    """
    message = str(error)
    match = _EXCERPT.search(message)
    offset = None if match is None else _find_offset(rewritten_sql, *match.groups())
    if match is None or offset is None:
        return error
    user_offset = find_original_offset(rewritten_sql, user_sql, offset)
    if user_offset is None:
        return error
    user_excerpt = f"\n\n{excerpt(user_sql, user_offset)}"
    return type(error)(message[: match.start()] + user_excerpt + message[match.end() :])


def _find_offset(sql: str, line: str, excerpt_text: str, blanks: str) -> int | None:
    """Return the offset in `sql` of the engine's caret, or None if the position is ambiguous.

    `line` is the line number of the excerpt. `blanks` precede the caret.
    """
    lines = sql.split("\n")
    line_index = int(line) - 1
    if line_index >= len(lines):
        return None
    is_truncated = excerpt_text.startswith("...")
    visible_text = excerpt_text.removeprefix("...").removesuffix("...")
    line_offset = lines[line_index].find(visible_text) if visible_text else -1
    if line_offset < 0 or lines[line_index].count(visible_text) > 1:
        return None
    caret = len(blanks) - len(f"LINE {line}: ") - 3 * is_truncated
    return sum(len(before) + 1 for before in lines[:line_index]) + line_offset + caret
