"""From an artifact or a fitted object to what the catalog keeps of it: a `NewVersion`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from sqlml import options as model_options
from sqlml.catalog.macros import ModelCall
from sqlml.catalog.model import Model, NewVersion, Origin, Reference, parse_reference
from sqlml.config import MAX_ARTIFACT_BYTES
from sqlml.errors import ArtifactError, ConfigError, UnknownModelError, UnsupportedModelError
from sqlml.importers.artifact import FOLDER_FORMAT, read_artifact, read_folder
from sqlml.importers.registry import import_model
from sqlml.importers.spark_ml.folder import MAX_FILES
from sqlml.importers.stored import StoredModel
from sqlml.ir.program import Program
from sqlml.planner.build import prepare
from sqlml.planner.choice import choose
from sqlml.planner.classes import index_of
from sqlml.planner.macro_bodies import HELPERS, model_bodies
from sqlml.planner.nulls import refused
from sqlml.planner.results import result_type
from sqlml.planner.target import OUTPUTS_OF
from sqlml.regular_files import files_below, irregular, local_path
from sqlml.udfs.callee import any_function
from sqlml.udfs.engine import Host
from sqlml.udfs.function import engine_function


@dataclass(frozen=True, slots=True, eq=False)
class Artifact:
    """The model in a file, with the file's path, format and sha256.

    Of a folder there is no `content`, and the sha256 is that of its files.
    """

    model: Any
    content: bytes
    path: str
    format: str
    sha256: str


def read_file(
    path: str,
    host: Host,
    *,
    format: str = "AUTO",
    sha256: Any = None,
    allow_pickle: bool = False,
) -> Artifact:
    """Read a model file, or a folder of Spark's, under the engine's own access settings.

    Args:
        sha256: of the file, if it is known.

    Raises:
        ArtifactError, UntrustedArtifactError, UnsupportedModelError, ConfigError.
    """
    found = host.read_file(path)
    if not found and format.upper() in ("AUTO", FOLDER_FORMAT):
        files = _files_of_folder(host, path)
        if files is not None:
            digest = _digest_of(files)
            _check_pinned(path, sha256, digest)
            return Artifact(read_folder(files, path), b"", path, FOLDER_FORMAT, digest)
    content = _content(host, path, found)
    digest = hashlib.sha256(content).hexdigest()
    _check_pinned(path, sha256, digest)
    model = read_artifact(content, format=format, path=path, allow_pickle=allow_pickle)
    return Artifact(model, content, path, format, digest)


def _check_pinned(path: str, sha256: Any, digest: str) -> None:
    if sha256 is not None and digest != str(sha256).lower():
        raise ArtifactError(f"{path!r} has another sha256 than the statement pins: {digest}")


def _files_of_folder(host: Host, path: str) -> dict[str, bytes] | None:
    """What Spark reads of a folder of this machine; None where it is none that Spark saved."""
    named = local_path(path)
    if named is None or not os.path.isdir(os.path.join(named, "metadata")):
        return None
    sizes = files_below(named, MAX_FILES)
    parts = [name for name in sizes if name.rpartition("/")[2].startswith("part-")]
    # What else Spark would read there, if it is asked to verify the model, was not checked.
    others = (n for n in sizes.keys() - parts if not n.rpartition("/")[2].startswith(("_", ".")))
    if (other := min(others, default=None)) is not None:
        raise ArtifactError(
            f"{path!r} holds {other!r}, which Spark does not write there; remove it"
        )
    size = sum(sizes[name] for name in parts)
    if size > MAX_ARTIFACT_BYTES:
        raise ArtifactError(f"{path!r} has {size} bytes, over the limit of {MAX_ARTIFACT_BYTES}")
    for name in (named, *parts):
        if any(c in name for c in "*?[") or not name.isprintable():
            raise ArtifactError(f"{name!r} has a letter of patterns (* ? [), or none; rename it")
    return {name: host.file_content(os.path.join(named, name)) for name in parts}


def _digest_of(files: Mapping[str, bytes]) -> str:
    """The sha256 of the names and the sha256 of each file."""
    lines = (f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def version_of(
    model: Any,
    *,
    inputs: Sequence[str] | Mapping[str, str] | None,
    options: Mapping[str, Any],
    file: Artifact | None = None,
    output: Sequence[tuple[str, str]] | None = None,
) -> NewVersion:
    """Import a fitted object, or what a `file` holds.

    Args:
        output: name and SQL type of what it predicts.

    Raises:
        UnsupportedModelError, ConfigError.
    """
    kept = model_options.stored(options)
    if isinstance(model, StoredModel):
        kept = {**model_options.read_back(model.options), **kept}
    imported = import_model(model, inputs)
    if not imported.named:
        raise ConfigError(
            f"this {type(model).__name__} was fitted without column names; say what feeds it: "
            "create_model(.., inputs=['a', 'b', ..]), or CREATE MODEL m INPUT (a DOUBLE, b DOUBLE, "
            "..) FROM '..'"
        )
    _check_numbers(imported.program)
    check_fit(imported.program, kept)
    if output is not None:
        kept[model_options.OUTPUT] = _label_name(imported.program, output)
    origin = Origin(imported.source, imported.library)
    if file is not None:
        origin = replace(origin, path=file.path, format=file.format, sha256=file.sha256)
    return NewVersion(imported.program, imported.features, _used(imported.program), origin, kept)


def _check_numbers(program: Program) -> None:
    if any(program.output_type(name).dtype == "string" for name in program.outputs):
        raise UnsupportedModelError(
            "this model only fills columns of strings, and transform(..) in SQL gives numbers: "
            "write coalesce(column, 'value') in the query; sqlml.compile takes the model as it is"
        )


def check_fit(program: Program, options: Mapping[str, Any]) -> None:
    """Refuse options that a model cannot have.

    Raises:
        ConfigError, MissingDependencyError, BackendError.
    """
    if not options:
        return
    choose(program, options)
    refused(options, program)
    positive = options.get("positive_class")
    if positive is None:
        return
    if not program.labels or "proba" not in program.outputs:
        raise ConfigError("option positive_class is for classifiers with probabilities")
    if all(index_of(labels, positive) is None for labels in program.labels):
        known = dict.fromkeys(v for labels in program.labels for v in labels.values)
        raise ConfigError(
            f"the model has no class {positive!r}; its classes are "
            + ", ".join(repr(v) for v in list(known)[:20])
        )


def _label_name(program: Program, output: Sequence[tuple[str, str]]) -> str:
    """The name that OUTPUT gives to what the model predicts."""
    if "label" not in program.outputs:
        raise ConfigError("OUTPUT names what a model predicts, and this one predicts nothing")
    if len(output) != 1:
        raise ConfigError("OUTPUT names one column: all that predict(..) gives")
    ((name, declared),) = output
    kind = result_type(program, "label", None)
    if _same_type(declared) != _same_type(kind):
        raise ConfigError(
            f"OUTPUT declares {name} {declared}, but the model predicts {kind}: write "
            f"OUTPUT ({name} {kind})"
        )
    return name


def _same_type(name: str) -> str:
    """One name of those that SQL has for a type."""
    words = "".join(name.upper().split())
    return _TYPES.get(words, words)


_TYPES = MappingProxyType(
    {
        **dict.fromkeys(("TEXT", "STRING", "CHAR", "BPCHAR"), "VARCHAR"),
        **dict.fromkeys(("INT8", "LONG", "INT64"), "BIGINT"),
        **dict.fromkeys(("FLOAT8", "FLOAT64"), "DOUBLE"),
        **dict.fromkeys(("BOOL", "LOGICAL"), "BOOLEAN"),
    }
)


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


def check_arguments(
    *, comment: Any = None, number: Any = 1, or_replace: Any = False, if_not_exists: Any = False
) -> None:
    """Refuse arguments of `create_model` and `add_version` that are of another type.

    Raises:
        ConfigError: it names the argument.
    """
    if not (comment is None or isinstance(comment, str)):
        raise ConfigError(f"comment is a text, and not {comment!r}")
    if not (number is None or type(number) is int):
        raise ConfigError(f"number is a whole number, and not {number!r}")
    for name, value in (("or_replace", or_replace), ("if_not_exists", if_not_exists)):
        if not isinstance(value, bool):
            raise ConfigError(f"{name} is True or False, and not {value!r}")


def calls_of(version: NewVersion | Model) -> list[ModelCall]:
    """What the macros for plain connections compute of a version."""
    calls = []
    for body in model_bodies(version.features, version.program, version.options):
        if body.function is None:
            calls.append(ModelCall(body.kind, body.sql))
            continue
        made = engine_function(body.function, version.program, on_use=True)
        common = any_function(made.argument_types, made.result_type)
        assert common is not None
        sql = body.sql.replace(f"{made.name}(", f"{common.name}('{made.name}', ")
        types = common.argument_types, common.result_type
        calls.append(ModelCall(body.kind, sql, common.name, *types, HELPERS))
    return calls


def _content(host: Host, path: str, files: Sequence[tuple[str, int]]) -> bytes:
    """The bytes of the one file that `path` means to the engine, which has found `files`."""
    if not files:
        raise ArtifactError(_absent(path))
    if len(files) != 1:
        raise ArtifactError(f"{path!r} means {len(files)} files; name exactly one model file")
    if files[0][1] > MAX_ARTIFACT_BYTES:
        raise ArtifactError(
            f"{path!r} has {files[0][1]} bytes, over the limit of {MAX_ARTIFACT_BYTES}"
        )
    return host.file_content(path)


def _absent(path: str) -> str:
    """Why the engine, which may look at the file system, found nothing there."""
    named = local_path(path)
    if named is None:
        return f"there is no file {path!r}"
    place = os.path.abspath(named)
    found = irregular(place)
    if found is not None:
        return (
            f"{path!r} is {found} ({place}); name a model file, or the folder that "
            "model.write().save(..) of pyspark.ml made, which has metadata/part-.. in it"
        )
    if any(c in path for c in "*?["):
        return f"no file matches {path!r} (looked for {place})"
    return f"no such file: {path!r}; looked for {place}, from the current directory of this process"
