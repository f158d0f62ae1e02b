"""What kernels take: the types of their arguments, said without numba.

A process that finds all its kernels on disk never imports numba.
"""

from __future__ import annotations

import ast
import ctypes
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
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


# Where numpy's arrays have their fields in memory: what entries of machine code read.
#
# This is `PyArrayObject_fields` and `PyArray_Descr` of numpy's C API for 64 bits, and part of its
# stable ABI.


ENTRY = "sqlml_kernel"
"""The name of the entry."""

FIELDS = {"data": 16, "nd": 24, "dimensions": 32, "strides": 40, "descr": 56, "flags": 64}
"""Of an array, in bytes from its beginning."""

BYTE_ORDER, TYPE_NUMBER = 26, 28
"""Of an array's dtype."""

TYPE = 8
"""Of any object of Python: its type."""

C_CONTIGUOUS, WRITEABLE = 0x1, 0x400
"""Flags of an array."""

SWAPPED = ord(">" if sys.byteorder == "little" else "<")
"""The byte order of numbers that the processor cannot read."""


@cache
def known() -> bool:
    """Whether this process lays arrays out like that, judged by one of them."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    x = np.zeros((3, 8), np.float32)[:, ::2]
    at, dtype = id(x), id(x.dtype)
    dimensions, strides = _pointer(at + FIELDS["dimensions"]), _pointer(at + FIELDS["strides"])
    return (
        _pointer(at + TYPE) == id(np.ndarray)
        and _pointer(at + FIELDS["data"]) == x.ctypes.data
        and _int(at + FIELDS["nd"]) == 2
        and (_pointer(dimensions), _pointer(dimensions + 8)) == x.shape
        and (_pointer(strides), _pointer(strides + 8)) == x.strides
        and _pointer(at + FIELDS["descr"]) == dtype
        and _int(at + FIELDS["flags"]) == x.flags.num
        and _int(dtype + TYPE_NUMBER) == x.dtype.num
        and ctypes.string_at(dtype + BYTE_ORDER, 1) == b"="
    )


def _pointer(at: int) -> int:
    return ctypes.c_ssize_t.from_address(at).value


def _int(at: int) -> int:
    return ctypes.c_int.from_address(at).value
