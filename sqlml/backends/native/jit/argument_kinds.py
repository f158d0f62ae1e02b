"""Describe the types of kernel arguments without numba.

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
    """Arrays of a dtype in native byte order: contiguous (layout "C"), or of any strides ("A")."""

    dtype: np.dtype[Any]
    ndim: int
    layout: Layout
    readonly: bool


Kind = ArrayKind | Literal["count", "flag", "nothing"] | tuple["Kind", ...]
"""The type of an argument; the type of a tuple is a tuple of kinds."""

Signature = tuple[Kind, ...]
"""The kinds of a kernel's arguments."""

# The kinds of a bool, of an int (int64 in the kernel), and of None.
FLAG: Kind = "flag"
COUNT: Kind = "count"
NOTHING: Kind = "nothing"


def reads(dtype: npt.DTypeLike, ndim: int, layout: Layout = "A") -> ArrayKind:
    """Return the kind of an array that the kernel only reads; layout "A" allows any strides."""
    return ArrayKind(np.dtype(dtype), ndim, layout, True)


def writes(dtype: npt.DTypeLike, ndim: int) -> ArrayKind:
    """Return the kind of a contiguous array that the kernel fills."""
    return ArrayKind(np.dtype(dtype), ndim, "C", False)


def to_kinds(*constants: Any) -> Signature:
    """Return the kinds of a kernel's constants. Arrays are contiguous and only read.

    >>> format_kind(to_kinds(np.zeros((2, 1)), (3, True), None))
    "(['C2r', '<f8'], ('count', 'flag'), 'nothing')"
    """
    return tuple(map(_get_kind, constants))


def _get_kind(value: Any) -> Kind:
    if isinstance(value, np.ndarray):
        return reads(value.dtype, value.ndim, "C")
    if isinstance(value, tuple):
        return to_kinds(*value)
    if value is None:
        return NOTHING
    return FLAG if isinstance(value, bool) else COUNT


def format_kind(kind: Kind) -> str:
    """Return `kind` as a string that is the same in every process.

    >>> format_kind((COUNT, reads("f4", 2), writes([("a", "u4")], 1)))
    "('count', ['A2r', '<f4'], ['C1w', [('a', '<u4')]])"
    """
    return repr(_make_kind_literal(kind))


def parse_kind(text: str) -> Kind:
    """Parse a string from `format_kind` into a kind.

    >>> parse_kind("('count', ['A2r', '<f4'])") == (COUNT, reads("f4", 2))
    True
    """
    return _parse_kind_literal(ast.literal_eval(text))


def _make_kind_literal(kind: Kind) -> Any:
    if isinstance(kind, ArrayKind):
        layout = f"{kind.layout}{kind.ndim}{'r' if kind.readonly else 'w'}"
        return [layout, np.lib.format.dtype_to_descr(kind.dtype)]
    return kind if isinstance(kind, str) else tuple(map(_make_kind_literal, kind))


def _parse_kind_literal(literal: Any) -> Kind:
    if isinstance(literal, list):
        (layout, ndim, mode), descr = literal
        return ArrayKind(np.lib.format.descr_to_dtype(descr), int(ndim), layout, mode == "r")
    return tuple(map(_parse_kind_literal, literal)) if isinstance(literal, tuple) else literal


def to_numba_type(kind: Kind) -> Any:
    from numba import from_dtype, types  # Importing numba is slow.

    if isinstance(kind, ArrayKind):
        dtype: Any = from_dtype(kind.dtype)
        return types.Array(dtype, kind.ndim, kind.layout, readonly=kind.readonly)
    if isinstance(kind, tuple):
        make_tuple: Callable[..., Any] = types.Tuple
        return make_tuple([to_numba_type(item) for item in kind])
    return {"count": types.int64, "flag": types.boolean, "nothing": types.none}[kind]


# Offsets of fields in numpy's arrays, which the machine code reads. The layouts are
# `PyArrayObject_fields` and `PyArray_Descr` in numpy's stable C ABI for 64 bits.

ENTRY = "sqlml_kernel"
"""The symbol of a kernel's entry for Python."""

FIELDS = {"data": 16, "nd": 24, "dimensions": 32, "strides": 40, "descr": 56, "flags": 64}
"""Maps each field of an array object to an offset in bytes."""

BYTE_ORDER, TYPE_NUMBER = 26, 28
"""Offsets of fields of an array's dtype, in bytes."""

OBJECT_TYPE = 8
"""The offset of the type in any Python object."""

C_CONTIGUOUS, WRITEABLE = 0x1, 0x400
"""Flags of an array."""

SWAPPED = ord(">" if sys.byteorder == "little" else "<")
"""The character that marks a dtype of the opposite byte order, which kernels reject."""


@cache
def is_array_layout_known() -> bool:
    """Return True if a sample array has the layout that the constants of this module describe."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    x = np.zeros((3, 8), np.float32)[:, ::2]
    array_address, dtype_address = id(x), id(x.dtype)
    dimensions = _read_pointer(array_address + FIELDS["dimensions"])
    strides = _read_pointer(array_address + FIELDS["strides"])
    return (
        _read_pointer(array_address + OBJECT_TYPE) == id(np.ndarray)
        and _read_pointer(array_address + FIELDS["data"]) == x.ctypes.data
        and _read_int(array_address + FIELDS["nd"]) == 2
        and (_read_pointer(dimensions), _read_pointer(dimensions + 8)) == x.shape
        and (_read_pointer(strides), _read_pointer(strides + 8)) == x.strides
        and _read_pointer(array_address + FIELDS["descr"]) == dtype_address
        and _read_int(array_address + FIELDS["flags"]) == x.flags.num
        and _read_int(dtype_address + TYPE_NUMBER) == x.dtype.num
        and ctypes.string_at(dtype_address + BYTE_ORDER, 1) == b"="
    )


def _read_pointer(address: int) -> int:
    return ctypes.c_ssize_t.from_address(address).value


def _read_int(address: int) -> int:
    return ctypes.c_int.from_address(address).value
