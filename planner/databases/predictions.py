"""`predictions`: the columns that a model's answers become in a database without maps and lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlml.errors import BackendError
from sqlml.ir.program import Program
from sqlml.planner.binding.class_argument import index_of, spelled_class
from sqlml.planner.program.function_names import Output
from sqlml.types import Labels

OUTPUTS: tuple[Output, ...] = ("label", "proba", "score", "samples", "transform")

Kind = Literal["number", "string", "integer", "boolean"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """One column: its name, the output and its column that it shows, its kind, and the labels that
    the numbers of classes stand for."""

    name: str
    output: Output
    column: int | None
    kind: Kind
    labels: Labels | None = None


def predictions(program: Program, options: Mapping[str, Any]) -> list[Prediction]:
    """All columns: of the label, of each class's probability, or of the positive class's alone if
    the model's options name one, and of scores and features.

    Raises:
        BackendError: the model predicts several targets.
    """
    if len(program.labels) > 1:
        raise BackendError("a model of several targets is not exported as SQL")
    labels = program.labels[0] if program.labels else None
    made: list[Prediction] = []
    for output in OUTPUTS:
        if output not in program.outputs:
            continue
        width = program.output_type(output).width
        if output == "label":
            if width > 1:
                raise BackendError("a model of several targets is not exported as SQL")
            kind = "number" if labels is None else _KINDS[labels.kind]
            made.append(Prediction("predicted_label", output, None, kind, labels))
        elif output == "proba" and labels is not None:
            positive = options.get("positive_class")
            chosen = None if positive is None else index_of(labels, positive)
            made += [
                Prediction(f"probability_{spelled_class(value)}", output, k, "number")
                for k, value in enumerate(labels.values)
                if chosen in (None, k)
            ]
        elif width == 1:
            made.append(Prediction(output, output, None, "number"))
        else:
            made += [Prediction(f"{output}_{k}", output, k, "number") for k in range(width)]
    return made


_KINDS: Mapping[str, Kind] = {
    "string": "string",
    "int64": "integer",
    "float64": "number",
    "bool": "boolean",
}
