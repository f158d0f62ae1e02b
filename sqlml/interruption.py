"""What Ctrl-C must not stop halfway: `uninterrupted` work and `interruption_after` a block.

A library of which half is imported stays broken for the rest of the process: Python imports the
parts that are missing, and they miss what was set up before. A change of models of which half is
written may be committed by the user.
"""

from __future__ import annotations

import _signal
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_SIGINT = int(signal.SIGINT)


def uninterrupted(work: Callable[[], T]) -> T:
    """What `work` gives, or raises.

    Ctrl-C is raised at once as ever, while the work goes on in a thread of its own, which Python
    sends no signals. Whoever needs the same next waits for it by locks of the work itself.
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


class interruption_after:
    """Raise a Ctrl-C that arrives during the block once, and only after it.

    Handlers are exchanged by `_signal`, since `signal` searches an enum for each handler in vain:
    70 us of the 250 that a known query takes besides what its engine does.

    Args:
        stops: raise it within the block too, where it may be taken for another error; otherwise the
            block, which is short, continues.
    """

    __slots__ = ("_came", "_ours", "_stops")

    def __init__(self, stops: bool = False) -> None:
        self._stops = stops
        self._came: tuple[Any, ...] = ()

    def __enter__(self) -> None:
        self._ours = _signal.getsignal(_SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(self._ours):
            self._ours = None
        else:
            _signal.signal(_SIGINT, self._signalled)

    def __exit__(self, *error: object) -> None:
        if self._ours is not None:
            _signal.signal(_SIGINT, self._ours)
            if self._came:
                self._ours(*self._came)

    def _signalled(self, *about: Any) -> None:
        self._came = self._came or about
        if self._stops:
            self._ours(*about)
