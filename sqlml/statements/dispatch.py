"""Dispatch of a statement about models to the function that carries it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from sqlml.host import Host
from sqlml.parsing import statements
from sqlml.statements.alter_model import alter_model, comment_on, drop_model
from sqlml.statements.create_model import create_model
from sqlml.statements.describe_model import (
    describe_model,
    explain_model,
    show_models,
    show_versions,
)
from sqlml.statements.export_model import export_statement
from sqlml.statements.models import Answer, Models
from sqlml.statements.show_create_model import show_create
from sqlml.statements.train_model import train_model
from sqlml.statements.verify_model import verify_model


def carry_out(models: Models, statement: statements.Statement) -> Answer | None:
    """Carry out a statement about models, and return the query that answers it, if any.

    Raises:
        SqlmlError: as the statement's function says. Nothing has changed then.
    """
    return STATEMENTS[type(statement)](models, statement)


STATEMENTS: Mapping[type, Callable[[Models, Any], Answer | None]] = MappingProxyType(
    {
        statements.CreateModel: create_model,
        statements.TrainModel: train_model,
        statements.AlterModel: alter_model,
        statements.DropModel: drop_model,
        statements.CommentOn: comment_on,
        statements.ExportModel: export_statement,
        statements.ShowModels: show_models,
        statements.ShowVersions: show_versions,
        statements.ShowCreate: show_create,
        statements.DescribeModel: describe_model,
        statements.ExplainModel: explain_model,
        statements.VerifyModel: verify_model,
    }
)
"""Statement -> the function that carries it out."""


def bind_parameters(
    host: Host, statement: statements.Statement, parameters: Any
) -> statements.Statement:
    """Replace the parameters in the query of a training statement with their values.

    Other statements have no parameters and are returned unchanged.

    Raises:
        ParseError: a parameter has no value, or there are more values than parameters.
    """
    if not parameters:
        return statement
    if isinstance(statement, statements.TrainModel):
        query = host.with_values(statement.training.query, parameters)
        return replace(statement, training=replace(statement.training, query=query))
    if not isinstance(statement, statements.AlterModel):
        return statement
    change = statement.change
    if isinstance(change, statements.TrainVersion):
        query = host.with_values(change.training.query, parameters)
        change = replace(change, training=replace(change.training, query=query))
        return replace(statement, change=change)
    if isinstance(change, statements.Retrain) and change.query is not None:
        query = host.with_values(change.query, parameters)
        return replace(statement, change=replace(change, query=query))
    return statement
