"""`read_folder`: the files that `model.write().save(path)` wrote, as a SparkModel.

```
metadata/part-00000..             one line of JSON: class, uid, parameters
data/part-00000...snappy.parquet  what it learned
treesMetadata/..                  of forests
stages/0_<uid>/metadata, data ..  of a pipeline
```

Neither Spark nor Java is needed for that: the tables are read by pyarrow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlml.config import MAX_CONSTANT_VALUES, MAX_NODES
from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.importers.json_text import read_json
from sqlml.importers.spark_ml.contents import CONTENTS
from sqlml.importers.spark_ml.stages import (
    MAX_STAGES,
    PACKAGES,
    PIPELINES,
    SCALA,
    SparkModel,
    Stage,
    not_covered,
)
from sqlml.ir.reading import reading

if TYPE_CHECKING:
    import pyarrow as pa

MAX_FILES = 100_000
"""Most files of a folder."""

MAX_ROWS = MAX_CONSTANT_VALUES >> 4
"""Most rows of a table: the nodes of all trees."""

MAX_METADATA = 1 << 26
"""Most bytes of a stage's metadata."""

_DEEPEST = 10
"""Pipelines within pipelines."""

_VERSION = re.compile(r"[34]\.\d+[\w.+-]{0,40}", re.ASCII)


def read_folder(files: Mapping[str, bytes]) -> SparkModel:
    """The model of a folder.

    Args:
        files: path below the folder, with "/" -> content. What Spark itself would not read, hidden
            files and checksums, may be there or not.

    Raises:
        ArtifactError: it is no folder of Spark's, damaged, hostile, or too large.
        UnsupportedModelError: a stage that is not covered.
    """
    import pyarrow as pa

    told: list[str] = []
    failing = "save the model again", pa.ArrowException, OSError, MemoryError
    with reading("the Spark model", *failing):
        stages = tuple(_stages(_parts(files), "", told, 0))
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
            "is a directory, and not one that pyspark.ml saved a model in: there is no "
            "metadata/part-.. in it; name a model file, or what model.write().save(path) wrote"
        )
    return folders


def _stages(
    folders: Mapping[str, list[bytes]], place: str, told: list[str], depth: int
) -> Iterator[Stage]:
    """The stages below a folder; `told` gets the versions of Spark that wrote them."""
    about = _metadata(folders, place)
    name, uid = str(about["class"]), str(about["uid"])
    version = about["sparkVersion"]
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise UnsupportedModelError(
            f"Spark {version} saved this model, and sqlml reads what Spark 3 and 4 save; load it "
            "with a Spark of these and save it again"
        )
    told.append(version)
    if len(told) > MAX_STAGES:
        raise ArtifactError(f"the pipeline has more than {MAX_STAGES} stages")
    if name in PIPELINES:
        if depth > _DEEPEST:
            raise ArtifactError(f"pipelines are nested more than {_DEEPEST} deep")
        for folder in _folders_of(folders, place, about["paramMap"]["stageUids"]):
            yield from _stages(folders, folder, told, depth + 1)
        return
    kind = name.rsplit(".", 1)[-1]
    if kind not in PACKAGES or name != f"{SCALA}{PACKAGES[kind]}.{kind}":
        raise not_covered(name, uid)
    params = {**_object(about.get("defaultParamMap", {})), **_object(about["paramMap"])}

    def table(folder: str) -> pa.Table:
        return _table(folders.get(_below(place, folder), []), f"{kind} {uid}", folder)

    with reading(f"the {kind} {uid} of the Spark model", "save the model again"):
        yield Stage(kind, uid, params, CONTENTS[kind](table, about))


def _below(place: str, name: str) -> str:
    return f"{place}/{name}" if place else name


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("parameters are no object")
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
        raise ValueError("stageUids is no list of the stages")
    prefix = _below(place, "stages") + "/"
    there = {f[len(prefix) :].split("/")[0] for f in folders if f.startswith(prefix)}
    digits = len(str(len(uids)))
    for i, uid in enumerate(uids):
        name = f"{i:0{digits}d}_{uid}"
        if name not in there:
            raise ArtifactError(f"the Spark model lacks the folder stages/{name} of a stage")
        yield prefix + name


def _table(parts: Sequence[bytes], stage: str, folder: str) -> pa.Table:
    """The rows of all parts.

    Raises:
        ArtifactError: there are none, or too many.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not parts:
        raise ArtifactError(f"the {stage} has no file in its folder {folder!r}")
    files = [pq.ParquetFile(pa.BufferReader(part)) for part in parts]
    rows = sum(file.metadata.num_rows for file in files)
    if rows > MAX_ROWS:
        raise ArtifactError(f"the {folder} of the {stage} has {rows} rows, over {MAX_ROWS}")
    if sum(file.metadata.num_row_groups for file in files) > MAX_NODES:
        raise ArtifactError(f"the {folder} of the {stage} is in too many pieces")
    if sum(_values(file.metadata) for file in files) > MAX_CONSTANT_VALUES:
        raise ArtifactError(f"the {folder} of the {stage} has too many values")
    tables = [file.read(use_threads=False) for file in files]
    held = [table for table in tables if table.num_rows] or tables[:1]
    return pa.concat_tables(held).combine_chunks()


def _values(metadata: Any) -> int:
    """How many values the columns of a table claim to have, those of its lists counted."""
    return sum(
        metadata.row_group(g).column(c).num_values
        for g in range(metadata.num_row_groups)
        for c in range(metadata.num_columns)
    )
