"""Read a model from a file, from a folder that Spark or MLflow saved, or from an MLflow URI."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlml.errors import ArtifactError, MissingDependencyError
from sqlml.host import Files
from sqlml.importers.file_formats import FOLDER_FORMAT, read_artifact, read_folder
from sqlml.importers.mlflow_folder import MLFLOW_URI, MLMODEL, SavedModel, read_mlmodel
from sqlml.importers.registry import Imported, Inputs, import_model
from sqlml.importers.spark_ml.folder import MAX_FILES
from sqlml.limits import MAX_ARTIFACT_BYTES
from sqlml.regular_files import find_irregular_kind, find_local_path, list_files_below


@dataclass(frozen=True, slots=True, eq=False)
class ModelFile:
    """A model that was read from a file or folder.

    `registry.import_model` accepts `model`. For a folder, `content` is empty, and `sha256` is the
    digest of all file names and digests. `columns` maps the columns of MLflow's signature to SQL
    types.
    """

    model: Any
    content: bytes
    path: str
    format: str
    sha256: str
    columns: Mapping[str, str] | None = None


def read_file(
    path: str, host: Files, *, format: str = "AUTO", sha256: Any = None, allow_pickle: bool = False
) -> ModelFile:
    """Read a model file, or a folder that Spark or MLflow saved, if the engine allows it.

    `path` may be a URI that MLflow resolves, such as `models:/name/1`. `sha256` is the digest that
    the user expects, or None. If `allow_pickle` is true, the file may run code.
    """
    if MLFLOW_URI.fullmatch(path):
        path = _resolve_uri(host, path)
    matches = host.read_file(path)
    saved_model = None if matches else _read_mlflow_folder(host, path)
    if saved_model is not None:
        inner_path = _join_inside(find_local_path(path) or path, saved_model.path)
        inner_format = saved_model.format if format.upper() == "AUTO" else format
        read = partial(read_file, inner_path, host, sha256=sha256, allow_pickle=allow_pickle)
        return replace(read(format=inner_format), columns=saved_model.columns)
    if not matches and format.upper() in ("AUTO", FOLDER_FORMAT):
        files = _read_spark_folder(host, path)
        if files is not None:
            lines = (f"{hashlib.sha256(files[n]).hexdigest()}  {n}\n" for n in sorted(files))
            names_and_digests = "".join(lines).encode("utf-8", "surrogateescape")
            digest = hashlib.sha256(names_and_digests).hexdigest()
            _check_digest(path, sha256, digest)
            return ModelFile(read_folder(files, path), b"", path, FOLDER_FORMAT, digest)
    content = _read_content(host, path, matches)
    digest = hashlib.sha256(content).hexdigest()
    _check_digest(path, sha256, digest)
    model = read_artifact(content, format=format, path=path, allow_pickle=allow_pickle)
    return ModelFile(model, content, path, format, digest)


def import_file(file: ModelFile, inputs: Inputs | None = None) -> Imported:
    """Import the model of `file`; MLflow's signature names the columns if the model does not."""
    imported = import_model(file.model, inputs)
    if imported.is_named or file.columns is None:
        return imported
    return import_model(file.model, file.columns)


def _resolve_uri(host: Files, uri: str) -> str:
    host.read_file(os.curdir)  # This raises an error if the engine may not access files at all.
    try:
        from mlflow.artifacts import download_artifacts
    except ImportError as error:
        raise MissingDependencyError(
            f"{uri!r} is resolved by MLflow: pip install mlflow, or name the folder of the model"
        ) from error
    _require_mlflow_store(uri)
    try:
        return str(download_artifacts(artifact_uri=uri))
    except Exception as error:  # MLflow's stores may raise any exception.
        raise ArtifactError(f"MLflow does not find {uri!r}: {error}") from error


