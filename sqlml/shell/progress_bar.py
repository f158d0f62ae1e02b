"""Draw how far a query is, where a person waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import duckdb

from sqlml.parsing.statements import Query
from sqlml.planner.syntax.text import text_of
from sqlml.watched import watched_stream

PATIENCE = 2.0
"""Seconds that a query takes before its bar appears."""

_LOOK = 0.2
"""Seconds from one look at the engine to the next."""


@contextmanager
def progress_bar(session: Any, sql: str) -> Iterator[None]:
    """Draw the progress of a query while the block runs.

    Nothing is drawn without tqdm (the extras `cli` and `notebook`), where nobody sees it, or for
    statements about models: training draws a bar of its own.
    """
    try:
        from tqdm import tqdm
    except ImportError:
        yield
        return
    others = [s for s in text_of(sql).statements if not isinstance(s, Query)]
    stream = watched_stream()
    if others or stream is None:
        yield
        return
    done = threading.Event()
    watching = threading.Thread(
        target=_watch, args=(session.connection, done, partial(tqdm, file=stream)), daemon=True
    )
    watching.start()
    try:
        yield
    finally:
        done.set()
        watching.join()


def _watch(connection: duckdb.DuckDBPyConnection, done: threading.Event, make_bar: Any) -> None:
    if done.wait(PATIENCE):
        return
    shape = "{percentage:3.0f}% |{bar}| {elapsed}"
    with make_bar(total=100.0, leave=False, bar_format=shape) as bar:
        while not done.wait(_LOOK):
            bar.n = max(bar.n, min(100.0, _percentage(connection)))
            bar.refresh()


def _percentage(connection: duckdb.DuckDBPyConnection) -> float:
    """What the engine knows to be done; 0 where it does not know."""
    try:
        return max(0.0, float(connection.query_progress()))
    except (duckdb.Error, TypeError):
        return 0.0
