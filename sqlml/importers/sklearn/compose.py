"""Objects that hold others: Pipeline, ColumnTransformer, FeatureUnion, searches.

A message about a part names the step that it stands in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.errors import ProgramError, UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Schema
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.fitted import check

Recurse = Callable[[Any, Frame], Frame | Outputs]


def pipeline(model: Any, frame: Frame, recurse: Recurse) -> Frame | Outputs:
    """The steps one after the other; None and "passthrough" are skipped."""
    check(model, "steps")
    made: Frame | Outputs = frame
    for name, step in model.steps:
        if _passes(step):
            continue
        if isinstance(made, Outputs):
            raise UnsupportedModelError(
                f"step {name!r} stands behind a step that predicts; put the predictor last"
            )
        before, made = made, _step(name, step, made, recurse)
        if before.sparse and isinstance(made, Frame) and not hasattr(step, "sparse_output_"):
            made = replace(made, sparse=True)  # scalers and imputers hand on what they get
    return made


def column_transformer(model: Any, frame: Frame, recurse: Recurse) -> Frame:
    """Each transformer on its own columns, side by side in the order of `transformers_`."""
    check(model, "transformers_", "_transformer_to_input_indices", "sparse_output_")
    weights = model.transformer_weights or {}
    parts: list[Frame] = []
    for name, transformer, _ in model.transformers_:
        indices = [int(i) for i in model._transformer_to_input_indices[name]]
        if not indices or _drops(transformer):
            continue
        columns = frame.take(indices)
        part = columns if _passes(transformer) else _frame(name, transformer, columns, recurse)
        parts.append(_weighted(part, weights.get(name)))
    made = _side_by_side(model, frame, parts)
    return replace(made, sparse=bool(model.sparse_output_))


def feature_union(model: Any, frame: Frame, recurse: Recurse) -> Frame:
    """Each transformer on all columns, side by side."""
    check(model, "transformer_list")
    weights = model.transformer_weights or {}
    parts: list[Frame] = []
    for name, transformer in model.transformer_list:
        if _drops(transformer):
            continue
        part = frame if _passes(transformer) else _frame(name, transformer, frame, recurse)
        parts.append(_weighted(part, weights.get(name)))
    made = _side_by_side(model, frame, parts)
    return replace(made, sparse=any(part.sparse for part in parts))


def function_transformer(model: Any, frame: Frame) -> Frame:
    """The identity, when func is None.

    Raises:
        UnsupportedModelError: any function, since its Python code cannot run inside SQL.
    """
    check(model)
    if model.func is not None:
        name = getattr(model.func, "__name__", repr(model.func))
        raise UnsupportedModelError(
            f"FunctionTransformer calls the Python function {name}, which cannot run inside SQL; "
            "compute that column in the query, or use a scikit-learn transformer for it"
        )
    if not model.validate:
        return frame
    return Frame.of(frame.builder, numbers(frame, "FunctionTransformer"), frame.names)


def best_estimator(model: Any, frame: Frame, recurse: Recurse) -> Frame | Outputs:
    """GridSearchCV and relatives: the estimator that was refitted on all data."""
    _check_refit(model)
    check(model, "best_estimator_")
    return recurse(model.best_estimator_, frame)


def frozen_estimator(model: Any, frame: Frame, recurse: Recurse) -> Frame | Outputs:
    """FrozenEstimator: the estimator inside."""
    check(model, "estimator")
    return recurse(model.estimator, frame)


def composite_schema(model: Any) -> Schema:
    """The columns that the first part with a memory of them was fitted on.

    Raises:
        UnsupportedModelError: no part remembers any, so nothing was fitted.
    """
    schema = _remembered(model)
    if schema is None:
        _check_refit(model)
        raise UnsupportedModelError(
            f"{type(model).__name__} does not know its columns; call its fit() first"
        )
    return schema


def _remembered(model: Any) -> Schema | None:
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        return Schema(tuple(str(n) for n in names), len(names))
    count = getattr(model, "n_features_in_", None)
    if count is not None:
        return Schema(None, int(count))
    parts = [part for _, part in getattr(model, "steps", [])]
    parts += [part for _, part in getattr(model, "transformer_list", [])]
    parts += [getattr(model, "best_estimator_", None)]
    for part in parts:
        if not (_passes(part) or _drops(part)):
            return _remembered(part)
    return None


def _check_refit(model: Any) -> None:
    if hasattr(model, "cv_results_") and not hasattr(model, "best_estimator_"):
        raise UnsupportedModelError(
            f"{type(model).__name__}(refit=False) keeps no fitted estimator; use refit=True"
        )


def _step(name: str, step: Any, frame: Frame, recurse: Recurse) -> Frame | Outputs:
    try:
        return recurse(step, frame)
    except (UnsupportedModelError, ProgramError) as error:
        raise UnsupportedModelError(f"step {name!r}: {error}") from error


def _frame(name: str, step: Any, frame: Frame, recurse: Recurse) -> Frame:
    made = _step(name, step, frame, recurse)
    if isinstance(made, Outputs):
        raise UnsupportedModelError(
            f"step {name!r}: {type(step).__name__} predicts where a transformer is wanted"
        )
    return made


def _passes(step: Any) -> bool:
    return step is None or (isinstance(step, str) and step == "passthrough")


def _drops(step: Any) -> bool:
    return isinstance(step, str) and step == "drop"


def _weighted(frame: Frame, weight: float | None) -> Frame:
    if weight is None:
        return frame
    factor = frame.builder.constant(np.full(1, float(weight)))
    value = frame.builder.op("mul", frame.matrix(), factor)
    return replace(Frame.of(frame.builder, value, frame.names), sparse=frame.sparse)


def _side_by_side(model: Any, frame: Frame, parts: list[Frame]) -> Frame:
    if not any(part.width for part in parts):
        raise UnsupportedModelError(
            f"{type(model).__name__} keeps no column at all; give it a transformer or "
            "remainder='passthrough'"
        )
    return Frame.hstack(frame.builder, parts)
