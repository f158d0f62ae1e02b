"""SelfTrainingClassifier and RANSACRegressor: in scoring, the model that they fitted inside."""

from __future__ import annotations

from typing import Any

from sqlml.importers.frame import Frame, Outputs, Recurse
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.meta.members import Member, as_numbers


def self_training_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """The classifier that was fitted on the labels given and guessed."""
    check(model, "estimator_", "classes_")
    member = Member.of(model, "estimator_", model.estimator_, as_numbers(frame), recurse)
    return Outputs(member.own("label", "proba", "score"), member.classes)


def ransac_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """The regressor that was fitted on the inliers."""
    check(model, "estimator_")
    columns = as_numbers(frame)
    member = Member.of(model, "estimator_", model.estimator_, columns, recurse, several=True)
    return Outputs({"label": member.answer("predict")})
