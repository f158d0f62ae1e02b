"""`task_of`: what a model predicts, and so how it is evaluated."""

from __future__ import annotations

from typing import Literal

from sqlml.catalog.model import Model
from sqlml.ir.program import Program

Task = Literal["two classes", "classes", "numbers", "clusters"]


def task_of(model: Model) -> Task | None:
    """What a model predicts; None if it predicts nothing that could be evaluated."""
    program = model.program
    if "label" not in program.outputs:
        return None
    if not program.labels:
        return "numbers"
    if _finds_clusters(program) and "VotingClassifier" not in model.origin.source:
        return "clusters"
    return "two classes" if all(len(s) == 2 for s in program.labels) else "classes"


def _finds_clusters(program: Program) -> bool:
    """Whether the labels are numbers of clusters: a mixture's, or all that a model gives."""
    (labels,) = program.labels[:1]
    numbered = labels.kind == "int64" and labels.values == tuple(range(len(labels)))
    plain = not {"proba", "score"} & program.outputs.keys()
    return len(program.labels) == 1 and numbered and (plain or "samples" in program.outputs)
