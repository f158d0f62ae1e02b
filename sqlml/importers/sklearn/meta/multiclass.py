"""Multiclass and multi-output models that consist of one estimator per class, pair or target.

They follow `sklearn/multiclass.py` and `sklearn/multioutput.py`. Each estimator of a chain also
reads the predictions of earlier estimators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse, build_labels
from sqlml.importers.sklearn import classify
from sqlml.importers.sklearn.cluster import assign_nearest
from sqlml.importers.sklearn.dummy import repeat_rows
from sqlml.importers.sklearn.estimator_checks import check_array, check_estimator, get_class_path
from sqlml.importers.sklearn.meta.members import (
    Member,
    apply_constant,
    convert_to_numbers,
    import_members,
    sum_values,
)
from sqlml.ir.builder import Builder, Value
from sqlml.types import Labels


@dataclass(frozen=True, slots=True)
class BinaryMember:
    """A binary classifier that predicts the second class if `confidence` is above `threshold`."""

    confidence: Value
    values: dict[str, Value]
    threshold: float


def import_one_vs_rest_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the class of the most confident member or, if multilabel, a 0/1 label per class."""
    check_estimator(model, "estimators_", "classes_", "label_binarizer_")
    builder = frame.builder
    members = _import_binary_members(model, frame, recurse)
    is_multilabel = model.label_binarizer_.y_type_.startswith("multilabel")
    classes = [] if is_multilabel else classify.require_multiple_classes(model)
    confidence = builder.concat([member.confidence for member in members])
    if is_multilabel or len(members) == 1:  # scikit-learn uses the first threshold for all labels.
        label = classify.label_by_threshold(builder, confidence, threshold=members[0].threshold)
    else:
        label = classify.label_by_argmax(builder, confidence)
    values = {"label": label}
    if all("score" in member.values for member in members):
        values["score"] = builder.concat([member.values["score"] for member in members])
    if all("proba" in member.values for member in members):
        second_proba = [_select_second(builder, member.values["proba"]) for member in members]
        build_proba = Builder.concat if is_multilabel else _normalize
        values["proba"] = build_proba(builder, second_proba)
    binary_labels = (Labels("int64", (0, 1)),) * len(members)
    return Outputs(values, binary_labels if is_multilabel else build_labels(classes))


def import_one_vs_one_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the class with the most votes of class pairs; confidences break ties."""
    check_estimator(model, "estimators_", "classes_")
    classes = classify.require_multiple_classes(model)
    if model.pairwise_indices_ is not None:
        raise UnsupportedModelError(
            "OneVsOneClassifier contains a model with a precomputed kernel, which needs the "
            "training rows; fit it with a kernel that the model computes itself"
        )
    builder = frame.builder
    members = _import_binary_members(model, convert_to_numbers(frame), recurse)
    predictions = builder.concat([member.values["predict"] for member in members])
    confidences = builder.concat([member.confidence for member in members])
    score = classify.compute_ovr_scores(builder, predictions, confidences, len(classes))
    if len(classes) == 2:
        score = builder.op("select", score, indices=np.array([1]))
        label = classify.label_by_threshold(builder, score, threshold=members[0].threshold)
    else:
        label = classify.label_by_argmax(builder, score)
    return Outputs({"label": label, "score": score}, build_labels(classes))


def import_output_code_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the class whose row of `code_book_` is nearest to the members' confidences."""
    check_estimator(model, "estimators_", "classes_", "code_book_")
    classes = classify.read_classes(model)
    members = _import_binary_members(model, frame, recurse)
    code_book = np.asarray(model.code_book_, np.float64)
    confidences = frame.builder.concat([member.confidence for member in members])
    label = assign_nearest(frame.builder, confidences, code_book)
    return Outputs({"label": label}, build_labels(classes))


def _import_binary_members(model: Any, frame: Frame, recurse: Recurse) -> list[BinaryMember]:
    return [_import_member(model, i, m, frame, recurse) for i, m in enumerate(model.estimators_)]


def _import_member(model: Any, i: int, member: Any, frame: Frame, recurse: Recurse) -> BinaryMember:
    """Import `member`; the confidence is a score, a probability or a regressor's label."""
    builder = frame.builder
    # If all training rows of a member had the same class, scikit-learn uses this estimator.
    if get_class_path(member) == "sklearn.multiclass._ConstantPredictor":
        constant = float(np.ravel(member.y_)[0])
        value = repeat_rows(frame, np.array([constant]))
        proba = repeat_rows(frame, np.array([1 - constant, constant]))
        return BinaryMember(value, {"predict": value, "score": value, "proba": proba}, 0.5)
    inner = Member.read(model, f"estimators_[{i}]", member, frame, recurse)
    values = {"predict": inner.get_output("predict")}
    if inner.outputs.labels is None:
        return BinaryMember(builder.cast(values["predict"], "float64"), values, 0.5)
    if len(inner.classes) != 2:
        raise UnsupportedModelError(
            f"{inner.where} distinguishes {len(inner.classes)} classes, not two; fit it again"
        )
    values |= inner.get_available("score", "proba")
    if "score" in values:
        return BinaryMember(values["score"], values, 0.0)
    if "proba" in values:
        second_proba = _select_second(builder, values["proba"])
        return BinaryMember(builder.cast(second_proba, "float64"), values, 0.5)
    raise UnsupportedModelError(f"{inner.where} has neither decision_function nor predict_proba")


