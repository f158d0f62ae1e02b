"""`exported_program`: a Program out of what EXPORT DATABASE wrote, before it is imported.

IMPORT DATABASE makes the views first and loads the tables then. A view that calls a model binds to
its function, so the function must be there while the model is in a file still.
"""

from __future__ import annotations

import os
import re

import duckdb

from sqlml.catalog.tables import TABLES
from sqlml.errors import SqlmlError
from sqlml.ir import store
from sqlml.ir.program import Program

_IMPORT = re.compile(r"\bIMPORT\s+DATABASE\s+'((?:[^']|'')*)'", re.IGNORECASE)
_COPY = re.compile(
    r"^COPY\s+\S*sqlml\S*\.\"?catalog_programs\"?\s+FROM\s.*;\s*$", re.IGNORECASE | re.MULTILINE
)


def exported_program(statement: str, digest: str) -> Program | None:
    """The Program whose hash begins with `digest`, of the folder that a statement imports.

    None where it imports none, or the folder has no such Program.
    """
    folder = _IMPORT.search(statement)
    if folder is None:
        return None
    try:
        with open(os.path.join(folder[1].replace("''", "'"), "load.sql"), encoding="utf-8") as file:
            copy = _COPY.search(file.read())
        return None if copy is None else _loaded(copy[0], digest)
    except (OSError, UnicodeDecodeError, duckdb.Error, SqlmlError):
        return None  # IMPORT says what is wrong with the folder


def _loaded(copy: str, digest: str) -> Program | None:
    with duckdb.connect() as own:
        for statement in TABLES:
            if "CREATE SCHEMA" in statement or "catalog_programs" in statement:
                own.execute(statement.format(schema="sqlml"))
        own.execute(re.sub(r"^COPY\s+\S+", "COPY sqlml.catalog_programs", copy))
        found = own.execute(
            "SELECT content FROM sqlml.catalog_programs WHERE starts_with(hash, ?)", [digest]
        ).fetchall()
    for (content,) in found:
        program = store.loads(bytes(content))
        if program.hash.startswith(digest):
            return program
    return None
