"""`read_file`: the model in a file, or in a folder of Spark's or MLflow's, and its sha256."""

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
from sqlml.importers.mlflow_folder import DOCUMENT, URI, SavedModel, saved_model
from sqlml.importers.registry import Imported, import_model
from sqlml.importers.spark_ml.folder import MAX_FILES
from sqlml.limits import MAX_ARTIFACT_BYTES
from sqlml.regular_files import files_below, irregular, local_path


@dataclass(frozen=True, slots=True, eq=False)
class ModelFile:
    """The model in a file, with the file's path, format and sha256.

    A folder has no `content`; its sha256 is that of its files. `columns` are those of a signature,
    with their SQL types, where MLflow saved one with the model.
    """

    model: Any
    content: bytes
    path: str
    format: str
    sha256: str
    columns: Mapping[str, str] | None = None


def read_file(
    path: str,
    host: Files,
    *,
    format: str = "AUTO",
    sha256: Any = None,
    allow_pickle: bool = False,
) -> ModelFile:
    """Read a model file, or a folder of Spark's or MLflow's, as the engine's settings allow.

    Args:
        path: of a file or folder, or a URI that MLflow resolves (`models:/name/1`).
        sha256: of the file, if it is known.

    Raises:
        ArtifactError, UntrustedArtifactError, UnsupportedModelError, ConfigError.
    """
    if URI.fullmatch(path):
        path = _resolved(host, path)
    found = host.read_file(path)
    saved = None if found else _saved_by_mlflow(host, path)
    if saved is not None:
        inside = _below(local_path(path) or path, saved.path)
        asked = saved.format if format.upper() == "AUTO" else format
        read = partial(read_file, inside, host, sha256=sha256, allow_pickle=allow_pickle)
        return replace(read(format=asked), columns=saved.columns)
    if not found and format.upper() in ("AUTO", FOLDER_FORMAT):
        files = _files_of_folder(host, path)
        if files is not None:
            digest = _digest_of(files)
            _check_pinned(path, sha256, digest)
            return ModelFile(read_folder(files, path), b"", path, FOLDER_FORMAT, digest)
    content = _content(host, path, found)
    digest = hashlib.sha256(content).hexdigest()
    _check_pinned(path, sha256, digest)
    model = read_artifact(content, format=format, path=path, allow_pickle=allow_pickle)
    return ModelFile(model, content, path, format, digest)


def import_file(
    file: ModelFile, inputs: Sequence[str] | Mapping[str, str] | None = None
) -> Imported:
    """Import what a file holds; MLflow's signature names the columns of a model without names.

    Raises:
        UnsupportedModelError, ConfigError: as `import_model` does.
    """
    imported = import_model(file.model, inputs)
    if imported.named or file.columns is None:
        return imported
    return import_model(file.model, file.columns)


def _resolved(host: Files, uri: str) -> str:
    """The local folder of what MLflow knows under a URI, which it may download first.

    Raises:
        MissingDependencyError: MLflow is not installed.
        ArtifactError: the engine may not reach out, or MLflow does not find it.
    """
    host.read_file(os.curdir)  # refused where the engine may not look at files at all
    try:
        from mlflow.artifacts import download_artifacts
    except ImportError as error:
        raise MissingDependencyError(
            f"{uri!r} is resolved by MLflow: pip install mlflow, or name the folder of the model"
        ) from error
    _check_store(uri)
    try:
        return str(download_artifacts(artifact_uri=uri))
    except Exception as error:  # those of its stores, of any kind
        raise ArtifactError(f"MLflow does not find {uri!r}: {error}") from error


def _check_store(uri: str) -> None:
    """Refuse to resolve a URI where MLflow's own store is missing, for MLflow would create it.

    Raises:
        ArtifactError: the message names the store.
    """
    import mlflow

    in_registry = uri.startswith("models:") and not uri.startswith("models:/m-")
    store = str(mlflow.get_registry_uri() if in_registry else mlflow.get_tracking_uri())
    path = local_path(store) if store.startswith(("file:", "/", ".")) else None
    if store.startswith("sqlite:///"):
        path = store.removeprefix("sqlite:///")
    if path is not None and not os.path.exists(path):
        raise ArtifactError(
            f"MLflow cannot resolve {uri!r}: its store {store!r} does not exist; set "
            "MLFLOW_TRACKING_URI (or MLFLOW_REGISTRY_URI), or name the folder of the model"
        )


def _below(folder: str, name: str) -> str:
    """Return the path of a file in a folder that a stranger may have made.

    Raises:
        ArtifactError: a link leads out of the folder.
    """
    path = os.path.join(folder, name)
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise ArtifactError(
            f"{path!r} is a link that leads out of its folder; copy the file there, or name the "
            "file that it links to"
        )
    return path


def _saved_by_mlflow(host: Files, path: str) -> SavedModel | None:
    """What MLflow saved in a local folder; None if there is no `MLmodel` in it."""
    named = local_path(path)
    if named is None or not os.path.isfile(os.path.join(named, DOCUMENT)):
        return None
    if any(c in named for c in "*?["):
        raise ArtifactError(f"{path!r} contains a wildcard (* ? [); rename it")
    document = _below(named, DOCUMENT)
    return saved_model(_content(host, document, host.read_file(document)), path)


def _check_pinned(path: str, sha256: Any, digest: str) -> None:
    if sha256 is not None and digest != str(sha256).lower():
        raise ArtifactError(
            f"{path!r} does not have the sha256 that the statement pins, but {digest}"
        )


def _files_of_folder(host: Files, path: str) -> dict[str, bytes] | None:
    """The files that Spark reads in a local folder; None if Spark did not save it."""
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
            raise ArtifactError(f"{name!r} is empty or contains a wildcard (* ? [); rename it")
    return {name: host.file_content(os.path.join(named, name)) for name in parts}


def _digest_of(files: Mapping[str, bytes]) -> str:
    """The sha256 of the names and the sha256 of each file."""
    lines = (f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _content(host: Files, path: str, files: Sequence[tuple[str, int]]) -> bytes:
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
        return f"file {path!r} does not exist"
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
