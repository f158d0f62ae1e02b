"""`dropped`: which pass found out that an output does not need a feature."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sqlml.bounded_cache import of_programs
from sqlml.ir.program import Program
from sqlml.passes.inject_selection import inject_selection
from sqlml.passes.order import MODEL_PASSES, run
from sqlml.planner.program.function_names import Part
from sqlml.planner.program.prepare import chosen

INJECTED = "inject_selection, push_selection"
"""No weight and no split uses the feature; with only push_selection, a step of the model drops
it."""


@of_programs
def dropped(program: Program, parts: tuple[Part, ...]) -> Mapping[str, str]:
    """For each input of `program` that `parts` of its outputs do not need: why.

    That is the name of the pass that dropped it, or "other outputs" for one that only those need.
    It runs the model passes again, one by one: for EXPLAIN, not for planning.
    """
    made = chosen(program, parts)
    why = {name: "other outputs" for name in program.inputs if name not in made.inputs}
    start = made
    for apply in MODEL_PASSES:
        before, made = made.inputs, apply(made)
        why |= {name: apply.__name__ for name in before if name not in made.inputs}
    if "push_selection" in why.values():
        plain = run(start, without={inject_selection.__name__}).inputs
        for name, reason in why.items():
            if reason == "push_selection" and name in plain:
                why[name] = INJECTED
    return MappingProxyType(why)
