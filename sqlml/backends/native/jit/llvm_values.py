"""Values in LLVM's language that both entries of a kernel make: numbers, functions, arrays."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from sqlml.backends.native.jit.argument_kinds import ArrayKind, numba_type

BYTE, INT, LONG = ir.IntType(8), ir.IntType(32), ir.IntType(64)
POINTER = BYTE.as_pointer()


def long(value: int) -> Any:
    """A constant of 64 bits."""
    return ir.Constant(LONG, value)


def declared(module: Any, name: str, result: Any, *args: Any) -> Any:
    """The function of a name that the process has, as it is called with `args`."""
    form = ir.FunctionType(result, [a.type for a in args])
    return module.globals.get(name) or ir.Function(module, form, name)


def array_value(
    context: Any, b: Any, kind: ArrayKind, data: Any, lengths: list[Any], steps: list[Any]
) -> Any:
    """An array as numba's kernels take it: where its numbers lie, and the bytes between them."""
    made = context.make_array(numba_type(kind))(context, b)
    size: Any = long(1)
    for length in lengths:
        size = b.mul(size, length)
    made.data = b.bitcast(data, made.data.type)
    made.shape = _packed(b, made.shape.type, lengths)
    made.strides = _packed(b, made.strides.type, steps)
    made.nitems, made.itemsize = size, long(kind.dtype.itemsize)
    # The caller holds the array; without a meminfo the kernel counts no references to it.
    made.meminfo = ir.Constant(made.meminfo.type, None)
    made.parent = ir.Constant(made.parent.type, None)
    return made._getvalue()


def _packed(builder: Any, kind: Any, values: list[Any]) -> Any:
    made: Any = ir.Constant(kind, ir.Undefined)
    for i, value in enumerate(values):
        made = builder.insert_value(made, value, i)
    return made
