"""`Calling`: what holds while a user's call of a Session is carried out."""

from __future__ import annotations

from typing import Any

from sqlml.errors import SqlmlError
from sqlml.interruption import interruption_stops
from sqlml.parsing.statements import Statement
from sqlml.session.engine_errors import user_error
from sqlml.udfs.duckdb.engine import DuckDBEngine
from sqlml.udfs.duckdb.user_frame import user_frame


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
