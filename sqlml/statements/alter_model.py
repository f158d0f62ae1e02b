"""ALTER MODEL, COMMENT ON MODEL and DROP MODEL.

`CHANGES` maps each change of ALTER MODEL to the function that carries it out. To add a change,
define its value in `sqlml/parsing/statements.py` and its function here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlml.catalog.model import Model, Reference
from sqlml.parsing.statements import (
    AddCascade,
    AddTopKFilter,
    AddVersion,
    AlterModel,
    CommentOn,
    DropCascade,
    DropModel,
    DropTopKFilter,
    DropVersion,
    Rename,
    ResetOptions,
    Retrain,
    SetAlias,
    SetDefault,
    SetOptions,
    SetTags,
    TrainVersion,
    UnsetAlias,
    UnsetTags,
)
from sqlml.statements import model_options
from sqlml.statements.create_model import add_version
from sqlml.statements.learn_small_models import add_cascade, add_top_k_filter
from sqlml.statements.models import Answer, Models, resolve_model, resolve_name
from sqlml.statements.retrain_model import retrain_model
from sqlml.statements.train_model import train_version

Options = Mapping[str, Any]


def alter_model(models: Models, statement: AlterModel) -> Answer | None:
    """Carry out ALTER MODEL [IF EXISTS] with its change, and return the change's answer, if any."""
    reference = resolve_name(statement.name)
    if statement.if_exists and not models.exists(reference):
        models.changes.report(reference, ())  # another session may have dropped it
        return None
    return CHANGES[type(statement.change)](models, reference, statement.change)


def comment_on(models: Models, statement: CommentOn) -> None:
    """Set or remove the comment of a model, or of the version that the statement names."""
    models.changes.comment(resolve_name(statement.name), statement.comment)


def drop_model(models: Models, statement: DropModel) -> None:
    """Drop a model with all its versions."""
    models.changes.drop(resolve_model(statement.name), statement.if_exists)


def _set_options(models: Models, reference: Reference, change: SetOptions) -> None:
    _change_options(models, reference, lambda options: {**options, **change.options})


def _reset_options(models: Models, reference: Reference, change: ResetOptions) -> None:
    """Remove the named options, or all of them if none is named."""
    model_options.validate_names(change.names)

    def remove(options: Options) -> Options:
        names = change.names or options
        return {name: value for name, value in options.items() if name not in names}

    _change_options(models, reference, remove)


def _change_options(
    models: Models, reference: Reference, change: Callable[[Options], Options]
) -> None:
    """Apply `change` to the options that the user set; the internal ones stay."""

    def alter(model: Model) -> Options:
        user_options = model_options.user_options(model.options)
        options = model_options.validate_altered_options(change(user_options))
        model_options.check_options_fit(model.program, options)
        return {**options, **{k: v for k, v in model.options.items() if k not in user_options}}

    models.versions.set_options(reference, alter)


CHANGES: Mapping[type, Callable[[Models, Reference, Any], Answer | None]] = MappingProxyType(
    {
        AddVersion: add_version,
        TrainVersion: train_version,
        Retrain: retrain_model,
        DropVersion: lambda models, _, c: models.versions.drop(resolve_name(c.version)),
        SetDefault: lambda models, _, c: models.versions.set_default(resolve_name(c.version)),
        SetAlias: lambda models, _, c: models.versions.set_alias(resolve_name(c.version), c.alias),
        UnsetAlias: lambda models, model, c: models.versions.unset_alias(model, c.alias),
        SetTags: lambda models, model, c: models.changes.tag(model, c.tags),
        UnsetTags: lambda models, model, c: models.changes.untag(model, c.tags),
        SetOptions: _set_options,
        ResetOptions: _reset_options,
        AddCascade: add_cascade,
        DropCascade: lambda models, model, _: models.versions.drop_small_model(model, "cascade"),
        AddTopKFilter: add_top_k_filter,
        DropTopKFilter: lambda models, model, _: models.versions.drop_small_model(model, "top_k"),
        Rename: lambda models, model, c: models.changes.rename(model, c.name),
    }
)
"""Change of ALTER MODEL -> the function that carries it out on the model that is named."""
