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
from sqlml.importers.sklearn.meta.members import answer, classes_of, predictor
from sqlml.ir.builder import Builder, Value
from sqlml.types import Labels

T = TypeVar("T", Value, Labels)


def multi_output_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """(n, targets): what the estimators predict, side by side; a classifier's labels as numbers."""
    check(model, "estimators_")
    columns = [
        answer(frame.builder, model, name, made, "predict")
        for name, made in _members(model, frame, recurse)
    ]
    return Outputs({"label": frame.builder.beside(columns)})


def multi_output_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """The labels of all targets, and their probabilities where all estimators have them."""
    check(model, "estimators_")
    members = _members(model, frame, recurse)
    labels = tuple(classes_of(model, name, made) for name, made in members)
    builder = frame.builder
    values = {"label": builder.beside([made.values["label"] for _, made in members])}
    if all("proba" in made.values for _, made in members):
        values["proba"] = builder.beside([made.values["proba"] for _, made in members])
    return Outputs(values, labels)


def regressor_chain(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """(n, targets) float64; each estimator also reads what those before it predict."""
    check(model, "estimators_", "order_")
    chain = _chain(model, frame, recurse, "predict")
    columns = [
        _float64(frame.builder, answer(frame.builder, model, name, made, "predict"))
        for name, made in chain
    ]
    return Outputs({"label": frame.builder.beside(_in_order(model, columns))})


def classifier_chain(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Labels, and the probability and score of each target's second class.

    Targets of more than two classes have neither: scikit-learn raises there.
    """
    check(model, "estimators_", "order_", "chain_method_")
    builder = frame.builder
    chain = _chain(model, frame, recurse, str(model.chain_method_))
    labels = _in_order(model, [classes_of(model, name, made) for name, made in chain])
    values: dict[str, Value] = {}
    columns = [made.values["label"] for _, made in chain]
    values["label"] = builder.beside(_in_order(model, columns))
    if all(len(known) == 2 for known in labels):
        for output, method in (("proba", "predict_proba"), ("score", "decision_function")):
            if hasattr(model, method) and all(output in made.values for _, made in chain):
                columns = [_feature(builder, model, n, made, method) for n, made in chain]
                values[output] = builder.beside(_in_order(model, columns))
    if len(labels) == 1 and "proba" in values:
        values["proba"] = chain[0][1].values["proba"]
    return Outputs(values, tuple(labels))


def _members(model: Any, frame: Frame, recurse: Recurse) -> list[tuple[str, Outputs]]:
    found = []
    for t, member in enumerate(model.estimators_):
        name = f"estimators_[{t}]"
        found.append((name, predictor(model, name, member, frame, recurse)))
    return found


def _chain(model: Any, frame: Frame, recurse: Recurse, method: str) -> list[tuple[str, Outputs]]:
    """The estimators in the chain's order; `method` is what the later ones read of each."""
    builder = frame.builder
    x = numbers(frame, type(model).__name__)
    names, parts = list(frame.names), [x]
    found: list[tuple[str, Outputs]] = []
    for place, member in enumerate(model.estimators_):
        name = f"estimators_[{place}]"
        columns = Frame.of(builder, builder.beside(parts), names, frame.sparse)
        made = predictor(model, name, member, columns, recurse)
        found.append((name, made))
        if place + 1 < len(model.estimators_):
            parts.append(_float64(builder, _feature(builder, model, name, made, method)))
            names.append(f"target {int(model.order_[place])}")
    return found


def _feature(builder: Builder, model: Any, name: str, made: Outputs, method: str) -> Value:
    """What a chain keeps of an estimator's answer to `method`: one column.

    Raises:
        UnsupportedModelError: probabilities or scores of other than two classes, on which
            scikit-learn raises.
    """
    if method == "predict":
        return answer(builder, model, name, made, method)
    if len(classes_of(model, name, made)) != 2:
        raise UnsupportedModelError(
            f"{type(model).__name__}(chain_method={method!r}) works only for two classes, and "
            f"{name} has a different number; use chain_method='predict'"
        )
    if method == "decision_function":
        return answer(builder, model, name, made, method)
    proba = answer(builder, model, name, made, "predict_proba")
    second = builder.op("select", proba, indices=np.array([1]))
    return builder.op("log", second) if method == "predict_log_proba" else second


def _in_order(model: Any, columns: Sequence[T]) -> list[T]:
    """What belongs to each target, from what belongs to each place in the chain."""
    places = np.argsort(np.asarray(model.order_, np.int64))
    return [columns[int(place)] for place in places]


def _float64(builder: Builder, value: Value) -> Value:
    return value if value.type.dtype == "float64" else builder.op("cast", value, dtype="float64")
