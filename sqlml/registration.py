"""From an artifact or a fitted object to what the catalog keeps of it: a `NewVersion`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from sqlml import options as model_options
from sqlml.catalog.macros import ModelCall
from sqlml.catalog.model import Model, NewVersion, Origin, Reference, parse_reference
from sqlml.config import MAX_ARTIFACT_BYTES
from sqlml.errors import ArtifactError, ConfigError, NotYetError, UnknownModelError
from sqlml.front.statements import Artifact
from sqlml.importers.artifact import read_artifact
from sqlml.importers.registry import import_model
from sqlml.ir.program import Program
from sqlml.planner.build import prepare
from sqlml.planner.choice import choose
from sqlml.planner.macro_bodies import HELPERS, model_bodies
from sqlml.planner.target import OUTPUTS_OF
from sqlml.udfs.duckdb import DuckDBEngine
from sqlml.udfs.function import engine_function


def version_from_file(artifact: Artifact, engine: DuckDBEngine, allow_pickle: bool) -> NewVersion:
    """Read the file that an artifact names, under the engine's own access settings.

    Raises:
        ArtifactError, UntrustedArtifactError, UnsupportedModelError, ConfigError.
    """
    if artifact.output is not None:
        raise NotYetError("the OUTPUT clause is reserved for a later version")
    model_options.stored(artifact.options)
    content = _content(engine, artifact.source)
    digest, pinned = hashlib.sha256(content).hexdigest(), artifact.options.get("sha256")
    if pinned is not None and digest != str(pinned).lower():
        raise ArtifactError(
            f"{artifact.source!r} has another sha256 than the statement pins: {digest}"
        )
    model = read_artifact(
        content,
        format=artifact.format,
        path=artifact.source,
        allow_pickle=allow_pickle or artifact.options.get("allow_pickle") is True,
    )
    return version_from_object(
        model,
        inputs=None if artifact.inputs is None else dict(artifact.inputs),
        options=artifact.options,
        file=(artifact.source, artifact.format, digest),
    )


def version_from_object(
    model: Any,
    *,
    inputs: Sequence[str] | Mapping[str, str] | None,
    options: Mapping[str, Any],
    file: tuple[str, str, str] | None = None,
) -> NewVersion:
    """Import a fitted object.

    Args:
        file: path, format and sha256 of the file that it was read from.

    Raises:
        UnsupportedModelError, ConfigError.
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
    origin = Origin(imported.source, imported.library, *(file or ()))
    return NewVersion(imported.program, imported.features, _used(imported.program), origin, kept)


def _used(program: Program) -> frozenset[str]:
    """The inputs that some output needs once the passes have run."""
    return frozenset(
        name
        for outputs in OUTPUTS_OF.values()
        for output in outputs
        if output in program.outputs
        for name in prepare(program, output).program.inputs
    )


def whole_model(name: Any) -> Reference:
    """The reference of `model` or `database.model`.

    Raises:
        ConfigError: it is none, or names a version.
    """
    if not isinstance(name, str):
        raise ConfigError(
            f"the name comes first, as a text, and not a {type(name).__name__}: "
            "create_model('churn', model)"
        )
    try:
        reference = parse_reference(name)
    except UnknownModelError:
        reference = None
    if reference is None or reference.names_a_version:
        raise ConfigError(
            f"{name!r} is no name for a model: write 'model' or 'database.model', where "
            "neither is empty or has . @ or / in it"
        )
    return reference


def calls_of(version: NewVersion | Model) -> list[ModelCall]:
    """What the macros for plain connections compute of a version."""
    calls = []
    for body in model_bodies(version.features, version.program, version.options):
        if body.function is None:
            calls.append(ModelCall(body.kind, body.sql))
            continue
        made = engine_function(body.function, version.program, on_use=True)
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
