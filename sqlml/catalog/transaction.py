"""`atomic`: a change of a catalog whole or not at all, tried again where another one was faster."""

from __future__ import annotations

import time
from collections.abc import Callable

import duckdb

from sqlml.errors import ConflictError
from sqlml.interruption import interruption_after

_ATTEMPTS = 10
_CONFLICTS = (duckdb.TransactionException, duckdb.CatalogException)


def atomic(native: duckdb.DuckDBPyConnection, is_open: bool, work: Callable[[], None]) -> None:
    """Run `work` in the transaction that `is_open`, or else in one of its own that it ends.

    All or nothing: a Ctrl-C meanwhile is raised afterwards.

    Raises:
        ConflictError: another transaction changes the same models.
    """
    if is_open:
        try:
            with interruption_after():
                work()
        except _CONFLICTS as error:
            raise _conflict(error, "ROLLBACK, and try again") from None
        return
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with interruption_after():
                _in_own_transaction(native, work)
            return
        except _CONFLICTS as error:
            # Two connections may make the catalog's schema at the same moment.
            if "conflict" not in str(error).lower() or attempt == _ATTEMPTS:
                raise _conflict(error, "try again") from None
            time.sleep(0.01 * attempt)


def _in_own_transaction(native: duckdb.DuckDBPyConnection, work: Callable[[], None]) -> None:
    native.execute("BEGIN TRANSACTION")
    try:
        work()
    except BaseException:
        native.execute("ROLLBACK")
        raise
    native.execute("COMMIT")


def _conflict(error: duckdb.Error, advice: str) -> Exception:
    """What to raise for an error of a change: one about a conflict names no tables of ours."""
    if "conflict" not in str(error).lower():
        return error
    return ConflictError(f"another transaction changes the same models; {advice}")
