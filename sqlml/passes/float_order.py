"""Searches over the floats in their order: where a condition turns from true to false, or back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.bounded_cache import of_programs
from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.elementwise import UFUNCS
from sqlml.ir.program import Program
from sqlml.types import FLOATS, Array, numpy_dtype

_BITS = {"float64": np.int64, "float32": np.int32}

POINTS = 257
"""Floats that a round of the search looks at, in equal steps over what is left."""

NEAR = 256
"""Floats on each side of the found one that must agree with it."""


def last_true(
    holds: Callable[[Array], Array], count: int, dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """For `count` conditions at once: the largest float for which each holds, and the next one.

    Args:
        holds: values (count,) of `dtype` -> bool (count,); entry i true up to some value and
            false above it. It is asked about both infinities too.
        dtype: float64 or float32.

    Returns:
        (last, following), (count,) each; NaN if a condition holds for no value, or for all.

    >>> last, following = last_true(lambda x: x * 2 <= 1.0, 1, np.dtype("float64"))
    >>> last.tolist(), bool(following[0] > 0.5)
    ([0.5], True)
    """
    most = int(np.array(np.inf, dtype).view(_BITS[dtype.name]))
    low = np.full(count, -most - 1, np.int64)  # one below -inf: holds by agreement
    high = np.full(count, most + 1, np.int64)
    for _ in range(66):
        # The mean without overflow; it is `low` once the two are neighbours.
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        true = holds(_floats(np.clip(middle, -most, most), dtype)) | (middle == low)
        low, high = np.where(true, middle, low), np.where(true, high, middle)
    none, every = low == -most - 1, high == most + 1
    last = np.where(none, np.nan, _floats(np.where(none, 0, low), dtype))
    following = np.where(every, np.nan, _floats(np.where(every, 0, high), dtype))
    return last.astype(dtype), following.astype(dtype)


def turn(holds: Callable[[Array], Array], dtype: np.dtype[Any]) -> tuple[float, float, bool] | None:
    """The neighbours between which `holds` changes, and whether it holds above them.

    None if it does not change, or, as far as this looks, more than once.

    Args:
        holds: values (m,) of `dtype` -> bool (m,). It is asked about both infinities too.
        dtype: float64 or float32.

    >>> turn(lambda x: x * 2 > 1.0, np.dtype("float32"))
    (0.5, 0.5000000596046448, True)
    """
    most = int(np.array(np.inf, dtype).view(_BITS[dtype.name]))
    low, high = -most, most

    def at(places: Array) -> Array:
        return holds(_floats(places, dtype))

    above = bool(at(np.array([high]))[0])
    if bool(at(np.array([low]))[0]) == above:
        return None
    while high - low > 1:
        step = max(1, (high - low) // (POINTS - 1))
        places = np.array([*range(low, high, step), high])
        answers = at(places) == above
        first = int(answers.argmax())
        if not answers[first:].all():
            return None  # it steps back
        low, high = int(places[first - 1]), int(places[first])
    near = np.arange(max(-most, low - NEAR), min(most, high + NEAR) + 1)
    if not ((at(near) == above) == (near >= high)).all():
        return None
    last, following = _floats(np.array([low, high]), dtype).tolist()
    return last, following, above


def _floats(places: Array, dtype: np.dtype[Any]) -> Array:
    """Floats from their places in the order, 0 being zero."""
    size = np.abs(places).astype(_BITS[dtype.name]).view(dtype)
    return np.where(places < 0, -size, size).astype(dtype)


# The score from which on a probability passes a comparison, by bisection over the floats. Exact.
#
# `predict_proba(.., class := 'yes') > 0.8` asks for a probability that is a monotone function of
# the model's score. So the score itself can be compared, with the float at which the answer
# changes. The function is evaluated as in the reference; if rounding makes it non-monotone near
# that float, there is no such threshold.


COMPARISONS: Mapping[str, Callable[[Array, float], Array]] = MappingProxyType(
    {">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal}
)


@dataclass(frozen=True, slots=True)
class Threshold:
    """The comparison holds for scores >= `value`; for those <= `value` where not `above`."""

    value: float
    above: bool


@of_programs
def margin_threshold(
    program: Program, column: int, comparison: str, bound: float
) -> Threshold | None:
    """For which scores `proba[column] <comparison> bound` holds; None if no float separates them.

    There is none for Programs whose probability depends on more than the score, and for comparisons
    that hold for all scores or for none.
    """
    place = _score(program)
    if place is None or place not in _between(program, place):
        return None
    dtype = program.nodes[place].type.dtype

    def holds(x: Array) -> Array:
        p = _probability(program, place, x)[:, column].astype(np.float64)
        return COMPARISONS[comparison](p, bound)

    found = turn(holds, numpy_dtype(dtype))
    if found is None:
        return None
    last, following, above = found
    return Threshold(following if above else last, above)


def _score(program: Program) -> int | None:
    """The node that the score is, before casts that lose nothing."""
    if "score" not in program.outputs or "proba" not in program.outputs:
        return None
    place = program.outputs["score"]
    node = program.nodes[place]
    while node.op == "cast" and program.nodes[node.inputs[0]].type.dtype == "float32":
        place = node.inputs[0]
        node = program.nodes[place]
    fits = node.type.dtype in FLOATS and node.type.rowwise and node.type.width == 1
    return place if fits else None


@of_programs
def _between(program: Program, score: int) -> frozenset[int]:
    """The nodes from the score up to the probabilities; none if these read something else."""
    found: set[int] = set()
    todo = [program.outputs["proba"]]
    while todo:
        i = todo.pop()
        node = program.nodes[i]
        if i in found:
            continue
        found.add(i)
        if i == score:
            continue
        if node.op == "input" or node.op.startswith("require"):
            return frozenset()
        todo += node.inputs
    return frozenset(found)


def _probability(program: Program, score: int, x: Array) -> Array:
    """The probabilities (n, classes) for scores (n,)."""
    values: dict[int, Array] = {score: x.reshape(-1, 1)}
    with np.errstate(all="ignore"):
        for i in sorted(_between(program, score)):
            node = program.nodes[i]
            if i not in values:
                inputs = [values[j] for j in node.inputs]
                values[i] = reference.FUNCTIONS[node.op](inputs, node.attrs)
    return values[program.outputs["proba"]]


# Column-wise steps between a value and the columns below it, for passes that fold them away.
#
# A step is monotone and non-decreasing in each column: scaling by positive numbers, shifting,
# clipping, rounding to float32. So is a chain of them, in exact arithmetic and in floating point.


@dataclass(frozen=True, slots=True)
class Step:
    """One operator of a chain; `operand` is its constant per column (k,), None for a cast."""

    op: str
    operand: Array | None
    dtype: str

    def apply(self, x: Array, columns: Array) -> Array:
        """The step on values x (m,), the i-th of which stands in column `columns[i]`."""
        if self.operand is None:
            with np.errstate(all="ignore"):
                return x.astype(self.dtype)
        with np.errstate(all="ignore"):
            made: Array = UFUNCS[self.op](x, self.operand[columns])
        return made


_STEPS = frozenset({"add", "sub", "mul", "div", "maximum", "minimum"})
"""Operators that, with a constant, may be a step."""


def step_below(b: Builder, x: Value) -> tuple[Value, Step] | None:
    """The step that makes `x`, with the value it reads; None if another operator makes it."""
    node = b.node(x)
    if node.op == "cast":
        below = b.value(node.inputs[0])
        if below.type.dtype in FLOATS and x.type.dtype in FLOATS:
            return below, Step("cast", None, x.type.dtype)
        return None
    if node.op not in _STEPS or len(x.type.shape) != 2:
        return None
    below, other = (b.value(i) for i in node.inputs)
    if not below.type.rowwise and node.op in ("add", "mul", "maximum", "minimum"):
        below, other = other, below
    constant = b.node(other)
    if constant.op != "constant" or below.type != x.type or x.type.dtype not in FLOATS:
        return None
    value: Array = constant.attrs["value"]
    if value.ndim > 1 or not np.isfinite(value).all():
        return None
    if node.op in ("mul", "div") and not (value > 0).all():
        return None
    operand = np.broadcast_to(value, (x.type.width,)).astype(numpy_dtype(x.type.dtype))
    return below, Step(node.op, operand, x.type.dtype)
