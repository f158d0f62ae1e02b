"""What a Ctrl-C must not stop halfway, and what it must stop besides the thread that gets it.

`uninterrupted` is for work that imports a library: a half-imported one stays broken for the rest of
the process, since Python then imports the missing parts without what was set up before.
`interruption_after` is for a change of models: the user might commit one that is half written.
`interruption_stops` is for the engine, whose other threads would go on.
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


def uninterrupted(work: Callable[[], T]) -> T:
    """What `work` gives, or raises.

    Ctrl-C still raises at once, while the work goes on in its own thread, to which Python sends no
    signals. Whoever needs the same next waits for it on the work's own locks.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    made: Future[T] = Future()
    threading.Thread(target=_into, args=(made, work), name="sqlml-uninterrupted").start()
    return made.result()


def _into(made: Future[T], work: Callable[[], T]) -> None:
    try:
        made.set_result(work())
    except BaseException as error:
        made.set_exception(error)


class _handling:
    """A handler of Ctrl-C, `_signalled`, for the length of a block, on the main thread alone.

    Handlers are exchanged by `_signal`, since `signal` searches an enum for each handler in vain:
    70 us of the 250 that a known query takes besides what its engine does.
    """

    __slots__ = ("_before",)

    _before: Any
    _signalled: Callable[..., None]

    def __enter__(self) -> Any:
        self._before = None
        if get_ident() == main_thread().ident:
            before = getsignal(_SIGINT)
            if callable(before):
                self._before = before
                set_handler(_SIGINT, self._signalled)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._before is not None:
            set_handler(_SIGINT, self._before)


class interruption_after(_handling):
    """Hold back a Ctrl-C that arrives during the block, and raise it once, after the block.

    Args:
        stops: raise it within the block too, where it may be taken for another error; otherwise the
            block, which is short, continues.
    """

    __slots__ = ("_came", "_stops")

    def __init__(self, stops: bool = False) -> None:
        self._stops = stops
        self._came: tuple[Any, ...] = ()

    @property
    def is_held_back(self) -> bool:
        """Whether a Ctrl-C has arrived that is raised after the block."""
        return bool(self._came)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        super().__exit__(kind, error, trace)
        if self._came:
            self._before(*self._came)

    def _signalled(self, *about: Any) -> None:
        self._came = self._came or about
        if self._stops:
            self._before(*about)


class interruption_stops(_handling):
    """Call `stop` when a Ctrl-C is raised during the block; `stopped` says whether it was.

    At a Ctrl-C, the thread that waits for a query leaves it, but DuckDB 2.0 then waits until its
    other threads have done the rest, unless they are told to stop as well.
    """

    __slots__ = ("_stop", "stopped")

    def __init__(self, stop: Stop | None) -> None:
        self._stop = stop
        self.stopped = False

    def __enter__(self) -> Any:
        self._before = None
        return self if self._stop is None else super().__enter__()

    def _signalled(self, *about: Any) -> None:
        try:
            self._before(*about)
        except BaseException:
            self.stopped = True
            if self._stop is not None:
                self._stop()
            raise
