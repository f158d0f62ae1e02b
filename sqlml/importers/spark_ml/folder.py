"""Read a SparkModel from the files that `model.write().save(path)` of pyspark.ml writes.

```
metadata/part-00000...            one line of JSON: class, uid, parameters
data/part-00000...snappy.parquet  the learned values
treesMetadata/...                 for forests
stages/0_<uid>/metadata, data ... for a pipeline
```

Neither Spark nor Java is needed. pyarrow reads the tables in a child process, because a damaged
file may crash pyarrow with an uncaught C++ exception, or fill the memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlml.child_process import Child, ChildEnded, ChildFailed
from sqlml.errors import ArtifactError, UnsupportedModelError, make_error
from sqlml.importers.spark_ml import pipeline_stages
from sqlml.importers.spark_ml.contents import read_saved_data
from sqlml.importers.spark_ml.pipeline_stages import SparkModel, Stage, make_unsupported_error
from sqlml.importers.untrusted_documents import read_json
from sqlml.ir.damaged_file import report_damage
from sqlml.limits import MAX_CONSTANT_VALUES, MAX_NODES

if TYPE_CHECKING:
    import pyarrow as pa


MAX_ROWS = MAX_CONSTANT_VALUES >> 4
"""The maximum number of rows of a table, for example of nodes."""

Contents = Mapping[str, Sequence[bytes]]
"""Maps a folder to the contents of the files, which together hold one table."""


def read_tables_in_child(folders: Contents) -> dict[str, pa.Table]:
    """Read one table per folder in a child process; return the tables by folder."""
    if not folders:
        return {}
    import pyarrow as pa

    counts = json.dumps([[folder, len(files)] for folder, files in folders.items()]).encode()
    files = [file for folder_files in folders.values() for file in folder_files]
    try:
        with Child(f"{__name__}:run_reader", counts, *files) as child:
            content = child.first
    except ChildEnded as end:
        raise ArtifactError(
            f"a process that reads the Parquet files of the Spark model {end}: they are damaged "
            "or malicious; save the model again"
        ) from None
    except ChildFailed as failure:
        raise make_error(failure.name, failure.message) or ArtifactError(
            f"the Parquet files of the Spark model cannot be read ({failure.name}: "
            f"{failure.message}); save the model again"
        ) from None
    tables: dict[str, pa.Table] = {}
    source = pa.BufferReader(content)
    for folder in folders:
        with pa.ipc.open_stream(source) as stream:
            tables[folder] = stream.read_all()
        tables[folder].validate(full=True)
    return tables


def read_tables(folders: Contents) -> dict[str, pa.Table]:
    """Read one table per folder in this process, which is only safe for trusted files."""
    return {folder: _join_table(files, folder) for folder, files in folders.items()}


def run_reader(counts: bytes, *files: bytes) -> Generator[bytes, bytes, None]:
    """Yield all tables, concatenated in Arrow's stream format; this runs in the child process.

    `counts` is a JSON list of pairs of a folder and the number of files in the folder.
    """
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    start = 0
    for folder, count in json.loads(counts):
        table = _join_table(files[start : start + count], folder)
        start += count
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    yield sink.getvalue().to_pybytes()


def _join_table(contents: Sequence[bytes], folder: str) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = [pq.ParquetFile(pa.BufferReader(content)) for content in contents]
    headers = [file.metadata for file in files]
    for name, count, limit in (
        ("rows", sum(header.num_rows for header in headers), MAX_ROWS),
        ("row groups", sum(header.num_row_groups for header in headers), MAX_NODES),
        ("values", sum(map(_count_values, headers)), MAX_CONSTANT_VALUES),
    ):
        if count > limit:
            raise ArtifactError(f"{folder!r} of the Spark model has {count} {name}, over {limit}")
    tables = [file.read(use_threads=False) for file in files]
    filled_tables = [table for table in tables if table.num_rows] or tables[:1]
    return pa.concat_tables(filled_tables).combine_chunks()


def _count_values(metadata: Any) -> int:
    """Return the number of values in Parquet metadata, including values in lists."""
    row_groups = map(metadata.row_group, range(metadata.num_row_groups))
    columns = range(metadata.num_columns)
    return sum(group.column(i).num_values for group in row_groups for i in columns)


MAX_FILES = 100_000
MAX_METADATA = 1 << 26
MAX_NAME = 200
"""The maximum length of a class name or uid; longer ones are truncated."""

_MAX_DEPTH = 10
_VERSION = re.compile(r"[34]\.\d+[\w.+-]{0,40}", re.ASCII)
_TABLES = ("data", "treesMetadata")


def read_folder(
    files: Mapping[str, bytes], read: Callable[[Contents], dict[str, Any]] = read_tables_in_child
) -> SparkModel:
    """Read the model in a folder; `files` maps relative paths to file contents.

    Files that Spark does not read, such as hidden files and checksums, are ignored.
    """
    import pyarrow as pa

    versions: list[str] = []
    errors = (pa.ArrowException, OSError, MemoryError)
    with report_damage("the Spark model", "save the model again", *errors):
        folders = _group_by_folder(files)
        table_folders = {f: folders[f] for f in folders if f.rpartition("/")[2] in _TABLES}
        stages = tuple(_read_stages(folders, read(table_folders), "", versions, 0))
    return SparkModel(stages, f"pyspark {versions[0]}")


def _group_by_folder(files: Mapping[str, bytes]) -> dict[str, list[bytes]]:
    """Map each folder to the contents of the files that Spark reads, sorted by name."""
    folders: dict[str, list[bytes]] = {}
    for path in sorted(files):
        folder, _, name = path.rpartition("/")
        if name.startswith("part-"):
            folders.setdefault(folder, []).append(files[path])
    if "metadata" not in folders:
        raise ArtifactError(
            "is a directory, but not one in which pyspark.ml saved a model: it lacks "
            "metadata/part-...; name a model file, or what model.write().save(path) wrote"
        )
    return folders


def _read_stages(
    folders: Contents, tables: Mapping[str, pa.Table], root: str, versions: list[str], depth: int
) -> Iterator[Stage]:
    """Yield the stages in the folder `root`, including stages of nested pipelines.

    Append the Spark version of each stage to `versions`. `depth` is the nesting level.
    """
    metadata = _read_metadata(folders, root)
    class_path, uid = str(metadata["class"])[:MAX_NAME], str(metadata["uid"])[:MAX_NAME]
    version = metadata["sparkVersion"]
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise UnsupportedModelError(
            f"Spark {str(version)[:MAX_NAME]} saved this model, and sqlml reads what Spark 3 and "
            "4 save; load it with one of these versions, and save it again"
        )
    versions.append(version)
    if len(versions) > pipeline_stages.MAX_STAGES:
        raise ArtifactError(f"the pipeline has more than {pipeline_stages.MAX_STAGES} stages")
    if class_path in pipeline_stages.PIPELINES:
        if depth > _MAX_DEPTH:
            raise ArtifactError(f"pipelines are nested more than {_MAX_DEPTH} deep")
        for folder in _list_stage_folders(folders, root, metadata["paramMap"]["stageUids"]):
            yield from _read_stages(folders, tables, folder, versions, depth + 1)
        return
    class_name = class_path.rsplit(".", 1)[-1]
    package = pipeline_stages.PACKAGES.get(class_name)
    if package is None or class_path != f"{pipeline_stages.SCALA}{package}.{class_name}":
        raise make_unsupported_error(class_path, uid)
    defaults = _require_object(metadata.get("defaultParamMap", {}))
    params = defaults | _require_object(metadata["paramMap"])

    def read_table(folder: str) -> pa.Table:
        table = tables.get(_join_path(root, folder))
        if table is None:
            raise ArtifactError(f"the {class_name} {uid} has no file in its folder {folder!r}")
        return table

    with report_damage(f"the {class_name} {uid} of the Spark model", "save the model again"):
        yield Stage(class_name, uid, params, read_saved_data(class_name, read_table, metadata))


def _join_path(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _require_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("the parameters are not an object")
    return value


def _read_metadata(folders: Contents, folder: str) -> dict[str, Any]:
    content = b"".join(folders.get(_join_path(folder, "metadata"), []))
    if not content:
        raise ArtifactError(f"the Spark model has no metadata in its folder {folder or '.'!r}")
    if len(content) > MAX_METADATA:
        size = f"{len(content)} bytes; the limit is {MAX_METADATA}"
        raise ArtifactError(f"the metadata in {folder or '.'!r} is too large ({size})")
    return _require_object(read_json(content, strict=True))


def _list_stage_folders(folders: Contents, folder: str, uids: Sequence[Any]) -> Iterator[str]:
    """Yield the folder `stages/<number>_<uid>` of each stage of a pipeline."""
    if not isinstance(uids, list) or len(uids) > pipeline_stages.MAX_STAGES:
        raise ValueError("stageUids does not list the stages")
    prefix = _join_path(folder, "stages") + "/"
    subfolders = {f[len(prefix) :].split("/")[0] for f in folders if f.startswith(prefix)}
    num_digits = len(str(len(uids)))
    for i, uid in enumerate(uids):
        name = f"{i:0{num_digits}d}_{uid}"
        if name not in subfolders:
            raise ArtifactError(f"the Spark model lacks the folder stages/{name} of a stage")
        yield prefix + name
