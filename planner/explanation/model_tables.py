"""`model_table`: what a model by itself says, as a query without tables: importances of features,
weights, the nodes of a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from sqlml.catalog.model import Model, TrainingFacts
from sqlml.dialects import Dialect
from sqlml.errors import BindError
from sqlml.explaining.feature_facts import feature_facts, importances
from sqlml.explaining.weights_and_trees import Weight, tree_nodes, trees_of, weights
from sqlml.planner.binding.context import Context
from sqlml.planner.syntax.literal_table import Table, literal_table
from sqlml.planner.syntax.table_form import TableForm
from sqlml.types import class_text


def model_table(form: TableForm, model: Model, dialect: Dialect, sql: str) -> str:
    """The query, in brackets, that ml_feature_importance, ml_weights or ml_tree stands for.

    Raises:
        BindError: the model has nothing of the kind.
    """
    try:
        return literal_table(*TABLES[form.function](form, model), dialect)
    except BindError as error:
        raise BindError(error.message, sql, form.span.start) from None


def _feature_importance(form: TableForm, model: Model) -> Table:
    """The features from the most important one."""
    columns = {
        "feature": "VARCHAR",
        "importance": "DOUBLE",
        "importance_weight": "BIGINT",
        "importance_gain": "DOUBLE",
        "importance_cover": "DOUBLE",
    }
    found = importances(model.program, model.origin.source)
    if found is None:
        linear = weights(model.program)
        if linear is None:
            raise BindError(
                f"model {model.label} has neither trees nor weights whose importance it knows; "
                "ml_permutation_importance measures that of any model"
            )
        return columns, _sorted(_sizes(linear, list(model.program.inputs)))

    def mean(total: float | None, splits: int) -> float | None:
        return None if total is None else total / splits if splits else 0.0

    rows = [
        (i.feature, i.own, i.splits, mean(i.gain, i.splits), mean(i.cover, i.splits)) for i in found
    ]
    return columns, _sorted(rows)


def _sizes(linear: list[Weight], inputs: list[str]) -> list[tuple[object, ...]]:
    """The features with the sums of the absolute values of their weights."""
    sizes = dict.fromkeys(inputs, 0.0)
    for weight in linear:
        if weight.feature is not None:
            sizes[weight.feature] += abs(weight.weight)
    return [(name, size, None, None, None) for name, size in sizes.items()]


def _sorted(rows: Sequence[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """The greatest importance first, or where it is not known the greatest gain."""

    def key(row: tuple[object, ...]) -> float:
        known = next((value for value in (row[1], row[3], row[2]) if value is not None), 0.0)
        assert isinstance(known, int | float)
        return -float(known)

    return sorted(rows, key=key)


def _weights(form: TableForm, model: Model) -> Table:
    """The intercept, and each feature's weights; of several outputs, for each of them."""
    found = weights(model.program)
    if found is None:
        raise BindError(f"model {model.label} is not linear, and has no weights")
    outputs = max(weight.output for weight in found) + 1
    labels = model.program.labels
    of_classes = len(labels) == 1 and outputs == len(labels[0])
    names: list[str | None] = [None]
    if outputs > 1:
        names = [class_text(labels[0].values[k] if of_classes else k + 1) for k in range(outputs)]
    columns = {
        "processed_input": "VARCHAR",
        "category": "VARCHAR",
        "class": "VARCHAR",
        "weight": "DOUBLE",
    }
    return columns, [
        ("__INTERCEPT__" if w.feature is None else w.feature, w.column, names[w.output], w.weight)
        for w in found
    ]


def _tree(form: TableForm, model: Model) -> Table:
    option = form.options.get("tree")
    count = trees_of(model.program)
    if not count:
        raise BindError(f"model {model.label} has no trees")
    number = 0 if option is None else option.value
    if number != int(number) or not 0 <= number < count:
        raise BindError(
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
    return columns, [
        (
            int(number),
            n.node,
            n.depth,
            n.feature,
            n.column,
            n.operator,
            n.threshold,
            n.categories,
            n.yes,
            n.no,
            n.missing,
            n.cover,
            n.gain,
            n.output,
            n.values,
        )
        for n in tree_nodes(model.program, int(number))
    ]


TABLES: Mapping[str, Callable[[TableForm, Model], Table]] = MappingProxyType(
    {"feature_importance": _feature_importance, "weights": _weights, "tree": _tree}
)
"""Form -> the columns and rows of its answer."""


# `facts_query`: what is known of how a model was trained, as a query without tables.


def facts_query(form: str, model: Model, context: Context) -> str:
    """The query, in brackets, that a form without rows stands for.

    Args:
        form: one of `FORMS`.

    Raises:
        BindError: sqlml did not train the model.
    """
    facts = context.training(model)
    if facts is None and form == "feature_info":
        return literal_table(*_imported_features(model), context.dialect)
    if facts is None:
        raise BindError(
            f"ml_{form} tells how a model was trained, and sqlml did not train model "
            f"{model.label}: CREATE MODEL .. AS SELECT does"
        )
    columns, rows = FORMS[form](facts)
    return literal_table(columns, rows, context.dialect)


def _evaluate(facts: TrainingFacts) -> Table:
    """One row: the metrics, on the rows held out where some were."""
    names = list(facts.metrics)
    columns = {**dict.fromkeys(names, "DOUBLE"), "rows": "BIGINT", "held_out": "BOOLEAN"}
    values = [facts.metrics[name] for name in names]
    return columns, [[*values, facts.held_out or facts.rows, facts.held_out > 0]]


def _training_info(facts: TrainingFacts) -> Table:
    columns = {
        "iteration": "BIGINT",
        "loss": "DOUBLE",
        "eval_loss": "DOUBLE",
        "seconds": "DOUBLE",
    }
    return columns, [row[: len(columns)] for row in facts.rounds]


_FEATURE_COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "input": "VARCHAR",
        "type": "VARCHAR",
        "min": "DOUBLE",
        "max": "DOUBLE",
        "mean": "DOUBLE",
        "stddev": "DOUBLE",
        "category_count": "BIGINT",
        "null_count": "BIGINT",
    }
)


def _feature_info(facts: TrainingFacts) -> Table:
    keys = ("name", "type", "min", "max", "mean", "stddev", "distinct", "nulls")
    return _FEATURE_COLUMNS, [[feature.get(key) for key in keys] for feature in facts.features]


def _imported_features(model: Model) -> Table:
    """What the steps of an imported model say of its features."""
    types = {"number": "DOUBLE", "string": "VARCHAR", "datetime": "TIMESTAMP"}
    found = feature_facts(model.program)
    keys = ("least", "most", "mean", "stddev", "categories")
    rows = [
        [f.feature, types.get(f.kind, f.kind), *(getattr(f, key) for key in keys), None]
        for f in found
    ]
    return _FEATURE_COLUMNS, rows


def _trial_info(facts: TrainingFacts) -> Table:
    columns = {
        "trial_id": "BIGINT",
        "hyperparameters": "VARCHAR",
        "objective": "DOUBLE",
        "status": "VARCHAR",
        "seconds": "DOUBLE",
        "is_best": "BOOLEAN",
    }
    return columns, [row[: len(columns)] for row in facts.trials]


FORMS: Mapping[str, Callable[[TrainingFacts], Table]] = MappingProxyType(
    {
        "evaluate": _evaluate,
        "training_info": _training_info,
        "feature_info": _feature_info,
        "trial_info": _trial_info,
    }
)
"""Form -> the columns and rows of its answer."""
