"""The function that DuckDB calls has the name of the exported file, for the loader of each system.

`test_platform_libraries.py` renames it in the libraries of all platforms.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from sqlml.backends.native.runtime import init_symbol
from sqlml.backends.native.runtime.build_runtime import (
    EXTENSION,
    build_runtime,
    detect_duckdb_platform,
    find_compiler_command,
)
from sqlml.backends.native.runtime.init_symbol import LongNameError, rename_init_function

LONGEST = 255 - len(".duckdb_extension")
"""The most bytes that most file systems allow in the name of an extension."""

NAMES = ("m", "sqlml", "sqlml_reserved", "über das Wetter", "z" * LONGEST)


def test_the_system_finds_the_new_name(tmp_path: Path) -> None:
    target = detect_duckdb_platform()
    if target is None or find_compiler_command(target) is None:
        pytest.skip("no C compiler for this platform")
    assert build_runtime(tmp_path, target)
    content = (tmp_path / EXTENSION).read_bytes()
    for number, name in enumerate(NAMES):
        path = tmp_path / f"{number}.library"
        path.write_bytes(rename_init_function(content, name))
        library = ctypes.CDLL(str(path))
        exported = ("sqlml_init_c_api", "sqlml_find_kernel", "sqlml_sources", f"{name}_init_c_api")
        assert all(hasattr(library, symbol) for symbol in exported)
        assert not hasattr(library, init_symbol.RESERVED)


def test_a_name_is_refused_if_it_does_not_fit() -> None:
    with pytest.raises(LongNameError, match="more than 254 bytes"):
        rename_init_function(b"\x7fELF", "z" * 255)


TREE = {
    b"_sqlml_call_kernel": b"\0\x10",
    b"_sqlml_call": b"\0\x90\x01",
    b"_duckdb_vector_get_data": b"\0\x20",
    b"_duckdb_vector_get_validity": b"\0\x30",
    b"__mh_dylib_header": b"\0\0",
}


@pytest.mark.parametrize("name", [name.encode() for name in NAMES])
def test_the_tree_of_macos_has_all_names_and_leaves_room(name: bytes) -> None:
    reserved = {**TREE, b"_" + init_symbol.RESERVED.encode(): b"\0\x40"}
    exports = {**TREE, b"_" + name + b"_init_c_api": b"\0\x40"}
    packed = init_symbol._pack_exports(exports)
    assert dict(init_symbol._list_exports(bytearray(packed), 0, 0, b"")) == exports
    assert len(packed) <= len(init_symbol._pack_exports(reserved))
