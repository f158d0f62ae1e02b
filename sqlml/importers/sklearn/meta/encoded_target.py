"""EncodedTargetClassifier: a classifier of numbered classes, and the names of the classes.

sqlml's own (`sqlml/training/estimators/encoded_target.py`); what CREATE MODEL .. AS SELECT makes.
"""

from __future__ import annotations

from typing import Any

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse, labels_of
from sqlml.importers.sklearn.fitted import check


def encoded_target_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """What the classifier inside answers, its classes by their names.

    Raises:
        UnsupportedModelError: it does not tell classes, or not as many.
    """
    check(model, "classes_", "classifier_")
    made = recurse(model.classifier_, frame)
    labels = labels_of(list(model.classes_))
    if not isinstance(made, Outputs) or [len(s) for s in made.label_sets] != [len(labels)]:
        raise UnsupportedModelError(
            f"the classifier of this {type(model).__name__} does not tell its {len(labels)} classes"
        )
    return Outputs(made.values, labels)
