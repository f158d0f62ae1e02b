"""`why_none`: why a model lacks an output that its library may give."""

from __future__ import annotations

from sqlml.ir.program import Program

_THREE_AXES = (
    "a VotingClassifier transforms only with flatten_transform=True: three axes do not make a "
    "column"
)


def why_none(output: str, program: Program) -> str:
    """What to add to the error for a missing output that the model's library may give; empty for
    other models."""
    averaged = program.outputs.keys() == {"label", "proba"}
    return f" ({_THREE_AXES})" if output == "transform" and averaged else ""
