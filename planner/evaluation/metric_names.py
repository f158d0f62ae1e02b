"""The names of metrics, in the order in which they are told."""

from __future__ import annotations

OF_CLASSES = (
    *("precision", "recall", "accuracy", "f1_score", "log_loss", "roc_auc"),
    *("average_precision", "brier_score"),
)
OF_NUMBERS = (
    *("mean_absolute_error", "mean_squared_error", "mean_squared_log_error"),
    *("median_absolute_error", "max_error", "r2_score", "explained_variance"),
    "mean_absolute_percentage_error",
)
