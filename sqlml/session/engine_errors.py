"""DuckDB's errors as the user of a Session sees them.

`user_errors` surrounds every call of DuckDB, and `reworded_errors` the rewritten queries inside it.
`UserCall` surrounds a user's call of a Session. They are classes because a contextlib generator
would take longer than everything else here, and would add a frame between sqlml and the user.
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

    In its block, the engine sees the variables of the user's frame, Ctrl-C stops the engine's
    threads, and errors have sqlml's types and show their position in the user's SQL.
    """

    def __init__(self, engine: DuckDBEngine, query: Any = None) -> None:
        super().__init__(engine.native.interrupt)
        self._engine = engine
        self._query = query
        self._statement_begin = 0
        self._is_outermost = engine.frame is None

    def __enter__(self) -> UserCall:
        if self._is_outermost:
            super().__enter__()
            self._engine.frame = find_user_frame()
            self._engine.begin_statement(about_models=self._query is None)
        return self

    def begin_statement(self, statement: Statement) -> None:
        offset = self._query.find(statement.sql, self._statement_begin)
        self._statement_begin = max(offset, self._statement_begin)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._is_outermost:
            super().__exit__(kind, error, trace)
            self._engine.frame = None
        if error is None:
            return
        texts = [self._query] if isinstance(self._query, str) else []
        translated = translate_error(error, texts, self._engine, self.stopped)
        if translated is not error:
            raise translated from None
        relocated = self._relocate(error) if isinstance(error, SqlmlError) else None
        if relocated is not None:
            raise relocated from error.__cause__

    def _relocate(self, error: SqlmlError) -> SqlmlError | None:
        """Return a copy of `error`, located in the whole query instead of in one statement."""
        if error.offset is None or not error.sql or not isinstance(self._query, str):
            return None
        offset = self._query.find(error.sql, self._statement_begin)
        is_inside = offset >= 0 and len(error.sql) < len(self._query)
        return error.at(self._query, offset + error.offset) if is_inside else None


class user_errors(interruption_stops):
    """A context manager that translates the engine's errors with `translate_error`.

    A Ctrl-C calls `stop`, the `interrupt` method of the connection, which stops all threads of the
    engine. If `stop` is None, only the current thread is stopped.
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
    """Return the error to raise instead of `error`, which may be `error` itself.

    If a batch function raised an exception, it replaces the error in which the engine reports it.
    If a call in `texts`, the user's SQL, was meant for sqlml, a hint is added. A Ctrl-C (`stopped`)
    is checked first, since `except Exception` would treat it as an error in the query. For results
    of a relation, `engine` is None.
    """
    was_interrupted = is_interrupt if engine is None else engine.is_interrupt
    if was_interrupted(error, stopped):
        return KeyboardInterrupt()
    if not isinstance(error, duckdb.Error | RuntimeError):
        return error
    raised_in_function = claim_error(str(error))
    if raised_in_function is not None or not isinstance(error, duckdb.Error):
        return raised_in_function or error
    if isinstance(error, duckdb.CatalogException) and is_catalog_table_missing(error, texts):
        return damaged_catalog_error(error)
    is_function = (lambda name: False) if engine is None else engine.knows_function
    for text in texts:
        message = suggest_fix(text, str(error), is_function)
        if message is not None:
            return type(error)(f"{error}\n\nsqlml: {message}")
    return error


class reworded_errors:
    """A context manager that makes errors about rewritten SQL point to the SQL the user wrote."""

    __slots__ = ("_rewritten", "_written")

    def __init__(self, rewritten: str, written: str) -> None:
        self._rewritten = rewritten
        self._written = written

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, duckdb.Error) and self._rewritten != self._written:
            raise relocate_error(error, self._rewritten, self._written) from None


def relocate_error(error: duckdb.Error, rewritten: str, written: str) -> duckdb.Error:
    """Return an error about `rewritten` SQL with an excerpt of the user's `written` SQL instead.

    If its position in `written` cannot be found, the error is returned unchanged.
    """
    text = str(error)
    match = _EXCERPT.search(text)
    offset = None if match is None else _find_offset(rewritten, *match.groups())
    written_offset = None if offset is None else find_original_offset(rewritten, written, offset)
    if match is None or written_offset is None:
        return error
    new_excerpt = f"\n\n{excerpt(written, written_offset)}"
    return type(error)(text[: match.start()] + new_excerpt + text[match.end() :])


def _find_offset(sql: str, line: str, excerpt_text: str, blanks: str) -> int | None:
    """Return the offset in `sql` to which the engine's caret points; None if it is ambiguous.

    `line` is the line number in the excerpt, and `blanks` are the blanks before the caret.
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
