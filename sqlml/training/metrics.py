"""`metrics_of`: how good a model is, by scikit-learn's metrics under BigQuery's names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.training.model_types import Task
from sqlml.training.storage.blocks import Blocks
from sqlml.training.storage.part import Part

METRICS: Mapping[Task, tuple[str, ...]] = MappingProxyType(
    {
        "classify": (
            *("precision", "recall", "accuracy", "f1_score", "log_loss", "roc_auc"),
            *("average_precision", "brier_score"),
        ),
        "regress": (
            *("mean_absolute_error", "mean_squared_error", "median_absolute_error", "max_error"),
            *("r2_score", "explained_variance", "mean_absolute_percentage_error"),
        ),
        "rank": ("ndcg",),
        "cluster": ("davies_bouldin_index", "mean_squared_distance"),
        "project": ("total_explained_variance_ratio",),
        "isolate": ("outlier_share",),
    }
)
"""What each kind of model is measured by."""

LOWER_IS_BETTER = frozenset(
    "log_loss brier_score mean_absolute_error mean_squared_error median_absolute_error max_error "
    "mean_absolute_percentage_error davies_bouldin_index mean_squared_distance".split()
)

_AT = 10
"""Rows of each group that ndcg looks at."""

Metrics = Mapping[str, float | None]


def metrics_of(estimator: Any, part: Part, task: Task, classes: int) -> Metrics:
    """The metrics of a fitted estimator on some rows; None for one that they do not define.

    Args:
        classes: how many there are; labels are their numbers.
    """
    if task == "classify":
        return _of_classes(_told(estimator.predict_proba, part), part, classes)
    if task == "regress":
        return _of_numbers(_told(estimator.predict, part).reshape(-1), part)
    if task == "rank":
        return {"ndcg": _ndcg(np.asarray(estimator.predict(part.X)).reshape(-1), part)}
    if task == "cluster":
        return _of_clusters(estimator, part)
    if task == "project":
        if not hasattr(estimator, "explained_variance_ratio_"):
            return {}
        return {"total_explained_variance_ratio": float(estimator.explained_variance_ratio_.sum())}
    outliers = np.asarray(estimator.predict(part.X)) < 0
    return {"outlier_share": float(outliers.mean())}


def _told(method: Any, part: Part) -> Any:
    """What an estimator says of all rows, float64."""
    if not isinstance(part.X, Blocks):
        return np.asarray(method(part.X), np.float64)
    return np.concatenate([np.asarray(method(block), np.float64) for block in part.X.blocks()])


def _of_classes(proba: Any, part: Part, classes: int) -> Metrics:
    """Of a binary classifier for its second class at 0.5; means over the classes else."""
    from sklearn import metrics

    proba /= proba.sum(axis=1, keepdims=True)  # of float32 they may not add up to 1
    y, weight, known = part.y, part.weight, np.arange(classes)
    predicted = (proba[:, 1] > 0.5).astype(int) if classes == 2 else proba.argmax(axis=1)
    average = "binary" if classes == 2 else "macro"
    options = {"average": average, "zero_division": 0.0, "sample_weight": weight}
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(y, predicted, **options)
    made: dict[str, float | None] = {
        "precision": float(precision),
        "recall": float(recall),
        "accuracy": float(metrics.accuracy_score(y, predicted, sample_weight=weight)),
        "f1_score": float(f1),
        "log_loss": float(metrics.log_loss(y, proba, labels=known, sample_weight=weight)),
        "roc_auc": None,
        "average_precision": None,
        "brier_score": None,
    }
    present = np.unique(np.asarray(y))
    if classes == 2:
        score = proba[:, 1]
        made["brier_score"] = float(
            metrics.brier_score_loss(y, score, sample_weight=weight, pos_label=1)
        )
        if len(present) == 2:
            made["roc_auc"] = float(metrics.roc_auc_score(y, score, sample_weight=weight))
            made["average_precision"] = float(
                metrics.average_precision_score(y, score, sample_weight=weight)
            )
    elif len(present) == classes:
        made["roc_auc"] = float(
            metrics.roc_auc_score(y, proba, multi_class="ovr", labels=known, sample_weight=weight)
        )
    return made


def _of_numbers(predicted: Any, part: Part) -> Metrics:
    from sklearn import metrics

    y, weight = part.y, part.weight
    several = len(predicted) > 1
    return {
        "mean_absolute_error": float(
            metrics.mean_absolute_error(y, predicted, sample_weight=weight)
        ),
        "mean_squared_error": float(metrics.mean_squared_error(y, predicted, sample_weight=weight)),
        "median_absolute_error": float(
            metrics.median_absolute_error(y, predicted, sample_weight=weight)
        ),
        "max_error": float(metrics.max_error(y, predicted)),
        "r2_score": float(metrics.r2_score(y, predicted, sample_weight=weight))
        if several
        else None,
        "explained_variance": float(
            metrics.explained_variance_score(y, predicted, sample_weight=weight)
        ),
        "mean_absolute_percentage_error": float(
            metrics.mean_absolute_percentage_error(y, predicted, sample_weight=weight)
        ),
    }


def _ndcg(scores: Any, part: Part) -> float | None:
    """The mean over the groups that have more than one row."""
    from sklearn.metrics import ndcg_score

    if part.group is None or part.y is None:
        return None
    ends = np.flatnonzero(np.diff(part.group)) + 1
    groups = zip(np.split(part.y, ends), np.split(scores, ends), strict=True)
    found = [ndcg_score([y], [score], k=_AT) for y, score in groups if len(y) > 1]
    return float(np.mean(found)) if found else None


def _of_clusters(estimator: Any, part: Part) -> Metrics:
    from sklearn.metrics import davies_bouldin_score

    labels = estimator.predict(part.X)
    distances = estimator.transform(part.X).min(axis=1)
    dense = part.X.toarray() if hasattr(part.X, "toarray") else part.X
    several = 1 < len(np.unique(labels)) < len(labels)
    return {
        "davies_bouldin_index": float(davies_bouldin_score(dense, labels)) if several else None,
        "mean_squared_distance": float(np.mean(np.square(distances))),
    }
