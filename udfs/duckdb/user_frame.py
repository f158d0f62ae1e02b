"""Run an engine call as if the user's own frame made it.

DuckDB finds `SELECT * FROM my_frame` by looking my_frame up in the innermost Python frame. With a
Session in between that would be a frame of ours, so the call is made from a small evaluated
frame that has the user's locals and globals, and their file and line, which DuckDB's errors name.
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
_SNAPSHOTS = sys.version_info < (3, 13)
"""Before 3.13, `frame.f_locals` of a function leaves a copy in the frame, which keeps objects."""


class Wrapper:
    """An object of ours around one of DuckDB's, `native`, which DuckDB shall see in its place."""

    native: Any

    def __init__(self) -> None:
        _alive.add(self)


_alive: weakref.WeakSet[Wrapper] = weakref.WeakSet()


def user_frame() -> FrameType | None:
    """The innermost frame that is not sqlml's own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return frame


def _is_ours(module: str) -> bool:
    return module == "sqlml" or module.startswith("sqlml.")


def call_from(frame: FrameType | None, function: Callable[[], T]) -> T:
    """`function()` (a C-level callable) with `frame`'s names in sight."""
    if frame is None:
        return function()
    seen = frame.f_locals
    names = {} if seen is frame.f_globals else dict(seen)
    if _SNAPSHOTS and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        seen.clear()  # or `del big` in the user's function would free nothing until it returns
    if _alive:
        for space in (frame.f_globals, names):
            natives = {k: v.native for k, v in space.items() if isinstance(v, Wrapper)}
            names.update({k: v for k, v in natives.items() if space is names or k not in names})
    names["__sqlml_call__"] = function
    code = _code_at(frame.f_code.co_filename, frame.f_lineno)
    result: T = eval(code, frame.f_globals, names)
    return result


@lru_cache(maxsize=256)
def _code_at(file: str, line: int) -> CodeType:
    return _CODE.replace(co_filename=file, co_firstlineno=line)
