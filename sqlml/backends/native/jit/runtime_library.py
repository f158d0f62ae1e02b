"""The runtime library (`runtime.c`): kernels that were compiled ahead, and calls of kernels.

The library needs no Python to be linked: it calls CPython through a table of addresses, which is
filled here. A kernel becomes a built-in function whose `self` is a `bytes` object that describes
the kernel's arguments.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import BuiltinFunctionType
from typing import Any, cast

import numpy as np

from sqlml.backends.native.jit.argument_kinds import ArrayKind, Kind, Signature, to_words
from sqlml.backends.native.jit.kernel_keys import make_key
from sqlml.backends.native.jit.processor_levels import LIBRARY, find_level
from sqlml.backends.native.runtime.build_runtime import DIGEST_LENGTH, digest_source

FUNCTIONS = (
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyObject_Vectorcall",
    "PyObject_IsTrue",
    "PyLong_AsLongLong",
    "PyLong_FromLongLong",
    "PyBool_FromLong",
    "PyErr_Occurred",
    "PyErr_Clear",
    "PyErr_SetString",
    "PyErr_NoMemory",
    "PyType_IsSubtype",
    "Py_IncRef",
    "Py_DecRef",
)
"""CPython's functions, in the order of `sqlml_python` in `runtime.c`."""

_OBJECTS = (np.ndarray, tuple, None, TypeError)

COUNT, FLAG, NOTHING, ITEMS, ARRAY, BOUND = range(6)
"""Kinds of arguments in a signature for `runtime.c`."""

MAX_WORDS = 512
"""The most words that a kernel takes; see `MAX_WORDS` in `runtime.c`."""

C_CONTIGUOUS, WRITEABLE = 0x1, 0x400
"""Flags of numpy's arrays."""

# Offsets of fields that `runtime.c` reads. The layouts are `PyArrayObject_fields` and
# `PyArray_Descr` in numpy's stable C ABI for 64 bits.

FIELDS = {"data": 16, "nd": 24, "dimensions": 32, "strides": 40, "descr": 56, "flags": 64}
"""Maps each field of an array object to an offset in bytes."""

BYTE_ORDER, TYPE_NUMBER = 26, 28
"""Offsets of fields of an array's dtype, in bytes."""

OBJECT_TYPE = 8
"""The offset of the type in any Python object."""

BYTES_CONTENT = 32
"""The offset of the content in a `bytes` object."""

TUPLE_SIZE, TUPLE_ITEMS = 16, 24
"""The offsets of the length and the items in a tuple."""

_FASTCALL = 0x80
"""CPython's METH_FASTCALL."""


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("text", ctypes.c_char_p),
    )


@cache
def _make_method(name: str) -> _Method:
    """Return the method of all kernels called `name`; it is never freed."""
    return _Method(name.encode(), find_symbol("sqlml_call_kernel"), _FASTCALL, None)


@cache
def fits_package() -> bool:
    """Return True if the runtime is there, and was built from the package's `runtime.c`."""
    if not LIBRARY.is_file():
        return False
    try:
        sources = (ctypes.c_char * (DIGEST_LENGTH + 1)).in_dll(
            ctypes.CDLL(str(LIBRARY)), "sqlml_sources"
        )
    except (OSError, ValueError):
        return False
    return sources.value.decode() == digest_source()


@cache
def can_call_kernels() -> bool:
    """Return True if the runtime fits the package, and can read arrays and tuples here."""
    if not fits_package():
        return False
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    x = np.zeros((3, 8), np.float32)[:, ::2]
    array_address, dtype_address, text, pair = id(x), id(x.dtype), b"content", (x, x.dtype)
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
        and ctypes.string_at(id(text) + BYTES_CONTENT, len(text)) == text
        and _read_pointer(id(pair) + TUPLE_SIZE) == 2
        and _read_pointer(id(pair) + TUPLE_ITEMS + 8) == dtype_address
    )


def _read_pointer(address: int) -> int:
    return ctypes.c_ssize_t.from_address(address).value


def _read_int(address: int) -> int:
    return ctypes.c_int.from_address(address).value


@cache
def load_library() -> ctypes.CDLL:
    """Load the runtime, and pass CPython's functions to it; raise OSError if it is missing."""
    library = ctypes.CDLL(str(LIBRARY))
    addresses = [
        ctypes.cast(getattr(ctypes.pythonapi, n), ctypes.c_void_p).value for n in FUNCTIONS
    ]
    table = [*addresses, *map(id, _OBJECTS)]
    address_table = (ctypes.c_void_p * len(table)).in_dll(library, "sqlml_python")
    for i, address in enumerate(table):
        address_table[i] = address
    return library


CALLED = (
    "sqlml_call_python",
    "duckdb_data_chunk_get_column_count",
    "duckdb_data_chunk_get_vector",
    "duckdb_data_chunk_get_size",
    "duckdb_vector_get_data",
    "duckdb_vector_get_validity",
    "duckdb_vector_ensure_validity_writable",
    "duckdb_list_vector_get_child",
    "duckdb_list_vector_set_size",
    "duckdb_list_vector_reserve",
    "duckdb_struct_vector_get_child",
    "duckdb_array_vector_get_child",
    "duckdb_scalar_function_get_extra_info",
    "duckdb_scalar_function_get_bind_data",
    "duckdb_scalar_function_set_error",
)
"""Functions of the runtime that kernels call."""


