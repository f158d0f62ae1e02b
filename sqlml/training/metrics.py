"""`metrics_of`: how good a model is, by scikit-learn's metrics under BigQuery's names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.planner.evaluation.metric_names import OF_CLASSES, OF_NUMBERS
from sqlml.scorer.metrics import Metrics, class_metrics, number_metrics
from sqlml.training.model_types import Task
from sqlml.training.storage.blocks import Blocks
from sqlml.training.storage.part import Part

METRICS: Mapping[Task, tuple[str, ...]] = MappingProxyType(
    {
        "classify": OF_CLASSES,
        "regress": OF_NUMBERS,
        "rank": ("ndcg",),
        "cluster": ("davies_bouldin_index", "mean_squared_distance"),
        "project": ("total_explained_variance_ratio",),
        "isolate": ("outlier_share",),
    }
)
"""What each kind of model is measured by."""

LOWER_IS_BETTER = frozenset(
    "log_loss brier_score mean_absolute_error mean_squared_error mean_squared_log_error "
    "median_absolute_error max_error "
    "mean_absolute_percentage_error davies_bouldin_index mean_squared_distance".split()
)

_AT = 10
"""Rows of each group that ndcg looks at."""


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
    proba /= proba.sum(axis=1, keepdims=True)  # of float32 they may not add up to 1
    predicted = (proba[:, 1] > 0.5).astype(int) if classes == 2 else proba.argmax(axis=1)
    return class_metrics(np.asarray(part.y), predicted, classes, part.weight, proba=proba)


def _of_numbers(predicted: Any, part: Part) -> Metrics:
    return number_metrics(np.asarray(part.y), predicted, part.weight)


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
