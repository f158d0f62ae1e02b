"""Metrics of predictions, and contributions of columns to predictions.

`compute_class_metrics` and `compute_number_metrics` use scikit-learn. `ml_evaluate` computes the
same metrics in the engine (`planner/table_functions/`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml import html
from sqlml.errors import ConfigError
from sqlml.explaining.explained import find_block_size
from sqlml.ir.program import Program
from sqlml.planner.binding.requested_output import find_label
from sqlml.planner.table_functions.evaluated_model import CLASSIFIER_METRICS
from sqlml.types import Array, Feature, Labels, list_classes

if TYPE_CHECKING:
    from sqlml.scorer.scorer import Scorer

Metrics = Mapping[str, float | None]
"""Maps names of metrics to values, or to None if a metric is undefined for the rows."""


class Evaluation(dict[str, float | None]):
    """Maps names of metrics to values, or to None if a metric is undefined for the rows."""

    def _repr_html_(self) -> str:
        rows = [(name, None if value is None else f"{value:.6g}") for name, value in self.items()]
        return html.table(("metric", "value"), rows, numbers=(False, True))


def evaluate(model: Scorer, X: Any, y: Any, weight: Any = None) -> Evaluation | list[Evaluation]:
    """Compute the metrics of `model` for rows `X` with labels `y`; see `Scorer.evaluate`."""
    program = model.program
    if "label" not in program.outputs:
        raise ConfigError("this model predicts nothing that could be evaluated")
    predicted = np.asarray(model.predict(X))
    weights = None if weight is None else np.asarray(weight, np.float64)
    truths = _split_targets(y, predicted.shape[1:] or (1,))
    predictions = predicted.reshape(len(predicted), -1).T
    has_several_targets = len(truths) > 1
    if not program.labels:
        targets = zip(truths, predictions, strict=True)
        metrics = [_evaluate_numbers(truth, column, weights) for truth, column in targets]
    else:
        probas = _predict_probabilities(model, X, len(truths))
        score = None
        if probas is None and "score" in program.outputs and not has_several_targets:
            score = np.asarray(model.decision_function(X), np.float64)
        classes = zip(truths, predictions, program.labels, probas or repeat(None), strict=False)
        metrics = [
            _evaluate_classes(truth, column, labels, weights, proba, score)
            for truth, column, labels, proba in classes
        ]
    evaluations = [Evaluation(values) for values in metrics]
    return evaluations if has_several_targets else evaluations[0]


def _split_targets(y: Any, shape: tuple[int, ...]) -> list[Array]:
    values = np.asarray(y.tolist() if hasattr(y, "tolist") else y, dtype=object)
    return list(values.reshape(len(values), *shape).T)


def _predict_probabilities(model: Scorer, X: Any, target_count: int) -> list[Array] | None:
    program = model.program
    if "proba" not in program.outputs:
        return None
    probabilities = model.predict_proba(X)
    if target_count == 1:
        return [np.asarray(probabilities, np.float64)]
    if program.has_one_probability_per_target:
        positive = np.asarray(probabilities, np.float64)
        return [np.stack([1 - column, column], axis=1) for column in positive.T]
    return [np.asarray(target_proba, np.float64) for target_proba in probabilities]


def _evaluate_numbers(true_values: Array, predicted: Array, weight: Array | None) -> Metrics:
    actual = true_values.astype(np.float64)  # NaN for None
    has_label = ~np.isnan(actual)
    _require_labels(has_label)
    predicted_numbers = np.asarray(predicted[has_label], np.float64)
    weights = _select_rows(weight, has_label)
    return compute_number_metrics(actual[has_label], predicted_numbers, weights)


def _evaluate_classes(
    true_labels: Array,
    predicted: Array,
    labels: Labels,
    weight: Array | None,
    proba: Array | None,
    score: Array | None,
) -> Metrics:
    codes: dict[Any, int] = {}
    for value in set(true_labels[[not _is_missing(v) for v in true_labels]].tolist()):
        code = find_label(labels, value)
        if code is None:
            class_list = list_classes(labels.values)
            message = f"the label {value!r} is not a class of this model; classes: {class_list}"
            raise ConfigError(message)
        codes[value] = code
    actual_codes = np.array([-1 if _is_missing(v) else codes[v] for v in true_labels], np.int64)
    has_label = actual_codes >= 0
    _require_labels(has_label)
    codes_by_class = {value: code for code, value in enumerate(labels.values)}
    predicted_codes = np.array([codes_by_class[v] for v in predicted.tolist()], np.int64)
    return compute_class_metrics(
        actual_codes[has_label],
        predicted_codes[has_label],
        len(labels),
        _select_rows(weight, has_label),
        proba=_select_rows(proba, has_label),
        score=_select_rows(score, has_label),
    )


def _is_missing(value: Any) -> bool:
    return value is None or value != value


def _require_labels(has_label: Array) -> None:
    if not has_label.any():
        raise ConfigError("no row has a label, so there is nothing to evaluate")


def _select_rows(values: Array | None, mask: Array) -> Array | None:
    return None if values is None else values[mask]


def compute_class_metrics(
    y: Array,
    predicted: Array,
    n_classes: int,
    weight: Array | None = None,
    *,
    proba: Array | None = None,
    score: Array | None = None,
) -> Metrics:
    """Compute the metrics of a classifier.

    With two classes, the second class is the positive class. Otherwise, metrics are means over the
    classes. `y` and `predicted` are class indices (n,), and `proba` has the shape (n, classes). If
    `proba` is None, rows are ranked by `score` (n,), or (n, classes) for more than two classes.
    """
    from sklearn import metrics

    average = "binary" if n_classes == 2 else "macro"
    options = {"average": average, "zero_division": 0.0, "sample_weight": weight}
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(y, predicted, **options)
    values: dict[str, float | None] = {
        **dict.fromkeys(CLASSIFIER_METRICS),
        "precision": float(precision),
        "recall": float(recall),
        "accuracy": float(metrics.accuracy_score(y, predicted, sample_weight=weight)),
        "f1_score": float(f1),
    }
    class_indices = np.arange(n_classes)
    if proba is not None:
        options = {"sample_weight": weight, "labels": class_indices}
        values["log_loss"] = float(metrics.log_loss(y, proba, **options))
        values["brier_score"] = float(metrics.brier_score_loss(y, proba, **options))
        score = proba[:, 1] if n_classes == 2 else proba
    if score is None:
        return values
    if len(np.unique(y)) == n_classes:
        if n_classes > 2 and proba is None:  # `roc_auc_score` needs probabilities here.
            auc = metrics.roc_auc_score
            areas = [auc(y == k, score[:, k], sample_weight=weight) for k in class_indices]
            values["roc_auc"] = float(np.mean(areas))
        else:
            options = {} if n_classes == 2 else {"multi_class": "ovr", "labels": class_indices}
            area = metrics.roc_auc_score(y, score, **options, sample_weight=weight)
            values["roc_auc"] = float(area)
    indicators = y if n_classes == 2 else np.eye(n_classes, dtype=np.int64)[y]
    with warnings.catch_warnings():  # The value is 0 if no row is positive.
        warnings.simplefilter("ignore", UserWarning)
        area = metrics.average_precision_score(indicators, score, sample_weight=weight)
    values["average_precision"] = float(area)
    return values


def compute_number_metrics(y: Array, predicted: Array, weight: Array | None = None) -> Metrics:
    """Compute the metrics of a regressor from true values (n,), predictions and row weights."""
    from sklearn import metrics

    has_logarithms = bool((y > -1).all() and (predicted > -1).all())
    metric_functions = {
        "mean_absolute_error": metrics.mean_absolute_error,
        "mean_squared_error": metrics.mean_squared_error,
        "mean_squared_log_error": metrics.mean_squared_log_error if has_logarithms else None,
        "median_absolute_error": metrics.median_absolute_error,
        "max_error": lambda y, predicted, sample_weight: metrics.max_error(y, predicted),
        "r2_score": metrics.r2_score if len(y) > 1 else None,
        "explained_variance": metrics.explained_variance_score,
        "mean_absolute_percentage_error": metrics.mean_absolute_percentage_error,
    }
    return {
        name: None if function is None else float(function(y, predicted, sample_weight=weight))
        for name, function in metric_functions.items()
    }


@dataclass(frozen=True, slots=True, eq=False)
class Contributions:
    """Shapley values of n rows, as `explain` returns them in SQL.

    Attributes:
        features: names of the columns of `values`, in the order of the training data.
        values: float64 of shape (n, features), or (n, targets, features) for several targets. The
            values of a row and the baseline add up to the model's score, which is a margin for
            boosted trees, and otherwise a probability or the predicted value.
        baseline: the expected score (n,) or (n, targets) if no column of the row is known.
        errors: the standard errors of `values`, or None if the values are exact.
    """

    features: tuple[str, ...]
    values: Array
    baseline: Array
    errors: Array | None = None

    @classmethod
    def of(cls, blocks: Array, program: Program, columns: Sequence[Feature]) -> Contributions:
        """Convert `blocks` (n, targets * width), the output of an explained Program.

        The block of each target contains the contributions of the Program's inputs, the baseline,
        and the standard errors of estimates. `columns` are the columns of the training data.
        """
        inputs, width = list(program.inputs), find_block_size(program)
        target_blocks = blocks.reshape(len(blocks), -1, width)
        has_several_targets = target_blocks.shape[1] > 1
        features = tuple(column.name for column in columns)
        feature_indices = [features.index(name) for name in inputs]

        def order_by_feature(start: int) -> Array:
            values = np.zeros((*target_blocks.shape[:2], len(features)))
            values[:, :, feature_indices] = target_blocks[:, :, start : start + len(inputs)]
            return values if has_several_targets else values[:, 0]

        baseline = target_blocks[:, :, len(inputs)]
        return cls(
            features,
            order_by_feature(0),
            (baseline if has_several_targets else baseline[:, 0]).copy(),
            order_by_feature(len(inputs) + 1) if width > len(inputs) + 1 else None,
        )

    def _repr_html_(self) -> str:
        magnitudes = np.abs(self.values).reshape(-1, len(self.features)).mean(axis=0)
        column_order = np.argsort(-magnitudes, kind="stable")[:20]
        largest = max(float(magnitudes.max(initial=0.0)), np.finfo(float).tiny)
        bars = ["\N{FULL BLOCK}" * round(30 * magnitude / largest) for magnitude in magnitudes]
        rows = [(self.features[k], f"{magnitudes[k]:.6g}", bars[k]) for k in column_order]
        caption = f"{len(self.values):,} rows, {len(self.features)} columns"
        names = ("column", "mean |contribution|", "")
        return html.table(names, rows, numbers=(False, True, False), below=caption)
