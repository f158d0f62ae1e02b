"""What kernels take: the types of their arguments, said without numba.

A process that finds all its kernels on disk never imports numba.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Layout = Literal["A", "C"]


@dataclass(frozen=True, slots=True)
class ArrayKind:
    """Arrays of a dtype in native byte order: C-contiguous ones, or with layout "A" any."""

    dtype: np.dtype[Any]
    ndim: int
    layout: Layout
    readonly: bool


Kind = ArrayKind | Literal["count", "flag", "nothing"] | tuple["Kind", ...]
"""The type of an argument; a tuple of kinds is that of a tuple."""

Signature = tuple[Kind, ...]
"""Kinds, one for each argument."""

FLAG: Kind = "flag"
"""The kind of a bool argument."""

COUNT: Kind = "count"
"""The kind of an int argument, which is an int64 in the kernel."""

NOTHING: Kind = "nothing"
"""The kind of None: code for something that is absent is not compiled."""


def reads(dtype: npt.DTypeLike, ndim: int, layout: Layout = "A") -> Kind:
    """The kind of an array that is only read: of any strides with layout "A"."""
    return ArrayKind(np.dtype(dtype), ndim, layout, True)


def writes(dtype: npt.DTypeLike, ndim: int) -> Kind:
    """The kind of a contiguous array that the kernel fills."""
    return ArrayKind(np.dtype(dtype), ndim, "C", False)


def kinds_of(*constants: Any) -> Signature:
    """The kinds of what a kernel is given with each call.

    Arrays are contiguous and only read; besides them there are tuples of such, bools, ints and
    None.

    >>> spelled(kinds_of(np.zeros((2, 1)), (3, True), None))
    "(['C2r', '<f8'], ('count', 'flag'), 'nothing')"
    """
    return tuple(map(_kind_of, constants))


def _kind_of(value: Any) -> Kind:
    if isinstance(value, np.ndarray):
        return reads(value.dtype, value.ndim, "C")
    if isinstance(value, tuple):
        return kinds_of(*value)
    if value is None:
        return NOTHING
    return FLAG if isinstance(value, bool) else COUNT


def spelled(kind: Kind) -> str:
    """A text for a kind, equal in every process.

    >>> spelled((COUNT, reads("f4", 2), writes([("a", "u4")], 1)))
    "('count', ['A2r', '<f4'], ['C1w', [('a', '<u4')]])"
    """
    return repr(_plain(kind))


def read_kind(text: str) -> Kind:
    """The kind that `spelled` made a text for.

    >>> read_kind("('count', ['A2r', '<f4'])") == (COUNT, reads("f4", 2))
    True
    """
    return _of_plain(ast.literal_eval(text))


def _plain(kind: Kind) -> Any:
    """A kind as literals: an array as a list, a tuple as one."""
    if isinstance(kind, ArrayKind):
        layout = f"{kind.layout}{kind.ndim}{'r' if kind.readonly else 'w'}"
        return [layout, np.lib.format.dtype_to_descr(kind.dtype)]
    return kind if isinstance(kind, str) else tuple(map(_plain, kind))


def _of_plain(literal: Any) -> Kind:
    if isinstance(literal, list):
        (layout, ndim, mode), dtype = literal
        return ArrayKind(np.lib.format.descr_to_dtype(dtype), int(ndim), layout, mode == "r")
    return tuple(map(_of_plain, literal)) if isinstance(literal, tuple) else literal


def numba_type(kind: Kind) -> Any:
    """numba's own type."""
    from numba import from_dtype, types  # only to compile

    if isinstance(kind, ArrayKind):
        dtype: Any = from_dtype(kind.dtype)
        return types.Array(dtype, kind.ndim, kind.layout, readonly=kind.readonly)
    if isinstance(kind, tuple):
        made: Callable[..., Any] = types.Tuple
        return made([numba_type(part) for part in kind])
    return {"count": types.int64, "flag": types.boolean, "nothing": types.none}[kind]
