"""The table functions that read no rows: importances, weights, trees and training records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sqlml.catalog.model import Model, TrainingFacts
from sqlml.errors import BindError, UnsupportedModelError
from sqlml.explaining import model_facts
from sqlml.explaining.decompositions import (
    Points,
    read_centroids,
    read_components,
    rescale_weights,
)
from sqlml.planner.syntax.query_templates import build_literal_table
from sqlml.planner.table_functions.table_function_call import TableFunctionCall
from sqlml.types import class_text

_IMPORTANCE_COLUMNS = (
    "feature VARCHAR, importance DOUBLE, importance_weight BIGINT, importance_gain DOUBLE, "
    "importance_cover DOUBLE"
)
_WEIGHT_COLUMNS = "processed_input VARCHAR, category VARCHAR, class VARCHAR, weight DOUBLE"
_ADVANCED_COLUMNS = (
    "processed_input VARCHAR, category VARCHAR, weight DOUBLE, standard_error DOUBLE, "
    "p_value DOUBLE"
)
_TREE_COLUMNS = (
    "tree BIGINT, node BIGINT, depth BIGINT, feature VARCHAR, category VARCHAR, operator VARCHAR, "
    "threshold DOUBLE, categories VARCHAR[], yes BIGINT, no BIGINT, missing BIGINT, cover DOUBLE, "
    "gain DOUBLE, output BIGINT, leaf_values DOUBLE[], leaf BIGINT"
)
_TRAINING_COLUMNS = (
    "iteration BIGINT, loss DOUBLE, eval_loss DOUBLE, seconds DOUBLE, training_run BIGINT, "
    "learning_rate DOUBLE, duration_ms BIGINT"
)
_TRIAL_COLUMNS = (
    "trial_id BIGINT, hyperparameters VARCHAR, objective DOUBLE, status VARCHAR, seconds DOUBLE, "
    "is_best BOOLEAN"
)
_FEATURE_COLUMNS = (
    "input VARCHAR, type VARCHAR, min DOUBLE, max DOUBLE, mean DOUBLE, stddev DOUBLE, "
    "category_count BIGINT, null_count BIGINT"
)


def build_feature_importance(call: TableFunctionCall) -> tuple[str]:
    """Return the query of ml_feature_importance, with the most important feature first."""
    model = call.model
    rows: list[tuple[Any, ...]] = []
    tree_importances = model_facts.compute_importances(model.program, model.origin.source)
    if tree_importances is not None:
        for stats in tree_importances:
            means = [_average_splits(t, stats.splits) for t in (stats.gain, stats.cover)]
            rows.append((stats.feature, stats.library_importance, stats.splits, *means))
        return _build_table_query(call, _IMPORTANCE_COLUMNS, sorted(rows, key=_make_importance_key))
    weights = model_facts.read_weights(model.program)
    if weights is None:
        raise call.error(
            f"model {model.label} has neither trees nor weights, so it has no built-in "
            "importances; ml_permutation_importance measures the importances of any model"
        )
    sums = dict.fromkeys(model.program.inputs, 0.0)
    for weight in weights:
        if weight.feature is not None:
            sums[weight.feature] += abs(weight.weight)
    rows = [(name, total, None, None, None) for name, total in sums.items()]
    return _build_table_query(call, _IMPORTANCE_COLUMNS, sorted(rows, key=_make_importance_key))


def _average_splits(total: float | None, split_count: int) -> float | None:
    if total is None:
        return None
    return total / split_count if split_count else 0.0


def _make_importance_key(row: Sequence[Any]) -> float:
    """Return the negated importance: the library's, or else the mean gain or the split count."""
    _, importance, splits, gain, _ = row
    return -float(next((value for value in (importance, gain, splits) if value is not None), 0.0))


def build_weights(call: TableFunctionCall) -> tuple[str]:
    model = call.model
    weights = model_facts.read_weights(model.program)
    if weights is None:
        raise call.error(f"model {model.label} is not linear, and has no weights")
    if "standardize" in call.form.options:
        try:
            weights = rescale_weights(model.program, weights, _read_spreads(call))
        except UnsupportedModelError as error:
            raise call.error(f"model {model.label} {error.message}", "standardize") from None
    num_outputs = max(weight.output for weight in weights) + 1
    labels = model.program.labels
    names: Sequence[str | None] = [None]
    if num_outputs > 1:
        has_output_per_class = len(labels) == 1 and num_outputs == len(labels[0])
        outputs = labels[0].values if has_output_per_class else range(1, num_outputs + 1)
        names = list(map(class_text, outputs))
    rows = [
        ("__INTERCEPT__" if w.feature is None else w.feature, w.column, names[w.output], w.weight)
        for w in weights
    ]
    return _build_table_query(call, _WEIGHT_COLUMNS, rows)