def share_duckdb_api(loaded: ctypes.CDLL, get_bind_data: int) -> None:
    """Copy the functions that DuckDB handed to `loaded`, another copy of the runtime.

    `get_bind_data` is the address of the one function that DuckDB does not hand over.
    """
    pointers = ctypes.c_void_p * API_FUNCTIONS
    library = load_library()
    target, source = (pointers.in_dll(copy, "sqlml_duckdb_api") for copy in (library, loaded))
    ctypes.memmove(target, source, ctypes.sizeof(pointers))
    ctypes.c_void_p.in_dll(library, "sqlml_get_bind_data").value = get_bind_data


API_FUNCTIONS = 357
"""The functions in version 1.2.0 of DuckDB's C API for extensions."""


def find_symbol(name: str) -> int:
    """Return the address of a function of the runtime."""
    address = ctypes.cast(getattr(load_library(), name), ctypes.c_void_p).value
    assert address is not None
    return address


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A kernel as a Python function, and the addresses of the entries for machine code.

    `numbers_address` is 0 unless all arguments of the kernel are counts.
    """

    call: Callable[..., Any]
    words_address: int
    numbers_address: int


def find_kernel(function: Callable[..., Any], signature: Signature) -> LoadedKernel | None:
    """Return a kernel that was compiled ahead, or None if this process must compile it."""
    level = find_level()
    if level is None or not can_call_kernels():
        return None
    find = load_library().sqlml_find_kernel
    find.restype = ctypes.c_bool
    entries = (ctypes.c_int64 * 3)()
    if not find(make_key(function, signature), level.encode(), entries):
        return None
    words_address, numbers_address, result_kind = entries
    call = make_function(function.__name__, words_address, signature, result_kind)
    return LoadedKernel(call, words_address, numbers_address)


KERNEL_MARK = b"sqlml's kernels\n"
"""The mark before the keys of a runtime's kernels; see `kernel_list` in `runtime.c`."""


def list_kernel_keys(library: bytes) -> tuple[bytes, ...]:
    """Return the keys of the kernels in a runtime of any platform, by their numbers."""
    start = library.find(KERNEL_MARK)
    if start < 0:
        return ()
    start += len(KERNEL_MARK)
    count = int.from_bytes(library[start : start + 8], "little")
    keys = library[start + 8 : start + 8 + 16 * count]
    return tuple(keys[k : k + 16] for k in range(0, len(keys), 16))


def make_function(
    name: str, entry_address: int, signature: Signature, result_kind: int
) -> Callable[..., Any]:
    """Return a Python function that calls the kernel at `entry_address` without the GIL."""
    return _make_builtin(name, entry_address, result_kind, len(signature), _encode(signature))


def bind_constants(
    kernel: Callable[..., Any], signature: Signature, first: int, constants: Sequence[Any]
) -> Callable[..., Any]:
    """Return a kernel of `make_function` without the arguments `constants`, the first at `first`.

    A call then neither passes nor checks these arguments. The constants must fit the signature, and
    must not be the last arguments. The function keeps them alive.
    """
    stop = first + len(constants)
    assert stop < len(signature)
    kinds = zip(signature[first:stop], constants, strict=True)
    words = [word for kind, constant in kinds for word in to_words(kind, constant)]
    description = cast(BuiltinFunctionType, kernel).__self__
    entry_address, result_kind = struct.unpack_from("=qq", cast(bytes, description))
    arguments = (*_encode(signature[:first]), BOUND, len(words), *words, *_encode(signature[stop:]))
    count = len(signature) - len(constants)
    return _make_builtin(kernel.__name__, entry_address, result_kind, count, arguments, constants)


def _make_builtin(
    name: str,
    entry_address: int,
    result_kind: int,
    argument_count: int,
    kinds: Iterable[int],
    kept: Sequence[Any] | None = None,
) -> Callable[..., Any]:
    """Return a built-in function that calls a kernel (`python_kernel` in `runtime.c`).

    The function keeps `kept` alive.
    """
    numbers = (entry_address, result_kind, argument_count, *kinds)
    description = struct.pack(f"={len(numbers)}q", *numbers)
    # The last argument is the function's `__module__`, which may be any object.
    make = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.POINTER(_Method), ctypes.py_object, ctypes.py_object
    )(("PyCFunction_NewEx", ctypes.pythonapi))
    function: Callable[..., Any] = make(ctypes.byref(_make_method(name)), description, kept)
    return function


def _encode(kind: Kind) -> Iterator[int]:
    """Yield the numbers that describe a kind, or the kinds of a signature, to `runtime.c`."""
    if isinstance(kind, ArrayKind):
        type_bits = sum(1 << number for number in list_type_numbers(kind.dtype))
        flags = (C_CONTIGUOUS if kind.layout == "C" else 0) | (0 if kind.readonly else WRITEABLE)
        yield from (ARRAY, kind.ndim, flags, type_bits)
    elif isinstance(kind, tuple):
        for item in kind:
            if isinstance(item, tuple):
                yield from (ITEMS, len(item))
            yield from _encode(item)
    else:
        yield {"count": COUNT, "flag": FLAG, "nothing": NOTHING}[kind]


def list_type_numbers(dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Return all numpy type numbers of `dtype`; several C types may have the same layout.

    >>> list_type_numbers(np.dtype(bool))
    (0,)
    """
    if dtype.kind == "V":
        return (dtype.num,)
    type_numbers = {np.dtype(code).num for code in "?bBhHiIlLqQefd" if np.dtype(code) == dtype}
    return tuple(sorted(type_numbers))
