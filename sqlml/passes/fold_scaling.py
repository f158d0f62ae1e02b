"""Scalers in front of a linear model become part of its weights and bias.

Hummingbird, section 5.2. (x - m) / s @ w + b is x @ (w / s) + (b - (m / s) @ w), which rounds
differently. So this pass keeps the numbers to about 1e-13 of the largest term, not to the bit:

* it folds only where |m / s| is at most 2**10 in every column, so that nothing cancels that did
  not cancel before;
* it leaves Programs with a class label unchanged: on a row that lies on the decision boundary to
  the last bit, the label could turn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.program import Node, Program
from sqlml.passes.float_order import Step, step_below
from sqlml.passes.fold_layout import parts_of
from sqlml.types import Array

MOST_SHIFT = 2.0**10
"""Largest |mean / scale| of a column that is folded."""


def fold_scaling(program: Program) -> Program:
    """Return `program` with its scalers folded into linear weights, where that is allowed."""
    if program.labels and "label" in program.outputs:
        return program
    return rewrite(program, _rule, ops=("linear",))


def _rule(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    if node.type.dtype != "float64" or inputs[0].type.sparse:
        return None
    weights: Array = node.attrs["weights"]
    bias: Array = node.attrs["bias"]
    parts, factors, shifts = [], [], []
    given = parts_of(b, inputs[0])
    for part in given:
        below, factor, shift = _scaling(b, part)
        parts.append(below)
        factors.append(factor)
        shifts.append(shift)
    if all(part.index == old.index for part, old in zip(parts, given, strict=True)):
        return None
    folded = weights * np.concatenate(factors)[:, None]
    bias = bias + np.concatenate(shifts) @ weights
    if not (np.isfinite(folded).all() and np.isfinite(bias).all()):
        return None
    if ((folded == 0) & (weights != 0)).any():
        return None  # a weight has underflowed
    return b.op("linear", b.beside(parts), weights=folded, bias=bias)


def _scaling(b: Builder, x: Value) -> tuple[Value, Array, Array]:
    """The value below the scalers of `x`, and factor and shift per column: v -> v * f + s."""
    top, steps = x, list[Step]()
    while (found := step_below(b, x)) is not None and found[1].op in ("add", "sub", "mul", "div"):
        x = found[0]
        steps.append(found[1])
    factor, shift = np.ones(x.type.width), np.zeros(x.type.width)
    for step in reversed(steps):
        factor, shift = _composed(step, factor, shift)
    if np.abs(shift).max(initial=0) > MOST_SHIFT or not np.isfinite(factor).all():
        return top, np.ones(x.type.width), np.zeros(x.type.width)
    return x, factor, shift


def _composed(step: Step, factor: Array, shift: Array) -> tuple[Array, Array]:
    operand = step.operand
    assert operand is not None  # only a cast has none
    if step.op == "add":
        return factor, shift + operand
    if step.op == "sub":
        return factor, shift - operand
    if step.op == "mul":
        return factor * operand, shift * operand
    return factor / operand, shift / operand
