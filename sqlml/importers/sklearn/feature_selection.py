"""Feature selection: the columns that the fitted selector keeps, and RFE's predictor on them.

A selector checks all columns for NaN and infinity; ours leaves out the columns of the table that
it does not keep, since those are never read.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, RawColumn, Recurse
from sqlml.importers.sklearn.estimator_checks import check, numbers
from sqlml.types import Array

_HOLDERS = ("steps", "transformers", "best_estimator_")
"""Attributes of an estimator whose parts decide themselves what a column is."""


_FITTED = MappingProxyType(
    {"VarianceThreshold": "variances_", "SequentialFeatureSelector": "support_"}
)
"""Class -> an attribute that it has once it is fitted; `scores_` where it is not named."""


def selector(model: Any, frame: Frame) -> Frame:
    """SelectKBest and its relatives, VarianceThreshold (NaN passes), SequentialFeatureSelector."""
    check(model, _FITTED.get(type(model).__name__, "scores_"))
    return _selected(model, frame)


def from_model(model: Any, frame: Frame) -> Frame:
    """SelectFromModel: the features that its estimator considers important.

    Columns of strings pass where that estimator is a pipeline that takes them; the next step then
    decides whether such a column may hold NULL.
    """
    check(model, "estimator_")
    inner = model.estimator_
    takes_strings = any(hasattr(inner, name) for name in _HOLDERS)
    return _selected(model, frame, raw=takes_strings)


def recursive(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """RFE and RFECV: the chosen columns as `transform`, and what the estimator makes of them."""
    check(model, "support_", "estimator_")
    chosen = _selected(model, frame)
    made = recurse(model.estimator_, chosen)
    if isinstance(made, Frame):
        raise UnsupportedModelError(
            f"{type(model).__name__} holds {type(model.estimator_).__name__}, which does not "
            "predict; use SelectFromModel"
        )
    values = {n: made.values[n] for n in ("label", "proba", "score") if n in made.values}
    return Outputs({**values, "transform": chosen.matrix()}, made.label_sets)


def _selected(model: Any, frame: Frame, *, raw: bool = False) -> Frame:
    name = type(model).__name__
    kept = np.flatnonzero(model.get_support())
    if not kept.size:
        raise UnsupportedModelError(
            f"{name} keeps no columns; loosen its threshold, or leave the step out"
        )
    chosen = frame.take([int(i) for i in kept])
    if model.__sklearn_tags__().input_tags.allow_nan:  # then infinity passes too
        return chosen
    if raw and all(isinstance(block, RawColumn) for block in chosen.blocks):
        return chosen
    read = _read(frame, kept)
    value = numbers(frame.take(read), name, rows="sparse")
    checked = Frame(frame.builder, (value,), tuple(frame.names[i] for i in read), frame.sparse)
    return checked.take([read.index(int(i)) for i in kept])


def _read(frame: Frame, kept: Array) -> list[int]:
    """Kept columns, and all that earlier steps made: those have been read anyway."""
    made = [
        not isinstance(block, RawColumn)
        for block in frame.blocks
        for _ in range(1 if isinstance(block, RawColumn) else block.type.width)
    ]
    chosen = set(kept.tolist())
    return [i for i in range(frame.width) if made[i] or i in chosen]
