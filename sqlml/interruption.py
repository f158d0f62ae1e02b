"""What Ctrl-C must not stop halfway: `uninterrupted` work and `interruption_after` a block.

A library of which half is imported stays broken for the rest of the process: Python imports the
parts that are missing, and they miss what was set up before. A change of models of which half is
written may be committed by the user.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


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


@contextmanager
def interruption_after(stops: bool = False) -> Iterator[None]:
    """Raise a Ctrl-C that arrives during the block once, and only after it.

    Args:
        stops: raise it within the block too, where it may be taken for another error; otherwise the
            block, which is short, continues.
    """
    ours = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(ours):
        yield
        return
    came: list[Any] = []

    def signalled(*about: Any) -> None:
        came.append(about)
        if stops:
            ours(*about)

    signal.signal(signal.SIGINT, signalled)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, ours)
        if came:
            ours(*came[0])
