"""`predictions`: the columns that a model's answers become in a database without maps and lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlml.ir.program import Program
from sqlml.planner.binding.class_argument import index_of, spelled_class
from sqlml.planner.program.function_names import Output
from sqlml.types import Labels

OUTPUTS: tuple[Output, ...] = ("label", "proba", "score", "samples", "transform")

Kind = Literal["number", "string", "integer", "boolean"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """One column: its name, the output and its column that it shows, its kind, the labels that the
    numbers of classes stand for, and whether it is the `rest` of 1."""

    name: str
    output: Output
    column: int | None
    kind: Kind
    labels: Labels | None = None
    rest: bool = False


def predictions(program: Program, options: Mapping[str, Any]) -> list[Prediction]:
    """All columns: of the label, of each class's probability, or of the positive class's alone if
    the model's options name one, and of scores and features. Those of one of several targets, or of
    one of several numbers, are named by its place from 0."""
    made: list[Prediction] = []
    for output in OUTPUTS:
        if output not in program.outputs:
            continue
        if output == "label":
            made += _labels(program)
        elif output == "proba" and program.labels:
            made += _probabilities(program, options.get("positive_class"))
        else:
            width = program.output_type(output).width
            made += [
                Prediction(f"{output}{_place(k, width)}", output, _column(k, width), "number")
                for k in range(width)
            ]
    return made


def _labels(program: Program) -> list[Prediction]:
    width = program.output_type("label").width
    made = []
    for k, labels in enumerate(program.labels or [None] * width):
        kind = "number" if labels is None else _KINDS[labels.kind]
        name = f"predicted_label{_place(k, width)}"
        made.append(Prediction(name, "label", _column(k, width), kind, labels))
    return made


def _probabilities(program: Program, positive: Any) -> list[Prediction]:
    """Of the classes of each target; where a model has `one_probability` of each, it is that of the
    second class, and the first has the rest."""
    made, first, one = [], 0, program.one_probability
    for target, labels in enumerate(program.labels):
        place = _place(target, len(program.labels))
        chosen = None if positive is None else index_of(labels, positive)
        for k, value in enumerate(labels.values):
            name = f"probability{place}_{spelled_class(value)}"
            column = target if one else first + k
            if positive is None or chosen == k:
                made.append(Prediction(name, "proba", column, "number", rest=one and k == 0))
        first += len(labels)
    return made


def _place(k: int, width: int) -> str:
    return f"_{k}" if width > 1 else ""


def _column(k: int, width: int) -> int | None:
    return k if width > 1 else None


_KINDS: Mapping[str, Kind] = {
    "string": "string",
    "int64": "integer",
    "float64": "number",
    "bool": "boolean",
}
