"""Import the predictors of pyspark.ml, which compute prediction, rawPrediction and probability.

The outputs of a classifier are `label` (prediction), `score` (rawPrediction) and `proba`
(probability). As in Spark, the labels are the numbers 0.0, 1.0, ... In a tie, the first class is
predicted. With `thresholds`, the class with the largest probability / threshold is predicted
(`ProbabilisticClassificationModel.probability2prediction`).
"""

from __future__ import annotations

import math

import numpy as np

from sqlml.importers.frame import Outputs
from sqlml.importers.sklearn.classify import label_by_argmax
from sqlml.importers.sklearn.cluster import build_cluster_labels
from sqlml.importers.spark_ml.contents import TreeNodes
from sqlml.importers.spark_ml.pipeline_stages import Columns, Stage
from sqlml.importers.untrusted_documents import MAX_FEATURES, MAX_OUTPUTS
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array, Labels


def import_linear_regression(stage: Stage, columns: Columns) -> Outputs:
    weights, bias = stage.vector("coefficients"), stage.vector("intercept")
    x = _read_features(stage, columns, weights.size)
    return Outputs({"label": columns.builder.op("linear", x, weights=weights[:, None], bias=bias)})


def import_logistic_regression(stage: Stage, columns: Columns) -> Outputs:
    """Import a logistic regression; with two classes and margin m, the scores are -m and m."""
    weights, num_classes = stage.data["coefficients"], stage.count("numClasses", MAX_OUTPUTS)
    num_margins = len(weights)
    if num_classes < 2 or np.isinf(stage.data["intercepts"]).any():
        raise stage.unsupported("it was fitted on a single class; fit it on two or more")
    bias = stage.vector("intercepts")
    if not np.isfinite(weights).all() or bias.shape != (num_margins,):
        raise stage.damaged("its coefficients do not match its intercepts, or are not finite")
    if num_margins != num_classes and (num_margins, num_classes) != (1, 2):
        raise stage.damaged(f"it has coefficients for {num_margins} classes, not {num_classes}")
    builder = columns.builder
    x = _read_features(stage, columns, weights.shape[1])
    if num_margins > 1 and stage.data["sparse"]:
        # Spark skips the zeros of a sparse matrix, so that 0 * NaN is 0. Reject NaN instead.
        names = tuple(columns.vector(stage.text("featuresCol"), stage.kind).names)
        x = builder.op("require_finite", x, features=names, allow_nan=False, step=stage.kind)
    margin = builder.op("linear", x, weights=np.ascontiguousarray(weights.T), bias=bias)
    if num_margins > 1:
        proba = builder.op("softmax", margin, sum_dtype="float64")
        return _build_outputs(stage, builder, margin, proba)
    score = builder.op("concat", builder.op("neg", margin), margin)
    first_proba = builder.op("sigmoid", builder.op("neg", margin))
    threshold = builder.constant(np.full(1, _compute_margin_threshold(stage)))
    label = builder.op("cast", builder.op("gt", margin, threshold), dtype="int64")
    values = {"label": label, "proba": _add_complement(builder, first_proba), "score": score}
    return Outputs(values, _make_labels(num_classes))


def _compute_margin_threshold(stage: Stage) -> float:
    """Return the logit of the threshold: class 1 is predicted above this margin."""
    thresholds = stage.numbers("thresholds")
    if thresholds is None:
        threshold = stage.number("threshold", 0.5)
    else:
        _check_thresholds(stage, thresholds, 2)
        if thresholds[1] == 0.0:
            return -math.inf
        threshold = 1.0 / (1.0 + thresholds[0] / thresholds[1])
    if not 0.0 <= threshold <= 1.0:
        raise stage.damaged(f"its threshold is {threshold}")
    if threshold in (0.0, 1.0):
        return -math.inf if threshold == 0.0 else math.inf
    return math.log(threshold / (1.0 - threshold))


def import_tree_classifier(stage: Stage, columns: Columns) -> Outputs:
    """Import a tree; the scores are the numbers of training rows of each class in the leaf."""
    builder = columns.builder
    x, nodes, stats = _read_class_trees(stage, columns)
    score = _sum_leaf_values(builder, x, nodes, stats)
    return _build_outputs(stage, builder, score, _divide_by_sum(builder, score))


