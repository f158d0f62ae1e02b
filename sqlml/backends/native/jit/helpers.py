"""Mark functions that kernels call; numba sees them only when a kernel has to be compiled.

numba's decorators import numba, which takes longer than loading a kernel from disk. Here a
decorated function is a `DeferredFunction`, which `resolve_helpers` replaces with the result of
numba's decorator.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from types import CodeType, FunctionType
from typing import Any

import numpy as np

_LOCK = threading.RLock()


class DeferredFunction:
    """A function, and the numba decorator that makes the function callable from kernels."""

    def __init__(self, function: Any, decorate: Callable[[Any], Any]) -> None:
        self.function = function
        self._decorate = decorate
        self._resolved: Any = None

    def resolve(self) -> Any:
        """Return the function decorated by numba, once per process."""
        with _LOCK:
            if self._resolved is None:
                self._resolved = self._decorate(self.function)
            return self._resolved

    def __call__(self, *args: Any) -> Any:
        """Call the function decorated by numba from Python; kernels do not use this method."""
        return self.resolve()(*args)


def resolve_helpers(function: Any) -> Any:
    """Return a copy of `function` that calls numba's functions instead of DeferredFunctions."""
    namespace = dict(function.__globals__)
    for name in _collect_names(function.__code__) & namespace.keys():
        if isinstance(namespace[name], DeferredFunction):
            namespace[name] = namespace[name].resolve()
    details = (function.__name__, function.__defaults__, function.__closure__)
    resolved = FunctionType(function.__code__, namespace, *details)
    resolved.__module__, resolved.__qualname__ = function.__module__, function.__qualname__
    return resolved


def describe_code(function: Any) -> str:
    """Return text that identifies the code and the plain constants of a function and its helpers.

    A kernel's key also depends on the source files, but these may have changed since the import.
    """
    code = _unwrap(function).__code__
    descriptions = [code.co_code.hex(), repr(code.co_varnames)]
    for constant in code.co_consts:
        if isinstance(constant, frozenset):  # Its order differs between processes.
            descriptions.append(repr(sorted(map(repr, constant))))
        elif not isinstance(constant, CodeType):
            descriptions.append(repr(constant))
    return "\n".join([*descriptions, *_describe_globals(function, describe_code)])


def describe_constants(function: Any, list_names: Callable[[str], Collection[str]]) -> str:
    """Return plain constants of a function and its helpers, as text for any Python version.

    `list_names` returns the names of the constants to describe in a source file.
    """
    names = list_names(_unwrap(function).__code__.co_filename)

    def describe(helper: Any) -> str:
        return describe_constants(helper, list_names)

    return "\n".join(_describe_globals(function, describe, names))


def _describe_globals(
    function: Any, describe: Callable[[Any], str], names: Collection[str] | None = None
) -> list[str]:
    descriptions, namespace = [], _unwrap(function).__globals__
    for name in sorted(_collect_names(_unwrap(function).__code__)):
        value = namespace.get(name)
        if isinstance(value, DeferredFunction):
            descriptions.append(f"{name}={describe(value)}")
        elif isinstance(value, (bool, int, float, str, np.generic)):
            if names is None or name in names:
                descriptions.append(f"{name}={value!r}")
    return descriptions


def _unwrap(function: Any) -> Any:
    return function.function if isinstance(function, DeferredFunction) else function


def _collect_names(code: CodeType) -> set[str]:
    inner_codes = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_collect_names, inner_codes))


def inlined_helper(function: Callable[..., Any]) -> Any:
    """Mark a function that only kernels call; numba inlines the function into kernels."""
    return DeferredFunction(function, _make_njit_decorator(inline="always"))


def compiled_helper(function: Callable[..., Any]) -> Any:
    """Mark a function that kernels call; it is compiled separately, and LLVM may inline it."""
    return DeferredFunction(function, _make_njit_decorator(error_model="numpy"))


def intrinsic(function: Callable[..., Any]) -> Any:
    """Mark a function that writes LLVM IR, as `numba.extending.intrinsic` does."""
    return DeferredFunction(function, _make_intrinsic_decorator(prefer_literal=False))


def literal_intrinsic(function: Callable[..., Any]) -> Any:
    """Mark an `intrinsic` that gets the values of constant arguments."""
    return DeferredFunction(function, _make_intrinsic_decorator(prefer_literal=True))


def _make_njit_decorator(**options: Any) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        from numba import njit

        return njit(nogil=True, **options)(resolve_helpers(function))

    return decorate


def _make_intrinsic_decorator(prefer_literal: bool) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        from numba.extending import intrinsic as numba_intrinsic

        return numba_intrinsic(prefer_literal=prefer_literal)(function)

    return decorate
