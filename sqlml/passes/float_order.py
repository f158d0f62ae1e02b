"""Searches over the ordered floats for the value at which a condition changes.

`find_margin_threshold` turns a filter on a probability into a comparison of the model's score. A
`Step` is a column-wise operator that never decreases, so a chain of steps never decreases either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.bounded_cache import cache_by_program
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.elementwise import UFUNCS
from sqlml.ir.program import Program
from sqlml.ir.reference import compute_node
from sqlml.types import FLOATS, Array, numpy_dtype

_BITS = {"float64": np.int64, "float32": np.int32}

POINTS = 257
"""Number of floats, evenly spaced in the interval, that each round of a search evaluates."""

NEAR = 256
"""Number of floats on each side of the turning point that must agree with it."""


def find_last_true(
    holds: Callable[[Array], Array], count: int, dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """Return the largest float for which each of `count` conditions holds, and the next float.

    `holds` maps values (count,) of `dtype`, float64 or float32, to bool (count,). Entry i must be
    true up to some value, and false above this value. The infinities are also tried. If a condition
    never holds, the largest float is NaN. If a condition always holds, the next float is NaN.

    >>> last, following = find_last_true(lambda x: x * 2 <= 1.0, 1, np.dtype("float64"))
    >>> last.tolist(), bool(following[0] > 0.5)
    ([0.5], True)
    """
    max_position = int(np.array(np.inf, dtype).view(_BITS[dtype.name]))
    low = np.full(count, -max_position - 1, np.int64)  # One below -inf, where all conditions hold.
    high = np.full(count, max_position + 1, np.int64)
    for _ in range(66):
        # This is the mean without overflow; it equals `low` once the two are neighbours.
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        floats = _get_floats_at(np.clip(middle, -max_position, max_position), dtype)
        is_true = holds(floats) | (middle == low)
        low, high = np.where(is_true, middle, low), np.where(is_true, high, middle)
    last_true, following = _get_floats_at(np.clip([low, high], -max_position, max_position), dtype)
    last_true[low == -max_position - 1] = np.nan
    following[high == max_position + 1] = np.nan
    return last_true, following


def find_turning_point(
    holds: Callable[[Array], Array], dtype: np.dtype[Any]
) -> tuple[float, float, bool] | None:
    """Return the neighbouring floats between which `holds` changes, and the result above them.

    Return None if `holds` never changes, or changes more than once among the evaluated floats.

    >>> find_turning_point(lambda x: x * 2 > 1.0, np.dtype("float32"))
    (0.5, 0.5000000596046448, True)
    """
    max_position = int(np.array(np.inf, dtype).view(_BITS[dtype.name]))
    low, high = -max_position, max_position

    def evaluate(positions: Array) -> Array:
        return holds(_get_floats_at(positions, dtype))

    holds_above = bool(evaluate(np.array([high]))[0])
    if bool(evaluate(np.array([low]))[0]) == holds_above:
        return None
    while high - low > 1:
        step = max(1, (high - low) // (POINTS - 1))
        positions = np.array([*range(low, high, step), high])
        agrees = evaluate(positions) == holds_above
        first_agreeing = int(agrees.argmax())
        if not agrees[first_agreeing:].all():
            return None
        low, high = int(positions[first_agreeing - 1]), int(positions[first_agreeing])
    nearby = np.arange(max(-max_position, low - NEAR), min(max_position, high + NEAR) + 1)
    if not ((evaluate(nearby) == holds_above) == (nearby >= high)).all():
        return None
    last, following = _get_floats_at(np.array([low, high]), dtype).tolist()
    return last, following, holds_above


def _get_floats_at(positions: Array, dtype: np.dtype[Any]) -> Array:
    """Return the floats at `positions` in the ordered sequence of all floats; 0.0 is at 0."""
    magnitudes = np.abs(positions).astype(_BITS[dtype.name]).view(dtype)
    return np.where(positions < 0, -magnitudes, magnitudes).astype(dtype)


COMPARISONS = {">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal}


@dataclass(frozen=True, slots=True)
class Threshold:
    """A comparison that holds for scores >= `value` if `above`, otherwise for scores <= `value`."""

    value: float
    above: bool


@cache_by_program
def find_margin_threshold(
    program: Program, column: int, comparison: str, bound: float
) -> Threshold | None:
    """Convert the comparison `proba[column] comparison bound` to a comparison of the score.

    Return None if the score alone does not determine the probability, or if no threshold fits.
    """
    score, proba = _find_score(program), program.outputs.get("proba")
    if score is None or proba is None:
        return None
    dtype = numpy_dtype(program.nodes[score].type.dtype)
    if compute_node(program, {score: np.zeros((1, 1), dtype)}, proba) is None:
        return None

    def holds(x: Array) -> Array:
        probability: Any = compute_node(program, {score: x.reshape(-1, 1)}, proba)
        return np.asarray(COMPARISONS[comparison](probability[:, column].astype(np.float64), bound))

    neighbours = find_turning_point(holds, dtype)
    if neighbours is None:
        return None
    last, following, holds_above = neighbours
    return Threshold(following if holds_above else last, holds_above)


def _find_score(program: Program) -> int | None:
    """Return the node of the score before lossless casts, or None if a row has several scores."""
    if "score" not in program.outputs or "proba" not in program.outputs:
        return None
    score_index = program.outputs["score"]
    node = program.nodes[score_index]
    while node.op == "cast" and program.nodes[node.inputs[0]].type.dtype == "float32":
        score_index = node.inputs[0]
        node = program.nodes[score_index]
    is_valid = node.type.dtype in FLOATS and node.type.rowwise and node.type.width == 1
    return score_index if is_valid else None


@dataclass(frozen=True, slots=True)
class Step:
    """An operator with a constant operand for each column, (k,); a cast has operand None."""

    op: str
    operand: Array | None
    dtype: str

    def apply(self, x: Array, columns: Array) -> Array:
        """Apply the step to values (m,), where x[i] is a value of column `columns[i]`."""
        with np.errstate(all="ignore"):
            if self.operand is None:
                return x.astype(self.dtype)
            return np.asarray(UFUNCS[self.op](x, self.operand[columns]))


_STEPS = ("add", "sub", "mul", "div", "maximum", "minimum")
"""Operators that can be a step if one operand is a constant."""


def match_step(builder: Builder, x: Value) -> tuple[Value, Step] | None:
    """Return the input of the step that computes `x`, and the step; None if no step does."""
    node = builder.node(x)
    if node.op == "cast":
        source = builder.value(node.inputs[0])
        if source.type.dtype in FLOATS and x.type.dtype in FLOATS:
            return source, Step("cast", None, x.type.dtype)
        return None
    if node.op not in _STEPS or len(x.type.shape) != 2:
        return None
    source, other = (builder.value(i) for i in node.inputs)
    if not source.type.rowwise and node.op in ("add", "mul", "maximum", "minimum"):
        source, other = other, source
    constant = builder.node(other)
    if constant.op != "constant" or source.type != x.type or x.type.dtype not in FLOATS:
        return None
    value: Array = constant.attrs["value"]
    if value.ndim > 1 or not np.isfinite(value).all():
        return None
    if node.op in ("mul", "div") and not (value > 0).all():
        return None
    operand = np.broadcast_to(value, (x.type.width,)).astype(numpy_dtype(x.type.dtype))
    return source, Step(node.op, operand, x.type.dtype)