def import_forest_classifier(stage: Stage, columns: Columns) -> Outputs:
    """Import a random forest; the scores are sums of the class fractions in the reached leaves."""
    builder = columns.builder
    x, nodes, stats = _read_class_trees(stage, columns)
    row_counts = np.cumsum(stats, axis=1)[:, -1:]  # cumsum adds in Spark's order
    votes = np.divide(stats, row_counts, out=np.zeros_like(stats), where=row_counts != 0)
    score = _sum_leaf_values(builder, x, nodes, votes)
    return _build_outputs(stage, builder, score, _divide_by_sum(builder, score))


def import_boosted_classifier(stage: Stage, columns: Columns) -> Outputs:
    """Import boosted trees: with margin m, scores are -m and m, and P(class 1) is sigmoid(2m)."""
    builder = columns.builder
    margin = _sum_trees(stage, columns)
    score = builder.op("concat", builder.op("neg", margin), margin)
    doubled = builder.op("mul", margin, builder.constant(np.full(1, -2.0)))
    first_proba = builder.op("sigmoid", doubled)
    return _build_outputs(stage, builder, score, _add_complement(builder, first_proba))


def import_forest_regressor(stage: Stage, columns: Columns) -> Outputs:
    """Import a random forest, which predicts the mean of the trees, or import a single tree."""
    builder = columns.builder
    label = _sum_trees(stage, columns, weighted=False)
    if stage.kind != "DecisionTreeRegressionModel":
        num_trees = builder.constant(np.full(1, float(stage.data["nodes"].num_trees)))
        label = builder.op("div", label, num_trees)
    return Outputs({"label": label})


def import_boosted_regressor(stage: Stage, columns: Columns) -> Outputs:
    return Outputs({"label": _sum_trees(stage, columns)})


def import_k_means(stage: Stage, columns: Columns) -> Outputs:
    """Import k-means, which predicts the index of the nearest center, or the first in a tie."""
    centers: Array = stage.data["centers"]
    if centers.ndim != 2 or not centers.size or not np.isfinite(centers).all():
        raise stage.damaged("its centers are not a matrix of finite numbers")
    x = _read_features(stage, columns, centers.shape[1])
    builder = columns.builder
    metric = stage.text("distanceMeasure", "euclidean")
    if metric == "euclidean":
        distances = builder.op("pairwise", x, points=centers, metric="sqeuclidean")
    elif metric == "cosine":
        distances = _compute_cosine_distances(stage, builder, x, centers)
    else:
        raise stage.unsupported(f"distanceMeasure={metric!r} is not known")
    label = label_by_argmax(builder, builder.op("neg", distances))
    return Outputs({"label": label}, build_cluster_labels(len(centers)))


def _compute_cosine_distances(stage: Stage, builder: Builder, x: Value, centers: Array) -> Value:
    """Build the cosine distances (n, K) between rows and centers; reject rows of zeros."""
    zero = np.zeros((1, centers.shape[1]))
    norm = builder.op("sqrt", builder.op("pairwise", x, points=zero, metric="sqeuclidean"))
    message = (
        "KMeansModel with distanceMeasure='cosine' has no distance to a row of zeros, or with "
        "NULL; filter such rows"
    )
    is_nonzero = builder.op("gt", norm, builder.constant(np.zeros(1)))
    x = builder.op("require", x, is_nonzero, message=message)
    center_norms = np.sqrt((centers * centers).sum(axis=1))
    if not center_norms.all():
        raise stage.damaged("a center is all zeros, so its cosine distance is undefined")
    dot = builder.op("pairwise", x, points=centers, metric="dot")
    cosine = builder.op("div", builder.op("div", dot, builder.constant(center_norms)), norm)
    return builder.op("sub", builder.constant(np.ones(1)), cosine)


def _read_features(stage: Stage, columns: Columns, width: int) -> Value:
    return columns.vector(stage.text("featuresCol", "features"), stage.kind, width).matrix()


def _read_class_trees(stage: Stage, columns: Columns) -> tuple[Value, TreeNodes, Array]:
    """Return the features, the nodes, and the number of training rows per node and class."""
    nodes: TreeNodes = stage.data["nodes"]
    num_classes = stage.count("numClasses", MAX_OUTPUTS)
    if nodes.stats.shape[1] != num_classes:
        raise stage.damaged(f"its leaves count {nodes.stats.shape[1]} classes, not {num_classes}")
    if not np.isfinite(nodes.stats).all() or (nodes.stats < 0).any():
        raise stage.damaged("a leaf has a count that is negative or not finite")
    return _prepare_tree_features(stage, columns), nodes, nodes.stats


