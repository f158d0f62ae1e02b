"""Tables of the functions that carry out statements and changes in ALTER MODEL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sqlml.catalog.model import Model, Reference
from sqlml.host import Host
from sqlml.parsing import statements
from sqlml.statements import describe_model, model_options
from sqlml.statements.calibrate_model import calibrate_model
from sqlml.statements.connection_models import Answer, Models, resolve_model, resolve_name
from sqlml.statements.create_model import add_version, create_model
from sqlml.statements.export_model import export_models, export_statement
from sqlml.statements.learn_small_models import add_cascade, add_top_k_filter
from sqlml.statements.model_partitions import drop_partition
from sqlml.statements.show_create_model import show_create
from sqlml.statements.train_model import retrain_model, train_model, train_version
from sqlml.statements.verify_model import verify_model

Options = Mapping[str, Any]


def carry_out(models: Models, statement: statements.Statement) -> Answer | None:
    """Carry out a statement about models; return its answer, or None if it has no answer."""
    return STATEMENTS[type(statement)](models, statement)


def alter_model(models: Models, statement: statements.AlterModel) -> Answer | None:
    """Carry out ALTER MODEL [IF EXISTS]; return the answer, or None if it has no answer."""
    reference = resolve_name(statement.name)
    if statement.if_exists and not models.exists(reference):
        models.changes.report(reference, ())  # Another session may have dropped the model.
        return None
    return CHANGES[type(statement.change)](models, reference, statement.change)


def _reset_options(models: Models, reference: Reference, change: statements.ResetOptions) -> None:
    model_options.validate_option_names(change.names)

    def remove(options: Options) -> Options:
        names = change.names or options
        return {name: value for name, value in options.items() if name not in names}

    _change_options(models, reference, remove)


def _change_options(
    models: Models, reference: Reference, change: Callable[[Options], Options]
) -> None:
    def alter(model: Model) -> Options:
        user_options = model_options.select_user_options(model.options)
        options = model_options.validate_altered_options(change(user_options))
        model_options.check_options_fit(model.program, options)
        return {**options, **{k: v for k, v in model.options.items() if k not in user_options}}

    models.versions.set_options(reference, alter)


STATEMENTS: Mapping[type, Callable[[Models, Any], Answer | None]] = {
    statements.CreateModel: create_model,
    statements.TrainModel: train_model,
    statements.AlterModel: alter_model,
    statements.DropModel: lambda models, s: models.changes.drop(resolve_model(s.name), s.if_exists),
    statements.CommentOn: lambda models, s: models.changes.comment(resolve_name(s.name), s.comment),
    statements.ExportModel: export_statement,
    statements.ExportModels: export_models,
    statements.ShowModels: describe_model.show_models,
    statements.ShowVersions: describe_model.show_versions,
    statements.ShowCreate: show_create,
    statements.DescribeModel: describe_model.describe_model,
    statements.ExplainModel: describe_model.explain_model,
    statements.VerifyModel: verify_model,
}

CHANGES: Mapping[type, Callable[[Models, Reference, Any], Answer | None]] = {
    statements.AddVersion: add_version,
    statements.TrainVersion: train_version,
    statements.RetrainModel: retrain_model,
    statements.DropPartition: drop_partition,
    statements.DropVersion: lambda m, _, c: m.versions.drop(resolve_name(c.version)),
    statements.SetDefault: lambda m, _, c: m.versions.set_default(resolve_name(c.version)),
    statements.SetAlias: lambda m, _, c: m.versions.set_alias(resolve_name(c.version), c.alias),
    statements.UnsetAlias: lambda m, model, c: m.versions.unset_alias(model, c.alias),
    statements.SetTags: lambda m, model, c: m.changes.tag(model, c.tags),
    statements.UnsetTags: lambda m, model, c: m.changes.untag(model, c.tags),
    statements.SetOptions: lambda m, model, c: _change_options(
        m, model, lambda options: {**options, **c.options}
    ),
    statements.Describe: lambda m, model, c: m.changes.describe(model, c.description),
    statements.ResetOptions: _reset_options,
    statements.AddCascade: add_cascade,
    statements.AddTopKFilter: add_top_k_filter,
    statements.Calibrate: calibrate_model,
    statements.DropSmallModel: lambda m, model, c: m.versions.drop_small_model(model, c.kind),
    statements.RenameModel: lambda m, model, c: m.changes.rename(model, c.name),
}
"""Maps each change in ALTER MODEL to the function that applies it to the named model."""


def bind_parameters(
    host: Host, statement: statements.Statement, parameters: Any
) -> statements.Statement:
    """Replace parameters in a training query with values; return other statements unchanged."""

    def bind(training: statements.Training) -> statements.Training:
        return replace(training, query=host.with_values(training.query, parameters))

    if not parameters:
        return statement
    match statement:
        case statements.TrainModel(training=training):
            return replace(statement, training=bind(training))
        case statements.AlterModel(change=statements.TrainVersion(training=training) as change):
            return replace(statement, change=replace(change, training=bind(training)))
        case statements.AlterModel(change=statements.RetrainModel(query=str(query)) as change):
            query = host.with_values(query, parameters)
            return replace(statement, change=replace(change, query=query))
    return statement
