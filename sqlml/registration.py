"""CREATE MODEL carried out: artifact or object -> Program -> catalog."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from sqlml import options as model_options
from sqlml.catalog.catalog import Catalog
from sqlml.catalog.macros import ModelCall
from sqlml.config import MAX_ARTIFACT_BYTES
from sqlml.errors import ArtifactError, ConfigError, NotYetError
from sqlml.front.statements import CreateModel, ModelName
from sqlml.importers.artifact import read_artifact
from sqlml.importers.registry import import_model
from sqlml.ir.program import Program
from sqlml.planner.choice import choose
from sqlml.planner.export import FORMATS, export
from sqlml.planner.macro_bodies import HELPERS, model_bodies
from sqlml.types import Feature
from sqlml.udfs.duckdb import DuckDBEngine
from sqlml.udfs.function import engine_function


def create_from_file(
    statement: CreateModel, engine: DuckDBEngine, catalog: Catalog, allow_pickle: bool
) -> None:
    """CREATE MODEL .. FROM 'file'.

    Raises:
        ArtifactError, UntrustedArtifactError, UnsupportedModelError, ModelExistsError,
        ConfigError: nothing is registered then.
    """
    if statement.output is not None:
        raise NotYetError("the OUTPUT clause is reserved for a later version", statement.sql, 0)
    model_options.stored(statement.options)
    if statement.if_not_exists and statement.name.name.lower() in (
        n.lower() for n in catalog.names(statement.name.database)
    ):
        return
    content = _content(engine, statement.source)
    pinned = statement.options.get("sha256")
    if pinned is not None and hashlib.sha256(content).hexdigest() != str(pinned).lower():
        raise ArtifactError(
            f"{statement.source!r} has another sha256 than the statement pins: "
            f"{hashlib.sha256(content).hexdigest()}"
        )
    model = read_artifact(
        content,
        format=statement.format,
        path=statement.source,
        allow_pickle=allow_pickle or statement.options.get("allow_pickle") is True,
    )
    create_from_object(
        model,
        statement.name,
        catalog,
        inputs=None if statement.inputs is None else dict(statement.inputs),
        options=statement.options,
        comment=statement.comment,
        or_replace=statement.or_replace,
        if_not_exists=statement.if_not_exists,
    )


def create_from_object(
    model: Any,
    name: ModelName,
    catalog: Catalog,
    *,
    inputs: Sequence[str] | Mapping[str, str] | None,
    options: Mapping[str, Any],
    comment: str | None,
    or_replace: bool,
    if_not_exists: bool,
) -> None:
    """Import a fitted object and write it to the catalog.

    Raises:
        UnsupportedModelError, ModelExistsError, ConfigError: nothing is registered then.
    """
    kept = model_options.stored(options)
    imported = import_model(model, inputs)
    if not imported.named:
        raise ConfigError(
            f"this {type(model).__name__} was fitted without column names; say what feeds it: "
            "create_model(.., inputs=['a', 'b', ..]), or CREATE MODEL m INPUT (a DOUBLE, b DOUBLE, "
            "..) FROM '..'"
        )
    if kept:
        choose(imported.program, kept)
    catalog.create(
        name.name,
        imported.program,
        imported.features,
        source=imported.source,
        library=imported.library,
        options=kept,
        comment=comment,
        database=name.database,
        or_replace=or_replace,
        if_not_exists=if_not_exists,
        calls=_calls(imported.features, imported.program, kept),
    )


def _calls(
    features: Sequence[Feature], program: Program, options: Mapping[str, Any]
) -> list[ModelCall]:
    """What the macros for plain connections compute of a model."""
    calls = []
    for body in model_bodies(features, program, options):
        if body.function is None:
            calls.append(ModelCall(body.kind, body.sql))
            continue
        made = engine_function(body.function, program, on_use=True)
        calls.append(
            ModelCall(
                body.kind, body.sql, made.name, made.argument_types, made.result_type, HELPERS
            )
        )
    return calls


def _content(engine: DuckDBEngine, path: str) -> bytes:
    """The bytes of the one file that `path` means to the engine."""
    files = engine.read_file(path)
    if not files:
        raise ArtifactError(_absent(path))
    if len(files) != 1:
        raise ArtifactError(f"{path!r} means {len(files)} files; name exactly one model file")
    if files[0][1] > MAX_ARTIFACT_BYTES:
        raise ArtifactError(
            f"{path!r} has {files[0][1]} bytes, over the limit of {MAX_ARTIFACT_BYTES}"
        )
    return engine.file_content(path)


def _absent(path: str) -> str:
    """Why the engine, which may look at the file system, found nothing there."""
    if "://" in path:
        return f"there is no file {path!r}"
    place = os.path.abspath(os.path.expanduser(path))
    if os.path.isdir(place):
        return f"{path!r} is a directory ({place}); name the model file in it"
    if any(c in path for c in "*?["):
        return f"no file matches {path!r} (looked for {place})"
    return f"no such file: {path!r}; looked for {place}, from the current directory of this process"


def export_to_file(
    program: Program, path: str, format: str | None, engine: DuckDBEngine, name: str = "model"
) -> None:
    """EXPORT MODEL: write a model to a file, under the engine's own access settings.

    Args:
        format: ONNX, SQLML or SQL, whose macros are called `name`; None: what the ending of the
            path says.

    Raises:
        ConfigError: no such format, or the ending says none.
        BackendError: the model has no form in it.
    """
    ending = path.rsplit(".", 1)[-1].upper()
    if format is None and ending not in FORMATS:
        raise ConfigError(f"which format is {path!r}? write FORMAT ONNX, SQLML or SQL")
    engine.write_file(path, export(program, format or ending, name))
