"""`check_rows`: what is wrong with the rows, before any work: errors, and notices for the user."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from sqlml.errors import ConfigError
from sqlml.training.features.columns import TrainingColumn
from sqlml.training.options.request import Request
from sqlml.training.reading.rows import TrainingRows, spelled_name
from sqlml.training.storage.column_statistics import Classes, ColumnStatistics
from sqlml.training.storage.row_store import StoredRows
from sqlml.types import Array, class_literal

MOST_CLASSES = 1000

_SAMPLE = 100_000
"""Rows among which a leak or a key is looked for first."""

_KEY_SHARE = 0.9
"""A column of names is a key if it has so many of them per row."""

_FEWEST_KEYS = 100
"""Rows below which a key cannot be told from any other column."""


_NUMBER = re.compile(r"\s*[+-]?(0|[1-9]\d*|(?=\.\d))(\.\d*)?([eE][+-]?\d+)?\s*", re.ASCII)
"""A text that is a number; one with zeros in front is rather a code."""


def check_rows(
    rows: TrainingRows, request: Request, texts: Collection[str], label_type: str | None
) -> list[str]:
    """Return notices of what may be unintended.

    Args:
        texts: names of features that are texts, which may be different in all rows.
        label_type: the SQL type of the label; None without one.

    Raises:
        ConfigError: nothing can be learned from these rows, or a feature equals the label and the
            option `leaks` is 'error'.
    """
    _check_counts(rows, request)
    notices = check_label(request, label_type)
    if rows.unlabelled:
        notices.append(f"{rows.unlabelled:,} rows were left out: their label is NULL")
    if rows.kept:
        listed = ", ".join(map(repr, rows.kept[:10]))
        notices.append(f"only held-out rows had the classes {listed}: they are trained on")
    if rows.held_out is None and rows.split.method != "none":
        notices.append("no rows are held out: metrics are those of the rows that are trained on")
    if request.task == "regress" and _has_one_label(rows):
        notices.append(f"the label {request.label!r} has one value in all rows")
    for feature in rows.features:
        notices += _check_values(rows, feature, request)
        if rows.statistics[feature.name].is_empty:
            notices.append(f"column {feature.name!r} has no value in any row and is left out")
        elif rows.statistics[feature.name].is_constant:
            notices.append(f"column {feature.name!r} has one value in all rows")
        elif feature.name in texts:
            continue
        elif _is_key(rows, feature):
            left_out = " and is left out" if feature.role == "category" else ""
            notices.append(
                f"column {feature.name!r} is like a key, with a value of its own in nearly every "
                f"row{left_out}"
            )
        elif _equals_label(rows, feature, request):
            found = f"column {feature.name!r} tells the label {request.label!r} exactly"
            if request.leaks == "error":
                raise ConfigError(
                    f"{found}: leave it out of the query, or set leaks = 'warn' if that is intended"
                )
            notices.append(f"{found}: a leak? leave it out of the query if it is")
    return notices


def check_label(request: Request, label_type: str | None) -> list[str]:
    """Return a notice of a label that suits another type of model better."""
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
    """Return notices of what becomes of a feature's values."""
    statistics = rows.statistics[feature.name]
    names = rows.names.get(feature.name, ())
    made = feature.expression is not None
    if feature.type.startswith("VARCHAR") and not made and len(names) > 2:
        if all(map(_NUMBER.fullmatch, names)):
            number = f"CAST({spelled_name(feature.name)} AS DOUBLE)"
            return [
                f"column {feature.name!r} holds numbers as texts, which are learned from as "
                f"categories: write {number} in the query if their size matters"
            ]
    is_filled = request.task in ("cluster", "project") and feature.role == "number"
    if is_filled and statistics.nulls and not statistics.is_empty:
        return [
            f"column {feature.name!r} is NULL in {statistics.nulls:,} of {statistics.rows:,} rows: "
            "its mean fills them, and a column of its own marks them, which "
            f"{request.model_type} learns from, too; fill them in the query, or leave them out, if "
            "that is not intended"
        ]
    return []


def keys_of(rows: TrainingRows) -> frozenset[str]:
    """The names of features whose values are names of single rows."""
    return frozenset(f.name for f in rows.features if f.role == "category" and _is_key(rows, f))


def _check_counts(rows: TrainingRows, request: Request) -> None:
    label = request.label
    if rows.fitted.rows == 0:
        if rows.unlabelled:
            raise ConfigError(f"all values of the label {label!r} are NULL")
        what = "no rows" if rows.held_out is None else "only rows that are held out"
        raise ConfigError(f"the query returns {what}: there is nothing to train on")
    if rows.classes is not None:
        check_classes(rows.classes, rows.fitted.rows, request)
    if request.trainer.package == "catboost" and _has_one_label(rows):
        raise ConfigError(f"the label {label!r} has one value in all rows: CatBoost needs two")


def _has_one_label(rows: TrainingRows) -> bool:
    label = rows.fitted.label
    return label is not None and bool((label == label[0]).all())


def check_classes(classes: Classes, everything: int, request: Request) -> None:
    """Refuse classes that nothing can be learned of.

    Args:
        everything: the number of rows that are trained on.

    Raises:
        ConfigError: one class, too many of them, or more than rows.
    """
    label, count = request.label, len(classes)
    if count == 1:
        raise ConfigError(
            f"the label {label!r} is {class_literal(classes.values()[0])} in all rows: a "
            "classifier needs at least two classes"
        )
    if count > MOST_CLASSES:
        regression = request.model_type.replace("classifier", "regressor")
        other = "" if regression == request.model_type else f", or train a {regression}"
        raise ConfigError(
            f"the label {label!r} has {count:,} classes, and a classifier at most "
            f"{MOST_CLASSES:,}: group them in the query{other}"
        )
    if everything <= count:
        raise ConfigError(
            f"the label {label!r} has a class of its own in every row to train on: a classifier "
            "needs several rows of a class"
        )


