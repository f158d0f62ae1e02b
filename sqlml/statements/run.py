"""`carry_out`: the statements about models, each by the function that `STATEMENTS` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlml.parsing import statements
from sqlml.statements import alter, create, description
from sqlml.statements.export import export_statement
from sqlml.statements.models import Answer, Models
from sqlml.statements.train import train_model
from sqlml.statements.training_statement import show_create
from sqlml.statements.verify import verify_model


def carry_out(models: Models, statement: Any) -> Answer | None:
    """Carry out a statement about models; returns the query whose result is its answer, if any.

    Raises:
        SqlmlError: the statements' own functions name which; nothing has changed then.
    """
    return STATEMENTS[type(statement)](models, statement)


STATEMENTS: Mapping[type, Callable[[Models, Any], Answer | None]] = MappingProxyType(
    {
        statements.CreateModel: create.create_model,
        statements.TrainModel: train_model,
        statements.AlterModel: alter.alter_model,
        statements.DropModel: alter.drop_model,
        statements.CommentOn: alter.comment_on,
        statements.ExportModel: export_statement,
        statements.ShowModels: description.show_models,
        statements.ShowVersions: description.show_versions,
        statements.ShowCreate: show_create,
        statements.DescribeModel: description.describe_model,
        statements.ExplainModel: description.explain,
        statements.VerifyModel: verify_model,
    }
)
"""Statement -> what carries it out. `alter.CHANGES` has the changes of ALTER MODEL."""
