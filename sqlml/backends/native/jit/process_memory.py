"""numba intrinsics that view memory as arrays, and that call functions of the process.

An intrinsic is a function that emits LLVM IR for its calls.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from sqlml.backends.native.jit.argument_kinds import ArrayKind, to_numba_type, writes
from sqlml.backends.native.jit.call_wrapper import LONG, POINTER, declare_function, make_array_value
from sqlml.backends.native.jit.helpers import intrinsic


def _make_array_intrinsic(dtype: str) -> Any:
    """Return an intrinsic that views numbers of `dtype` at an address as an array."""

    def array_at(typing: Any, address: Any, count: Any) -> Any:
        from numba import types  # Importing numba is slow.

        kind = writes(dtype, 1)
        return to_numba_type(kind)(types.int64, types.int64), _make_array_generator(kind, 0)

    return intrinsic(array_at)


def _make_array_generator(kind: ArrayKind, i: int) -> Any:
    """Return an IR generator for an array, given the address (argument i) and length (i + 1)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = builder.inttoptr(arguments[i], POINTER)
        stride = ir.Constant(LONG, kind.dtype.itemsize)
        return make_array_value(context, builder, kind, data, [arguments[i + 1]], [stride])

    return generate


@intrinsic
def array_like_at(typing: Any, like: Any, address: Any, count: Any) -> Any:
    """Emit an array of the `count` numbers at `address`, with the dtype of the array `like`."""
    from numba import types

    kind = writes(str(like.dtype), 1)
    return to_numba_type(kind)(like, types.int64, types.int64), _make_array_generator(kind, 1)


bytes_at: Any = _make_array_intrinsic("uint8")
words_at: Any = _make_array_intrinsic("int64")
bits_at: Any = _make_array_intrinsic("uint64")
floats_at: Any = _make_array_intrinsic("float32")
int32s_at: Any = _make_array_intrinsic("int32")
doubles_at: Any = _make_array_intrinsic("float64")


def integer_signature(argument_count: int) -> Any:
    from numba import types

    return types.int64(*[types.int64] * argument_count)


def process_function_1(name: str) -> Any:
    """Return an intrinsic that calls the function `name` of the process with one int64."""

    def call(typing: Any, argument: Any) -> Any:
        return integer_signature(1), _make_call_generator(name)

    return intrinsic(call)


def process_function_2(name: str) -> Any:
    """Return an intrinsic that calls the function `name` of the process with two int64."""

    def call(typing: Any, first: Any, second: Any) -> Any:
        return integer_signature(2), _make_call_generator(name)

    return intrinsic(call)


def process_function_6(name: str) -> Any:
    """Return an intrinsic that calls the function `name` of the process with six int64."""

    def call(
        typing: Any, first: Any, second: Any, third: Any, fourth: Any, fifth: Any, sixth: Any
    ) -> Any:
        return integer_signature(6), _make_call_generator(name)

    return intrinsic(call)


def _make_call_generator(name: str) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.call(declare_function(builder.module, name, LONG, *arguments), arguments)

    return generate


@intrinsic
def call_1(typing: Any, address: Any, argument: Any) -> Any:
    """Emit a call of the function at `address`, which takes and returns an int64."""
    return integer_signature(2), _call_address


def _call_address(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    address, *function_arguments = arguments
    function_type = ir.FunctionType(LONG, [LONG] * len(function_arguments))
    return builder.call(builder.inttoptr(address, function_type.as_pointer()), function_arguments)


malloc, free = process_function_1("malloc"), process_function_1("free")
