"""EXPORT MODEL: write models to a file, under the access settings of the engine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from sqlml.catalog.model import Model, Reference, extend_version
from sqlml.catalog.small_models import Calibration, dump_facts
from sqlml.errors import ConfigError
from sqlml.importers.sqlml_file import build_description
from sqlml.parsing.statements import ExportModel, ExportModels, OtherDatabase
from sqlml.planner.databases.export_for import export_for, find_database
from sqlml.planner.export_bytes import FORMATS, export_to_bytes
from sqlml.statements.connection_models import Models, resolve_name
from sqlml.statements.model_partitions import select_partition


def export_statement(models: Models, statement: ExportModel) -> None:
    """Carry out EXPORT MODEL ... TO 'path' [FORMAT ...] [FOR ...]."""
    reference = resolve_name(statement.name)
    model = models.catalog.get(reference)
    if statement.partition is not None:
        model = select_partition(model, models.catalog.training(model), statement.partition)
    if statement.database is None:
        _export(models, model, statement.path, statement.format, statement.platform)
    else:
        _export_for_database(models, model, statement.path, statement.database)


def export_models(models: Models, statement: ExportModels) -> None:
    """Carry out EXPORT MODELS (a, b) TO 'path'."""
    exported = [models.catalog.get(resolve_name(name)) for name in statement.names]
    _export_extension(models, exported, statement.path, statement.platform)


def export_model(
    models: Models,
    reference: Reference,
    path: str,
    format: str | None,
    platform: str | None = None,
) -> None:
    """Write a model to a file. If `format` is None, the extension of `path` implies the format.

    `platform` is DuckDB's name of the platform that an extension is for, or None for this one.
    """
    _export(models, models.catalog.get(reference), path, format, platform)


def _export(
    models: Models, model: Model, path: str, format: str | None, platform: str | None
) -> None:
    _check_path(path)
    extension = path.rsplit(".", 1)[-1].upper()
    if (format or extension) in ("EXTENSION", "DUCKDB_EXTENSION"):
        _export_extension(models, [model], path, platform)
        return
    if platform is not None:
        raise ConfigError("PLATFORM goes with FORMAT EXTENSION")
    if format is None and extension not in FORMATS:
        formats = "FORMAT ONNX, SQLML, SQL or EXTENSION"
        raise ConfigError(f"cannot tell the format of {path!r}; write {formats}")
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
    calibration = small_models.get("calibration")
    calibrated = calibration.small if isinstance(calibration, Calibration) else None
    content = export_to_bytes(
        model.program, format or extension, model.name, metadata, model.options, calibrated
    )
    models.host.write_file(path, content)


def _export_extension(
    models: Models, exported_models: Sequence[Model], path: str, platform: str | None
) -> None:
    # Imported late, since it imports LLVM.
    from sqlml.udfs.duckdb.native.export_extension import ExportedModel, export_extension

    _check_path(path)
    exported = []
    for model in exported_models:
        if model.transform is not None:
            raise ConfigError(
                f"model {model.label} {model.transform.summary()}, which an extension cannot "
                "compute: train it on a query that has these features as columns"
            )
        facts = {"version": str(model.version), "library": model.origin.library or ""}
        calibration = models.catalog.small_models(model).get("calibration")
        calibrated = None
        if isinstance(calibration, Calibration):
            calibrated = calibration.small, extend_version(model, calibration.small).features
        exported.append(
            ExportedModel(
                *(model.name, model.program, model.features, model.options, facts), calibrated
            )
        )
    models.host.write_file(path, export_extension(exported, path, platform))


def _export_for_database(models: Models, model: Model, path: str, target: OtherDatabase) -> None:
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
