"""`refuses_rows`: whether a model may raise an error for some row."""

from __future__ import annotations

from sqlml.bounded_cache import of_programs
from sqlml.ir.ops import OPS
from sqlml.ir.program import Program

_REQUIREMENTS = frozenset({"require", "require_finite", "require_finite_stored", "require_known"})


@of_programs
def refuses_rows(program: Program) -> bool:
    """Whether some row may be an error to the model and not a value."""
    return any(n.op in _REQUIREMENTS or OPS[n.op].group == "opaque" for n in program.nodes)
