"""Table functions without rows: importances, weights, the nodes of a tree, records of training.

Their results are small tables of known values, which become literals in the statement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlml.catalog.model import Model, TrainingFacts
from sqlml.errors import BindError
from sqlml.explaining.model_facts import (
    Weight,
    count_trees,
    feature_facts,
    importances,
    tree_nodes,
    weights,
)
from sqlml.planner.syntax.query_templates import literal_table
from sqlml.planner.table_functions.table_function_call import TableFunctionCall
from sqlml.types import class_text


def write_feature_importance(call: TableFunctionCall) -> tuple[str]:
    """Return the query of ml_feature_importance, with the most important feature first.

    Raises:
        BindError: the model has neither trees nor weights.
    """
    columns = {
        "feature": "VARCHAR",
        "importance": "DOUBLE",
        "importance_weight": "BIGINT",
        "importance_gain": "DOUBLE",
        "importance_cover": "DOUBLE",
    }
    model = call.model
    of_trees = importances(model.program, model.origin.source)
    if of_trees is not None:
        tree_rows = [
            (
                i.feature,
                i.library_importance,
                i.splits,
                _divide(i.gain, i.splits),
                _divide(i.cover, i.splits),
            )
            for i in of_trees
        ]
        return _write_table(call, columns, _sort_by_importance(tree_rows))
    linear = weights(model.program)
    if linear is None:
        raise call.error(
            f"model {model.label} has neither trees nor weights to take importances from; "
            "ml_permutation_importance measures those of any model"
        )
    weight_rows = _sum_weights(linear, list(model.program.inputs))
    return _write_table(call, columns, _sort_by_importance(weight_rows))


def _divide(total: float | None, splits: int) -> float | None:
    if total is None:
        return None
    return total / splits if splits else 0.0


def _sum_weights(linear: list[Weight], inputs: list[str]) -> list[tuple[object, ...]]:
    """Return the features with the sum of the absolute values of their weights."""
    sums = dict.fromkeys(inputs, 0.0)
    for weight in linear:
        if weight.feature is not None:
            sums[weight.feature] += abs(weight.weight)
    return [(name, total, None, None, None) for name, total in sums.items()]


def _sort_by_importance(rows: Sequence[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Sort by the model's own importance, or else by the mean gain or the number of splits."""

    def key(row: tuple[object, ...]) -> float:
        _, importance, splits, gain, _ = row
        value = next((value for value in (importance, gain, splits) if value is not None), 0.0)
        assert isinstance(value, int | float)
        return -float(value)

    return sorted(rows, key=key)


def write_weights(call: TableFunctionCall) -> tuple[str]:
    """Return the query of ml_weights: the intercept and the weights of each output.

    Raises:
        BindError: the model is not linear.
    """
    model = call.model
    linear = weights(model.program)
    if linear is None:
        raise call.error(f"model {model.label} is not linear, and has no weights")
    outputs = max(weight.output for weight in linear) + 1
    labels = model.program.labels
    has_output_per_class = len(labels) == 1 and outputs == len(labels[0])
    names: list[str | None] = [None]
    if outputs > 1:
        names = [
            class_text(labels[0].values[k] if has_output_per_class else k + 1)
            for k in range(outputs)
        ]
    columns = {
        "processed_input": "VARCHAR",
        "category": "VARCHAR",
        "class": "VARCHAR",
        "weight": "DOUBLE",
    }
    rows = [
        ("__INTERCEPT__" if w.feature is None else w.feature, w.column, names[w.output], w.weight)
        for w in linear
    ]
    return _write_table(call, columns, rows)


