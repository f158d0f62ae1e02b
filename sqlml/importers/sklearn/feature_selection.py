"""Feature selection: the columns that a fitted selector keeps, and the predictor of RFE.

Table columns that the selector drops are not read, although scikit-learn checks them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, RawColumn, Recurse
from sqlml.importers.sklearn.estimator_checks import check_array, check_estimator

_PIPELINE_ATTRIBUTES = ("steps", "transformers", "best_estimator_")
"""Attributes of composite estimators; their parts may read columns as strings."""

_FITTED_ATTRIBUTES = {"VarianceThreshold": "variances_", "SequentialFeatureSelector": "support_"}
"""Maps a class to an attribute that only a fitted object has, if this is not `scores_`."""


def import_fitted_selector(model: Any, frame: Frame) -> Frame:
    """Import a selector, such as SelectKBest, and return the selected columns."""
    check_estimator(model, _FITTED_ATTRIBUTES.get(type(model).__name__, "scores_"))
    return _select_columns(model, frame)


def import_model_based_selector(model: Any, frame: Frame) -> Frame:
    """Import SelectFromModel; the columns may be strings if the estimator is a pipeline."""
    check_estimator(model, "estimator_")
    is_pipeline = any(hasattr(model.estimator_, name) for name in _PIPELINE_ATTRIBUTES)
    return _select_columns(model, frame, allows_raw=is_pipeline)


def import_recursive_selector(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the outputs of the inner estimator; `transform` has the selected columns."""
    check_estimator(model, "support_", "estimator_")
    selected = _select_columns(model, frame)
    outputs = recurse(model.estimator_, selected)
    if isinstance(outputs, Frame):
        raise UnsupportedModelError(
            f"{type(model).__name__} holds {type(model.estimator_).__name__}, which does not "
            "predict; use SelectFromModel"
        )
    values = {n: outputs.values[n] for n in ("label", "proba", "score") if n in outputs.values}
    return Outputs({**values, "transform": selected.matrix()}, outputs.label_sets)


def _select_columns(model: Any, frame: Frame, *, allows_raw: bool = False) -> Frame:
    step = type(model).__name__
    selected_indices = np.flatnonzero(model.get_support())
    if not selected_indices.size:
        raise UnsupportedModelError(
            f"{step} keeps no columns; loosen its threshold, or leave the step out"
        )
    selected_frame = frame.select([int(i) for i in selected_indices])
    if model.__sklearn_tags__().input_tags.allow_nan:  # This also allows infinity.
        return selected_frame
    if allows_raw and all(isinstance(block, RawColumn) for block in selected_frame.blocks):
        return selected_frame
    # Columns that earlier steps computed are read even if they are not selected, so check them.
    widths = [1 if isinstance(block, RawColumn) else block.type.width for block in frame.blocks]
    is_read = np.repeat([not isinstance(block, RawColumn) for block in frame.blocks], widths)
    is_read[selected_indices] = True
    read_indices = np.flatnonzero(is_read).tolist()
    numbers = check_array(frame.select(read_indices), step, rows="sparse")
    names = tuple(frame.names[i] for i in read_indices)
    checked = Frame(frame.builder, (numbers,), names, frame.sparse)
    return checked.select([read_indices.index(int(i)) for i in selected_indices])
