"""DuckDB's C API as its Python wheel has it: what ctypes calls, and what LLVM finds by name."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

_POINTER, _INT = ctypes.c_void_p, ctypes.c_int

_FORMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "duckdb_connect": (_INT, (_POINTER, _POINTER)),
    "duckdb_disconnect": (None, (_POINTER,)),
    "duckdb_create_logical_type": (_POINTER, (_INT,)),
    "duckdb_create_list_type": (_POINTER, (_POINTER,)),
    "duckdb_create_array_type": (_POINTER, (_POINTER, ctypes.c_uint64)),
    "duckdb_create_struct_type": (_POINTER, (_POINTER, _POINTER, ctypes.c_uint64)),
    "duckdb_destroy_logical_type": (None, (_POINTER,)),
    "duckdb_create_scalar_function": (_POINTER, ()),
    "duckdb_destroy_scalar_function": (None, (_POINTER,)),
    "duckdb_scalar_function_set_name": (None, (_POINTER, ctypes.c_char_p)),
    "duckdb_scalar_function_add_parameter": (None, (_POINTER, _POINTER)),
    "duckdb_scalar_function_set_return_type": (None, (_POINTER, _POINTER)),
    "duckdb_scalar_function_set_special_handling": (None, (_POINTER,)),
    "duckdb_scalar_function_set_volatile": (None, (_POINTER,)),
    "duckdb_scalar_function_set_extra_info": (None, (_POINTER, _POINTER, _POINTER)),
    "duckdb_scalar_function_set_function": (None, (_POINTER, _POINTER)),
    "duckdb_scalar_function_set_error": (None, (_POINTER, ctypes.c_char_p)),
    "duckdb_scalar_function_set_bind": (None, (_POINTER, _POINTER)),
    "duckdb_scalar_function_set_bind_data": (None, (_POINTER, _POINTER, _POINTER)),
    "duckdb_scalar_function_set_bind_data_copy": (None, (_POINTER, _POINTER)),
    "duckdb_scalar_function_bind_set_error": (None, (_POINTER, ctypes.c_char_p)),
    "duckdb_scalar_function_bind_get_extra_info": (_POINTER, (_POINTER,)),
    "duckdb_scalar_function_bind_get_argument": (_POINTER, (_POINTER, ctypes.c_uint64)),
    "duckdb_scalar_function_get_client_context": (None, (_POINTER, _POINTER)),
    "duckdb_expression_is_foldable": (ctypes.c_bool, (_POINTER,)),
    "duckdb_expression_fold": (_POINTER, (_POINTER, _POINTER, _POINTER)),
    "duckdb_is_null_value": (ctypes.c_bool, (_POINTER,)),
    "duckdb_get_varchar": (_POINTER, (_POINTER,)),
    "duckdb_free": (None, (_POINTER,)),
    "duckdb_destroy_value": (None, (_POINTER,)),
    "duckdb_destroy_error_data": (None, (_POINTER,)),
    "duckdb_destroy_expression": (None, (_POINTER,)),
    "duckdb_destroy_client_context": (None, (_POINTER,)),
    "duckdb_register_scalar_function": (_INT, (_POINTER, _POINTER)),
}
"""Result and arguments of the functions that are called from Python."""


@cache
def library() -> ctypes.CDLL:
    """The library of the Python package.

    Raises:
        ImportError, OSError: it is elsewhere.
        AttributeError: it lacks one of the functions.
    """
    import _duckdb

    made = ctypes.CDLL(_duckdb.__file__)
    for name, (result, arguments) in _FORMS.items():
        function = getattr(made, name)
        function.restype, function.argtypes = result, list(arguments)
    return made


def address(name: str) -> int:
    """Where a function of the library lies."""
    found = ctypes.cast(getattr(library(), name), ctypes.c_void_p).value
    assert found is not None
    return found