def write_tree(call: TableFunctionCall) -> tuple[str]:
    """Return the query of ml_tree: the nodes of one tree.

    Raises:
        BindError: the model has no trees, or none of that number.
    """
    model, option = call.model, call.form.options.get("tree")
    count = count_trees(model.program)
    if not count:
        raise call.error(f"model {model.label} has no trees")
    number = 0 if option is None else option.value
    if number != int(number) or not 0 <= number < count:
        raise call.error(
            f"model {model.label} has trees 0 to {count - 1}, as in ml_tree(MODEL m, {count - 1})"
        )
    columns = {
        "tree": "BIGINT",
        "node": "BIGINT",
        "depth": "BIGINT",
        "feature": "VARCHAR",
        "category": "VARCHAR",
        "operator": "VARCHAR",
        "threshold": "DOUBLE",
        "categories": "VARCHAR[]",
        "yes": "BIGINT",
        "no": "BIGINT",
        "missing": "BIGINT",
        "cover": "DOUBLE",
        "gain": "DOUBLE",
        "output": "BIGINT",
        "leaf_values": "DOUBLE[]",
    }
    rows = [
        (
            *(int(number), n.node, n.depth, n.feature, n.column, n.operator, n.threshold),
            *(n.categories, n.yes, n.no, n.missing, n.cover, n.gain, n.output, n.values),
        )
        for n in tree_nodes(model.program, int(number))
    ]
    return _write_table(call, columns, rows)


def write_training_metrics(call: TableFunctionCall) -> tuple[str]:
    """Return the query of ml_evaluate without rows: the metrics that the training computed.

    They are those of the held-out rows if there are some, and of all rows otherwise.
    """
    training = _require_training(call)
    names = list(training.metrics)
    columns = {**dict.fromkeys(names, "DOUBLE"), "rows": "BIGINT", "held_out": "BOOLEAN"}
    metrics = [training.metrics[name] for name in names]
    row = [*metrics, training.held_out or training.rows, training.held_out > 0]
    return _write_table(call, columns, [row])


def write_training_info(call: TableFunctionCall) -> tuple[str]:
    """Return the query of ml_training_info: the losses of each iteration."""
    columns = {
        "iteration": "BIGINT",
        "loss": "DOUBLE",
        "eval_loss": "DOUBLE",
        "seconds": "DOUBLE",
    }
    rows = [row[: len(columns)] for row in _require_training(call).rounds]
    return _write_table(call, columns, rows)


def write_trial_info(call: TableFunctionCall) -> tuple[str]:
    """Return the query of ml_trial_info: the trials of a hyperparameter search."""
    columns = {
        "trial_id": "BIGINT",
        "hyperparameters": "VARCHAR",
        "objective": "DOUBLE",
        "status": "VARCHAR",
        "seconds": "DOUBLE",
        "is_best": "BOOLEAN",
    }
    rows = [row[: len(columns)] for row in _require_training(call).trials]
    return _write_table(call, columns, rows)


def write_feature_info(call: TableFunctionCall) -> tuple[str]:
    """Return the query of ml_feature_info: the statistics of each feature.

    Those of a model that sqlml did not train come from the model's own steps.
    """
    columns = {
        "input": "VARCHAR",
        "type": "VARCHAR",
        "min": "DOUBLE",
        "max": "DOUBLE",
        "mean": "DOUBLE",
        "stddev": "DOUBLE",
        "category_count": "BIGINT",
        "null_count": "BIGINT",
    }
    if call.training is None:
        return _write_table(call, columns, _read_imported_features(call.model))
    keys = ("name", "type", "min", "max", "mean", "stddev", "distinct", "nulls")
    rows = [[feature.get(key) for key in keys] for feature in call.training.features]
    return _write_table(call, columns, rows)


def _read_imported_features(model: Model) -> list[list[object]]:
    types = {"number": "DOUBLE", "string": "VARCHAR", "datetime": "TIMESTAMP"}
    return [
        [
            f.feature,
            types.get(f.kind, f.kind),
            f.least,
            f.most,
            f.mean,
            f.stddev,
            f.categories,
            None,
        ]
        for f in feature_facts(model.program)
    ]


def _require_training(call: TableFunctionCall) -> TrainingFacts:
    if call.training is None:
        raise call.error(
            f"ml_{call.name} shows how a model was trained, and sqlml did not train model "
            f"{call.model.label}: CREATE MODEL ... AS SELECT does"
        )
    return call.training


def _write_table(
    call: TableFunctionCall, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]
) -> tuple[str]:
    try:
        return (literal_table(columns, rows, call.dialect),)
    except BindError as error:
        raise call.error(error.message) from None
