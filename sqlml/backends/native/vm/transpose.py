"""`turn`: 8 rows of 8 columns that lie side by side, written as 8 columns of 8 rows.

A loop over single numbers takes a load, a conversion and a store for each. Here 8 vectors are
loaded, interleaved three times (r[i] with r[i + 4], which turns a square of 8 by 8) and stored.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from sqlml.backends.native.jit.helpers import intrinsic

SIDE = 8
"""Rows and columns of a square."""


def _turner(
    typing: Any, rows: Any, place: Any, width: Any, turned: Any, start: Any, step: Any
) -> Any:
    """Write numbers of rows (flat, `width` long each) from `place` on, as wide or wider ones.

    Row r and column c of the square go to turned[start + c * step + r].
    """
    from numba import types  # only to compile

    signature = types.void(rows, types.uint64, types.uint64, turned, types.uint64, types.uint64)
    return signature, _generate


turn = intrinsic(_turner)


def _generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    kinds = signature.args
    number = context.get_data_type(kinds[0].dtype)
    made = context.get_data_type(kinds[3].dtype)

    def data(i: int) -> Any:
        return context.make_array(kinds[i])(context, builder, arguments[i]).data

    source, target = data(0), data(3)
    place, width, start, step = (arguments[i] for i in (1, 2, 4, 5))
    vector = ir.VectorType(number, SIDE)
    long = ir.IntType(64)
    held = []
    for r in range(SIDE):
        at = builder.add(place, builder.mul(width, ir.Constant(long, r)))
        pointer = builder.bitcast(builder.gep(source, [at]), vector.as_pointer())
        held.append(builder.load(pointer, align=kinds[0].dtype.bitwidth // 8))
    half = SIDE // 2
    low = [i // 2 + (i % 2) * SIDE for i in range(SIDE)]
    masks = [
        ir.Constant(ir.VectorType(ir.IntType(32), SIDE), mask)
        for mask in (low, [i + half for i in low])
    ]
    for _ in range(SIDE.bit_length() - 1):
        held = [
            builder.shuffle_vector(held[i], held[i + half], mask)
            for i in range(half)
            for mask in masks
        ]
    wide = ir.VectorType(made, SIDE)
    for c, column in enumerate(held):
        value = column if number == made else builder.fpext(column, wide)
        at = builder.add(start, builder.mul(step, ir.Constant(long, c)))
        pointer = builder.bitcast(builder.gep(target, [at]), wide.as_pointer())
        builder.store(value, pointer, align=kinds[3].dtype.bitwidth // 8)
    return context.get_dummy_value()
