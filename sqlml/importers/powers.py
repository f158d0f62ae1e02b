"""Powers of values by repeated multiplication."""

from __future__ import annotations

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.types import Array, numpy_dtype

MAX_POWER = 64


def raise_to_power(builder: Builder, x: Value, exponent: float) -> Value:
    """Raise x to a power; like libsvm's powi, use repeated squaring for an integer exponent."""
    op = builder.op

    def number(value: float) -> Array:
        return np.asarray(value, numpy_dtype(x.type.dtype))

    if not float(exponent).is_integer() or not 0 <= exponent <= MAX_POWER:
        return op("pow", x, number(exponent))
    if exponent == 0:  # The power is 1 for any x; only the number of rows comes from x.
        return op("add", op("mul", x, number(0)), number(1))
    product: Value | None = None
    square, remaining = x, int(exponent)
    while remaining:
        if remaining % 2:
            product = square if product is None else op("mul", product, square)
        remaining //= 2
        if remaining:
            square = op("mul", square, square)
    assert product is not None
    return product
