"""numba intrinsics that view memory as arrays, and that call functions of the process.

An intrinsic is a function that emits LLVM IR for its calls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from sqlml.backends.native.jit.argument_kinds import ArrayKind, to_numba_type
from sqlml.backends.native.jit.call_wrapper import LONG, POINTER, declare_function, make_array_value
from sqlml.backends.native.jit.helpers import intrinsic


def _make_array_intrinsic(dtype: str) -> Any:
    """Return an intrinsic that views `count` numbers of `dtype` at an address as an array."""

    def array_at(typing: Any, address: Any, count: Any) -> Any:
        from numba import types  # Importing numba takes long.

        kind = ArrayKind(np.dtype(dtype), 1, "C", False)
        return to_numba_type(kind)(types.int64, types.int64), _make_array_generator(kind, 0)

    return intrinsic(array_at)


def _make_array_generator(kind: ArrayKind, i: int) -> Any:
    """Return an IR generator for an array whose address and length are arguments i and i + 1."""

    def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
        data, size = b.inttoptr(arguments[i], POINTER), ir.Constant(LONG, kind.dtype.itemsize)
        return make_array_value(context, b, kind, data, [arguments[i + 1]], [size])

    return generate


@intrinsic
def array_like_at(typing: Any, like: Any, address: Any, count: Any) -> Any:
    """Emit an array of the `count` numbers at `address`, with the dtype of the array `like`."""
    from numba import types

    kind = ArrayKind(np.dtype(str(like.dtype)), 1, "C", False)
    return to_numba_type(kind)(like, types.int64, types.int64), _make_array_generator(kind, 1)


bytes_at: Any = _make_array_intrinsic("uint8")
words_at: Any = _make_array_intrinsic("int64")
bits_at: Any = _make_array_intrinsic("uint64")
floats_at: Any = _make_array_intrinsic("float32")
int32s_at: Any = _make_array_intrinsic("int32")
doubles_at: Any = _make_array_intrinsic("float64")


def integers(arguments: int) -> Any:
    from numba import types

    return types.int64(*[types.int64] * arguments)


def process_function_1(name: str) -> Any:
    """Return an intrinsic that calls the function `name` of the process with one int64."""

    def call(typing: Any, argument: Any) -> Any:
        return integers(1), lambda _, b, __, arguments: _call_by_name(b, name, arguments)

    return intrinsic(call)


def process_function_2(name: str) -> Any:
    """Return an intrinsic that calls the function `name` of the process with two int64."""

    def call(typing: Any, first: Any, second: Any) -> Any:
        return integers(2), lambda _, b, __, arguments: _call_by_name(b, name, arguments)

    return intrinsic(call)


def _call_by_name(builder: Any, name: str, arguments: Any) -> Any:
    return builder.call(declare_function(builder.module, name, LONG, *arguments), arguments)


@intrinsic
def call_1(typing: Any, address: Any, argument: Any) -> Any:
    """Emit a call of the function at `address`, which takes and returns an int64."""
    return integers(2), _call


def _call(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
    address, *function_arguments = arguments
    function_type = ir.FunctionType(LONG, [LONG] * len(function_arguments))
    return b.call(b.inttoptr(address, function_type.as_pointer()), function_arguments)


malloc, free = process_function_1("malloc"), process_function_1("free")
