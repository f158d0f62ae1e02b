"""`class_metrics`, `number_metrics`: how good predictions are, by scikit-learn.

`ml_evaluate` computes the same in the engine (`planner/evaluation/`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np

from sqlml.planner.evaluation.metric_names import OF_CLASSES
from sqlml.types import Array

Metrics = Mapping[str, float | None]
"""Name -> value; None for one that the rows do not define."""


def class_metrics(
    y: Array,
    predicted: Array,
    classes: int,
    weight: Array | None = None,
    *,
    proba: Array | None = None,
    score: Array | None = None,
) -> Metrics:
    """The metrics of a classifier: of two classes those of the second, else means over the classes.

    Args:
        y, predicted: (n,) the numbers of classes. classes: how many there are.
        weight: (n,) or None.
        proba: (n, classes) probabilities. score: what ranks rows in place of those: (n,) of two
            classes, else (n, classes).
    """
    from sklearn import metrics

    average = "binary" if classes == 2 else "macro"
    options = {"average": average, "zero_division": 0.0, "sample_weight": weight}
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(y, predicted, **options)
    made: dict[str, float | None] = {
        **dict.fromkeys(OF_CLASSES),
        "precision": float(precision),
        "recall": float(recall),
        "accuracy": float(metrics.accuracy_score(y, predicted, sample_weight=weight)),
        "f1_score": float(f1),
    }
    given = {"sample_weight": weight, "labels": np.arange(classes)}
    if proba is not None:
        made["log_loss"] = float(metrics.log_loss(y, proba, **given))
        made["brier_score"] = float(metrics.brier_score_loss(y, proba, **given))
        score = proba[:, 1] if classes == 2 else proba
    if score is not None and len(np.unique(y)) == classes:
        several = {} if classes == 2 else {"multi_class": "ovr", "labels": np.arange(classes)}
        own = {"sample_weight": weight}
        if classes > 2 and proba is None:  # scores, which roc_auc_score does not take
            made["roc_auc"] = _mean_area(y, score, classes, weight)
        else:
            made["roc_auc"] = float(metrics.roc_auc_score(y, score, **several, **own))
    if score is not None:
        found = y if classes == 2 else np.eye(classes, dtype=np.int64)[y]
        with warnings.catch_warnings():  # without positive rows it is 0
            warnings.simplefilter("ignore", UserWarning)
            area = metrics.average_precision_score(found, score, sample_weight=weight)
        made["average_precision"] = float(area)
    return made


def _mean_area(y: Array, score: Array, classes: int, weight: Array | None) -> float:
    """The mean of the areas under the ROC curves of each class against the rest."""
    from sklearn.metrics import roc_auc_score

    areas = [roc_auc_score(y == k, score[:, k], sample_weight=weight) for k in range(classes)]
    return float(np.mean(areas))


def number_metrics(y: Array, predicted: Array, weight: Array | None = None) -> Metrics:
    """The metrics of a regressor.

    Args:
        y, predicted: (n,) numbers. weight: (n,) or None.
    """
    from sklearn import metrics

    given = {"sample_weight": weight}
    has_logarithms = bool((y > -1).all() and (predicted > -1).all())
    return {
        "mean_absolute_error": float(metrics.mean_absolute_error(y, predicted, **given)),
        "mean_squared_error": float(metrics.mean_squared_error(y, predicted, **given)),
        "mean_squared_log_error": float(metrics.mean_squared_log_error(y, predicted, **given))
        if has_logarithms
        else None,
        "median_absolute_error": float(metrics.median_absolute_error(y, predicted, **given)),
        "max_error": float(metrics.max_error(y, predicted)),
        "r2_score": float(metrics.r2_score(y, predicted, **given)) if len(y) > 1 else None,
        "explained_variance": float(metrics.explained_variance_score(y, predicted, **given)),
        "mean_absolute_percentage_error": float(
            metrics.mean_absolute_percentage_error(y, predicted, **given)
        ),
    }
