"""Compile models for clients that run the models of a database without Python.

The catalog keeps the data of each model's default version (`extension_file.py`), and of each
function that a view calls. A client that has loaded the runtime reads it through the macros of the
file. The data is compressed, and then encoded as text: EXPORT DATABASE writes one line of CSV for
each row, and IMPORT DATABASE takes lines of up to 2 MB, where a byte would need up to 4 characters.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sqlml.backends.native.jit.processor_levels import LIBRARY
from sqlml.backends.no_wait import NotReady, no_wait
from sqlml.errors import SqlmlError
from sqlml.ir.program import Program
from sqlml.planner.program.function_spec import FunctionSpec
from sqlml.types import Feature

if TYPE_CHECKING:
    from sqlml.udfs.duckdb.native.extension_file import ExportedFunction

REFUSED = b"sqlml: "
"""The beginning of what the catalog keeps for a model that needs Python; the reason follows."""


def compile_for_clients(
    program: Program, features: Sequence[Feature], options: Mapping[str, Any]
) -> str:
    """Return the data of the functions that macros call, or REFUSED and the reason."""
    return _compile(lambda: _import_functions().make_client_functions(program, features, options))


def compile_view_function(program: Program, spec: FunctionSpec) -> str:
    """Return the data of the function that a view's macro calls, or REFUSED and the reason."""
    return _compile(lambda: (_import_functions().make_view_function(program, spec),))


def _import_functions() -> ModuleType:
    from sqlml.udfs.duckdb.native import exported_functions  # Imports LLVM.

    return exported_functions


def _compile(make_functions: Callable[[], Sequence[ExportedFunction]]) -> str:
    return b64encode(_compile_or_refuse(make_functions)).decode()


def _compile_or_refuse(make_functions: Callable[[], Sequence[ExportedFunction]]) -> bytes:
    library = _read_library(LIBRARY)
    if library is None:
        return REFUSED + b"the model was created without sqlml's runtime; create it again"
    try:
        with no_wait():
            functions = make_functions()
            from sqlml.udfs.duckdb.native.extension_file import write_data

            return compress(write_data(library, functions, is_compact=True))
    except ImportError as error:
        return REFUSED + f"compiling it needs {error.name}; install it".encode()
    except NotReady:
        return REFUSED + b"the runtime lacks a kernel of this model; score it with sqlml"
    except SqlmlError as error:
        return REFUSED + str(error).encode("utf-8", "replace")


COMPRESSED = b"sqlml z\n"
"""The beginning of compressed data; the size of the data and a block of the format LZ4 follow."""


def compress(data: bytes) -> bytes:
    """Compress data for `runtime.c`."""
    block: bytes = pa.compress(data, codec="lz4_raw", asbytes=True)
    return COMPRESSED + struct.pack("<q", len(data)) + block


@cache
def _read_library(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
