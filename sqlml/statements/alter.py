"""ALTER MODEL, by what it changes; COMMENT ON MODEL and DROP MODEL."""

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
from sqlml.statements import options as model_options
from sqlml.statements.create import add_version
from sqlml.statements.models import Answer, Models, referred, whole
from sqlml.statements.options import check_fit
from sqlml.statements.retrain import retrain
from sqlml.statements.small_models import (
    add_cascade,
    add_top_k_filter,
    drop_cascade,
    drop_top_k_filter,
)
from sqlml.statements.train import train_version

Options = Mapping[str, Any]


def alter_model(models: Models, statement: AlterModel) -> Answer | None:
    """ALTER MODEL [IF EXISTS] and one change; ADD CASCADE answers what it has learned."""
    reference = referred(statement.name)
    if statement.if_exists and not models.exists(reference):
        models.changes.report(reference, ())  # another session may have dropped it
        return None
    return CHANGES[type(statement.change)](models, reference, statement.change)


def comment_on(models: Models, statement: CommentOn) -> None:
    """COMMENT ON MODEL, or on the one version that is named."""
    models.changes.comment(referred(statement.name), statement.comment)


def drop_model(models: Models, statement: DropModel) -> None:
    """DROP MODEL, with all its versions."""
    models.changes.drop(whole(statement.name), statement.if_exists)


def _set_options(models: Models, reference: Reference, change: SetOptions) -> None:
    _change_options(models, reference, lambda had: {**had, **change.options})


def _reset_options(models: Models, reference: Reference, change: ResetOptions) -> None:
    """RESET OPTIONS: remove the named options, or all of them."""
    gone = model_options.checked(change.names)
    _change_options(
        models, reference, lambda had: {k: had[k] for k in had if gone and k not in gone}
    )


def _change_options(
    models: Models, reference: Reference, change: Callable[[Options], Options]
) -> None:
    def altered(model: Model) -> Options:
        had = model_options.given(model.options)
        options = model_options.altered(change(had))
        check_fit(model.program, options)
        return {**options, **{k: v for k, v in model.options.items() if k not in had}}

    models.versions.set_options(reference, altered)


CHANGES: Mapping[type, Callable[[Models, Reference, Any], Answer | None]] = MappingProxyType(
    {
        AddVersion: add_version,
        TrainVersion: train_version,
        Retrain: retrain,
        DropVersion: lambda models, _, c: models.versions.drop(referred(c.version)),
        SetDefault: lambda models, _, c: models.versions.set_default(referred(c.version)),
        SetAlias: lambda models, _, c: models.versions.set_alias(referred(c.version), c.alias),
        UnsetAlias: lambda models, model, c: models.versions.unset_alias(model, c.alias),
        SetTags: lambda models, model, c: models.changes.tag(model, c.tags),
        UnsetTags: lambda models, model, c: models.changes.untag(model, c.tags),
        SetOptions: _set_options,
        ResetOptions: _reset_options,
        AddCascade: add_cascade,
        DropCascade: drop_cascade,
        AddTopKFilter: add_top_k_filter,
        DropTopKFilter: drop_top_k_filter,
        Rename: lambda models, model, c: models.changes.rename(model, c.name),
    }
)
"""What ALTER MODEL changes -> what is done to the model that it names."""
