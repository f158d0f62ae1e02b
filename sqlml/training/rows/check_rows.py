"""Check training rows before any work: raise errors, and collect notices for the user."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from sqlml.errors import ConfigError
from sqlml.training.column_statistics import Classes, ColumnStatistics
from sqlml.training.options.request import Request
from sqlml.training.row_store import StoredRows
from sqlml.training.rows.read_rows import TrainingRows, quote_if_needed
from sqlml.training.rows.training_columns import TrainingColumn
from sqlml.types import Array, class_literal

MAX_CLASSES = 1000

_SAMPLE_ROWS = 100_000
"""Number of rows that are searched first for a leak or a key."""

_MIN_KEY_ROWS = 100

_NUMBER = re.compile(r"\s*[+-]?(0|[1-9]\d*|(?=\.\d))(\.\d*)?([eE][+-]?\d+)?\s*", re.ASCII)
"""Strings that are numbers. Leading zeros are excluded, because they are typical of codes."""

_KEY_NOTICE = "column {!r} is like a key, with a distinct value in nearly every row"


def check_rows(
    rows: TrainingRows, request: Request, text_columns: Collection[str], label_type: str | None
) -> list[str]:
    """Raise ConfigError for rows that cannot be trained on; return notices about likely mistakes.

    `text_columns` are the free-text features, whose values may differ in every row.
    """
    _check_counts(rows, request)
    notices = check_label(request, label_type)
    if rows.unlabelled:
        notices.append(f"{rows.unlabelled:,} rows were left out: their label is NULL")
    if rows.returned_classes:
        classes = ", ".join(map(repr, rows.returned_classes[:10]))
        notices.append(f"only held-out rows had the classes {classes}: these rows are trained on")
    if rows.held_out is None and rows.split.method != "none":
        notices.append("no rows are held out: metrics are computed on the training rows")
    if request.task == "regress" and _has_one_label(rows):
        notices.append(f"the label {request.label!r} has one value in all rows")
    for feature in rows.features:
        statistics = rows.statistics[feature.name]
        notices += _check_values(rows, feature, request)
        if statistics.is_empty:
            notices.append(f"column {feature.name!r} has no value in any row and is left out")
        elif statistics.is_constant:
            notices.append(f"column {feature.name!r} has one value in all rows")
        elif feature.name in text_columns:
            continue
        elif _looks_like_key(rows, feature):
            left_out = " and is left out" if feature.role == "category" else ""
            notices.append(_KEY_NOTICE.format(feature.name) + left_out)
        elif _equals_label(rows, feature, request):
            notices.append(_report_leak(feature.name, request))
    return notices


def _report_leak(name: str, request: Request) -> str:
    fault = f"column {name!r} determines the label {request.label!r} exactly"
    if request.leaks == "error":
        raise ConfigError(f"{fault}: leave it out of the query, or set leaks = 'warn' to keep it")
    return f"{fault}: a leak? leave it out of the query if it is"


def check_label(request: Request, label_type: str | None) -> list[str]:
    """Return a list with a notice if a classifier suits the label better, otherwise []."""
    if request.task != "regress" or label_type != "BOOLEAN":
        return []
    classifier = "logistic_reg"
    if request.model_type.endswith("_regressor"):
        classifier = request.model_type.replace("_regressor", "_classifier")
    return [
        f"the label {request.label!r} is a BOOLEAN, and {request.model_type} predicts numbers, "
        f"such as 0.3 or 1.2: {classifier} predicts true or false, with probabilities"
    ]


def _check_values(rows: TrainingRows, feature: TrainingColumn, request: Request) -> list[str]:
    statistics = rows.statistics[feature.name]
    categories = rows.names.get(feature.name, ())
    is_computed = feature.expression is not None
    if feature.type.startswith("VARCHAR") and not is_computed and len(categories) > 2:
        if all(map(_NUMBER.fullmatch, categories)):
            number = f"CAST({quote_if_needed(feature.name)} AS DOUBLE)"
            return [
                f"column {feature.name!r} contains numbers as strings, which are treated as "
                f"categories: write {number} in the query if their size matters"
            ]
    is_filled = request.task in ("cluster", "project") and feature.role == "number"
    if is_filled and statistics.null_count and not statistics.is_empty:
        return [
            f"column {feature.name!r} is NULL in {statistics.null_count:,} of "
            f"{statistics.row_count:,} rows: its mean fills them, and a column of its own marks "
            f"them, which {request.model_type} learns from, too; fill them in the query, or leave "
            "them out, if that is not intended"
        ]
    return []


def find_keys(rows: TrainingRows) -> frozenset[str]:
    """Return the names of categorical features that are keys of the rows."""
    return frozenset(
        f.name for f in rows.features if f.role == "category" and _looks_like_key(rows, f)
    )


def _check_counts(rows: TrainingRows, request: Request) -> None:
    label = request.label
    if rows.fitted.rows == 0:
        if rows.unlabelled:
            raise ConfigError(f"all values of the label {label!r} are NULL")
        found_rows = "no rows" if rows.held_out is None else "only rows that are held out"
        raise ConfigError(f"the query returns {found_rows}: there is nothing to train on")
    if rows.classes is not None:
        check_classes(rows.classes, rows.fitted.rows, request)
    if request.trainer.package == "catboost" and _has_one_label(rows):
        raise ConfigError(f"the label {label!r} has one value in all rows: CatBoost needs two")


def _has_one_label(rows: TrainingRows) -> bool:
    label = rows.fitted.label
    return label is not None and bool((label == label[0]).all())


def check_classes(classes: Classes, row_count: int, request: Request) -> None:
    """Raise ConfigError if a classifier cannot learn `classes` from `row_count` rows."""
    label = request.label
    class_count = len(classes)
    if class_count == 1:
        value = class_literal(classes.values()[0])
        requirement = "a classifier needs at least two classes"
        raise ConfigError(f"the label {label!r} is {value} in all rows: {requirement}")
    if class_count > MAX_CLASSES:
        regression_type = request.model_type.replace("classifier", "regressor")
        is_same = regression_type == request.model_type
        alternative = "" if is_same else f", or train a {regression_type}"
        raise ConfigError(
            f"the label {label!r} has {class_count:,} classes, and a classifier at most "
            f"{MAX_CLASSES:,}: group them in the query{alternative}"
        )
    if row_count <= class_count:
        raise ConfigError(
            f"the label {label!r} has a different class in every row to train on: a classifier "
            "needs several rows of a class"
        )


def _looks_like_key(rows: TrainingRows, feature: TrainingColumn) -> bool:
    statistics = rows.statistics[feature.name]
    if feature.role == "category" or statistics.row_count - statistics.null_count < _MIN_KEY_ROWS:
        return is_key(statistics, feature.type, np.empty(0))
    return is_key(statistics, feature.type, _read_column(rows, feature, _SAMPLE_ROWS))


def is_key(statistics: ColumnStatistics, sql_type: str, sample: Array) -> bool:
    """Return whether a column of categories or integers has a distinct value in nearly every row.

    `sql_type` is the column's type. `sample` holds some values (n,) of a numeric column.
    """
    value_count = statistics.row_count - statistics.null_count
    if value_count < _MIN_KEY_ROWS:
        return False
    if statistics.distinct_count is not None:
        return statistics.distinct_count >= 0.9 * value_count
    if not sql_type.endswith("INT") and sql_type != "INTEGER":
        return False
    return len(np.unique(sample)) == len(sample) >= _MIN_KEY_ROWS


def _equals_label(rows: TrainingRows, feature: TrainingColumn, request: Request) -> bool:
    label = rows.fitted.label
    if label is None or request.task == "rank":
        return False
    n_classes = None if rows.classes is None else len(rows.classes)
    for count in (_SAMPLE_ROWS, rows.fitted.rows):
        values = _read_column(rows, feature, count)
        if not determine_each_other(values, label[: len(values)], n_classes):
            return False
    return True


def determine_each_other(values: Array, labels: Array, n_classes: int | None) -> bool:
    """Return whether `values` and `labels`, both (n,), are equal except for names of classes.

    `n_classes` is the number of classes, or None for numeric labels, which must be equal.
    """
    if n_classes is None:
        return np.array_equal(values, labels.astype(values.dtype))
    distinct, codes = np.unique(values, return_inverse=True)
    if not 2 <= len(distinct) <= n_classes:
        return False
    pairs = np.unique(codes.astype(np.int64) * n_classes + labels)
    return len(distinct) == len(pairs) == len(np.unique(labels))


def _read_column(rows: TrainingRows, feature: TrainingColumn, max_rows: int) -> Array:
    """Return the numbers or codes (n,) of a feature in at most the first `max_rows` fitted rows."""
    features: Any = rows.fitted.features
    index = rows.features.index(feature)
    column: Array
    if isinstance(features, StoredRows):
        reads_all = max_rows >= len(features) > len(features.first_block)
        column = features.column(index) if reads_all else features.first_block[:, index]
    else:
        column = features[:, index] if isinstance(features, np.ndarray) else features[feature.name]
    return column[:max_rows]


def check_frame(
    frame: Any,
    types: Mapping[str, str],
    features: Sequence[str],
    label: Array | None,
    n_classes: int | None,
    request: Request,
) -> tuple[list[ColumnStatistics], list[str]]:
    """Check a pandas frame of training rows; return statistics of `features`, and notices.

    `types` maps columns to SQL types. `label` and `n_classes` are as in `determine_each_other`.
    """
    all_statistics = []
    notices = []
    for name in features:
        values, categories = _to_codes(frame[name])
        statistics = ColumnStatistics(name, types[name])
        all_statistics.append(statistics)
        if values is None:
            statistics.row_count, statistics.null_count = len(frame), int(frame[name].isna().sum())
            continue
        if values.dtype == np.float64:
            statistics.add_numbers(values)
        else:
            statistics.add_codes(values)
            statistics.distinct_count, statistics.names = len(categories), categories
        if statistics.is_constant:
            notices.append(f"column {name!r} has one value in all rows")
        elif is_key(statistics, types[name], values):
            notices.append(_KEY_NOTICE.format(name))
        elif label is not None and determine_each_other(values, label, n_classes):
            notices.append(_report_leak(name, request))
    return all_statistics, notices


def _to_codes(column: Any) -> tuple[Array | None, tuple[str, ...]]:
    """Return the (n,) numbers or category codes of a pandas column, and the category names.

    Numbers are float64 with NaN for missing values. Codes are int64 with -1 for missing values. The
    array is None if the column holds neither numbers nor strings nor booleans.
    """
    import pandas as pd

    if pd.api.types.is_bool_dtype(column) or pd.api.types.is_numeric_dtype(column):
        return column.to_numpy(np.float64, na_value=np.nan), ()
    is_category = isinstance(column.dtype, pd.CategoricalDtype)
    inferred_type = "string" if is_category else pd.api.types.infer_dtype(column, skipna=True)
    if inferred_type not in ("string", "empty", "boolean"):
        return None, ()
    codes, categories = pd.factorize(column)
    # The engine writes a BOOLEAN in lower case.
    category_names = (str(v).lower() if isinstance(v, bool) else str(v) for v in categories)
    return codes.astype(np.int64), tuple(category_names)
