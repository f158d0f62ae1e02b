"""BaggingClassifier and BaggingRegressor: the mean of members, each on its own columns.

`sklearn/ensemble/_bagging.py`. Members know the classes as numbers from 0. A bag of trees, the
default, becomes one tree ensemble; the sums run in the same order either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse, labels_of
from sqlml.importers.sklearn.classify import argmax_label, class_list
from sqlml.importers.sklearn.ensemble.tree_arrays import all_trees, tree_sum
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.meta.members import Member, scaled, spread, total, wide
from sqlml.ir.builder import Value


def bagging_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Mean of the members' probabilities, or of their votes where they have none."""
    check(model, "estimators_", "estimators_features_", "classes_")
    classes = class_list(model)
    builder, members, width = frame.builder, _members(model), len(classes)
    scores: list[Value] = []
    if all_trees([member for member, _ in members]) and all(
        np.array_equal(member.classes_, np.arange(width)) for member, _ in members
    ):
        summed = tree_sum(model, frame, members)
    else:
        parts: list[Value] = []
        for i, (estimator, features) in enumerate(members):
            columns = frame.take(features)
            member = Member.of(model, f"estimators_[{i}]", estimator, columns, recurse)
            at = member.places(range(width))
            if "proba" in member.values:
                parts.append(spread(builder, wide(builder, member.values["proba"]), at, width))
            else:
                parts.append(member.votes(at, width))
            scores += [wide(builder, score) for score in member.own("score").values()]
        summed = total(builder, parts)
    proba = scaled(builder, "div", summed, len(members))
    values = {"label": argmax_label(builder, proba), "proba": proba}
    if len(scores) == len(members) and len({score.type.width for score in scores}) == 1:
        values["score"] = scaled(builder, "div", total(builder, scores), len(members))
    return Outputs(values, labels_of(classes))


def bagging_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Mean of the members' predictions."""
    check(model, "estimators_", "estimators_features_")
    builder, members = frame.builder, _members(model)
    if all_trees([member for member, _ in members]):
        summed = tree_sum(model, frame, members)
    else:
        parts = []
        for i, (estimator, features) in enumerate(members):
            columns, name = frame.take(features), f"estimators_[{i}]"
            member = Member.of(model, name, estimator, columns, recurse, several=True)
            parts.append(wide(builder, member.answer("predict")))
        summed = total(builder, parts)
    return Outputs({"label": scaled(builder, "div", summed, len(members))})


def _members(model: Any) -> list[tuple[Any, Sequence[int]]]:
    """The members with the numbers of the columns that they read.

    Raises:
        UnsupportedModelError: n_estimators was changed after fit.
    """
    if model.n_estimators != len(model.estimators_):
        raise UnsupportedModelError(
            f"{type(model).__name__} has {len(model.estimators_)} fitted members and "
            f"n_estimators={model.n_estimators}; call its fit() again"
        )
    return [
        (member, [int(i) for i in features])
        for member, features in zip(model.estimators_, model.estimators_features_, strict=True)
    ]
