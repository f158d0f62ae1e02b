"""MultiOutputRegressor and -Classifier, RegressorChain and ClassifierChain.

The first two have one estimator per target, which know nothing of each other. A chain hands each
estimator the columns and the answers of those before it (`sklearn/multioutput.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.meta.members import Member, members, wide
from sqlml.ir.builder import Value
from sqlml.types import Labels

T = TypeVar("T", Value, Labels)


def multi_output_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """(n, targets): what the estimators predict, side by side; a classifier's labels as numbers."""
    check(model, "estimators_")
    columns = [member.answer("predict") for member in members(model, frame, recurse)]
    return Outputs({"label": frame.builder.beside(columns)})


def multi_output_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """The labels of all targets, and their probabilities where all estimators have them."""
    check(model, "estimators_")
    found = list(members(model, frame, recurse))
    labels = tuple(member.classes for member in found)
    values = {
        output: frame.builder.beside([member.values[output] for member in found])
        for output in ("label", "proba")
        if all(output in member.values for member in found)
    }
    return Outputs(values, labels)


def regressor_chain(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """(n, targets) float64; each estimator also reads what those before it predict."""
    check(model, "estimators_", "order_")
    chain = _chain(model, frame, recurse, "predict")
    columns = [wide(frame.builder, member.answer("predict")) for member in chain]
    return Outputs({"label": frame.builder.beside(_in_order(model, columns))})


def classifier_chain(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Labels, and the probability and score of each target's second class.

    Targets of more than two classes have neither: scikit-learn raises there.
    """
    check(model, "estimators_", "order_", "chain_method_")
    builder = frame.builder
    chain = _chain(model, frame, recurse, str(model.chain_method_))
    labels = _in_order(model, [member.classes for member in chain])
    columns = [member.values["label"] for member in chain]
    values = {"label": builder.beside(_in_order(model, columns))}
    if all(len(known) == 2 for known in labels):
        for output, method in (("proba", "predict_proba"), ("score", "decision_function")):
            if hasattr(model, method) and all(output in member.values for member in chain):
                columns = [_feature(model, i, member, method) for i, member in enumerate(chain)]
                values[output] = builder.beside(_in_order(model, columns))
    if len(labels) == 1 and "proba" in values:
        values["proba"] = chain[0].values["proba"]
    return Outputs(values, tuple(labels))


def _chain(model: Any, frame: Frame, recurse: Recurse, method: str) -> list[Member]:
    """The estimators in the chain's order; `method` is what the later ones read of each."""
    builder = frame.builder
    x = numbers(frame, type(model).__name__)
    names, parts = list(frame.names), [x]
    found: list[Member] = []
    for place, estimator in enumerate(model.estimators_):
        columns = Frame.of(builder, builder.beside(parts), names, frame.sparse)
        found.append(Member.of(model, f"estimators_[{place}]", estimator, columns, recurse))
        if place + 1 < len(model.estimators_):
            parts.append(wide(builder, _feature(model, place, found[-1], method)))
            names.append(f"target {int(model.order_[place])}")
    return found


def _feature(model: Any, place: int, member: Member, method: str) -> Value:
    """What a chain keeps of an estimator's answer to `method`: one column.

    Raises:
        UnsupportedModelError: probabilities or scores of other than two classes, on which
            scikit-learn raises.
    """
    if method == "predict":
        return member.answer(method)
    if len(member.classes) != 2:
        raise UnsupportedModelError(
            f"{type(model).__name__}(chain_method={method!r}) works only for two classes, and "
            f"estimators_[{place}] has a different number; use chain_method='predict'"
        )
    if method == "decision_function":
        return member.answer(method)
    proba = member.answer("predict_proba")
    second = member.builder.op("select", proba, indices=np.array([1]))
    return member.builder.op("log", second) if method == "predict_log_proba" else second


def _in_order(model: Any, columns: Sequence[T]) -> list[T]:
    """What belongs to each target, from what belongs to each place in the chain."""
    places = np.argsort(np.asarray(model.order_, np.int64))
    return [columns[int(place)] for place in places]
