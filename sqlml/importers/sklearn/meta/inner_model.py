"""SelfTrainingClassifier and RANSACRegressor: in scoring, the model that they fitted inside."""

from __future__ import annotations

from typing import Any

from sqlml.importers.frame import Frame, Outputs, Recurse
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.meta.members import answer, as_numbers, classes_of, predictor


def self_training_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """The classifier that was fitted on the labels given and guessed."""
    check(model, "estimator_", "classes_")
    made = predictor(model, "estimator_", model.estimator_, as_numbers(frame), recurse)
    values = {key: made.values[key] for key in ("label", "proba", "score") if key in made.values}
    return Outputs(values, classes_of(model, "estimator_", made))


def ransac_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """The regressor that was fitted on the inliers."""
    check(model, "estimator_")
    made = predictor(
        model, "estimator_", model.estimator_, as_numbers(frame), recurse, several=True
    )
    return Outputs({"label": answer(frame.builder, model, "estimator_", made, "predict")})
