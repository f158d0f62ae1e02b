"""Members: the estimators inside a meta-estimator, with outputs in the order of its classes.

A member often has other classes than its owner: numbers from 0, or only some of the classes.
Therefore the columns of the member are moved to the positions of the owner's classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from sqlml.errors import ProgramError, UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse, to_python
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array, Labels, numpy_dtype

OUTPUT_BY_METHOD: Mapping[str, str] = {
    "predict": "label",
    "predict_proba": "proba",
    "decision_function": "score",
}


def is_dropped(member: Any) -> bool:
    return isinstance(member, str) and member == "drop"


@dataclass(frozen=True, slots=True)
class Member:
    """The outputs of an estimator in a meta-estimator; `where` names the estimator in messages."""

    builder: Builder
    where: str
    outputs: Outputs

    @classmethod
    def read(
        cls, owner: Any, name: str, model: Any, frame: Frame, recurse: Recurse, many: bool = False
    ) -> Member:
        """Import `model`, the attribute `name` of `owner`; `many` allows several targets."""
        where = f"{name} of {type(owner).__name__}"
        try:
            outputs = recurse(model, frame)
        except (UnsupportedModelError, ProgramError) as error:
            raise UnsupportedModelError(f"{where}: {error}") from error
        if not isinstance(outputs, Outputs) or "label" not in outputs.values:
            raise UnsupportedModelError(
                f"{where}: {type(model).__name__} is a transformer, but must be a predictor"
            )
        if outputs.values["label"].type.width != 1 and (outputs.label_sets or not many):
            raise UnsupportedModelError(
                f"{where}: {type(model).__name__} predicts several targets at once; fit one model "
                "per target"
            )
        # A booster has scores in SQL, but a meta-estimator needs a decision_function to use them.
        pairs = OUTPUT_BY_METHOD.items()
        absent_outputs = {output for method, output in pairs if not hasattr(model, method)}
        values = {key: value for key, value in outputs.values.items() if key not in absent_outputs}
        return cls(frame.builder, where, Outputs(values, outputs.label_sets))

    @property
    def values(self) -> Mapping[str, Value]:
        return self.outputs.values

    def get_available(self, *outputs: str) -> dict[str, Value]:
        return {name: self.values[name] for name in outputs if name in self.values}

    @property
    def classes(self) -> Labels:
        if self.outputs.labels is None:
            raise UnsupportedModelError(f"{self.where} is a regressor, but must be a classifier")
        return self.outputs.labels

    def get_output(self, method: str) -> Value:
        """Return the result of a scikit-learn method, (n, k); labels become float64 numbers."""
        if method not in OUTPUT_BY_METHOD or OUTPUT_BY_METHOD[method] not in self.values:
            raise UnsupportedModelError(f"{self.where} has no method {method}")
        value = self.values[OUTPUT_BY_METHOD[method]]
        if method != "predict" or self.outputs.labels is None:
            return value
        if self.classes.kind == "string":
            raise UnsupportedModelError(
                f"{self.where} predicts strings, but must predict numbers; fit it on classes that "
                "are numbers"
            )
        return look_up_class_values(self.builder, value, np.array(self.classes.values, np.float64))

    def find_class_indices(self, classes: Sequence[Any]) -> list[int]:
        index_by_label = {label: i for i, label in enumerate(to_python(classes))}
        unknown = [label for label in self.classes.values if label not in index_by_label]
        if unknown:
            raise UnsupportedModelError(
                f"{self.where} predicts the class {unknown[0]!r}, which is not one of its classes; "
                "fit it again"
            )
        return [index_by_label[label] for label in self.classes.values]

    def build_votes(self, indices: Sequence[int], width: int) -> Value:
        """Return 1 in the column of the predicted class; `indices` has the column of each class."""
        label = self.values["label"]
        indicators = self.builder.op("one_hot", label, width=len(indices), dtype="float64")
        return spread_columns(self.builder, indicators, indices, width)


def import_members(owner: Any, frame: Frame, recurse: Recurse) -> Iterator[Member]:
    for i, model in enumerate(owner.estimators_):
        yield Member.read(owner, f"estimators_[{i}]", model, frame, recurse)


def convert_to_numbers(frame: Frame) -> Frame:
    """Return the frame as one numeric matrix, without checks for NaN or infinity."""
    return Frame.from_value(frame.builder, frame.matrix(rows="sparse"), frame.names, frame.sparse)


def look_up_class_values(builder: Builder, codes: Value, class_values: Array) -> Value:
    """Return the element of `class_values` for each code, float64 (n, 1)."""
    if np.array_equal(class_values, np.arange(class_values.size)):
        return builder.op("cast", codes, dtype="float64")
    indicators = builder.op("one_hot", codes, width=class_values.size, dtype="float64")
    return builder.linear(indicators, class_values.reshape(-1, 1))


def spread_columns(builder: Builder, value: Value, indices: Sequence[int], width: int) -> Value:
    """Move the columns of `value` to the positions `indices` in (n, width) zeros."""
    is_in_place = list(indices) == list(range(width))
    return value if is_in_place else builder.linear(value, np.eye(width)[list(indices)])


def sum_values(builder: Builder, values: Sequence[Value]) -> Value:
    return reduce(lambda total, value: builder.op("add", total, value), values)


def apply_constant(builder: Builder, op: str, value: Value, number: float) -> Value:
    """Return `op(value, number)`; `number` gets the dtype of `value`."""
    return builder.op(op, value, np.full(1, float(number), numpy_dtype(value.type.dtype)))
