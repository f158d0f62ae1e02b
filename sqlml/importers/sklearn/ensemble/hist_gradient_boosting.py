"""HistGradientBoostingClassifier and HistGradientBoostingRegressor.

`sklearn/ensemble/_hist_gradient_boosting`: float64 `x <= num_threshold`, NaN by
missing_go_to_left; a preprocessor encodes categorical columns, sets unknown ones to NaN and puts
them first, and `feature_idx` counts in that order. Infinity is an ordinary number here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, labels_of
from sqlml.importers.sklearn.classify import class_list, score_label, score_proba
from sqlml.importers.sklearn.ensemble.tree_arrays import sum_of_trees
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.preprocessing.encoders import ordinal_encoder
from sqlml.ir.builder import Value
from sqlml.ir.trees import RawTrees
from sqlml.types import Array

LOG_LOSSES = ("poisson", "gamma")
"""Losses of the regressor whose raw score is a logarithm; all others predict the raw score."""
IDENTITY_LOSSES = ("squared_error", "absolute_error", "quantile")


def hist_gradient_boosting_classifier(model: Any, frame: Frame) -> Outputs:
    """Sigmoid for two classes (a score of 0 is the first), softmax for more."""
    check(model, "_predictors", "_baseline_prediction", "classes_")
    classes = class_list(model)
    if len(classes) < 2 or model.loss != "log_loss":
        raise UnsupportedModelError(
            f"HistGradientBoostingClassifier(loss={model.loss!r}) on {len(classes)} class(es) is "
            "not covered; use log_loss and two classes or more"
        )
    builder, score = frame.builder, _raw_predict(model, frame)
    values = {
        "label": score_label(builder, score),
        "proba": score_proba(builder, score),
        "score": score,
    }
    return Outputs(values, labels_of(classes))


def hist_gradient_boosting_regressor(model: Any, frame: Frame) -> Outputs:
    """The raw score, or its exp for the poisson and gamma losses."""
    check(model, "_predictors", "_baseline_prediction")
    score = _raw_predict(model, frame)
    if model.loss in LOG_LOSSES:
        return Outputs({"label": frame.builder.op("exp", score)})
    if model.loss in IDENTITY_LOSSES:
        return Outputs({"label": score})
    raise UnsupportedModelError(
        f"HistGradientBoostingRegressor(loss={model.loss!r}) is not known to sqlml; use "
        f"{', '.join((*IDENTITY_LOSSES, *LOG_LOSSES))}"
    )


def _raw_predict(model: Any, frame: Frame) -> Value:
    width = len(model._predictors[0])
    raw = _raw_trees([p for iteration in model._predictors for p in iteration])
    base = np.ravel(np.asarray(model._baseline_prediction))
    if base.dtype != np.float64:
        raise UnsupportedModelError(
            f"{type(model).__name__} adds up its trees in {base.dtype}; fit it on a float64 target"
        )
    target = np.tile(np.arange(width, dtype=np.int32), len(model._predictors))
    x = _preprocessed(model, frame).matrix("float64")
    return sum_of_trees(frame.builder, x, raw, target=target, base=base)


def _preprocessed(model: Any, frame: Frame) -> Frame:
    if model.is_categorical_ is None:
        return frame
    transformers = {} if model._preprocessor is None else model._preprocessor.named_transformers_
    if "encoder" not in transformers:
        raise UnsupportedModelError(
            f"{type(model).__name__} with categorical features comes from scikit-learn before "
            "1.4; fit it again with a newer one"
        )
    categorical = np.asarray(model.is_categorical_, bool)
    encoded = ordinal_encoder(
        transformers["encoder"], frame.take(np.flatnonzero(categorical).tolist())
    )
    rest = frame.take(np.flatnonzero(~categorical).tolist())
    return Frame.hstack(frame.builder, [encoded, rest])


def _raw_trees(predictors: list[Any]) -> RawTrees:
    counts = np.array([p.nodes.size for p in predictors], np.int64)
    first = np.cumsum(counts) - counts
    shift = np.repeat(first, counts)
    nodes = np.concatenate([p.nodes for p in predictors])
    leaf = nodes["is_leaf"].astype(bool)
    categorical = nodes["is_categorical"].astype(bool) & ~leaf
    return RawTrees(
        roots=first,
        feature=np.where(leaf, 0, nodes["feature_idx"]),
        threshold=np.where(leaf | categorical, 0.0, nodes["num_threshold"]),
        left=np.where(leaf, 0, nodes["left"] + shift),
        right=np.where(leaf, 0, nodes["right"] + shift),
        leaf=leaf,
        default_left=nodes["missing_go_to_left"].astype(bool),
        value=nodes["value"].reshape(-1, 1),
        sets=_sets(predictors, nodes, categorical, np.repeat(np.arange(len(counts)), counts)),
        cover=nodes["count"],
        gain=np.where(leaf, 0.0, nodes["gain"]),
    )


def _sets(
    predictors: list[Any], nodes: Array, categorical: Array, owner: Array
) -> dict[int, Array] | None:
    """The categories that go left at each categorical node: bits of 8 words of 32."""
    numbers = np.flatnonzero(categorical)
    if not numbers.size:
        return None
    words = np.stack(
        [predictors[owner[i]].raw_left_cat_bitsets[nodes["bitset_idx"][i]] for i in numbers]
    )
    bits = (words[:, :, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
    members = bits.reshape(len(numbers), -1).astype(bool)
    return {int(i): np.flatnonzero(m) for i, m in zip(numbers, members, strict=True)}
