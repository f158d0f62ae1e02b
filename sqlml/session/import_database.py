"""`exported_program`: a Program out of what EXPORT DATABASE wrote, before it is imported.

IMPORT DATABASE makes the views first and loads the tables then. A view that calls a model binds to
its function, so the function must be there while the model is in a file still. The engine reads
the folder, under its own access settings; no statement of the folder is run here.
"""

from __future__ import annotations

import os
import re

import duckdb

from sqlml.catalog.connection import Connection
from sqlml.dialects.duckdb import builtin
from sqlml.errors import SqlmlError
from sqlml.host import Host
from sqlml.ir import store
from sqlml.ir.program import Program
from sqlml.planner.syntax.text import text_of

_TEXT = r"'((?:[^']|'')*)'"
_COPY = re.compile(
    rf"^COPY\s+\S*sqlml\S*\.\"?catalog_programs\"?\s+FROM\s+{_TEXT}(.*);\s*$",
    re.IGNORECASE | re.MULTILINE,
)
_OPTION = re.compile(rf"\b(\w+)\s+(?:{_TEXT}|(\w+))")

# COPY's and read_csv's names for the options that EXPORT DATABASE may give a CSV file.
_CSV = {
    "delimiter": "delim",
    "delim": "delim",
    "sep": "delim",
    "quote": "quote",
    "escape": "escape",
    "header": "header",
    "null": "nullstr",
    "nullstr": "nullstr",
}


def exported_program(
    connection: Connection, host: Host, statement: str, digest: str
) -> Program | None:
    """The Program whose hash begins with `digest`, of the folder that a statement imports.

    None if it imports none, or the folder has no such Program.
    """
    folder = text_of(statement).imported_folder
    if folder is None:
        return None
    try:
        load = host.file_content(os.path.join(folder, "load.sql")).decode()
        copy = _COPY.search(load)
        if copy is None:
            return None
        # As DuckDB does it: the folder may have been moved since.
        path = os.path.join(folder, os.path.basename(_unquoted(copy[1])))
        return _loaded(connection, path, copy[2], digest)
    except (UnicodeDecodeError, duckdb.Error, SqlmlError):
        return None  # IMPORT says what is wrong with the folder


def _loaded(connection: Connection, path: str, options: str, digest: str) -> Program | None:
    values = {name.lower(): text or word for name, text, word in _OPTION.findall(options)}
    params: list[object] = [path]
    if values.get("format", "csv").lower() == "csv":
        named = {_CSV[name]: _unquoted(value) for name, value in values.items() if name in _CSV}
        if "header" in named:
            named["header"] = str(named["header"].lower() in ("1", "true"))
        settings = "".join(f", {name} = ?" for name in named)
        columns = "hash := 'VARCHAR', format := 'INTEGER', content := 'BLOB'"
        columns = f"{builtin('struct_pack')}({columns})"
        rows = f"{builtin('read_csv')}(?, columns = {columns}, auto_detect = false{settings})"
        params += named.values()
    else:
        rows = f"{builtin('read_parquet')}(?)"
    wanted = f"{builtin('starts_with')}(hash, ?)"
    found = connection.read(f"SELECT content FROM {rows} WHERE {wanted}", [*params, digest])
    for (content,) in found:
        program = store.loads(bytes(content))
        if program.hash.startswith(digest):
            return program
    return None


def _unquoted(text: str) -> str:
    return text.replace("''", "'")
