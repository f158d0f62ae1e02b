"""TargetEncoder: each category's mean target, the overall mean for a category never seen."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.preprocessing.categories import read_categories
from sqlml.types import Array


def target_encoder(model: Any, frame: Frame) -> Frame:
    """One float64 column per column, or per column and class for more than two classes.

    Raises:
        UnsupportedModelError: not fitted, or categories that SQL cannot tell apart.
    """
    check(model, "categories_", "encodings_", "target_mean_")
    means = np.atleast_1d(np.asarray(model.target_mean_, np.float64))
    if len(model.encodings_) != frame.width * means.size:
        raise UnsupportedModelError(
            f"TargetEncoder has {len(model.encodings_)} encodings for {frame.width} columns and "
            f"{means.size} targets; fit it again"
        )
    parts = [_one_column(model, frame, i, means) for i in range(frame.width)]
    return Frame.hstack(frame.builder, parts)


def _one_column(model: Any, frame: Frame, i: int, means: Array) -> Frame:
    b = frame.builder
    categories = read_categories(model, i, frame.names[i], group_missing=False)
    codes = categories.codes(frame, i, "TargetEncoder", unknown="keep")
    slots = np.array(categories.slots, np.int64)
    codes = b.op("where", b.op("lt", codes, 0), slots.size, codes)
    values = []
    for t, mean in enumerate(means):
        encoding = np.asarray(model.encodings_[i * means.size + t], np.float64)
        table = np.append(encoding[slots], mean)
        values.append(b.op("take", table, codes))
    name = frame.names[i]
    names = [name] if means.size == 1 else [f"{name}_{c}" for c in model.classes_]
    return Frame(b, tuple(values), tuple(names))