def build_advanced_weights(call: TableFunctionCall) -> tuple[str]:
    """Return the query of ml_advanced_weights: weights with standard errors and p-values."""
    model, training = call.model, call.training
    weights = model_facts.read_weights(model.program)
    if training is None or not training.inference or weights is None:
        raise call.error(
            f"model {model.label} has no standard errors: train a linear_reg or logistic_reg model "
            "with the option calculate_p_values = true"
        )
    is_own = "standardize" in call.form.options and call.form.options["standardize"].value
    if is_own and training.options.get("standardize") is False:
        message = f"model {model.label} was trained with standardize = false"
        raise call.error(message, "standardize")
    if not is_own:
        weights = rescale_weights(model.program, weights, None)
    rows = [
        (w.feature or "__INTERCEPT__", w.column, w.weight, *(row[2:] if is_own else row[:2]))
        for w, row in zip(weights, training.inference, strict=True)
    ]
    return _build_table_query(call, _ADVANCED_COLUMNS, rows)


def _read_spreads(call: TableFunctionCall) -> Mapping[str, tuple[float, float]] | None:
    """Return the mean and standard deviation of each number, or None for standardize = false."""
    if not call.form.options["standardize"].value:
        return None
    facts = {
        f.feature: (f.mean, f.stddev) for f in model_facts.find_feature_facts(call.model.program)
    }
    for feature in () if call.training is None else call.training.features:
        if None in facts.get(feature["name"], (None,)):
            facts[feature["name"]] = (feature["mean"], feature["stddev"])
    return {
        name: (mean, spread)
        for name, (mean, spread) in facts.items()
        if mean is not None and spread is not None
    }


def build_centroids(call: TableFunctionCall) -> tuple[str]:
    """Return the query of ml_centroids, with a row for each centroid and input."""
    centroids = read_centroids(call.model.program)
    if centroids is None:
        raise call.error(
            f"model {call.model.label} has no centroids in its columns; k-means and other "
            "clusterings with centroids do"
        )
    return _build_points_query(call, "centroid_id", 1, centroids)


def build_principal_components(call: TableFunctionCall) -> tuple[str]:
    """Return the query of ml_principal_components, with a row for each component and input."""
    return _build_points_query(call, "principal_component_id", 0, _require_components(call))


def build_principal_component_info(call: TableFunctionCall) -> tuple[str]:
    components = _require_components(call)
    variances, ratios = components.explained_variance, components.variance_ratio
    if variances is None or ratios is None:
        raise call.error(
            f"model {call.model.label} does not record the variances of its components; those of "
            "PCA, IncrementalPCA and TruncatedSVD do, unless an earlier sqlml registered them"
        )
    columns = ("eigenvalue", "explained_variance_ratio", "cumulative_explained_variance_ratio")
    types = {"principal_component_id": "BIGINT", **dict.fromkeys(columns, "DOUBLE")}
    values = zip(variances.tolist(), ratios.tolist(), np.cumsum(ratios).tolist(), strict=True)
    return _build_table_query(call, types, [(k, *row) for k, row in enumerate(values)])


def _require_components(call: TableFunctionCall) -> Points:
    components = read_components(call.model.program)
    if components is None:
        raise call.error(
            f"model {call.model.label} has no components that weight its columns; PCA and other "
            "linear decompositions do"
        )
    return components


def _build_points_query(
    call: TableFunctionCall, id_column: str, first_id: int, points: Points
) -> tuple[str]:
    """Return the query of `points`, with the numbers of an input's categories in a list."""
    rows: list[tuple[Any, ...]] = []
    for point_id, values in enumerate(points.values.tolist(), first_id):
        numbers = dict[str, float | None]()
        categories = dict[str, list[Mapping[str, Any]]]()
        for (feature, category), value in zip(points.columns, values, strict=True):
            number = value if math.isfinite(value) else None
            if category is None:
                numbers[feature] = number
            else:
                pair = {"category": category, "value": number}
                categories.setdefault(feature, []).append(pair)
        for feature in dict.fromkeys(feature for feature, _ in points.columns):
            pairs = tuple(categories.get(feature, ())) or None
            rows.append((point_id, feature, numbers.get(feature), pairs))
    columns = {id_column: "BIGINT", "feature": "VARCHAR", "numerical_value": "DOUBLE"}
    columns["categorical_value"] = "STRUCT(category VARCHAR, value DOUBLE)[]"
    return _build_table_query(call, columns, rows)


def build_tree(call: TableFunctionCall) -> tuple[str]:
    model, option = call.model, call.form.options.get("tree")
    tree_count = model_facts.count_trees(model.program)
    if not tree_count:
        raise call.error(f"model {model.label} has no trees")
    tree_index = 0 if option is None else option.value
    if tree_index != int(tree_index) or not 0 <= tree_index < tree_count:
        raise call.error(
            f"model {model.label} has trees 0 to {tree_count - 1}, as in "
            f"ml_tree(MODEL m, {tree_count - 1})"
        )
    rows = [
        (
            *(int(tree_index), n.node, n.depth, n.feature, n.column, n.operator, n.threshold),
            *(n.categories, n.yes, n.no, n.missing, n.cover, n.gain, n.output, n.values, n.leaf),
        )
        for n in model_facts.list_tree_nodes(model.program, int(tree_index))
    ]
    return _build_table_query(call, _TREE_COLUMNS, rows)


