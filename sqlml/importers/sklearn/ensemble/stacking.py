"""StackingClassifier and StackingRegressor: a last model on the answers of others.

`sklearn/ensemble/_stacking.py`. `transform` is what the last model sees.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse, labels_of
from sqlml.importers.sklearn.classify import class_list
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.meta.members import Member, drops, wide


def stacking_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """What the last model says; it knows the classes as numbers from 0."""
    check(model, "estimators_", "final_estimator_", "stack_method_", "classes_")
    classes = class_list(model)
    stacked = _stacked(model, frame, recurse, binary=len(classes) == 2)
    last = Member.of(model, "final_estimator_", model.final_estimator_, stacked, recurse)
    known = last.classes
    if known.kind != "int64" or not all(0 <= code < len(classes) for code in known.values):
        raise UnsupportedModelError(
            "final_estimator_ of StackingClassifier does not predict numbers of classes; fit the "
            "StackingClassifier again"
        )
    labels = labels_of([classes[code] for code in known.values])
    offered = last.own("label", "proba", "score")
    return Outputs({**offered, "transform": stacked.matrix()}, labels)


def stacking_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """What the last model says."""
    check(model, "estimators_", "final_estimator_", "stack_method_")
    stacked = _stacked(model, frame, recurse, binary=False)
    last = Member.of(model, "final_estimator_", model.final_estimator_, stacked, recurse)
    return Outputs({"label": last.answer("predict"), "transform": stacked.matrix()})


def _stacked(model: Any, frame: Frame, recurse: Recurse, binary: bool) -> Frame:
    """The members' answers side by side, and the columns themselves with passthrough.

    Of two probabilities only the second is kept.
    """
    builder = frame.builder
    names = [name for name, member in model.estimators if not drops(member)]
    parts: list[Frame] = []
    for name, member, method in zip(names, model.estimators_, model.stack_method_, strict=True):
        value = Member.of(model, repr(name), member, frame, recurse).answer(method)
        value = wide(builder, value)
        if binary and method == "predict_proba":
            value = builder.op("select", value, indices=np.arange(1, value.type.width))
        parts.append(Frame.of(builder, value, stem=name))
    if model.passthrough:
        parts.append(Frame.of(builder, frame.matrix(rows="sparse"), frame.names))
    return Frame.hstack(builder, parts)
