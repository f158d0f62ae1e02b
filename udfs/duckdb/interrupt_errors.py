"""How DuckDB reports a Ctrl-C: by words of its own, since it may come before the first line of a
function of ours.
"""

from __future__ import annotations

import re

import duckdb

_INTERRUPTED = re.compile(
    r"\AQuery interrupted\Z|\AKeyboardInterrupt: <EMPTY MESSAGE>"
    r"|executing the UDF: KeyboardInterrupt\b"
)


def is_interrupt(error: BaseException, stopped: bool = False) -> bool:
    """Whether `error` is how DuckDB reports a Ctrl-C: a RuntimeError between the functions of a
    query, an InvalidInputException within one, and on 1.5 an Error where rows become Python
    objects.

    Args:
        stopped: a Ctrl-C made us stop the engine, so that an InterruptException is one, too.
    """
    if stopped and isinstance(error, duckdb.InterruptException):
        return True
    return isinstance(error, Exception) and _INTERRUPTED.search(str(error)) is not None


def pass_interrupt(error: BaseException) -> None:
    """Raise KeyboardInterrupt if the engine's error is a Ctrl-C; else do nothing."""
    if is_interrupt(error):
        raise KeyboardInterrupt from None
