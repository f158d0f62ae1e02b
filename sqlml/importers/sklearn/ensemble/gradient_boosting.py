"""Gradient boosting: GradientBoosting and HistGradientBoosting, classifiers and regressors.

GradientBoosting (`sklearn/ensemble/_gb.py`) adds `learning_rate * value` of each stage to a raw
score in float64. The raw score starts with a constant, or with the output of the model `init`.
HistGradientBoosting (`sklearn/ensemble/_hist_gradient_boosting`) encodes categorical columns and
moves them to the front; `feature_idx` counts in that order. Unknown categories become NaN, and NaN
follows missing_go_to_left. Infinity is an ordinary number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse, build_labels
from sqlml.importers.sklearn import classify
from sqlml.importers.sklearn.dummy import read_class_probabilities, read_regression_constant
from sqlml.importers.sklearn.ensemble.decision_trees import join_trees, sum_trees
from sqlml.importers.sklearn.estimator_checks import check_array, check_estimator, make_option_error
from sqlml.importers.sklearn.preprocessing.encoders import import_ordinal_encoder
from sqlml.ir.builder import Value
from sqlml.ir.trees import RawTrees
from sqlml.types import Array

EPSILON = float(np.finfo(np.float64).eps)
"""The probabilities of the `init` model are clipped to [EPSILON, 1 - EPSILON] before the link."""

FLOAT64_ON_FLOAT32 = ("sklearn.tree.", "sklearn.ensemble.")
"""Modules whose predictors compute in float64 even if they read float32 rows."""


def import_gradient_boosting_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return label, score and probabilities; exponential loss has twice the score as margin."""
    check_estimator(model, "estimators_", "init_", "classes_")
    classes = classify.read_classes(model)
    builder = frame.builder
    score = _compute_raw_score(model, frame, recurse, is_classifier=True)
    margin = score
    if score.type.width == 1 and model.loss == "exponential":
        margin = builder.op("mul", 2.0, score)
    elif score.type.width == 1 and model.loss != "log_loss":
        raise make_option_error(model, "loss", "log_loss")
    label = classify.label_by_score(builder, score, tie="ge")
    proba = classify.to_proba(builder, margin)
    return Outputs({"label": label, "proba": proba, "score": score}, build_labels(classes))


def import_gradient_boosting_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    check_estimator(model, "estimators_", "init_")
    return Outputs({"label": _compute_raw_score(model, frame, recurse, is_classifier=False)})


def _compute_raw_score(model: Any, frame: Frame, recurse: Recurse, is_classifier: bool) -> Value:
    n_stages, width = model.estimators_.shape
    builder = frame.builder
    x = check_array(frame, type(model).__name__, dtype="float32", rows="wide")
    constant_start = _find_constant_start(model, width, is_classifier)
    raw_trees = join_trees([tree.tree_ for tree in model.estimators_.ravel()])
    raw_trees = replace(raw_trees, value=float(model.learning_rate) * raw_trees.value)
    if constant_start is not None:
        first_outputs = np.tile(np.arange(width, dtype=np.int32), n_stages)
        return sum_trees(builder, x, raw_trees, first_outputs, constant_start, stage_size=width)
    # The init model reads the float32 matrix, which has no column names.
    init_input = Frame.from_value(builder, builder.op("cast", x, dtype="float64"), frame.names)
    init_score = _compute_init_score(model, init_input, recurse, is_classifier)
    # Each tree has a separate output. The operator `linear` adds the outputs to the start one by
    # one, so that sums round like scikit-learn's.
    first_outputs = np.arange(n_stages * width, dtype=np.int32)
    values = sum_trees(builder, x, raw_trees, first_outputs, stage_size=width)
    stages = builder.op("concat", init_score, values)
    return builder.linear(stages, np.tile(np.eye(width), (n_stages + 1, 1)))


