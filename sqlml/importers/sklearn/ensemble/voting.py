"""VotingClassifier and VotingRegressor: several models asked at once.

`sklearn/ensemble/_voting.py`. Members know the classes as numbers from 0. Ties go to the first
class; a weight counts for one member.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse, labels_of
from sqlml.importers.sklearn.classify import argmax_label, class_list
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.meta.members import Member, drops, scaled, total, wide
from sqlml.ir.builder import Builder, Value


def voting_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Hard voting counts labels, soft voting averages probabilities.

    `transform` is the members' class numbers, or their probabilities side by side; with
    flatten_transform=False scikit-learn returns three axes, which SQL cannot, so it is left out.
    """
    check(model, "estimators_", "classes_", "le_")
    classes = class_list(model)
    builder, width = frame.builder, len(classes)
    weights = _weights(model)
    soft = model.voting == "soft"
    parts: list[Value] = []
    asked: list[Value] = []
    for member in _members(model, frame, recurse):
        at = member.places(range(width))
        if soft and at != list(range(width)):
            raise UnsupportedModelError(
                f"{member.where} does not know all {width} classes; fit it again"
            )
        asked.append(member.answer("predict_proba" if soft else "predict"))
        parts.append(asked[-1] if soft else member.votes(at, width))
    if soft:
        proba = _mean(builder, parts, weights)
        values = {"label": argmax_label(builder, proba), "proba": proba}
    else:
        counted = _weighted(builder, parts, weights)
        values = {"label": argmax_label(builder, total(builder, counted))}
    if not soft or model.flatten_transform:
        values["transform"] = builder.op("concat", *asked)
    return Outputs(values, labels_of(classes))


def voting_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """The weighted mean of the members; `transform` is their predictions side by side."""
    check(model, "estimators_")
    builder = frame.builder
    parts = [member.answer("predict") for member in _members(model, frame, recurse)]
    return Outputs(
        {"label": _mean(builder, parts, _weights(model)), "transform": builder.op("concat", *parts)}
    )


def _members(model: Any, frame: Frame, recurse: Recurse) -> Iterator[Member]:
    names = [name for name, member in model.estimators if not drops(member)]
    for name, member in zip(names, model.estimators_, strict=True):
        yield Member.of(model, repr(name), member, frame, recurse)


def _weights(model: Any) -> list[float] | None:
    """The weights of the members that are not dropped.

    Raises:
        UnsupportedModelError: weights that no average or count can use.
    """
    if model.weights is None:
        return None
    weights = [
        float(weight)
        for (_, member), weight in zip(model.estimators, model.weights, strict=True)
        if not drops(member)
    ]
    if min(weights) < 0 or sum(weights) == 0:
        raise UnsupportedModelError(
            f"{type(model).__name__}(weights={list(model.weights)}) has negative weights or none "
            "above 0; give each member a weight of 0 or more"
        )
    return weights


def _weighted(builder: Builder, parts: list[Value], weights: list[float] | None) -> list[Value]:
    if weights is None:
        return parts
    return [
        scaled(builder, "mul", part, weight) for part, weight in zip(parts, weights, strict=True)
    ]


def _mean(builder: Builder, parts: list[Value], weights: list[float] | None) -> Value:
    """The sum first and one division at the end, as np.average does it.

    Members that all answer in float32 are averaged in float32, unless weights widen them.
    """
    if weights is not None or len({part.type.dtype for part in parts}) > 1:
        parts = [wide(builder, part) for part in parts]
    scale = float(len(parts)) if weights is None else float(np.sum(weights))
    return scaled(builder, "div", total(builder, _weighted(builder, parts, weights)), scale)
