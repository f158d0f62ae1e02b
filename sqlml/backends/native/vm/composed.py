"""Functions of registers that the machine has no instruction for, composed of those it has."""

from __future__ import annotations

from collections.abc import Sequence

from sqlml.backends.native.vm.assembler import Assembler


def add(asm: Assembler, a: int, b: int, factor: float = 1.0) -> int:
    """a + b * factor, with a factor whose products are exact, such as 1 and -1."""
    return asm.emit("sum", a, b, asm.numbers(factor))


def compare(asm: Assembler, a: int, b: int, above: float, equal: float) -> int:
    """`above` where a > b, `equal` where a = b, else 0."""
    return asm.emit("compare", a, b, asm.numbers(above, equal))


def negative(asm: Assembler, a: int) -> int:
    """-a."""
    return asm.emit("mul", a, asm.constant(-1.0))


def absolute(asm: Assembler, a: int) -> int:
    """|a|."""
    # The sum makes 0 of -0.
    return add(asm, asm.emit("maximum", a, negative(asm, a)), asm.constant(0.0))


def minimum(asm: Assembler, a: int, b: int) -> int:
    """The smaller of both, NaN where one is."""
    return negative(asm, asm.emit("maximum", negative(asm, a), negative(asm, b)))


def negation(asm: Assembler, a: int) -> int:
    """1 - a, of 0 or 1."""
    return add(asm, asm.constant(1.0), a, -1.0)


def summed(asm: Assembler, x: Sequence[int]) -> int:
    """A sum in numpy's order: eight sums of every eighth number, from 128 on by halves."""
    n = len(x)
    if n > 128:
        half = n // 2 - n // 2 % 8
        return add(asm, summed(asm, x[:half]), summed(asm, x[half:]))
    lanes, rest = (list(x[:8]), x[n - n % 8 :]) if n >= 8 else ([x[0]], x[1:])
    if n >= 8:
        for i in range(8, n - n % 8):
            lanes[i % 8] = add(asm, lanes[i % 8], x[i])
        while len(lanes) > 1:
            lanes = [add(asm, lanes[i], lanes[i + 1]) for i in range(0, len(lanes), 2)]
    total = lanes[0]
    for number in rest:
        total = add(asm, total, number)
    return total


def largest(asm: Assembler, x: Sequence[int]) -> int:
    """The maximum of registers, NaN where one is."""
    made = x[0]
    for register in x[1:]:
        made = asm.emit("maximum", made, register)
    return made


def smallest(asm: Assembler, x: Sequence[int]) -> int:
    """The minimum of registers, NaN where one is."""
    return negative(asm, largest(asm, [negative(asm, r) for r in x]))


def argmax(asm: Assembler, x: Sequence[int]) -> int:
    """From the last column down: each that is not below the largest after it, or is NaN."""
    at, best = asm.constant(float(len(x) - 1)), x[-1]
    for j in range(len(x) - 2, -1, -1):
        best = asm.emit("maximum", x[j], best)
        at = asm.emit("where", _same(asm, x[j], best), asm.constant(float(j)), at)
    return at


def _same(asm: Assembler, x: int, best: int) -> int:
    """Whether x is the maximum: equal to it, or itself NaN. (A NaN best is of a later column.)"""
    equal = compare(asm, x, best, 0.0, 1.0)
    number = compare(asm, x, x, 0.0, 1.0)
    return asm.emit("where", number, equal, asm.constant(1.0))
