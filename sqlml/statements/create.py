"""CREATE MODEL and ADD VERSION: a fitted object, or the model in a file, is registered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlml.catalog.model import TRANSFORM, NewVersion, Reference, transform_of
from sqlml.errors import ConfigError
from sqlml.importers.model_file import ModelFile, read_file
from sqlml.long_work import long_work, stage
from sqlml.parsing.statements import AddVersion, Artifact, CreateModel
from sqlml.statements.build_version import Registration, verified
from sqlml.statements.models import Models, whole


def create_model(models: Models, statement: CreateModel) -> None:
    """CREATE MODEL of a file."""
    reference, artifact = whole(statement.name), statement.artifact
    if statement.if_not_exists and models.exists(reference):
        models.changes.found(reference)
        return
    wanted = _registration(
        reference,
        artifact,
        or_replace=statement.or_replace,
        if_not_exists=statement.if_not_exists,
    )
    with long_work(f"registering {reference.name}"):
        stage("reading the file")
        file = _file(models, artifact)
        create_from_object(models, file.model, wanted, file)


def add_version(models: Models, reference: Reference, change: AddVersion) -> None:
    """ALTER MODEL .. ADD VERSION of a file."""
    wanted = _registration(reference, change.artifact, number=change.number)
    with long_work(f"registering {reference.name}"):
        stage("reading the file")
        file = _file(models, change.artifact)
        add_object(models, file.model, wanted, file)


def create_from_object(
    models: Models, model: Any, wanted: Registration, file: ModelFile | None = None
) -> None:
    """Register a fitted object, or what a `file` holds."""
    with long_work(f"registering {wanted.reference.name}"):
        new = _transformed(models, verified(model, wanted, file))
        stage("storing it")
        models.changes.create(
            wanted.reference,
            new,
            comment=wanted.comment,
            or_replace=wanted.or_replace,
            if_not_exists=wanted.if_not_exists,
        )


def add_object(
    models: Models, model: Any, wanted: Registration, file: ModelFile | None = None
) -> None:
    """Add a fitted object, or what a `file` holds, as a version of a model."""
    with long_work(f"registering {wanted.reference.name}"):
        new = _transformed(models, verified(model, wanted, file))
        stage("storing it")
        models.versions.add(wanted.reference, replace(new, comment=wanted.comment), wanted.number)


def _transformed(models: Models, new: NewVersion) -> NewVersion:
    """A version with the TRANSFORM that its file brings, which somebody else may have written.

    Raises:
        ArtifactError: it is damaged.
        ConfigError: the engine cannot have it.
    """
    told = new.options.get(TRANSFORM)
    if told is None:
        return new
    if not models.dialect.lazy_calls:
        raise ConfigError("this model has a TRANSFORM of DuckDB's functions: score it in DuckDB")
    return replace(new, transform=transform_of(models.host.read, told, new.origin.source))


def _registration(reference: Reference, artifact: Artifact, **how: Any) -> Registration:
    return Registration(
        reference,
        inputs=None if artifact.inputs is None else dict(artifact.inputs),
        output=artifact.output,
        comment=artifact.comment,
        options=artifact.options,
        **how,
    )


def _file(models: Models, artifact: Artifact) -> ModelFile:
    return read_file(
        artifact.source,
        models.host,
        format=artifact.format,
        sha256=artifact.options.get("sha256"),
        allow_pickle=models.allow_pickle or artifact.options.get("allow_pickle") is True,
    )
