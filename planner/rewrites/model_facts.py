"""`facts_query`: what is known of how a model was trained, as a query without tables.

It is written into the statement as it is, since a table of the catalog is not the engine's to read
for a user: a forged one would be read without a check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlml.catalog.model import Model
from sqlml.catalog.training_facts import TrainingFacts
from sqlml.dialects import Dialect
from sqlml.errors import BindError
from sqlml.planner.binding.context import Context

Columns = Mapping[str, str]
"""Name -> type of the columns of an answer."""

Table = tuple[Columns, Sequence[Sequence[Any]]]


def facts_query(form: str, model: Model, context: Context) -> str:
    """The query, in brackets, that a form without rows stands for.

    Args:
        form: one of `FORMS`.

    Raises:
        BindError: sqlml did not train the model.
    """
    facts = context.training(model)
    if facts is None:
        raise BindError(
            f"ml_{form} tells how a model was trained, and sqlml did not train model "
            f"{model.label}: CREATE MODEL .. AS SELECT does"
        )
    columns, rows = FORMS[form](facts)
    return _written(columns, rows, context.dialect)


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


def _feature_info(facts: TrainingFacts) -> Table:
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
    keys = ("name", "type", "min", "max", "mean", "stddev", "distinct", "nulls")
    return columns, [[feature.get(key) for key in keys] for feature in facts.features]


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


def _written(columns: Columns, rows: Sequence[Sequence[Any]], dialect: Dialect) -> str:
    """A parenthesised query that returns the rows, typed as `columns` says even if it is empty."""
    kinds = [dialect.type(kind) for kind in columns.values()]
    names = [dialect.quote_name(name) for name in columns]
    empty = ", ".join(
        f"CAST(NULL AS {kind}) AS {name}" for kind, name in zip(kinds, names, strict=True)
    )
    if not rows:
        return f"(SELECT {empty} WHERE 1 = 0)"
    listed = [f"({', '.join(_literal(v, dialect) for v in row)})" for row in rows]
    numbered = ", ".join(f"c{n}" for n in range(len(names)))
    typed = ", ".join(
        f"CAST(c{n} AS {kind}) AS {name}"
        for n, (kind, name) in enumerate(zip(kinds, names, strict=True))
    )
    return f"(SELECT {typed} FROM (VALUES {', '.join(listed)}) AS sqlml_facts({numbered}))"


def _literal(value: Any, dialect: Dialect) -> str:
    """A value of the stored facts, which a stranger may have written, as a literal."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    return dialect.text(repr(value) if isinstance(value, int | float) else str(value))
