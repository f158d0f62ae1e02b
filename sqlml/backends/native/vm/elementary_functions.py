"""The sigmoid, XGBoost's own of float32, tanh and expm1, composed of the machine's instructions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sqlml.backends.native.vm.assembler import Assembler
from sqlml.backends.native.vm.composed import absolute, add, compare, minimum, negative

_P = (-0.964399179425052238628, -99.2877231001918586564, -1614.68768441708447952)
_Q = (112.811678491632931402, 2235.48839060100448583, 4844.06305325125486048)
"""Coefficients of `tanh.c` of Cephes."""

_TAYLOR = tuple(1.0 / math.factorial(k) for k in range(20, 1, -1))
"""Of exp: the coefficients from the 20th power down to the second."""


def sigmoid(asm: Assembler, a: int) -> int:
    """1 / (1 + exp(-a))."""
    one = asm.constant(1.0)
    return asm.emit("div", one, add(asm, one, asm.emit("exp", negative(asm, a))))


def single_sigmoid(asm: Assembler, a: int) -> int:
    """1 / (1 + exp(-a)) of a float32, each step rounded to one, as XGBoost does (common/math.h)."""
    one = asm.constant(1.0)
    limited = minimum(asm, negative(asm, a), asm.constant(float(np.float32(88.7))))
    made = asm.emit("single", asm.emit("exp", limited))
    for number in (1.0, float(np.float32(1e-16))):
        made = asm.emit("single", add(asm, made, asm.constant(number)))
    return asm.emit("div", one, made)


def tanh(asm: Assembler, x: int) -> int:
    """From exp where |x| >= 0.625, else the quotient of polynomials of Cephes (`tanh.c`)."""
    one, two, zero = asm.constant(1.0), asm.constant(2.0), asm.constant(0.0)
    size = absolute(asm, x)
    grown = asm.emit("exp", add(asm, size, size))
    large = add(asm, one, asm.emit("div", two, add(asm, grown, one)), -1.0)
    large = asm.emit("where", compare(asm, x, zero, 1.0, 1.0), large, negative(asm, large))
    z = asm.emit("mul", x, x)
    above = _polynomial(asm, z, _P)
    below = add(asm, z, asm.constant(_Q[0]))
    for number in _Q[1:]:
        below = add(asm, asm.emit("mul", below, z), asm.constant(number))
    share = asm.emit("div", asm.emit("mul", z, above), below)
    small = add(asm, x, asm.emit("mul", x, share))
    is_small = compare(asm, asm.constant(0.625), size, 1.0, 0.0)
    made = asm.emit("where", is_small, small, large)
    return asm.emit("where", compare(asm, x, x, 0.0, 1.0), made, x)


def expm1(asm: Assembler, x: int) -> int:
    """exp(x) - 1, of Taylor's series where |x| < 1.1."""
    rest = asm.emit("mul", asm.emit("mul", x, x), _polynomial(asm, x, _TAYLOR))
    large = add(asm, asm.emit("exp", x), asm.constant(1.0), -1.0)
    is_small = compare(asm, asm.constant(1.1), absolute(asm, x), 1.0, 0.0)
    return asm.emit("where", is_small, add(asm, x, rest), large)


def _polynomial(asm: Assembler, x: int, coefficients: Sequence[float]) -> int:
    """The coefficient of the highest power comes first."""
    made = asm.constant(coefficients[0])
    for number in coefficients[1:]:
        made = add(asm, asm.emit("mul", made, x), asm.constant(number))
    return made
