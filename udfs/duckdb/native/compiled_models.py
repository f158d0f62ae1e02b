"""Compile models for clients that run the models of a database without Python.

The catalog keeps the data of each model's default version (`extension_file.py`). A client that has
loaded the runtime reads it through the macros of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from sqlml.backends.native.jit.processor_levels import LIBRARY
from sqlml.backends.no_wait import NotReady, no_wait
from sqlml.errors import SqlmlError
from sqlml.ir.program import Program
from sqlml.types import Feature

REFUSED = b"sqlml: "
"""The beginning of what the catalog keeps for a model that needs Python; the reason follows."""


def compile_for_clients(
    program: Program, features: Sequence[Feature], options: Mapping[str, Any]
) -> bytes:
    """Return the data of the functions that macros call, or REFUSED and the reason."""
    from sqlml.udfs.duckdb.native.exported_functions import make_client_functions  # Imports LLVM.
    from sqlml.udfs.duckdb.native.extension_file import write_data

    library = _read_library(LIBRARY)
    if library is None:
        return REFUSED + b"the model was created without sqlml's runtime; create it again"
    try:
        with no_wait():
            return write_data(
                library, make_client_functions(program, features, options), is_compact=True
            )
    except ImportError as error:
        return REFUSED + f"compiling it needs {error.name}; install it".encode()
    except NotReady:
        return REFUSED + b"the runtime lacks a kernel of this model; score it with sqlml"
    except SqlmlError as error:
        return REFUSED + str(error).encode("utf-8", "replace")


@cache
def _read_library(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
