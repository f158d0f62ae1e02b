"""`with_parameters`: a training statement whose query has the values of its parameters in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlml.host import Host
from sqlml.parsing.statements import AlterModel, Retrain, TrainModel, TrainVersion


def with_parameters(host: Host, statement: Any, parameters: Any) -> Any:
    """The statement, if it trains; others take no parameters, and stay as they are.

    Raises:
        ParseError: a parameter has no value, or there are more values than parameters.
    """
    if not parameters:
        return statement

    def bound(query: str) -> str:
        return host.with_values(query, parameters)

    if isinstance(statement, TrainModel):
        training = replace(statement.training, query=bound(statement.training.query))
        return replace(statement, training=training)
    change = statement.change if isinstance(statement, AlterModel) else None
    if isinstance(change, TrainVersion):
        training = replace(change.training, query=bound(change.training.query))
        return replace(statement, change=replace(change, training=training))
    if isinstance(change, Retrain) and change.query is not None:
        return replace(statement, change=replace(change, query=bound(change.query)))
    return statement
