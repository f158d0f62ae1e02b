"""`model_table`: what a model by itself says, as a query without tables: importances of features,
weights, the nodes of a tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from sqlml.catalog.model import Model
from sqlml.dialects import Dialect
from sqlml.errors import BindError
from sqlml.explaining.importance import importances
from sqlml.explaining.tree_nodes import tree_nodes, trees_of
from sqlml.explaining.weights import Weight, weights
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
