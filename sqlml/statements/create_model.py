"""CREATE MODEL and ADD VERSION: register a fitted object, or the model in a file.

A statement names a file and a call of Python gives an object. Both become a `ModelRequest`, from
which `build_version` makes the version that is stored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlml.catalog.model import TRANSFORM, NewVersion, Reference, read_transform
from sqlml.errors import ConfigError
from sqlml.importers.model_file import ModelFile, read_file
from sqlml.long_work import long_work, show_stage
from sqlml.parsing.statements import AddVersion, Artifact, CreateModel
from sqlml.statements.build_version import ModelRequest, build_version
from sqlml.statements.models import Models, resolve_model


def create_model(models: Models, statement: CreateModel) -> None:
    """Carry out CREATE MODEL ... FROM 'path'."""
    reference = resolve_model(statement.name)
    if statement.if_not_exists and models.exists(reference):
        models.changes.report_existing(reference)
        return
    request = replace(
        _request_for_file(reference, statement.artifact),
        or_replace=statement.or_replace,
        if_not_exists=statement.if_not_exists,
    )
    with long_work(f"registering {reference.name}"):
        file = _read_file(models, statement.artifact)
        create_from_object(models, file.model, request, file)


def add_version(models: Models, reference: Reference, change: AddVersion) -> None:
    """Carry out ALTER MODEL ... ADD VERSION ... FROM 'path'."""
    request = replace(_request_for_file(reference, change.artifact), number=change.number)
    with long_work(f"registering {reference.name}"):
        file = _read_file(models, change.artifact)
        add_object(models, file.model, request, file)


def create_from_object(
    models: Models, model: Any, request: ModelRequest, file: ModelFile | None = None
) -> None:
    """Create a model from a fitted object, which may have been read from a file."""
    with long_work(f"registering {request.reference.name}"):
        version = _build_stored_version(models, model, request, file)
        show_stage("storing it")
        models.changes.create(
            request.reference,
            version,
            comment=request.comment,
            or_replace=request.or_replace,
            if_not_exists=request.if_not_exists,
        )


def add_object(
    models: Models, model: Any, request: ModelRequest, file: ModelFile | None = None
) -> None:
    """Add a version made from a fitted object, which may have been read from a file."""
    with long_work(f"registering {request.reference.name}"):
        version = _build_stored_version(models, model, request, file)
        show_stage("storing it")
        version = replace(version, comment=request.comment)
        models.versions.add(request.reference, version, request.number)


def _request_for_file(reference: Reference, artifact: Artifact) -> ModelRequest:
    return ModelRequest(
        reference,
        inputs=None if artifact.inputs is None else dict(artifact.inputs),
        output=artifact.output,
        comment=artifact.comment,
        options=artifact.options,
    )


def _read_file(models: Models, artifact: Artifact) -> ModelFile:
    show_stage("reading the file")
    return read_file(
        artifact.source,
        models.host,
        format=artifact.format,
        sha256=artifact.options.get("sha256"),
        allow_pickle=models.allow_pickle or artifact.options.get("allow_pickle") is True,
    )


def _build_stored_version(
    models: Models, model: Any, request: ModelRequest, file: ModelFile | None
) -> NewVersion:
    """Build the version, with the TRANSFORM that a file written by EXPORT MODEL may bring.

    The file may come from a stranger, so its expressions are parsed and checked.

    Raises:
        ArtifactError: the TRANSFORM is damaged.
        ConfigError: the engine cannot evaluate a TRANSFORM.
    """
    version = build_version(model, request, file)
    stored_transform = version.options.get(TRANSFORM)
    if stored_transform is None:
        return version
    if not models.dialect.lazy_calls:
        raise ConfigError("this model has a TRANSFORM of DuckDB's functions: score it in DuckDB")
    transform = read_transform(models.host.read, stored_transform, version.origin.source)
    return replace(version, transform=transform)
