"""The score from which on a probability passes a comparison, by bisection over the floats. Exact.

`predict_proba(.., class := 'yes') > 0.8` asks for a probability that is a monotone function of the
model's score. So the score itself can be compared, with the float at which the answer changes. The
function is evaluated as in the reference; if rounding makes it non-monotone near that float, there
is no such threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from sqlml.bounded_cache import of_programs
from sqlml.ir import reference
from sqlml.ir.program import Program
from sqlml.passes.analysis.float_order import turn
from sqlml.types import FLOATS, Array, numpy_dtype

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
