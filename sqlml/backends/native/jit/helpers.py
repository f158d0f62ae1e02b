"""Functions that kernels call: numba sees them only when a kernel has to be compiled.

numba's own decorators import it, which takes longer than to load a kernel from disk. Here a
decorated function is a `Deferred`, which `compilable` replaces by what numba's decorator makes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import numpy as np

_LOCK = threading.RLock()


class Deferred:
    """A function, and how numba makes something of it that kernels can call."""

    def __init__(self, function: Any, decorate: Callable[[Any], Any]) -> None:
        self.function = function
        self._decorate = decorate
        self._made: Any = None

    def made(self) -> Any:
        """What numba makes of it, made once per process."""
        with _LOCK:
            if self._made is None:
                self._made = self._decorate(self.function)
            return self._made

    def __call__(self, *args: Any) -> Any:
        """Call what numba makes of it; kernels do not come here."""
        return self.made()(*args)


def compilable(function: Any) -> Any:
    """`function` with what numba makes of each `Deferred` that its code names."""
    named = {name: function.__globals__.get(name) for name in _names(function.__code__)}
    used = {name: value.made() for name, value in named.items() if isinstance(value, Deferred)}
    made = FunctionType(
        function.__code__,
        {**function.__globals__, **used},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    return made


def spelled_out(function: Any) -> str:
    """The code of a function and of those that it calls, with the plain numbers that they name.

    Files say what a function does as well, but they may have changed since it was imported.
    """
    return "\n".join([*_code(function), *_numbers(function, spelled_out)])


def numbers_of(function: Any) -> str:
    """The plain numbers that a function and those that it calls name: alike for each Python."""
    return "\n".join(_numbers(function, numbers_of))


def _code(function: Any) -> list[str]:
    """The code of a function itself."""
    code = _function(function).__code__
    parts = [code.co_code.hex(), repr(code.co_varnames)]
    for constant in code.co_consts:
        if isinstance(constant, frozenset):  # in no order that the next process would have
            parts.append(repr(sorted(map(repr, constant))))
        elif not isinstance(constant, CodeType):
            parts.append(repr(constant))
    return parts


def _numbers(function: Any, spelled: Callable[[Any], str]) -> list[str]:
    """The plain numbers that a function names, and the functions, `spelled`."""
    parts, space = [], _function(function).__globals__
    for name in sorted(_names(_function(function).__code__)):
        value = space.get(name)
        if isinstance(value, Deferred):
            parts.append(f"{name}={spelled(value)}")
        elif isinstance(value, (bool, int, float, str, np.generic)):
            parts.append(f"{name}={value!r}")
    return parts


def _function(function: Any) -> Any:
    """The function of Python behind a `Deferred`."""
    return function.function if isinstance(function, Deferred) else function


def _names(code: CodeType) -> set[str]:
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def helper(function: Callable[..., Any]) -> Any:
    """A function that kernels call, and nobody else: it becomes part of their machine code."""
    return Deferred(function, _inlined)


def called(function: Callable[..., Any]) -> Any:
    """A function that kernels call, compiled by itself: LLVM may inline it, numba does not."""
    return Deferred(function, _compiled)


def intrinsic(function: Callable[..., Any]) -> Any:
    """`numba.extending.intrinsic`: a function that writes LLVM's own language."""
    return Deferred(function, _intrinsic)


def literal_intrinsic(function: Callable[..., Any]) -> Any:
    """An `intrinsic` that sees the values of arguments that are constants."""
    return Deferred(function, _literal_intrinsic)


def _inlined(function: Any) -> Any:
    from numba import njit

    return njit(nogil=True, inline="always")(compilable(function))


def _compiled(function: Any) -> Any:
    from numba import njit

    return njit(nogil=True, error_model="numpy")(compilable(function))


def _intrinsic(function: Any) -> Any:
    from numba.extending import intrinsic as numbas

    return numbas(function)


def _literal_intrinsic(function: Any) -> Any:
    from numba.extending import intrinsic as numbas

    return numbas(prefer_literal=True)(function)
