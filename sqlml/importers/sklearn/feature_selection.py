"""Feature selection: the columns that a fitted selector keeps, and RFE's predictor on them.

Table columns that the selector drops are not read, not even to check them as scikit-learn does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, RawColumn, Recurse
from sqlml.importers.sklearn.estimator_checks import check, numbers

_HOLDERS = ("steps", "transformers", "best_estimator_")
"""Attributes of an estimator whose parts decide themselves what a column is."""


_FITTED = {"VarianceThreshold": "variances_", "SequentialFeatureSelector": "support_"}
"""Class -> an attribute that it has once it is fitted; `scores_` where it is not named."""


def selector(model: Any, frame: Frame) -> Frame:
    """Return the kept columns of SelectKBest, VarianceThreshold, SequentialFeatureSelector, ..."""
    check(model, _FITTED.get(type(model).__name__, "scores_"))
    return _select(model, frame)


def from_model(model: Any, frame: Frame) -> Frame:
    """Return SelectFromModel's columns, which may be strings if its estimator is a pipeline."""
    check(model, "estimator_")
    return _select(model, frame, raw=any(hasattr(model.estimator_, name) for name in _HOLDERS))


def recursive(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the chosen columns of RFE and RFECV as `transform`, and the estimator's outputs."""
    check(model, "support_", "estimator_")
    chosen = _select(model, frame)
    outputs = recurse(model.estimator_, chosen)
    if isinstance(outputs, Frame):
        raise UnsupportedModelError(
            f"{type(model).__name__} holds {type(model.estimator_).__name__}, which does not "
            "predict; use SelectFromModel"
        )
    values = {n: outputs.values[n] for n in ("label", "proba", "score") if n in outputs.values}
    return Outputs({**values, "transform": chosen.matrix()}, outputs.label_sets)


def _select(model: Any, frame: Frame, *, raw: bool = False) -> Frame:
    name = type(model).__name__
    selected = np.flatnonzero(model.get_support())
    if not selected.size:
        raise UnsupportedModelError(
            f"{name} keeps no columns; loosen its threshold, or leave the step out"
        )
    chosen = frame.select([int(i) for i in selected])
    if model.__sklearn_tags__().input_tags.allow_nan:  # Infinity passes, too.
        return chosen
    if raw and all(isinstance(block, RawColumn) for block in chosen.blocks):
        return chosen
    # The columns of earlier steps have been read already, so they are checked too.
    widths = [1 if isinstance(block, RawColumn) else block.type.width for block in frame.blocks]
    is_read = np.repeat([not isinstance(block, RawColumn) for block in frame.blocks], widths)
    is_read[selected] = True
    read = np.flatnonzero(is_read).tolist()
    value = numbers(frame.select(read), name, rows="sparse")
    checked = Frame(frame.builder, (value,), tuple(frame.names[i] for i in read), frame.sparse)
    return checked.select([read.index(int(i)) for i in selected])