def _find_constant_start(model: Any, width: int, is_classifier: bool) -> Array | None:
    """Return the raw score before the first stage, or None if the score depends on the row."""
    init = model.init_
    if isinstance(init, str) and init == "zero":
        return np.zeros(width)
    if type(init).__module__ != "sklearn.dummy":
        return None
    if not is_classifier:
        return read_regression_constant(init)
    proba = np.clip(read_class_probabilities(init), EPSILON, 1 - EPSILON)
    link = model._loss.link.link  # Calling scikit-learn's own function gives the same bits.
    start = link(proba[None, :]) if width > 1 else link(proba[1:])
    return np.asarray(start, np.float64).reshape(width)


def _compute_init_score(model: Any, frame: Frame, recurse: Recurse, is_classifier: bool) -> Value:
    _check_precision(model)
    try:
        outputs = recurse(model.init_, frame)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"init of {type(model).__name__}: {error}") from error
    output_name = "proba" if is_classifier else "label"
    if not isinstance(outputs, Outputs) or output_name not in outputs.values:
        raise UnsupportedModelError(
            f"init of {type(model).__name__} is {type(model.init_).__name__}, which has no "
            f"{'predict_proba' if is_classifier else 'predict'}"
        )
    op = frame.builder.op
    prediction = outputs.values[output_name]
    if not is_classifier:
        if outputs.labels is not None:
            raise UnsupportedModelError(
                f"init of {type(model).__name__} is a classifier; use a regressor or init='zero'"
            )
        return prediction
    is_binary = model.estimators_.shape[1] == 1
    if is_binary:
        prediction = op("select", prediction, indices=np.array([1]))
    proba = op("minimum", op("maximum", prediction, EPSILON), 1 - EPSILON)
    if is_binary:
        logit = op("log", op("div", proba, op("sub", 1.0, proba)))
        return op("mul", 0.5, logit) if model.loss == "exponential" else logit
    # The multinomial link divides by the geometric mean of the probabilities, and takes the log.
    log_sum = op("sum", op("log", proba), axis=1)
    geometric_mean = op("exp", op("div", log_sum, float(proba.type.width)))
    return op("log", op("div", proba, geometric_mean))


def _check_precision(model: Any) -> None:
    """Reject a model whose `init` sums float32 rows in an unspecified order."""
    init = model.init_
    is_float64 = np.asarray(getattr(init, "coef_", np.float32(0))).dtype == np.float64
    if not is_float64 and not type(init).__module__.startswith(FLOAT64_ON_FLOAT32):
        raise UnsupportedModelError(
            f"init of {type(model).__name__} is {type(init).__name__}, which computes in float32 "
            "as init, so its scores cannot be reproduced exactly; use init=None, 'zero' or trees"
        )


LOG_LOSSES = ("poisson", "gamma")
"""Losses for which the regressor's raw score is the logarithm of the prediction."""
IDENTITY_LOSSES = ("squared_error", "absolute_error", "quantile")


def import_hist_gradient_boosting_classifier(model: Any, frame: Frame) -> Outputs:
    """Return label, score and probabilities; a binary score of 0 predicts the first class."""
    check_estimator(model, "_predictors", "_baseline_prediction", "classes_")
    classes = classify.read_classes(model)
    if len(classes) < 2 or model.loss != "log_loss":
        raise UnsupportedModelError(
            f"HistGradientBoostingClassifier(loss={model.loss!r}) on {len(classes)} class(es) is "
            "not supported; use log_loss and two classes or more"
        )
    score = _compute_hist_raw_score(model, frame)
    label = classify.label_by_score(frame.builder, score)
    proba = classify.to_proba(frame.builder, score)
    return Outputs({"label": label, "proba": proba, "score": score}, build_labels(classes))


