"""EXPORT MODEL: write a model to a file, under the access settings of the engine."""

from __future__ import annotations

import os
from dataclasses import replace

from sqlml.catalog.model import Reference
from sqlml.catalog.small_models import dump_facts
from sqlml.errors import ConfigError
from sqlml.importers.sqlml_file import build_description
from sqlml.parsing.statements import ExportModel, OtherDatabase
from sqlml.planner.databases.export_for import export_for, find_database
from sqlml.planner.export_bytes import FORMATS, export_to_bytes
from sqlml.statements.connection_models import Models, resolve_name


def export_statement(models: Models, statement: ExportModel) -> None:
    """Carry out EXPORT MODEL ... TO 'path' [FORMAT ...] [FOR ...]."""
    reference = resolve_name(statement.name)
    if statement.database is None:
        export_model(models, reference, statement.path, statement.format)
    else:
        _export_for_database(models, reference, statement.path, statement.database)


def export_model(models: Models, reference: Reference, path: str, format: str | None) -> None:
    """Write a model to a file. If `format` is None, the extension of `path` implies the format."""
    model = models.catalog.get(reference)
    _check_path(path)
    extension = path.rsplit(".", 1)[-1].upper()
    if format is None and extension not in FORMATS:
        raise ConfigError(f"cannot tell the format of {path!r}; write FORMAT ONNX, SQLML or SQL")
    if model.transform is not None and (format or extension) == "SQL":
        raise ConfigError(
            f"model {model.label} {model.transform.summary()}, which macros in a file cannot "
            "compute: write FORMAT SQLML, or ONNX, whose inputs are these features"
        )
    small_models = models.catalog.small_models(model)
    metadata = build_description(
        model.features,
        model.origin.source,
        model.origin.library,
        model.options,
        {kind: (small.small, dump_facts(small.facts)) for kind, small in small_models.items()},
    )
    content = export_to_bytes(
        model.program, format or extension, model.name, metadata, model.options
    )
    models.host.write_file(path, content)


def _export_for_database(
    models: Models, reference: Reference, path: str, target: OtherDatabase
) -> None:
    model = models.catalog.get(reference)
    _check_path(path)
    find_database(target.dialect)
    if model.transform is not None:
        raise ConfigError(
            f"model {model.label} {model.transform.summary()}, which is not exported for other "
            "databases: train it on a query that has these features as columns"
        )
    facts = models.catalog.training(model)
    columns = () if facts is None else facts.features
    booleans = {str(column["name"]) for column in columns if column["type"] == "BOOLEAN"}
    features = [replace(f, is_boolean=f.is_boolean or f.name in booleans) for f in model.features]
    content = export_for(model.program, features, model.name, target, options=model.options)
    models.host.write_file(path, content.encode())


def _check_path(path: str) -> None:
    if "\0" in path:
        raise ConfigError(f"invalid path {path!r}: it contains a NUL character")
    if not path.strip() or path.endswith(("/", os.sep)):
        raise ConfigError(f"{path!r} names no file; write EXPORT MODEL m TO 'm.sqlml'")