def _is_key(rows: TrainingRows, feature: TrainingColumn) -> bool:
    """Whether nearly every row has a value of its own, and the values are names or integers."""
    statistics = rows.statistics[feature.name]
    if feature.role == "category" or statistics.rows - statistics.nulls < _FEWEST_KEYS:
        return is_key(statistics, feature.type, np.empty(0))
    return is_key(statistics, feature.type, _column(rows, feature, _SAMPLE))


def is_key(statistics: ColumnStatistics, kind: str, sample: Array) -> bool:
    """Whether nearly every row has a value of its own, and the values are names or integers.

    Args:
        kind: the SQL type of the column. sample: (n,) some of its values, if they are numbers.
    """
    present = statistics.rows - statistics.nulls
    if present < _FEWEST_KEYS:
        return False
    if statistics.distinct is not None:
        return statistics.distinct >= _KEY_SHARE * present
    if not kind.endswith("INT") and kind != "INTEGER":
        return False
    return len(np.unique(sample)) == len(sample) >= _FEWEST_KEYS


def _equals_label(rows: TrainingRows, feature: TrainingColumn, request: Request) -> bool:
    """Whether a feature and the label tell each other."""
    label = rows.fitted.label
    if label is None or request.task == "rank":
        return False
    classes = None if rows.classes is None else len(rows.classes)
    for most in (_SAMPLE, rows.fitted.rows):
        values = _column(rows, feature, most)
        if not tell_each_other(values, label[: len(values)], classes):
            return False
    return True


def tell_each_other(values: Array, label: Array, classes: int | None) -> bool:
    """Whether a feature and the label are the same under other names.

    Args:
        values: (n,) numbers, or the codes of categories. label: (n,) numbers, or those of classes.
        classes: how many there are; None for numbers.
    """
    if classes is None:
        return np.array_equal(values, label.astype(values.dtype))
    found, places = np.unique(values, return_inverse=True)
    if not 2 <= len(found) <= classes:
        return False
    pairs = np.unique(places.astype(np.int64) * classes + label)
    return len(found) == len(pairs) == len(np.unique(label))


def _column(rows: TrainingRows, feature: TrainingColumn, most: int) -> Array:
    """(n,) values of a feature in the first `most` rows that are fitted to, or in fewer of a file,
    if not all are asked for: numbers, or the codes of categories."""
    held: Any = rows.fitted.features
    place = rows.features.index(feature)
    if isinstance(held, StoredRows):
        whole = most >= len(held) > len(held.first)
        column: Array = held.column(place) if whole else held.first[:, place]
    else:
        column = held[:, place] if isinstance(held, np.ndarray) else held[feature.name]
    return column[:most]


# `check_frame`: what a frame of training rows looks like, and what may be unintended in it.


def check_frame(
    frame: Any,
    types: Mapping[str, str],
    features: Sequence[str],
    label: Array | None,
    classes: int | None,
    request: Request,
) -> tuple[list[ColumnStatistics], list[str]]:
    """Statistics of the features of a pandas frame, and notices.

    Args:
        types: name -> SQL type of its columns.
        label: (n,) numbers, or those of classes. classes: how many there are; None for numbers.

    Raises:
        ConfigError: a feature equals the label, and the option `leaks` is 'error'.
    """
    found, notices = [], []
    for name in features:
        values, names = _values(frame[name])
        statistics = ColumnStatistics(name, types[name])
        found.append(statistics)
        if values is None:
            statistics.rows, statistics.nulls = len(frame), int(frame[name].isna().sum())
            continue
        if values.dtype == np.float64:
            statistics.add_numbers(values)
        else:
            statistics.add_codes(values)
            statistics.distinct, statistics.names = len(names), names
        if statistics.is_constant:
            notices.append(f"column {name!r} has one value in all rows")
        elif is_key(statistics, types[name], values):
            notices.append(
                f"column {name!r} is like a key, with a value of its own in nearly every row"
            )
        elif label is not None and tell_each_other(values, label, classes):
            told = f"column {name!r} tells the label {request.label!r} exactly"
            if request.leaks == "error":
                raise ConfigError(
                    f"{told}: leave it out of the query, or set leaks = 'warn' if that is intended"
                )
            notices.append(f"{told}: a leak? leave it out of the query if it is")
    return found, notices


def _values(column: Any) -> tuple[Array | None, tuple[str, ...]]:
    """(n,) float64 numbers with NaN, or int64 codes of texts, -1 for NULL, and these texts; None of
    other values."""
    import pandas as pd

    if pd.api.types.is_bool_dtype(column) or pd.api.types.is_numeric_dtype(column):
        numbers: Array = column.to_numpy(np.float64, na_value=np.nan)
        return numbers, ()
    if not isinstance(column.dtype, pd.CategoricalDtype) and (
        pd.api.types.infer_dtype(column, skipna=True) not in ("string", "empty", "boolean")
    ):
        return None, ()
    codes, names = pd.factorize(column)
    return codes.astype(np.int64), tuple(map(_as_sql, names))


def _as_sql(value: Any) -> str:
    """A text, or a truth as the engine writes one."""
    return str(value).lower() if isinstance(value, bool) else str(value)
