"""Rows as estimators take them, and the model as a whole, from what was read and fitted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.errors import ConfigError
from sqlml.training.features.feature_pipeline import FeatureGroups
from sqlml.training.options.request import Request
from sqlml.training.reading.rows import Side, TrainingRows
from sqlml.training.storage.classes import Classes, class_name, class_named
from sqlml.training.storage.part import Part
from sqlml.training.storage.row_store import StoredRows


def whole_model(transformer: Any, estimator: Any, classes: Classes | None) -> Any:
    """A fitted transformer and a fitted estimator as one, which says the classes' own names.

    Args:
        classes: of the label, of which the estimator knows the numbers.
    """
    from sklearn.base import clone
    from sklearn.pipeline import Pipeline

    from sqlml.training.estimators.encoded_target import EncodedTargetClassifier

    model = Pipeline([("features", transformer), ("model", estimator)])
    if classes is None or classes.is_numbered():
        return model
    made = EncodedTargetClassifier(clone(model))
    values = classes.values()
    made.classes_ = np.array(values, object if isinstance(values[0], str) else None)
    made.classifier_ = model
    return made


def held_out_part(rows: TrainingRows, groups: FeatureGroups, request: Request) -> Part:
    """The rows held out, with all that the query has."""
    side = rows.held_out
    assert side is not None
    names = [feature.name for feature in rows.features]
    return part_of(side, frame_of(rows, side, names, groups.texts), request, rows)


def part_of(
    side: Side, X: Any, request: Request, rows: TrainingRows, weighs_classes: bool = False
) -> Part:
    """A side as an estimator takes it."""
    weight = side.weight
    if weighs_classes and request.class_weights is not None and rows.classes is not None:
        per_class = class_weights(request, rows)
        own = per_class[side.label]
        weight = own if weight is None else weight * own
    if weighs_classes and weight is not None and not weight.any():
        raise ConfigError("all rows to train on have a weight of 0")
    return Part(X, side.label, weight, side.group)


def class_weights(request: Request, rows: TrainingRows) -> Any:
    """(k,) the weights of the classes.

    Raises:
        ConfigError: a weight is given to a class that there is not.
    """
    values = [] if rows.classes is None else rows.classes.values()
    if request.class_weights == "balanced" or request.class_weights is None:
        counts = np.bincount(np.asarray(rows.fitted.label), minlength=len(values))
        return counts.sum() / (len(values) * counts)
    weights = {}
    for name, weight in dict(request.class_weights).items():  # type: ignore[arg-type]
        value = class_named(name, values)
        if value is None:
            known = ", ".join(map(class_name, values[:20]))
            raise ConfigError(f"option class_weights: unknown class {name!r}; classes: {known}")
        weights[value] = weight
    return np.array([weights.get(value, 1.0) for value in values])


def matrix_of(rows: TrainingRows, side: Side, groups: FeatureGroups) -> Any:
    """(n, k) the features in the order of the groups; no copy where all are there."""
    order = [f.name for f in rows.features]
    places = [order.index(name) for name in groups.names]
    held: Any = side.features
    if places == list(range(len(order))):
        return held
    if isinstance(held, StoredRows):
        return replace(held, columns=tuple(places))
    return held[:, places]


def frame_of(
    rows: TrainingRows,
    side: Side,
    names: Collection[str],
    texts: Collection[str] = (),
    part: slice = slice(None),
) -> Any:
    """A pandas frame of some features, categories as texts, NaN for NULL, and "" for one of
    `texts`."""
    import pandas as pd

    order = [f.name for f in rows.features]
    held: Any = side.features
    if isinstance(held, StoredRows):
        held = held.array() if part == slice(None) else held.first
    matrix = isinstance(held, np.ndarray)
    columns = {}
    for name in (name for name in rows.order if name in names):
        values = held[part, order.index(name)] if matrix else held[name][part]
        if name in rows.names:
            codes = np.where(np.isnan(values), -1, values).astype(int) if matrix else values
            missing = "" if name in texts else np.nan
            known = np.array([*rows.names[name], missing], object)
            values = pd.Series(known[codes], dtype=object)
        columns[name] = values
    return pd.DataFrame(columns, copy=False)