def _select_second(builder: Builder, proba: Value) -> Value:
    return builder.op("select", proba, indices=np.array([1]))


def _normalize(builder: Builder, second_proba: list[Value]) -> Value:
    op = builder.op
    if len(second_proba) == 1:
        proba = classify.add_complement(builder, second_proba[0])
        second_proba = [op("select", proba, indices=np.array([i])) for i in (0, 1)]
    else:
        proba = builder.concat(second_proba)
    total = sum_values(builder, second_proba)
    return op("where", apply_constant(builder, "eq", total, 0), proba, op("div", proba, total))


T = TypeVar("T", Value, Labels)


def import_multi_output_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the predictions of all estimators side by side."""
    check_estimator(model, "estimators_")
    columns = [member.get_output("predict") for member in import_members(model, frame, recurse)]
    return Outputs({"label": frame.builder.concat(columns)})


def import_multi_output_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the labels of all targets, and the probabilities if all estimators have them."""
    check_estimator(model, "estimators_")
    imported = list(import_members(model, frame, recurse))
    labels = tuple(member.classes for member in imported)
    values: dict[str, Value] = {}
    for output in ("label", "proba"):
        if all(output in member.values for member in imported):
            values[output] = frame.builder.concat([member.values[output] for member in imported])
    return Outputs(values, labels)


def import_regressor_chain(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the predictions of a chain's estimators, in the order of the targets."""
    check_estimator(model, "estimators_", "order_")
    chain = _import_chain(model, frame, recurse, "predict")
    columns = [frame.builder.cast(member.get_output("predict"), "float64") for member in chain]
    return Outputs({"label": frame.builder.concat(_sort_by_target(model, columns))})


def import_classifier_chain(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the label of each target, and the probability and score of the second class.

    There are no probabilities and scores if a target has more than two classes, because
    scikit-learn raises an error.
    """
    check_estimator(model, "estimators_", "order_", "chain_method_")
    chain = _import_chain(model, frame, recurse, str(model.chain_method_))
    labels = _sort_by_target(model, [member.classes for member in chain])
    columns = [member.values["label"] for member in chain]
    values = {"label": frame.builder.concat(_sort_by_target(model, columns))}
    if all(len(target_labels) == 2 for target_labels in labels):
        for output, method in (("proba", "predict_proba"), ("score", "decision_function")):
            if hasattr(model, method) and all(output in member.values for member in chain):
                columns = [_compute_chain_feature(model, i, m, method) for i, m in enumerate(chain)]
                values[output] = frame.builder.concat(_sort_by_target(model, columns))
    if len(labels) == 1 and "proba" in values:
        values["proba"] = chain[0].values["proba"]
    return Outputs(values, tuple(labels))


def _import_chain(model: Any, frame: Frame, recurse: Recurse, method: str) -> list[Member]:
    """Import a chain's estimators; each also reads what `method` returned for earlier ones."""
    builder = frame.builder
    names = list(frame.names)
    feature_blocks = [check_array(frame, type(model).__name__)]
    estimators: list[Member] = []
    for i, estimator in enumerate(model.estimators_):
        columns = Frame.from_value(builder, builder.concat(feature_blocks), names, frame.sparse)
        estimators.append(Member.read(model, f"estimators_[{i}]", estimator, columns, recurse))
        if i + 1 < len(model.estimators_):
            feature = _compute_chain_feature(model, i, estimators[-1], method)
            feature_blocks.append(builder.cast(feature, "float64"))
            names.append(f"target {int(model.order_[i])}")
    return estimators


def _compute_chain_feature(model: Any, i: int, member: Member, method: str) -> Value:
    """Return the result of `method` of estimator `i`, which later estimators read."""
    if method == "predict":
        return member.get_output(method)
    if len(member.classes) != 2:
        raise UnsupportedModelError(
            f"{type(model).__name__}(chain_method={method!r}) works only for two classes, and "
            f"estimators_[{i}] has a different number; use chain_method='predict'"
        )
    if method == "decision_function":
        return member.get_output(method)
    second_proba = _select_second(member.builder, member.get_output("predict_proba"))
    return member.builder.op("log", second_proba) if method == "predict_log_proba" else second_proba


def _sort_by_target(model: Any, columns: Sequence[T]) -> list[T]:
    return [columns[i] for i in np.argsort(np.asarray(model.order_, np.int64)).tolist()]
