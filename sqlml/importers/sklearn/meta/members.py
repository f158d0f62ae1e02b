"""Members: the estimators inside another one, and what that one asks them for.

A classifier inside a meta-estimator often knows the classes by other names (numbers from 0, or
only some of them), so its columns are put where the owner has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def predictor(
    owner: Any, name: str, model: Any, frame: Frame, recurse: Recurse, *, several: bool = False
) -> Outputs:
    """What the member `name` of `owner` predicts for `frame`.

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
            f"{where}: {type(model).__name__} predicts several targets at once; fit one model per "
            "target"
        )
    # A booster has margins for SQL, but no decision_function that a meta-estimator would ask.
    absent = {output for method, output in OUTPUT.items() if not hasattr(model, method)}
    values = {key: value for key, value in made.values.items() if key not in absent}
    return Outputs(values, made.label_sets)


def answer(builder: Builder, owner: Any, name: str, made: Outputs, method: str) -> Value:
    """The (n, k) float64 answer of member `name` to `method`; labels become numbers.

    Raises:
        UnsupportedModelError: the member does not have the method, or its labels are strings.
    """
    if method not in OUTPUT or OUTPUT[method] not in made.values:
        raise UnsupportedModelError(f"{name} of {type(owner).__name__} has no method {method}")
    value = made.values[OUTPUT[method]]
    if method != "predict" or made.labels is None:
        return value
    return look_up(builder, value, label_numbers(owner, name, made))


def label_numbers(owner: Any, name: str, made: Outputs) -> Array:
    """The (K,) float64 labels of a member.

    Raises:
        UnsupportedModelError: they are strings.
    """
    labels = classes_of(owner, name, made)
    if labels.kind == "string":
        raise UnsupportedModelError(
            f"{name} of {type(owner).__name__} predicts strings where numbers are expected; fit "
            "it on numbered classes"
        )
    return np.array(labels.values, np.float64)


def as_numbers(frame: Frame) -> Frame:
    """The frame as one matrix, for an estimator that makes one and checks nothing itself."""
    value = frame.matrix(rows="sparse")
    return Frame.of(frame.builder, value, frame.names, frame.sparse)


def classes_of(owner: Any, name: str, made: Outputs) -> Labels:
    """The classes of a member.

    Raises:
        UnsupportedModelError: it is not a classifier.
    """
    if made.labels is None:
        raise UnsupportedModelError(
            f"{name} of {type(owner).__name__} is a regressor where a classifier is expected"
        )
    return made.labels


def look_up(builder: Builder, codes: Value, numbers: Array) -> Value:
    """(n, 1) codes -> (n, 1) float64 `numbers[code]`."""
    if np.array_equal(numbers, np.arange(numbers.size)):
        return builder.op("cast", codes, dtype="float64")
    hot = builder.op("one_hot", codes, width=numbers.size, dtype="float64")
    return builder.op("linear", hot, weights=numbers.reshape(-1, 1), bias=np.zeros(1))


def places(owner: Any, name: str, labels: Labels, classes: Sequence[Any]) -> list[int]:
    """Where each of a member's labels stands in its owner's list of classes.

    Raises:
        UnsupportedModelError: the owner does not have the class.
    """
    order = {c.item() if isinstance(c, np.generic) else c: i for i, c in enumerate(classes)}
    unknown = [label for label in labels.values if label not in order]
    if unknown:
        raise UnsupportedModelError(
            f"{name} of {type(owner).__name__} predicts the class {unknown[0]!r}, which is not "
            "one of its classes; fit it again"
        )
    return [order[label] for label in labels.values]


def spread(builder: Builder, value: Value, at: Sequence[int], width: int) -> Value:
    """(n, k) columns put to places `at` among `width` columns of zeros."""
    if list(at) == list(range(width)):
        return value
    weights = np.zeros((len(at), width))
    weights[np.arange(len(at)), list(at)] = 1
    return builder.op("linear", value, weights=weights, bias=np.zeros(width))


def votes(builder: Builder, made: Outputs, at: Sequence[int], width: int) -> Value:
    """(n, width) float64: 1 for the class that a member predicts, 0 for the others."""
    hot = builder.op("one_hot", made.values["label"], width=len(at), dtype="float64")
    return spread(builder, hot, at, width)


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
