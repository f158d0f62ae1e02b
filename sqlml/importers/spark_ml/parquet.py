"""`tables_elsewhere`: Parquet files of a stranger's folder, read in a process of its own.

pyarrow reads them in native code, which a damaged file may end (an exception of C++ that nobody
catches) or whose memory it may fill. A child answers with the tables in Arrow's own format.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlml.child_process import Child, Ended, Failed
from sqlml.errors import ArtifactError, named
from sqlml.limits import MAX_CONSTANT_VALUES, MAX_NODES

if TYPE_CHECKING:
    import pyarrow as pa

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
