"""Fold scalers in front of a linear model into its weights and bias (Hummingbird, section 5.2).

(x - m) / s @ w + b equals x @ (w / s) + (b - (m / s) @ w) up to rounding. Results differ by at
most 1e-13 of the largest term, because folding requires |m / s| <= 2**10 in every column. Programs
with a class label do not change, because rounding could change labels near a decision boundary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.operators.elementwise import UFUNCS
from sqlml.ir.program import Node, Program
from sqlml.passes.float_order import Step, match_step
from sqlml.passes.fold_layout import flatten_concat
from sqlml.types import Array


def fold_scaling(program: Program) -> Program:
    """Fold scalers into the weights of linear models if that cannot change a predicted label."""
    if program.labels and "label" in program.outputs:
        return program
    return rewrite(program, _fold_into_weights, ops=("linear",))


def _fold_into_weights(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    if node.type.dtype != "float64" or inputs[0].type.sparse:
        return None
    weights, bias = node.attrs["weights"], node.attrs["bias"]
    values = flatten_concat(builder, inputs[0])
    scalings = [_find_scaling(builder, value) for value in values]
    sources, factors, shifts = zip(*scalings, strict=True)
    if list(sources) == values:
        return None
    scaled_weights = weights * np.concatenate(factors)[:, None]
    bias = bias + np.concatenate(shifts) @ weights
    if not (np.isfinite(scaled_weights).all() and np.isfinite(bias).all()):
        return None
    if ((scaled_weights == 0) & (weights != 0)).any():
        return None  # A weight has underflowed.
    return builder.op("linear", builder.concat(sources), weights=scaled_weights, bias=bias)


_SCALING_OPERATORS = ("add", "sub", "mul", "div")


def _find_scaling(builder: Builder, x: Value) -> tuple[Value, Array, Array]:
    """Return a value v, factors f and shifts s, each per column, such that `x` is v * f + s."""
    original_x, steps = x, list[Step]()
    while (match := match_step(builder, x)) is not None and match[1].op in _SCALING_OPERATORS:
        x = match[0]
        steps.append(match[1])
    factor, shift = np.ones(x.type.width), np.zeros(x.type.width)
    for step in reversed(steps):
        assert step.operand is not None  # Only a cast has no operand.
        compute = UFUNCS[step.op]
        shift = compute(shift, step.operand)
        if step.op in ("mul", "div"):
            factor = compute(factor, step.operand)
    if np.abs(shift).max(initial=0) > 2**10 or not np.isfinite(factor).all():
        return original_x, np.ones(x.type.width), np.zeros(x.type.width)
    return x, factor, shift