def build_training_metrics(call: TableFunctionCall) -> tuple[str]:
    """Return a query of the metrics of training: on held-out rows, or on folds, or on all rows."""
    training, folds = _require_training(call), call.folds
    columns = {**dict.fromkeys(training.metrics, "DOUBLE"), "rows": "BIGINT", "held_out": "BOOLEAN"}
    row_count = training.held_out or training.rows
    if folds is not None and not training.held_out:
        row_count = sum(measured for _, measured, *_ in folds.folds)
    row = [*training.metrics.values(), row_count, bool(training.held_out or folds)]
    return _build_table_query(call, columns, [row])


def build_training_info(call: TableFunctionCall) -> tuple[str]:
    training = _require_training(call)
    rate = training.options.get("learning_rate")
    learning_rate = rate if isinstance(rate, int | float) else None
    rows = [
        (*losses, seconds, 0, learning_rate, None if seconds is None else round(1000 * seconds))
        for *losses, seconds in training.rounds
    ]
    return _build_table_query(call, _TRAINING_COLUMNS, rows)


def build_trial_info(call: TableFunctionCall) -> tuple[str]:
    rows = [row[:6] for row in _require_training(call).trials]
    return _build_table_query(call, _TRIAL_COLUMNS, rows)


def build_partitions(call: TableFunctionCall) -> tuple[str]:
    """Return the query of ml_partitions: the rows and metrics of each partition of the model."""
    training, program = _require_training(call), call.model.program
    if not training.partitions:
        raise call.error(
            f"model {call.model.label} has no partitions: CREATE MODEL m PARTITION BY column ... "
            "trains a model for each value of a column"
        )
    columns = {
        name: "VARCHAR" if program.input_type(name).dtype == "string" else "BIGINT"
        for name in training.partition_by
    }
    metrics = list(dict.fromkeys(name for row in training.partitions for name in row[3]))
    columns |= {"rows": "BIGINT", "held_out": "BIGINT", **dict.fromkeys(metrics, "DOUBLE")}
    rows = [
        [*key, row_count, held_out, *(values.get(name) for name in metrics), seconds]
        for key, row_count, held_out, values, seconds in training.partitions
    ]
    return _build_table_query(call, {**columns, "seconds": "DOUBLE"}, rows)


def build_cross_validation(call: TableFunctionCall) -> tuple[str]:
    """Return a query of the folds of a cross-validation with their rows and metrics."""
    facts = call.require_folds()
    columns = {"fold": "INTEGER", "training_rows": "BIGINT", "rows": "BIGINT"}
    columns |= dict.fromkeys(facts.metrics, "DOUBLE")
    rows = [(number, *values) for number, values in enumerate(facts.folds, 1)]
    return _build_table_query(call, columns, rows)


def build_feature_info(call: TableFunctionCall) -> tuple[str]:
    """Return the query of ml_feature_info, from training or from the steps of an imported model."""
    if call.training is None:
        return _build_table_query(call, _FEATURE_COLUMNS, _read_imported_features(call.model))
    keys = ("name", "type", "min", "max", "mean", "stddev", "distinct", "nulls")
    rows = [[feature.get(key) for key in keys] for feature in call.training.features]
    return _build_table_query(call, _FEATURE_COLUMNS, rows)


def _read_imported_features(model: Model) -> list[list[object]]:
    type_by_kind = {"number": "DOUBLE", "string": "VARCHAR", "datetime": "TIMESTAMP"}
    rows: list[list[object]] = []
    for stats in model_facts.find_feature_facts(model.program):
        numbers = (stats.least, stats.most, stats.mean, stats.stddev)
        feature_type = type_by_kind.get(stats.kind, stats.kind)
        rows.append([stats.feature, feature_type, *numbers, stats.categories, None])
    return rows


def _require_training(call: TableFunctionCall) -> TrainingFacts:
    if call.training is None:
        raise call.error(
            f"ml_{call.name} shows how a model was trained, and sqlml did not train model "
            f"{call.model.label}: CREATE MODEL ... AS SELECT does"
        )
    return call.training


def _build_table_query(
    call: TableFunctionCall, columns: str | Mapping[str, str], rows: Sequence[Sequence[Any]]
) -> tuple[str]:
    """Return a query of the literal `rows`, whose `columns` have types as in CREATE TABLE."""
    if isinstance(columns, str):
        columns = dict(column.split(" ") for column in columns.split(", "))
    try:
        return (build_literal_table(columns, rows, call.dialect),)
    except BindError as error:
        raise call.error(error.message) from None
