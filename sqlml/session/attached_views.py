"""`Arrivals`: ATTACH and IMPORT bring views that call models, whose functions must be there to read
them, on connections without a session too.

New views are inspected on a separate connection, so that no statement comes between the user's own:
no open result is in the way, and their profile, log and memory limit stay as they were. A
transaction hides others' changes until it ends; then the user's connection itself is asked, before
their next statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import duckdb

from sqlml.errors import SqlmlError
from sqlml.planner.syntax.text import text_of
from sqlml.session.registered_functions import Functions


class Arrivals:
    """The arrivals on one connection, whose `functions` it has; `beside` makes those of another
    one. `unseen`: something may have arrived that has not been inspected.
    """

    def __init__(
        self, functions: Functions, beside: Callable[[], AbstractContextManager[Functions]]
    ) -> None:
        self._functions = functions
        self._beside = beside
        self.unseen = False

    def of(self, query: Any) -> AbstractContextManager[None]:
        """While a text is run: afterwards the functions are known of what it brought."""
        return self._watched() if text_of(query).brings_models else nullcontext()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        before = self._look()
        yield
        self.unseen = self._look() == before

    def catch_up(self) -> None:
        """Look at what came in the user's transaction, before their next statement."""
        if self.unseen:
            self.unseen = False
            with suppress(duckdb.Error, SqlmlError):
                self._functions.take_in()

    def _look(self) -> object:
        with suppress(duckdb.Error, SqlmlError), self._beside() as functions:
            return functions.take_in()
        return None
