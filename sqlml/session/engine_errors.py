"""DuckDB's errors as a user of a Session sees them: `user_errors` around whatever DuckDB does.

An error that a batch function parked is raised itself, a Ctrl-C as KeyboardInterrupt, and where a
call was meant for us, the engine's error has a word about that. `reworded_errors` stands within,
where a query was rewritten: it shows the place in the text that the user wrote.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import duckdb

from sqlml.catalog.connection import damaged_catalog, lacks_our_table
from sqlml.errors import SqlmlError, excerpt
from sqlml.interruption import Stop, interruption_stops
from sqlml.parsing.statements import Statement
from sqlml.parsing.tokens import place_in
from sqlml.planner.binding.function_hints import hint
from sqlml.udfs.batch_function import claim
from sqlml.udfs.duckdb.engine import DuckDBEngine, is_interrupt
from sqlml.udfs.duckdb.user_frame import user_frame

_PLACE = re.compile(r"\n\nLINE (\d+): (.*)\n( *)\^[~^]*", re.DOTALL)


class user_errors(interruption_stops):
    """Raise `user_error` in place of the engine's errors; a Ctrl-C stops all of its threads.

    A class, as `reworded_errors` is: contextlib's generator would take longer than all else here.

    Args:
        stop: the `interrupt` of the connection; None: a Ctrl-C stops this thread alone.
    """

    __slots__ = ("_engine", "_texts")

    def __init__(
        self,
        stop: Stop | None,
        texts: Sequence[str] = (),
        engine: DuckDBEngine | None = None,
    ) -> None:
        super().__init__(stop)
        self._texts = texts
        self._engine = engine

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        super().__exit__(kind, error, trace)
        if isinstance(error, duckdb.Error | RuntimeError):
            raise user_error(error, self._texts, self._engine, self.stopped) from None


def user_error(
    error: BaseException,
    texts: Sequence[str] = (),
    engine: DuckDBEngine | None = None,
    stopped: bool = False,
) -> BaseException:
    """The error to raise in place of `error`: another one, or itself.

    A Ctrl-C comes first, since `except Exception` would take it for an error of the query.

    Args:
        texts: pieces of SQL that the engine was given.
        engine: whose statement failed; None: that of a relation, which is always about models.
        stopped: a Ctrl-C stopped the engine.
    """
    interrupted = is_interrupt if engine is None else engine.is_interrupt
    if interrupted(error, stopped):
        return KeyboardInterrupt()
    if not isinstance(error, duckdb.Error | RuntimeError):
        return error
    own = claim(str(error))
    if own is not None or not isinstance(error, duckdb.Error):
        return own or error
    if isinstance(error, duckdb.CatalogException) and lacks_our_table(error, texts):
        return damaged_catalog(error)
    hints = (_hinted(error, text, engine) for text in texts)
    return next((told for told in hints if told is not None), error)


def _hinted(error: duckdb.Error, sql: str, engine: DuckDBEngine | None) -> duckdb.Error | None:
    """The engine's own error with a word about the call that was meant for us; None without one."""
    is_function = _none if engine is None else engine.knows_function
    found = hint(sql, str(error), is_function)
    return None if found is None else type(error)(f"{error}\n\nsqlml: {found}")


def _none(name: str) -> bool:
    return False


class reworded_errors:
    """Raise `reworded` errors in place of the engine's."""

    __slots__ = ("_rewritten", "_written")

    def __init__(self, rewritten: str, written: str) -> None:
        self._rewritten = rewritten
        self._written = written

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, duckdb.Error) and self._rewritten != self._written:
            raise reworded(error, self._rewritten, self._written) from None


def reworded(error: duckdb.Error, rewritten: str, written: str) -> duckdb.Error:
    """The engine's error, showing the place in `written` that the one in `rewritten` comes from.

    It is left as it is where no place can be told.
    """
    found = _PLACE.search(str(error))
    offset = None if found is None else _offset(rewritten, *found.groups())
    place = None if offset is None else place_in(rewritten, written, offset)
    if found is None or place is None:
        return error
    text = str(error)
    shown = f"\n\n{excerpt(written, place)}"
    return type(error)(text[: found.start()] + shown + text[found.end() :])


def _offset(text: str, line: str, shown: str, blanks: str) -> int | None:
    """The character of `text` under the caret of the engine's excerpt; None: it is not found."""
    lines = text.split("\n")
    number = int(line) - 1
    if number >= len(lines):
        return None
    cut = shown.startswith("...")
    part = shown[3:] if cut else shown
    part = part[:-3] if part.endswith("...") else part
    at = lines[number].find(part) if part else -1
    if at < 0 or lines[number].count(part) > 1:
        return None
    caret = len(blanks) - len(f"LINE {line}: ") - 3 * cut
    return sum(len(before) + 1 for before in lines[:number]) + at + caret


# `Calling`: what holds while a user's call of a Session is carried out.


class Calling(interruption_stops):
    """The user's frame is in sight, a Ctrl-C stops the engine as well, and errors are typed and
    show their place in the user's text.

    A class and not a generator, since contextlib's frame would stand between us and the user.
    """

    def __init__(self, engine: DuckDBEngine, query: Any = None) -> None:
        super().__init__(engine.native.interrupt)
        self._engine = engine
        self._query = query
        self._begin = 0
        self._outermost = engine.frame is None

    def __enter__(self) -> Calling:
        if self._outermost:
            super().__enter__()
            self._engine.frame = user_frame()
            self._engine.begin(about_models=self._query is None)
        return self

    def comes_to(self, statement: Statement) -> None:
        """The next of the query's statements is carried out."""
        self._begin = max(self._query.find(statement.sql, self._begin), self._begin)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._outermost:
            super().__exit__(kind, error, trace)
            self._engine.frame = None
        if error is None:
            return
        texts = [self._query] if isinstance(self._query, str) else []
        told = user_error(error, texts, self._engine, self.stopped)
        if told is not error:
            raise told from None
        if isinstance(error, SqlmlError):
            placed = self._placed(error)
            if placed is not None:
                raise placed from error.__cause__

    def _placed(self, error: SqlmlError) -> SqlmlError | None:
        """An error in one of several statements, or after EXPLAIN, with its place in the query."""
        if error.offset is None or not error.sql or not isinstance(self._query, str):
            return None
        begin = self._query.find(error.sql, self._begin)
        if begin < 0 or len(error.sql) == len(self._query):
            return None
        return error.at(self._query, begin + error.offset)
