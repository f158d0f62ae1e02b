"""Gradient boosting: GradientBoosting and HistGradientBoosting, classifiers and regressors.

`sklearn/ensemble/_gb.py`: raw = init, then `raw += learning_rate * value` stage by stage in
float64. The start is a constant for the default init, and another model's output otherwise.
`sklearn/ensemble/_hist_gradient_boosting`: float64 `x <= num_threshold`, NaN follows
missing_go_to_left. A preprocessor encodes categorical columns, replaces unknown ones by NaN and
moves them to the front; `feature_idx` counts in that order. Infinity is an ordinary number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse, build_labels
from sqlml.importers.sklearn import classify
from sqlml.importers.sklearn.dummy import class_probabilities, regression_constant
from sqlml.importers.sklearn.ensemble.decision_trees import raw_trees, sum_of_trees
from sqlml.importers.sklearn.estimator_checks import check, explain_option, numbers
from sqlml.importers.sklearn.preprocessing.encoders import ordinal_encoder
from sqlml.ir.builder import Value
from sqlml.ir.trees import RawTrees
from sqlml.types import Array

EPSILON = float(np.finfo(np.float64).eps)
"""An init's probabilities are cut to [EPSILON, 1 - EPSILON] before the link."""

FLOAT64_ON_FLOAT32 = ("sklearn.tree.", "sklearn.ensemble.")
"""Modules whose predictors add up in float64 even though an init is fed with float32 rows."""