def import_hist_gradient_boosting_regressor(model: Any, frame: Frame) -> Outputs:
    """Return the raw score or, for the losses poisson and gamma, its exponential."""
    check_estimator(model, "_predictors", "_baseline_prediction")
    score = _compute_hist_raw_score(model, frame)
    if model.loss in LOG_LOSSES:
        return Outputs({"label": frame.builder.op("exp", score)})
    if model.loss in IDENTITY_LOSSES:
        return Outputs({"label": score})
    raise make_option_error(model, "loss", ", ".join((*IDENTITY_LOSSES, *LOG_LOSSES)))


def _compute_hist_raw_score(model: Any, frame: Frame) -> Value:
    width = len(model._predictors[0])
    raw_trees = _join_hist_trees([p for iteration in model._predictors for p in iteration])
    base = np.ravel(np.asarray(model._baseline_prediction))
    if base.dtype != np.float64:
        raise UnsupportedModelError(
            f"{type(model).__name__} adds up its trees in {base.dtype}; fit it on a float64 target"
        )
    first_outputs = np.tile(np.arange(width, dtype=np.int32), len(model._predictors))
    x = _encode_categories(model, frame).matrix("float64")
    return sum_trees(frame.builder, x, raw_trees, first_outputs, base, stage_size=width)


def _encode_categories(model: Any, frame: Frame) -> Frame:
    if model.is_categorical_ is None:
        return frame
    transformers = {} if model._preprocessor is None else model._preprocessor.named_transformers_
    if "encoder" not in transformers:
        raise UnsupportedModelError(
            f"{type(model).__name__} with categorical features comes from scikit-learn before "
            "1.4; fit it again with a newer one"
        )
    is_categorical = np.asarray(model.is_categorical_, bool)
    categorical_frame = frame.select(np.flatnonzero(is_categorical).tolist())
    numeric_frame = frame.select(np.flatnonzero(~is_categorical).tolist())
    encoded = import_ordinal_encoder(transformers["encoder"], categorical_frame)
    return Frame.hstack(frame.builder, [encoded, numeric_frame])


def _join_hist_trees(predictors: list[Any]) -> RawTrees:
    node_counts = np.array([predictor.nodes.size for predictor in predictors], np.int64)
    roots = np.cumsum(node_counts) - node_counts
    tree_of_node = np.repeat(np.arange(len(node_counts)), node_counts)
    shift = roots[tree_of_node]
    nodes = np.concatenate([predictor.nodes for predictor in predictors])
    is_leaf = nodes["is_leaf"].astype(bool)
    is_categorical = nodes["is_categorical"].astype(bool) & ~is_leaf
    return RawTrees(
        roots=roots,
        feature=np.where(is_leaf, 0, nodes["feature_idx"]),
        threshold=np.where(is_leaf | is_categorical, 0.0, nodes["num_threshold"]),
        left=np.where(is_leaf, 0, nodes["left"] + shift),
        right=np.where(is_leaf, 0, nodes["right"] + shift),
        leaf=is_leaf,
        default_left=nodes["missing_go_to_left"].astype(bool),
        value=nodes["value"].reshape(-1, 1),
        sets=_read_category_sets(predictors, nodes, is_categorical, tree_of_node),
        cover=nodes["count"],
        gain=np.where(is_leaf, 0.0, nodes["gain"]),
        number=np.arange(is_leaf.size) - shift,
    )


def _read_category_sets(
    predictors: list[Any], nodes: Array, is_categorical: Array, tree_of_node: Array
) -> dict[int, Array] | None:
    """Map each categorical node to the codes that go left; return None without such nodes."""
    node_indices = np.flatnonzero(is_categorical)
    if not node_indices.size:
        return None
    pairs = zip(tree_of_node[node_indices], nodes["bitset_idx"][node_indices], strict=True)
    bitsets = [predictors[tree].raw_left_cat_bitsets[row] for tree, row in pairs]
    bits = (np.stack(bitsets)[:, :, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
    is_member = bits.reshape(len(node_indices), -1).astype(bool)
    return {int(i): np.flatnonzero(mask) for i, mask in zip(node_indices, is_member, strict=True)}
