"""Move checks for NaN and infinity down towards the inputs. Exact.

One-hot columns need no check, and below an imputer NaN is allowed. The result of a scaler is finite
exactly for inputs within a range, which bisection over the floats finds. So a check moves to the
raw columns, and merges with an existing check. Then no check separates a scaler from weights or
thresholds that can absorb the scaler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sqlml.ir.builder import Builder, Value, make_pass
from sqlml.ir.program import Node
from sqlml.passes.float_order import find_last_true, match_step
from sqlml.types import FLOATS, Array, numpy_dtype


@dataclass(frozen=True, slots=True)
class FiniteCheck:
    """A check that each number is between the finite `low` and `high`, or NaN if `allow_nan`."""

    features: tuple[str, ...]
    allow_nan: bool
    step: str
    low: Array
    high: Array

    def slice(self, start: int, stop: int) -> FiniteCheck:
        low, high = self.low[start:stop], self.high[start:stop]
        return replace(self, features=self.features[start:stop], low=low, high=high)


@make_pass("require_finite")
def sink_checks(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    """Move checks as close to the inputs as possible."""
    if node.type.dtype not in ("float32", "float64"):
        return None
    return _sink_check(builder, inputs[0], read_check(node))


def read_check(node: Node) -> FiniteCheck:
    """Return the check of a require_finite node; by default, bounds are the extreme floats."""
    max_number = np.full(node.type.width, np.finfo(numpy_dtype(node.type.dtype)).max)
    attrs = node.attrs
    low = np.maximum(attrs.get("low", -max_number), -max_number)
    high = np.minimum(attrs.get("high", max_number), max_number)
    return FiniteCheck(attrs["features"], attrs["allow_nan"], attrs["step"], low, high)


def _sink_check(builder: Builder, x: Value, check: FiniteCheck) -> Value:
    """Return `x` with `check` applied as close to the inputs as possible."""
    node = builder.node(x)
    is_cast_integer = node.op == "cast" and _get_source(builder, node).type.dtype not in FLOATS
    if node.op == "one_hot" or is_cast_integer:
        return x  # Zeros and ones, or integers, are always finite.
    if node.op == "concat" and _can_sink(builder, x):
        return _sink_below_concat(builder, node, check)
    if node.op == "impute" and _fills_nan(node, check):
        source = _sink_check(builder, _get_source(builder, node), replace(check, allow_nan=True))
        return builder.op("impute", source, **node.attrs)
    if node.op == "require_finite" and node.type.dtype in ("float32", "float64"):
        merged = _merge_checks(check, read_check(node))
        return _sink_check(builder, _get_source(builder, node), merged)
    below_step = _sink_below_step(builder, x, check) if _can_sink(builder, x) else None
    return _place_check(builder, x, check) if below_step is None else below_step


def _can_sink(builder: Builder, x: Value) -> bool:
    node = builder.node(x)
    if node.op == "concat":
        sources = [builder.value(i) for i in node.inputs]
        same_dtype = {s.type.dtype for s in sources} & FLOATS <= {x.type.dtype}
        return same_dtype and not x.type.sparse and any(_can_sink(builder, s) for s in sources)
    if node.op == "cast":
        source = _get_source(builder, node)
        return not x.type.sparse and (source.type.dtype not in FLOATS or _can_sink(builder, source))
    return node.op in ("one_hot", "impute", "require_finite") or match_step(builder, x) is not None


def _sink_below_concat(builder: Builder, node: Node, check: FiniteCheck) -> Value:
    """Check each input of a concat; adjacent inputs share one check if it cannot sink."""
    checked_values: list[Value] = []
    pending_values: list[Value] = []
    first_pending = column = 0

    def place_pending() -> None:
        if pending_values:
            checked_values.append(
                _place_check(
                    builder, builder.concat(pending_values), check.slice(first_pending, column)
                )
            )
            pending_values.clear()

    for operand in (builder.value(i) for i in node.inputs):
        next_column = column + operand.type.width
        if operand.type.dtype in FLOATS and not _can_sink(builder, operand):
            pending_values.append(operand)
        else:
            place_pending()
            first_pending = next_column
            if operand.type.dtype in FLOATS:
                operand = _sink_check(builder, operand, check.slice(column, next_column))
            checked_values.append(operand)
        column = next_column
    place_pending()
    return builder.concat(checked_values)


def _get_source(builder: Builder, node: Node) -> Value:
    return builder.value(node.inputs[0])


def _fills_nan(node: Node, check: FiniteCheck) -> bool:
    fill: Array = node.attrs["fill"]
    missing: float = node.attrs["missing"]
    return missing != missing and bool(((fill >= check.low) & (fill <= check.high)).all())


def _merge_checks(upper: FiniteCheck, lower: FiniteCheck) -> FiniteCheck:
    """Merge two checks; errors name the step of `lower`, unless only `upper` forbids NaN."""
    reporting_check = upper if lower.allow_nan and not upper.allow_nan else lower
    low, high = np.maximum(upper.low, lower.low), np.minimum(upper.high, lower.high)
    return replace(reporting_check, low=low, high=high)


def _sink_below_step(builder: Builder, x: Value, check: FiniteCheck) -> Value | None:
    """Move `check` below the step that computes `x`; return None if that is impossible."""
    match = match_step(builder, x)
    if match is None or not check.low.size:
        return None
    source, step = match
    if source.type.dtype not in ("float32", "float64") or x.type.dtype == "float16":
        return None
    columns, dtype = np.arange(check.low.size), numpy_dtype(source.type.dtype)
    # A clip makes infinity finite, but a check below it would reject infinity.
    _, low = find_last_true(lambda v: step.apply(v, columns) < check.low, columns.size, dtype)
    high, _ = find_last_true(lambda v: step.apply(v, columns) <= check.high, columns.size, dtype)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return None
    node = builder.node(x)
    checked = _sink_check(builder, source, replace(check, low=low, high=high))
    operands = [checked if i == source.index else builder.value(i) for i in node.inputs]
    return builder.op(node.op, *operands, **node.attrs)


def _place_check(builder: Builder, x: Value, check: FiniteCheck) -> Value:
    dtype = numpy_dtype(x.type.dtype)
    max_number = np.finfo(dtype).max
    bounds: dict[str, Array] = {}
    if (check.low > -max_number).any():
        bounds["low"] = check.low.astype(dtype)
    if (check.high < max_number).any():
        bounds["high"] = check.high.astype(dtype)
    attrs = {"features": check.features, "allow_nan": check.allow_nan, "step": check.step}
    return builder.op("require_finite", x, **attrs, **bounds)
