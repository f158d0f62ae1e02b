"""`read_folder`: the files that `model.write().save(path)` wrote, as a SparkModel.

```
metadata/part-00000..             one line of JSON: class, uid, parameters
data/part-00000...snappy.parquet  what it learned
treesMetadata/..                  of forests
stages/0_<uid>/metadata, data ..  of a pipeline
```

Neither Spark nor Java is needed for that: pyarrow reads the tables (`parquet.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.importers.json_text import read_json
from sqlml.importers.spark_ml.contents import saved
from sqlml.importers.spark_ml.parquet import Parts, tables_elsewhere
from sqlml.importers.spark_ml.stages import (
    MAX_STAGES,
    PACKAGES,
    PIPELINES,
    SCALA,
    SparkModel,
    Stage,
    not_covered,
)
from sqlml.ir.damaged_file import reading

if TYPE_CHECKING:
    import pyarrow as pa

MAX_FILES = 100_000
"""Most files of a folder."""

MAX_METADATA = 1 << 26
"""Most bytes of a stage's metadata."""

MAX_NAME = 200
"""Letters of a class or uid that messages may repeat."""

_DEEPEST = 10
"""Pipelines within pipelines."""

_VERSION = re.compile(r"[34]\.\d+[\w.+-]{0,40}", re.ASCII)


_TABLES = ("data", "treesMetadata")
"""The folders of a stage that hold tables."""


def read_folder(
    files: Mapping[str, bytes], tables: Callable[[Parts], dict[str, Any]] = tables_elsewhere
) -> SparkModel:
    """The model of a folder.

    Args:
        files: path below the folder, with "/" -> content. What Spark itself would not read, hidden
            files and checksums, may be there or not.
        tables: how to read its tables.

    Raises:
        ArtifactError: the folder is not Spark's, or is damaged, hostile or too large.
        UnsupportedModelError: a stage that is not covered.
    """
    import pyarrow as pa

    told: list[str] = []
    failing = "save the model again", pa.ArrowException, OSError, MemoryError
    with reading("the Spark model", *failing):
        folders = _parts(files)
        stored = {f: held for f, held in folders.items() if f.rpartition("/")[2] in _TABLES}
        stages = tuple(_stages(folders, tables(stored), "", told, 0))
    return SparkModel(stages, f"pyspark {told[0]}")


def _parts(files: Mapping[str, bytes]) -> dict[str, list[bytes]]:
    """Folder -> the parts in it that Spark reads, in their order."""
    folders: dict[str, list[bytes]] = {}
    for path in sorted(files):
        folder, _, name = path.rpartition("/")
        if name.startswith("part-"):
            folders.setdefault(folder, []).append(files[path])
    if "metadata" not in folders:
        raise ArtifactError(
            "is a directory, but not one in which pyspark.ml saved a model: it lacks "
            "metadata/part-..; name a model file, or what model.write().save(path) wrote"
        )
    return folders


def _stages(
    folders: Mapping[str, list[bytes]],
    tables: Mapping[str, pa.Table],
    place: str,
    told: list[str],
    depth: int,
) -> Iterator[Stage]:
    """The stages below a folder; `told` gets the versions of Spark that wrote them."""
    about = _metadata(folders, place)
    name, uid = str(about["class"])[:MAX_NAME], str(about["uid"])[:MAX_NAME]
    version = about["sparkVersion"]
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise UnsupportedModelError(
            f"Spark {str(version)[:MAX_NAME]} saved this model, and sqlml reads what Spark 3 and "
            "4 save; load it with one of these and save it again"
        )
    told.append(version)
    if len(told) > MAX_STAGES:
        raise ArtifactError(f"the pipeline has more than {MAX_STAGES} stages")
    if name in PIPELINES:
        if depth > _DEEPEST:
            raise ArtifactError(f"pipelines are nested more than {_DEEPEST} deep")
        for folder in _folders_of(folders, place, about["paramMap"]["stageUids"]):
            yield from _stages(folders, tables, folder, told, depth + 1)
        return
    kind = name.rsplit(".", 1)[-1]
    if kind not in PACKAGES or name != f"{SCALA}{PACKAGES[kind]}.{kind}":
        raise not_covered(name, uid)
    params = {**_object(about.get("defaultParamMap", {})), **_object(about["paramMap"])}

    def table(folder: str) -> pa.Table:
        found = tables.get(_below(place, folder))
        if found is None:
            raise ArtifactError(f"the {kind} {uid} has no file in its folder {folder!r}")
        return found

    with reading(f"the {kind} {uid} of the Spark model", "save the model again"):
        yield Stage(kind, uid, params, saved(kind, table, about))


def _below(place: str, name: str) -> str:
    return f"{place}/{name}" if place else name


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("the parameters are not an object")
    return value


def _metadata(folders: Mapping[str, list[bytes]], place: str) -> dict[str, Any]:
    content = b"".join(folders.get(_below(place, "metadata"), []))
    if not content:
        raise ArtifactError(f"the Spark model has no metadata in its folder {place or '.'!r}")
    if len(content) > MAX_METADATA:
        raise ArtifactError(f"the metadata in {place or '.'!r} has {len(content)} bytes")
    return _object(read_json(content, strict=True))


def _folders_of(
    folders: Mapping[str, list[bytes]], place: str, uids: Sequence[Any]
) -> Iterator[str]:
    """The folders of a pipeline's stages, which are called after their numbers and uids."""
    if not isinstance(uids, list) or len(uids) > MAX_STAGES:
        raise ValueError("stageUids does not list the stages")
    prefix = _below(place, "stages") + "/"
    there = {f[len(prefix) :].split("/")[0] for f in folders if f.startswith(prefix)}
    digits = len(str(len(uids)))
    for i, uid in enumerate(uids):
        name = f"{i:0{digits}d}_{uid}"
        if name not in there:
            raise ArtifactError(f"the Spark model lacks the folder stages/{name} of a stage")
        yield prefix + name