def gradient_boosting_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return a sigmoid or softmax for log_loss, the sigmoid of twice the score for exponential."""
    check(model, "estimators_", "init_", "classes_")
    classes = classify.class_list(model)
    b = frame.builder
    score = _raw_predict(model, frame, recurse, classifier=True)
    margin = score
    if score.type.width == 1 and model.loss == "exponential":
        margin = b.op("mul", 2.0, score)
    elif score.type.width == 1 and model.loss != "log_loss":
        raise explain_option(model, "loss", "log_loss")
    label, proba = classify.score_label(b, score, tie="ge"), classify.score_proba(b, margin)
    return Outputs({"label": label, "proba": proba, "score": score}, build_labels(classes))


def gradient_boosting_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    check(model, "estimators_", "init_")
    return Outputs({"label": _raw_predict(model, frame, recurse, classifier=False)})


def _raw_predict(model: Any, frame: Frame, recurse: Recurse, classifier: bool) -> Value:
    stages, width = model.estimators_.shape
    b = frame.builder
    x = numbers(frame, type(model).__name__, dtype="float32", rows="wide")
    start = _constant_start(model, width, classifier)
    raw = raw_trees([tree.tree_ for tree in model.estimators_.ravel()])
    raw = replace(raw, value=float(model.learning_rate) * raw.value)
    if start is not None:
        target = np.tile(np.arange(width, dtype=np.int32), stages)
        return sum_of_trees(b, x, raw, target=target, base=start)
    # The init model sees the float32 matrix, and without names.
    seen = Frame.from_value(b, b.op("cast", x, dtype="float64"), frame.names)
    first = _model_start(model, seen, recurse, classifier)
    # Each tree's value for itself, so that all are added to the start one by one: classes that
    # tie but for rounding stay in the source's order.
    values = sum_of_trees(b, x, raw, target=np.arange(stages * width, dtype=np.int32))
    return b.linear(b.op("concat", first, values), np.tile(np.eye(width), (stages + 1, 1)))


def _constant_start(model: Any, width: int, classifier: bool) -> Array | None:
    """Return the (width,) raw prediction before the first stage, None if it depends on the row."""
    init = model.init_
    if isinstance(init, str) and init == "zero":
        return np.zeros(width)
    if type(init).__module__ != "sklearn.dummy":
        return None
    if not classifier:
        return regression_constant(init)
    proba = np.clip(class_probabilities(init), EPSILON, 1 - EPSILON)
    link = model._loss.link.link  # scikit-learn's own function gives the same bits.
    start = link(proba[None, :]) if width > 1 else link(proba[1:])
    return np.asarray(start, np.float64).reshape(width)


def _model_start(model: Any, frame: Frame, recurse: Recurse, classifier: bool) -> Value:
    _check_precision(model)
    try:
        outputs = recurse(model.init_, frame)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"init of {type(model).__name__}: {error}") from error
    needed = "proba" if classifier else "label"
    if not isinstance(outputs, Outputs) or needed not in outputs.values:
        raise UnsupportedModelError(
            f"init of {type(model).__name__} is {type(model.init_).__name__}, which has no "
            f"{'predict_proba' if classifier else 'predict'}"
        )
    b, value = frame.builder, outputs.values[needed]
    if not classifier:
        if outputs.labels is not None:
            raise UnsupportedModelError(
                f"init of {type(model).__name__} is a classifier; use a regressor or init='zero'"
            )
        return value
    is_binary = model.estimators_.shape[1] == 1
    if is_binary:
        value = b.op("select", value, indices=np.array([1]))
    proba = b.op("minimum", b.op("maximum", value, EPSILON), 1 - EPSILON)
    if is_binary:
        logit = b.op("log", b.op("div", proba, b.op("sub", 1.0, proba)))
        return b.op("mul", 0.5, logit) if model.loss == "exponential" else logit
    # The logarithm of p / geometric mean of p.
    logs = b.op("sum", b.op("log", proba), axis=1)
    mean = b.op("exp", b.op("div", logs, float(proba.type.width)))
    return b.op("log", b.op("div", proba, mean))


def _check_precision(model: Any) -> None:
    """Reject an init that sums float32 numbers in an unspecified order.

    GradientBoosting passes float32 rows to its init, in which linear models and scalers compute.
    """
    init = model.init_
    is_float64 = np.asarray(getattr(init, "coef_", np.float32(0))).dtype == np.float64
    if not is_float64 and not type(init).__module__.startswith(FLOAT64_ON_FLOAT32):
        raise UnsupportedModelError(
            f"init of {type(model).__name__} is {type(init).__name__}, which computes in float32 "
            "there, so its scores cannot be repeated exactly; use init=None, 'zero' or trees"
        )


LOG_LOSSES = ("poisson", "gamma")
"""Losses of the regressor whose raw score is a logarithm; all others predict the raw score."""
IDENTITY_LOSSES = ("squared_error", "absolute_error", "quantile")


def hist_gradient_boosting_classifier(model: Any, frame: Frame) -> Outputs:
    """Return a sigmoid for two classes (a score of 0 is the first), a softmax for more."""
    check(model, "_predictors", "_baseline_prediction", "classes_")
    classes = classify.class_list(model)
    if len(classes) < 2 or model.loss != "log_loss":
        raise UnsupportedModelError(
            f"HistGradientBoostingClassifier(loss={model.loss!r}) on {len(classes)} class(es) is "
            "not covered; use log_loss and two classes or more"
        )
    b, score = frame.builder, _hist_raw_predict(model, frame)
    values = {
        "label": classify.score_label(b, score),
        "proba": classify.score_proba(b, score),
        "score": score,
    }
    return Outputs(values, build_labels(classes))


def hist_gradient_boosting_regressor(model: Any, frame: Frame) -> Outputs:
    """Return the raw score, or its exp for the poisson and gamma losses."""
    check(model, "_predictors", "_baseline_prediction")
    score = _hist_raw_predict(model, frame)
    if model.loss in LOG_LOSSES:
        return Outputs({"label": frame.builder.op("exp", score)})
    if model.loss in IDENTITY_LOSSES:
        return Outputs({"label": score})
    raise explain_option(model, "loss", ", ".join((*IDENTITY_LOSSES, *LOG_LOSSES)))


def _hist_raw_predict(model: Any, frame: Frame) -> Value:
    width = len(model._predictors[0])
    raw = _raw_trees([p for iteration in model._predictors for p in iteration])
    base = np.ravel(np.asarray(model._baseline_prediction))
    if base.dtype != np.float64:
        raise UnsupportedModelError(
            f"{type(model).__name__} adds up its trees in {base.dtype}; fit it on a float64 target"
        )
    target = np.tile(np.arange(width, dtype=np.int32), len(model._predictors))
    x = _preprocess(model, frame).matrix("float64")
    return sum_of_trees(frame.builder, x, raw, target=target, base=base)


def _preprocess(model: Any, frame: Frame) -> Frame:
    if model.is_categorical_ is None:
        return frame
    transformers = {} if model._preprocessor is None else model._preprocessor.named_transformers_
    if "encoder" not in transformers:
        raise UnsupportedModelError(
            f"{type(model).__name__} with categorical features comes from scikit-learn before "
            "1.4; fit it again with a newer one"
        )
    is_categorical = np.asarray(model.is_categorical_, bool)
    categories = frame.select(np.flatnonzero(is_categorical).tolist())
    rest = frame.select(np.flatnonzero(~is_categorical).tolist())
    encoded = ordinal_encoder(transformers["encoder"], categories)
    return Frame.hstack(frame.builder, [encoded, rest])


def _raw_trees(predictors: list[Any]) -> RawTrees:
    counts = np.array([p.nodes.size for p in predictors], np.int64)
    roots = np.cumsum(counts) - counts
    shift = np.repeat(roots, counts)
    nodes = np.concatenate([p.nodes for p in predictors])
    leaf = nodes["is_leaf"].astype(bool)
    categorical = nodes["is_categorical"].astype(bool) & ~leaf
    return RawTrees(
        roots=roots,
        feature=np.where(leaf, 0, nodes["feature_idx"]),
        threshold=np.where(leaf | categorical, 0.0, nodes["num_threshold"]),
        left=np.where(leaf, 0, nodes["left"] + shift),
        right=np.where(leaf, 0, nodes["right"] + shift),
        leaf=leaf,
        default_left=nodes["missing_go_to_left"].astype(bool),
        value=nodes["value"].reshape(-1, 1),
        sets=_read_sets(predictors, nodes, categorical, np.repeat(np.arange(len(counts)), counts)),
        cover=nodes["count"],
        gain=np.where(leaf, 0.0, nodes["gain"]),
    )


def _read_sets(
    predictors: list[Any], nodes: Array, categorical: Array, owner: Array
) -> dict[int, Array] | None:
    """Return the categories that go left at each categorical node: bits of 8 words of 32."""
    numbers = np.flatnonzero(categorical)
    if not numbers.size:
        return None
    rows = [predictors[owner[i]].raw_left_cat_bitsets[nodes["bitset_idx"][i]] for i in numbers]
    bits = (np.stack(rows)[:, :, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
    members = bits.reshape(len(numbers), -1).astype(bool)
    return {int(i): np.flatnonzero(m) for i, m in zip(numbers, members, strict=True)}
