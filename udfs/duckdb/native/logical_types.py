"""`with_type`: a type of DuckDB's by its name, for the C API."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from sqlml.udfs.duckdb.native import c_api

_KINDS = {"FLOAT": 10, "DOUBLE": 11, "INTEGER": 4, "VARCHAR": 17}
"""DuckDB's numbers of types (`duckdb_type`)."""


def with_type(name: str, use: Callable[[ctypes.c_void_p], Any]) -> None:
    """Call `use` with a logical type: DOUBLE, INTEGER[][], DOUBLE[28], STRUCT(a INTEGER, b DOUBLE).

    It is freed after that.
    """
    api = c_api.library()
    if name.startswith("STRUCT("):
        _with_struct(name.removeprefix("STRUCT(").removesuffix(")").split(", "), use)
        return
    element, bracket, size = name.removesuffix("]").rpartition("[")
    if bracket:

        def listed(inner: ctypes.c_void_p) -> None:
            if size:
                _with(ctypes.c_void_p(api.duckdb_create_array_type(inner, int(size))), use)
            else:
                _with(ctypes.c_void_p(api.duckdb_create_list_type(inner)), use)

        with_type(element, listed)
        return
    _with(ctypes.c_void_p(api.duckdb_create_logical_type(_KINDS[name])), use)


def _with_struct(fields: list[str], use: Callable[[ctypes.c_void_p], Any]) -> None:
    """Call `use` with the logical type of a struct, and free it after that.

    fields: a name and a type each, as in "label INTEGER".
    """
    api = c_api.library()
    names, kinds = zip(*(field.split(" ") for field in fields), strict=True)
    types = [ctypes.c_void_p(api.duckdb_create_logical_type(_KINDS[kind])) for kind in kinds]
    listed = (ctypes.c_void_p * len(types))(*types)
    texts = (ctypes.c_char_p * len(types))(*(name.encode() for name in names))
    _with(ctypes.c_void_p(api.duckdb_create_struct_type(listed, texts, len(types))), use)
    for made in types:
        api.duckdb_destroy_logical_type(ctypes.byref(made))


def _with(made: ctypes.c_void_p, use: Callable[[ctypes.c_void_p], Any]) -> None:
    use(made)
    c_api.library().duckdb_destroy_logical_type(ctypes.byref(made))
