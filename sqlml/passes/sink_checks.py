"""Checks for NaN and infinity moved down to the columns they are about. Exact.

The last step of a pipeline checks what scalers and encoders made. One-hot columns are always
finite, so no check of them is needed; before an imputer NaN is allowed; and what a scaler makes is
finite exactly for the values within a range, which bisection over the floats finds. So the check
becomes one of the raw columns, joins the one that stands there already, and no longer stands
between a scaler and the weights or thresholds that can take it in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.program import Node, Program
from sqlml.passes.float_order import last_true, step_below
from sqlml.types import FLOATS, Array, numpy_dtype


@dataclass(frozen=True, slots=True)
class Check:
    """Each column lies within low .. high, both finite, or is NaN where that is allowed."""

    features: tuple[str, ...]
    allow_nan: bool
    step: str
    low: Array
    high: Array

    def take(self, start: int, stop: int) -> Check:
        """The check of some of the columns."""
        low, high = self.low[start:stop], self.high[start:stop]
        return replace(self, features=self.features[start:stop], low=low, high=high)


def sink_checks(program: Program) -> Program:
    """Return `program` with each check as near to the inputs as it goes."""
    return rewrite(program, _rule, ops=("require_finite",))


def _rule(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    if node.type.dtype not in ("float32", "float64"):
        return None
    return _sink(b, inputs[0], _check_of(node))


def _check_of(node: Node) -> Check:
    most = np.full(node.type.width, np.finfo(numpy_dtype(node.type.dtype)).max)
    attrs = node.attrs
    low = np.maximum(attrs.get("low", -most), -most)
    high = np.minimum(attrs.get("high", most), most)
    return Check(attrs["features"], attrs["allow_nan"], attrs["step"], low, high)


def _sink(b: Builder, x: Value, check: Check) -> Value:
    """The value `x`, with `check` as far below it as it goes."""
    node = b.node(x)
    if node.op == "one_hot" or (node.op == "cast" and _source(b, node).type.dtype not in FLOATS):
        return x  # zeros and ones, or integers
    if node.op == "concat" and _sinks(b, x):
        return _below_concat(b, node, check)
    if node.op == "impute" and _fills_nan(node, check):
        below = _sink(b, _source(b, node), replace(check, allow_nan=True))
        return b.op("impute", below, **node.attrs)
    if node.op == "require_finite" and node.type.dtype in ("float32", "float64"):
        return _sink(b, _source(b, node), _joined(check, _check_of(node)))
    below_step = _below_step(b, x, check) if _sinks(b, x) else None
    return _stay(b, x, check) if below_step is None else below_step


def _sinks(b: Builder, x: Value) -> bool:
    """Whether a check of `x` may go below the operator that makes it."""
    node = b.node(x)
    if node.op == "concat":
        parts = [b.value(i) for i in node.inputs]
        same = all(p.type.dtype == x.type.dtype or p.type.dtype not in FLOATS for p in parts)
        return same and not x.type.sparse and any(_sinks(b, p) for p in parts)
    if node.op == "cast":
        source = _source(b, node)
        return not x.type.sparse and (source.type.dtype not in FLOATS or _sinks(b, source))
    return node.op in ("one_hot", "impute", "require_finite") or step_below(b, x) is not None


def _below_concat(b: Builder, node: Node, check: Check) -> Value:
    """Each part with its own part of the check; neighbours that keep theirs share one."""
    made: list[Value] = []
    staying: list[Value] = []
    start = stop = 0

    def flush() -> None:
        if staying:
            made.append(_stay(b, b.beside(staying), check.take(start, stop)))
            staying.clear()

    for part in (b.value(i) for i in node.inputs):
        end = stop + part.type.width
        if part.type.dtype in FLOATS and not _sinks(b, part):
            staying.append(part)
        else:
            flush()
            start = end
            moves = part.type.dtype in FLOATS
            made.append(_sink(b, part, check.take(stop, end)) if moves else part)
        stop = end
    flush()
    return b.beside(made)


def _source(b: Builder, node: Node) -> Value:
    return b.value(node.inputs[0])


def _fills_nan(node: Node, check: Check) -> bool:
    """Whether an imputer replaces NaN, by numbers that pass the check."""
    fill: Array = node.attrs["fill"]
    missing: float = node.attrs["missing"]
    return missing != missing and bool(((fill >= check.low) & (fill <= check.high)).all())


def _joined(upper: Check, lower: Check) -> Check:
    """Both at once; a NaN is reported by the first that forbids it."""
    named = upper if lower.allow_nan and not upper.allow_nan else lower
    return replace(
        named, low=np.maximum(upper.low, lower.low), high=np.minimum(upper.high, lower.high)
    )


def _below_step(b: Builder, x: Value, check: Check) -> Value | None:
    """`x`, made by a step that never decreases, from values that are checked."""
    found = step_below(b, x)
    if found is None or not check.low.size:
        return None
    below, step = found
    if below.type.dtype not in ("float32", "float64") or x.type.dtype == "float16":
        return None
    columns, dtype = np.arange(check.low.size), numpy_dtype(below.type.dtype)
    # A clip makes infinity finite, which a check below would refuse.
    _, low = last_true(lambda v: step.apply(v, columns) < check.low, columns.size, dtype)
    high, _ = last_true(lambda v: step.apply(v, columns) <= check.high, columns.size, dtype)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return None
    node = b.node(x)
    moved = _sink(b, below, replace(check, low=low, high=high))
    operands = [moved if i == below.index else b.value(i) for i in node.inputs]
    return b.op(node.op, *operands, **node.attrs)


def _stay(b: Builder, x: Value, check: Check) -> Value:
    """The check itself, right above `x`."""
    dtype = numpy_dtype(x.type.dtype)
    most = np.finfo(dtype).max
    attrs: dict[str, object] = {
        "features": check.features,
        "allow_nan": check.allow_nan,
        "step": check.step,
    }
    if (check.low > -most).any():
        attrs["low"] = check.low.astype(dtype)
    if (check.high < most).any():
        attrs["high"] = check.high.astype(dtype)
    return b.op("require_finite", x, **attrs)
