"""Members: the estimators inside another one, and what that one asks them for.

A classifier inside a meta-estimator often knows the classes by other names (numbers from 0, or
only some of them), so its columns are put where the owner has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import ProgramError, UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array, Labels, numpy_dtype

OUTPUT: Mapping[str, str] = MappingProxyType(
    {"predict": "label", "predict_proba": "proba", "decision_function": "score"}
)
"""Method of scikit-learn -> name of the output."""


def drops(member: Any) -> bool:
    """Whether "drop" stands in the place of a member."""
    return isinstance(member, str) and member == "drop"


@dataclass(frozen=True, slots=True)
class Member:
    """What an estimator inside another one predicts.

    `where` says in messages which one it is: "estimators_[0] of VotingClassifier".
    """

    builder: Builder
    where: str
    made: Outputs

    @classmethod
    def of(
        cls,
        owner: Any,
        name: str,
        model: Any,
        frame: Frame,
        recurse: Recurse,
        *,
        several: bool = False,
    ) -> Member:
        """The member `name` of `owner`, on the columns of `frame`.

        Raises:
            UnsupportedModelError: it cannot be imported (the message names the member), it
                transforms instead, or predicts several targets at once and `several` is not set.
        """
        where = f"{name} of {type(owner).__name__}"
        try:
            made = recurse(model, frame)
        except (UnsupportedModelError, ProgramError) as error:
            raise UnsupportedModelError(f"{where}: {error}") from error
        if not isinstance(made, Outputs) or "label" not in made.values:
            raise UnsupportedModelError(
                f"{where}: {type(model).__name__} makes columns where a prediction is expected"
            )
        if made.values["label"].type.width != 1 and (made.label_sets or not several):
            raise UnsupportedModelError(
                f"{where}: {type(model).__name__} predicts several targets at once; fit one model "
                "per target"
            )
        # A booster has margins for SQL, but no decision_function that a meta-estimator would ask.
        absent = {output for method, output in OUTPUT.items() if not hasattr(model, method)}
        values = {key: value for key, value in made.values.items() if key not in absent}
        return cls(frame.builder, where, Outputs(values, made.label_sets))

    @property
    def values(self) -> Mapping[str, Value]:
        """The outputs of the fitted member."""
        return self.made.values

    def own(self, *outputs: str) -> dict[str, Value]:
        """The values of those `outputs` that the member has."""
        return {name: self.values[name] for name in outputs if name in self.values}

    @property
    def classes(self) -> Labels:
        """The class labels of the member.

        Raises:
            UnsupportedModelError: it is not a classifier.
        """
        if self.made.labels is None:
            raise UnsupportedModelError(
                f"{self.where} is a regressor where a classifier is expected"
            )
        return self.made.labels

    def answer(self, method: str) -> Value:
        """The (n, k) float64 answer to `method` of scikit-learn; labels become numbers.

        Raises:
            UnsupportedModelError: it does not have the method, or its labels are strings.
        """
        if method not in OUTPUT or OUTPUT[method] not in self.values:
            raise UnsupportedModelError(f"{self.where} has no method {method}")
        value = self.values[OUTPUT[method]]
        if method != "predict" or self.made.labels is None:
            return value
        if self.classes.kind == "string":
            raise UnsupportedModelError(
                f"{self.where} predicts strings where numbers are expected; fit it on numbered "
                "classes"
            )
        return look_up(self.builder, value, np.array(self.classes.values, np.float64))

    def places(self, classes: Sequence[Any]) -> list[int]:
        """Where each of its labels stands in its owner's list of classes.

        Raises:
            UnsupportedModelError: the owner does not have the class.
        """
        order = {c.item() if isinstance(c, np.generic) else c: i for i, c in enumerate(classes)}
        unknown = [label for label in self.classes.values if label not in order]
        if unknown:
            raise UnsupportedModelError(
                f"{self.where} predicts the class {unknown[0]!r}, which is not one of its classes; "
                "fit it again"
            )
        return [order[label] for label in self.classes.values]

    def votes(self, at: Sequence[int], width: int) -> Value:
        """(n, width) float64: 1 at the place in `at` of the class predicted, 0 for the others."""
        hot = self.builder.op("one_hot", self.values["label"], width=len(at), dtype="float64")
        return spread(self.builder, hot, at, width)


def members(
    owner: Any, frame: Frame, recurse: Recurse, *, several: bool = False
) -> Iterator[Member]:
    """The `estimators_` of `owner`, each on all columns of `frame`; raises as `Member.of`."""
    for i, model in enumerate(owner.estimators_):
        yield Member.of(owner, f"estimators_[{i}]", model, frame, recurse, several=several)


def as_numbers(frame: Frame) -> Frame:
    """The frame as one matrix, for an estimator that makes one and checks nothing itself."""
    value = frame.matrix(rows="sparse")
    return Frame.of(frame.builder, value, frame.names, frame.sparse)


def look_up(builder: Builder, codes: Value, numbers: Array) -> Value:
    """(n, 1) codes -> (n, 1) float64 `numbers[code]`."""
    if np.array_equal(numbers, np.arange(numbers.size)):
        return builder.op("cast", codes, dtype="float64")
    hot = builder.op("one_hot", codes, width=numbers.size, dtype="float64")
    return builder.linear(hot, numbers.reshape(-1, 1))


def spread(builder: Builder, value: Value, at: Sequence[int], width: int) -> Value:
    """(n, k) columns put to places `at` among `width` columns of zeros."""
    if list(at) == list(range(width)):
        return value
    weights = np.zeros((len(at), width))
    weights[np.arange(len(at)), list(at)] = 1
    return builder.linear(value, weights)


def total(builder: Builder, values: Sequence[Value]) -> Value:
    """The sum of (n, k) values, from the first to the last."""
    made = values[0]
    for value in values[1:]:
        made = builder.op("add", made, value)
    return made


def scaled(builder: Builder, op: str, value: Value, number: float) -> Value:
    """`value` with `op` ("add", "sub", "mul", "div", "pow") and one number, in its own dtype."""
    constant = np.full(1, float(number), numpy_dtype(value.type.dtype))
    return builder.op(op, value, constant)


def wide(builder: Builder, value: Value) -> Value:
    """`value` as float64: some members of other libraries answer in float32."""
    if value.type.dtype == "float64":
        return value
    return builder.op("cast", value, dtype="float64")
