"""Where numpy's arrays have their fields in memory: what entries of machine code read.

This is `PyArrayObject_fields` and `PyArray_Descr` of numpy's C API for 64 bits, and part of its
stable ABI.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from functools import cache

import numpy as np

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
