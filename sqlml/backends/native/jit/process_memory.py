"""What kernels know by an address or a name: arrays in memory, and functions.

Each is an intrinsic of numba: a function that emits LLVM IR.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from sqlml.backends.native.jit.argument_kinds import ArrayKind, numba_type
from sqlml.backends.native.jit.call_wrapper import LONG, POINTER, array_value, declared, long
from sqlml.backends.native.jit.helpers import intrinsic


def _array_at(dtype: str) -> Any:
    """An intrinsic: `count` numbers of `dtype` at an address, as an array."""

    def at(typing: Any, address: Any, count: Any) -> Any:
        from numba import types  # only to compile

        kind = ArrayKind(np.dtype(dtype), 1, "C", False)

        def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
            data = b.inttoptr(arguments[0], POINTER)
            return array_value(context, b, kind, data, [arguments[1]], [long(kind.dtype.itemsize)])

        return numba_type(kind)(types.int64, types.int64), generate

    return intrinsic(at)


def _alike(typing: Any, like: Any, address: Any, count: Any) -> Any:
    """`count` numbers of the dtype of another array at an address, as an array."""
    from numba import types

    made = types.Array(like.dtype, 1, "C")

    def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
        data = b.inttoptr(arguments[1], POINTER)
        size = like.dtype.bitwidth // 8
        kind = ArrayKind(np.dtype(str(like.dtype)), 1, "C", False)
        return array_value(context, b, kind, data, [arguments[2]], [long(size)])

    return made(like, types.int64, types.int64), generate


alike = intrinsic(_alike)
bytes_at = _array_at("uint8")
words_at = _array_at("int64")
bits_at = _array_at("uint64")
floats_at = _array_at("float32")
whole_at = _array_at("int32")
doubles_at = _array_at("float64")


def integers(arguments: int) -> Any:
    """The type of a function of so many int64, whose result is one too."""
    from numba import types

    return types.int64(*[types.int64] * arguments)


def process_function_1(name: str) -> Any:
    """An intrinsic that calls a function of one word by its name in the process."""

    def call(typing: Any, a: Any) -> Any:
        return integers(1), lambda _, b, __, given: _named(b, name, given)

    return intrinsic(call)


def process_function_2(name: str) -> Any:
    """An intrinsic that calls a function of two words by its name in the process."""

    def call(typing: Any, a: Any, b: Any) -> Any:
        return integers(2), lambda _, builder, __, given: _named(builder, name, given)

    return intrinsic(call)


def _named(builder: Any, name: str, given: Any) -> Any:
    return builder.call(declared(builder.module, name, LONG, *given), given)


def _call_1(typing: Any, address: Any, a: Any) -> Any:
    """The function at an address, int64 (int64)."""
    return integers(2), _call


def _call(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
    address, *given = arguments
    form = ir.FunctionType(LONG, [LONG] * len(given))
    return b.call(b.inttoptr(address, form.as_pointer()), given)


call_1 = intrinsic(_call_1)
malloc, free = process_function_1("malloc"), process_function_1("free")
