"""Call DuckDB as if the user's stack frame made the call.

DuckDB resolves `SELECT * FROM my_frame` in the innermost Python frame. In a Session, that would be
a frame of sqlml. So sqlml calls DuckDB from an evaluated frame with the user's locals and globals.
The frame also has the file and the line of the user's call, which DuckDB's errors show.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, TypeVar

T = TypeVar("T")
_CODE = compile("__sqlml_call__()", "<sqlml>", "eval")
_COPIES_LOCALS = sys.version_info < (3, 13)
"""Before Python 3.13, `frame.f_locals` leaves a copy in the frame, which keeps objects alive."""


class ObjectWrapper:
    """A sqlml object that wraps the DuckDB object `native`. Queries read `native` instead."""

    native: Any

    def __init__(self) -> None:
        _live_wrappers.add(self)


_live_wrappers: weakref.WeakSet[ObjectWrapper] = weakref.WeakSet()


def find_user_frame() -> FrameType | None:
    """Return the innermost stack frame outside of sqlml, or None if all frames are in sqlml."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith("sqlml.") and module != "sqlml":
            return frame
        frame = frame.f_back
    return None


def call_from(frame: FrameType | None, function: Callable[[], T]) -> T:
    """Call `function`, a method of DuckDB, with access to the Python variables of `frame`."""
    if frame is None:
        return function()
    frame_locals = frame.f_locals
    variables = {} if frame_locals is frame.f_globals else dict(frame_locals)
    if _COPIES_LOCALS and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        # Otherwise `del big` in the user's function would free nothing before the function returns.
        frame_locals.clear()
    if _live_wrappers:
        # Local names hide global names.
        for name, value in [*frame.f_globals.items(), *variables.items()]:
            if isinstance(value, ObjectWrapper) and variables.get(name, value) is value:
                variables[name] = value.native
    variables["__sqlml_call__"] = function
    call_code = _make_code_at(frame.f_code.co_filename, frame.f_lineno)
    result: T = eval(call_code, frame.f_globals, variables)
    return result


@lru_cache(maxsize=256)
def _make_code_at(file: str, line: int) -> CodeType:
    return _CODE.replace(co_filename=file, co_firstlineno=line)
