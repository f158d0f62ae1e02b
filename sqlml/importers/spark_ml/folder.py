"""`read_folder`: the files that `model.write().save(path)` wrote, as a SparkModel.

```
metadata/part-00000..             one line of JSON: class, uid, parameters
data/part-00000...snappy.parquet  what it learned
treesMetadata/..                  of forests
stages/0_<uid>/metadata, data ..  of a pipeline
```

Neither Spark nor Java is needed for that: pyarrow reads the tables (`folder.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlml.child_process import Child, Ended, Failed
from sqlml.errors import ArtifactError, UnsupportedModelError, named
from sqlml.importers.spark_ml.contents import saved
from sqlml.importers.spark_ml.stages import (
    MAX_STAGES,
    PACKAGES,
    PIPELINES,
    SCALA,
    SparkModel,
    Stage,
    not_covered,
)
from sqlml.importers.untrusted_documents import read_json
from sqlml.ir.damaged_file import reading
from sqlml.limits import MAX_CONSTANT_VALUES, MAX_NODES

if TYPE_CHECKING:
    import pyarrow as pa


# `tables_elsewhere`: Parquet files of a stranger's folder, read in a process of its own.
#
# pyarrow reads them in native code, which a damaged file may end (an exception of C++ that nobody
# catches) or whose memory it may fill. A child answers with the tables in Arrow's own format.


MAX_ROWS = MAX_CONSTANT_VALUES >> 4
"""Most rows of a table: the nodes of all trees."""

Parts = Mapping[str, Sequence[bytes]]
"""Folder -> the files in it, of which each has some rows of one table."""


def tables_elsewhere(parts: Parts) -> dict[str, pa.Table]:
    """The table of each folder.

    Raises:
        ArtifactError: one is damaged, or too large.
    """
    if not parts:
        return {}
    import pyarrow as pa

    about = json.dumps([[folder, len(files)] for folder, files in parts.items()]).encode()
    files = [file for held in parts.values() for file in held]
    try:
        with Child(f"{__name__}:conversation", about, *files) as child:
            told = child.first
    except Ended as how:
        raise ArtifactError(
            f"a process that reads the Parquet files of the Spark model {how}: they are damaged "
            "or hostile; save the model again"
        ) from None
    except Failed as failed:
        raise named(failed.name, failed.message) or ArtifactError(
            f"the Parquet files of the Spark model cannot be read ({failed.name}: "
            f"{failed.message}); save the model again"
        ) from None
    made: dict[str, pa.Table] = {}
    source = pa.BufferReader(told)
    for folder in parts:
        with pa.ipc.open_stream(source) as stream:
            made[folder] = stream.read_all()
        made[folder].validate(full=True)
    return made


def tables_here(parts: Parts) -> dict[str, pa.Table]:
    """Read tables in this process: only for files that this process wrote."""
    return {folder: _table(files, folder) for folder, files in parts.items()}


def conversation(about: bytes, *files: bytes) -> Generator[bytes, bytes, None]:
    """The child process, whose one answer is the concatenated tables."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    start = 0
    for folder, count in json.loads(about):
        table = _table(files[start : start + count], folder)
        start += count
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    yield sink.getvalue().to_pybytes()


def _table(parts: Sequence[bytes], folder: str) -> pa.Table:
    """The rows of all parts.

    Raises:
        ArtifactError: there are too many.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = [pq.ParquetFile(pa.BufferReader(part)) for part in parts]
    about = [file.metadata for file in files]
    for things, count, most in (
        ("rows", sum(held.num_rows for held in about), MAX_ROWS),
        ("pieces", sum(held.num_row_groups for held in about), MAX_NODES),
        ("values", sum(map(_values, about)), MAX_CONSTANT_VALUES),
    ):
        if count > most:
            raise ArtifactError(f"{folder!r} of the Spark model has {count} {things}, over {most}")
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