def _sum_trees(stage: Stage, columns: Columns, weighted: bool = True) -> Value:
    nodes: TreeNodes = stage.data["nodes"]
    values = nodes.prediction[:, None]
    if weighted:
        values = values * stage.data["weights"][nodes.tree][:, None]
    if not np.isfinite(values).all():
        raise stage.damaged("the value of a leaf is not finite")
    return _sum_leaf_values(columns.builder, _prepare_tree_features(stage, columns), nodes, values)


def _prepare_tree_features(stage: Stage, columns: Columns) -> Value:
    """Build the features; in category columns, fractions become NaN."""
    nodes: TreeNodes = stage.data["nodes"]
    width = stage.count("numFeatures", MAX_FEATURES)
    builder = columns.builder
    x = _read_features(stage, columns, width)
    integer_columns = _find_integer_columns(builder, x)
    if all(integer_columns[j] for j in nodes.categorical_columns.tolist() if j < width):
        return x
    is_category = np.isin(np.arange(width), nodes.categorical_columns)[None, :]
    is_integer = builder.op("eq", x, builder.op("trunc", x))
    is_valid = builder.op("or", is_integer, builder.constant(~is_category))
    return builder.op("where", is_valid, x, builder.constant(np.full(1, math.nan)))


def _find_integer_columns(builder: Builder, x: Value) -> list[bool]:
    """Return whether each column of `x` is known to hold only integers, such as codes."""
    node = builder.node(x)
    operands = [builder.value(i) for i in node.inputs]
    if node.op == "concat":
        return [flag for operand in operands for flag in _find_integer_columns(builder, operand)]
    are_codes = node.op == "one_hot" or (node.op == "cast" and operands[0].type.dtype == "int64")
    return [are_codes] * x.type.width


def _sum_leaf_values(builder: Builder, x: Value, nodes: TreeNodes, values: Array) -> Value:
    return builder.op("tree_ensemble", x, **nodes.build_ensemble(values, x.type.width).attrs())


def _divide_by_sum(builder: Builder, score: Value) -> Value:
    """Divide scores by the sum of the scores; a sum of 0 gives zeros."""
    total = builder.op("sum", score, axis=1)
    is_zero = builder.op("eq", total, builder.constant(np.zeros(1)))
    divisor = builder.op("where", is_zero, builder.constant(np.ones(1)), total)
    return builder.op("div", score, divisor)


def _add_complement(builder: Builder, first_proba: Value) -> Value:
    second_proba = builder.op("sub", builder.constant(np.ones(1)), first_proba)
    return builder.op("concat", first_proba, second_proba)


def _build_outputs(stage: Stage, builder: Builder, score: Value, proba: Value) -> Outputs:
    """Build the outputs; the label maximizes the score, or with thresholds, proba / threshold."""
    num_classes, criterion = score.type.width, score
    thresholds = stage.numbers("thresholds")
    if thresholds is not None:
        _check_thresholds(stage, thresholds, num_classes)
        criterion = builder.op("div", proba, builder.constant(np.array(thresholds)))
        if 0 in thresholds:  # 0 / 0 is NaN, which must not be the maximum.
            minus_infinity = builder.constant(np.full(1, -math.inf))
            is_nan = builder.op("isnan", criterion)
            criterion = builder.op("where", is_nan, minus_infinity, criterion)
    label = label_by_argmax(builder, criterion)
    return Outputs({"label": label, "proba": proba, "score": score}, _make_labels(num_classes))


def _check_thresholds(stage: Stage, thresholds: tuple[float, ...], num_classes: int) -> None:
    if len(thresholds) != num_classes or min(thresholds) < 0 or thresholds.count(0.0) > 1:
        raise stage.damaged(f"its thresholds {list(thresholds)} do not match {num_classes} classes")
    if math.isinf(max(thresholds)):
        raise stage.damaged("one of its thresholds is infinite")


def _make_labels(num_classes: int) -> Labels:
    return Labels("float64", tuple(float(i) for i in range(num_classes)))
