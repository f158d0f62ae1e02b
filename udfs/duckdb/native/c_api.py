"""DuckDB's C API in its Python wheel, for ctypes and for LLVM."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

_POINTER, _INT = ctypes.c_void_p, ctypes.c_int

_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
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
"""Maps each function that Python calls to the result type (None: void) and the argument types."""


@cache
def load_c_api() -> ctypes.CDLL:
    """Load DuckDB's C API; raise ImportError, OSError or AttributeError if it is incomplete."""
    import _duckdb

    api = ctypes.CDLL(_duckdb.__file__)
    for name, (result_type, argument_types) in _SIGNATURES.items():
        function = getattr(api, name)
        function.restype, function.argtypes = result_type, argument_types
    return api


def find_function_address(name: str) -> int:
    pointer = ctypes.cast(getattr(load_c_api(), name), ctypes.c_void_p).value
    assert pointer is not None
    return pointer


_TYPE_NUMBERS = {"FLOAT": 10, "DOUBLE": 11, "INTEGER": 4, "VARCHAR": 17}
"""Maps SQL types to numbers of the C enum `duckdb_type`."""


def use_type(name: str, callback: Callable[[ctypes.c_void_p], Any]) -> None:
    """Call `callback` with a new logical type, such as DOUBLE[28], and free the type afterwards."""
    logical_type = _create_type(name)
    callback(logical_type)
    load_c_api().duckdb_destroy_logical_type(ctypes.byref(logical_type))


def _create_type(name: str) -> ctypes.c_void_p:
    api = load_c_api()
    if name.startswith("STRUCT("):
        return _create_struct(name.removeprefix("STRUCT(").removesuffix(")").split(", "))
    element_name, bracket, size = name.removesuffix("]").rpartition("[")
    if not bracket:
        return ctypes.c_void_p(api.duckdb_create_logical_type(_TYPE_NUMBERS[name]))
    inner = _create_type(element_name)
    create_list = api.duckdb_create_list_type
    outer = api.duckdb_create_array_type(inner, int(size)) if size else create_list(inner)
    api.duckdb_destroy_logical_type(ctypes.byref(inner))
    return ctypes.c_void_p(outer)


def _create_struct(fields: list[str]) -> ctypes.c_void_p:
    api = load_c_api()
    names, type_names = zip(*(field.split(" ") for field in fields), strict=True)
    types = [_create_type(type_name) for type_name in type_names]
    type_pointers = (ctypes.c_void_p * len(types))(*types)
    name_pointers = (ctypes.c_char_p * len(types))(*(name.encode() for name in names))
    struct_type = api.duckdb_create_struct_type(type_pointers, name_pointers, len(types))
    for field_type in types:
        api.duckdb_destroy_logical_type(ctypes.byref(field_type))
    return ctypes.c_void_p(struct_type)
