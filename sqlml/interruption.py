"""Handling of Ctrl-C: finish work that must not stop halfway, and stop other threads.

Use `run_uninterrupted` for imports, since a partly imported library remains broken until the end of
the process. Use `interruption_after` for changes of models, since the user might commit a partial
change. Use `interruption_stops` for the engine, since the engine's other threads would continue.
"""

from __future__ import annotations

import signal
import threading
from _signal import getsignal
from _signal import signal as set_handler
from collections.abc import Callable
from concurrent.futures import Future
from threading import get_ident, main_thread
from typing import Any, TypeVar

T = TypeVar("T")

Stop = Callable[[], object]

_SIGINT = int(signal.SIGINT)


def run_uninterrupted(function: Callable[[], T]) -> T:
    """Run `function` to the end, and return the result or raise the error.

    A Ctrl-C is raised immediately, but the work continues in a thread that receives no signals.
    Later callers wait for this thread, for example at an import lock.
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    future: Future[T] = Future()
    threading.Thread(target=_run_into, args=(future, function), name="sqlml-uninterrupted").start()
    return future.result()


def _run_into(future: Future[T], function: Callable[[], T]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)


class _signal_handling:
    """A context manager that lets `_handle_signal` handle Ctrl-C on the main thread.

    Handlers are set with the C module `_signal`, because `signal` looks up every handler in an
    enum. This would take 70 of the 250 us that a cached query spends outside of the engine.
    """

    __slots__ = ("_previous_handler",)

    _previous_handler: Any
    _handle_signal: Callable[..., None]

    def __enter__(self) -> Any:
        self._previous_handler = None
        if get_ident() == main_thread().ident:
            handler = getsignal(_SIGINT)
            if callable(handler):
                self._previous_handler = handler
                set_handler(_SIGINT, self._handle_signal)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._previous_handler is not None:
            set_handler(_SIGINT, self._previous_handler)


class interruption_after(_signal_handling):
    """A context manager that delays a Ctrl-C until the end of the block.

    If `stops`, the Ctrl-C is also raised inside the block, which may raise another error instead.
    After the block, it is raised only once.
    """

    __slots__ = ("_pending", "_stops")

    def __init__(self, stops: bool = False) -> None:
        self._stops = stops
        self._pending: tuple[Any, ...] = ()

    @property
    def is_held_back(self) -> bool:
        """True if a Ctrl-C has arrived and will be raised after the block."""
        return bool(self._pending)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        super().__exit__(kind, error, trace)
        if self._pending:
            self._previous_handler(*self._pending)

    def _handle_signal(self, *args: Any) -> None:
        self._pending = self._pending or args
        if self._stops:
            self._previous_handler(*args)


class interruption_stops(_signal_handling):
    """A context manager that calls `stop` and sets `stopped` if a Ctrl-C arrives in the block.

    After a Ctrl-C, the waiting thread leaves the query. But DuckDB 2.0 then waits until all other
    threads have finished, unless these threads are stopped as well.
    """

    __slots__ = ("_stop", "stopped")

    def __init__(self, stop: Stop | None) -> None:
        self._stop = stop
        self.stopped: bool = False

    def __enter__(self) -> Any:
        self._previous_handler = None
        return self if self._stop is None else super().__enter__()

    def _handle_signal(self, *args: Any) -> None:
        try:
            self._previous_handler(*args)
        except BaseException:
            self.stopped = True
            if self._stop is not None:
                self._stop()
            raise