def _require_mlflow_store(uri: str) -> None:
    """Raise ArtifactError if MLflow's local store is missing, because MLflow would create it."""
    import mlflow

    uses_registry = uri.startswith("models:") and not uri.startswith("models:/m-")
    store = str(mlflow.get_registry_uri() if uses_registry else mlflow.get_tracking_uri())
    path = find_local_path(store) if store.startswith(("file:", "/", ".")) else None
    if store.startswith("sqlite:///"):
        path = store.removeprefix("sqlite:///")
    if path is not None and not os.path.exists(path):
        raise ArtifactError(
            f"MLflow cannot resolve {uri!r}: its store {store!r} does not exist; set "
            "MLFLOW_TRACKING_URI (or MLFLOW_REGISTRY_URI), or name the folder of the model"
        )


def _join_inside(folder: str, name: str) -> str:
    path = os.path.join(folder, name)
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise ArtifactError(
            f"{path!r} is a link that leads out of its folder; copy the file there, or name the "
            "file that it links to"
        )
    return path


def _read_mlflow_folder(host: Files, path: str) -> SavedModel | None:
    folder = find_local_path(path)
    if folder is None or not os.path.isfile(os.path.join(folder, MLMODEL)):
        return None
    if any(c in folder for c in "*?["):
        raise ArtifactError(f"{path!r} contains a wildcard (* ? [); rename it")
    document = _join_inside(folder, MLMODEL)
    return read_mlmodel(_read_content(host, document, host.read_file(document)), path)


def _check_digest(path: str, sha256: Any, digest: str) -> None:
    if sha256 is not None and digest != str(sha256).lower():
        raise ArtifactError(
            f"{path!r} does not have the sha256 that the statement pins; it has {digest}"
        )


def _read_spark_folder(host: Files, path: str) -> dict[str, bytes] | None:
    """Map the part files in a Spark folder to contents; return None for any other path."""
    folder = find_local_path(path)
    if folder is None or not os.path.isdir(os.path.join(folder, "metadata")):
        return None
    sizes = list_files_below(folder, MAX_FILES)
    part_files = [name for name in sizes if name.rpartition("/")[2].startswith("part-")]
    # Verification runs Spark on this folder, so the folder must not contain unchecked files.
    other_names = sizes.keys() - part_files
    other_files = (n for n in other_names if not n.rpartition("/")[2].startswith(("_", ".")))
    if (other_file := min(other_files, default=None)) is not None:
        raise ArtifactError(
            f"{path!r} contains {other_file!r}, which Spark does not write there; remove it"
        )
    size = sum(sizes[name] for name in part_files)
    if size > MAX_ARTIFACT_BYTES:
        raise ArtifactError(f"{path!r} has {size} bytes, over the limit of {MAX_ARTIFACT_BYTES}")
    for name in (folder, *part_files):
        if any(c in name for c in "*?[") or not name.isprintable():
            raise ArtifactError(f"{name!r} is empty or contains a wildcard (* ? [); rename it")
    return {name: host.file_content(os.path.join(folder, name)) for name in part_files}


def _read_content(host: Files, path: str, matches: Sequence[tuple[str, int]]) -> bytes:
    if not matches:
        raise ArtifactError(_describe_missing(path))
    if len(matches) != 1:
        raise ArtifactError(f"{path!r} matches {len(matches)} files; name exactly one model file")
    if (size := matches[0][1]) > MAX_ARTIFACT_BYTES:
        raise ArtifactError(f"{path!r} has {size} bytes, over the limit of {MAX_ARTIFACT_BYTES}")
    return host.file_content(path)


def _describe_missing(path: str) -> str:
    local_file = find_local_path(path)
    if local_file is None:
        return f"file {path!r} does not exist"
    absolute = os.path.abspath(local_file)
    file_kind = find_irregular_kind(absolute)
    if file_kind is not None:
        return (
            f"{path!r} is {file_kind} ({absolute}); name a model file, or the folder that "
            "model.write().save(...) of pyspark.ml wrote, which contains metadata/part-..."
        )
    if any(c in path for c in "*?["):
        return f"no file matches {path!r} (looked for {absolute})"
    return (
        f"no such file: {path!r}; looked for {absolute}, from the current directory of this process"
    )
