"""`facts_query`: what is known of how a model was trained, as a query without tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from sqlml.catalog.model import Model
from sqlml.catalog.training_facts import TrainingFacts
from sqlml.errors import BindError
from sqlml.explaining.feature_facts import feature_facts
from sqlml.planner.binding.context import Context
from sqlml.planner.syntax.literal_table import Table, literal_table


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
