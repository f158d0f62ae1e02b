"""Kernels compiled ahead: which process takes them from the runtime, and which compiles."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from sqlml.backends.native.jit import kernel_keys, processor_levels, runtime_library
from sqlml.backends.native.jit.compile_ahead import KnownKernel, compile_ahead, read_known_kernels
from sqlml.backends.native.jit.processor_levels import LEVELS, get_level_settings
from sqlml.backends.native.runtime.build_runtime import (
    EXTENSION,
    TARGETS,
    build_runtime,
    detect_duckdb_platform,
    find_compiler_command,
)
from sqlml.backends.native.runtime.compile_kernels import compile_kernels

TARGET = detect_duckdb_platform()
FEATURES = llvm.get_host_cpu_features()

pytestmark = pytest.mark.skipif(
    TARGET is None or find_compiler_command(TARGET) is None, reason="no C compiler here"
)

SHIFT = "sqlml.backends.native.rows.column_kernels _shift "

CHILD = f"""
import sys
import numpy as np
from pathlib import Path
from sqlml.backends.native.jit import compile_ahead, runtime_library, specialise
runtime_library.LIBRARY = Path(sys.argv[1])
(kernel,) = [k for k in compile_ahead.read_known_kernels() if k.to_line().startswith({SHIFT!r})]
shifted = np.zeros((2, 2), np.int32)
shift = specialise.specialise(kernel.function, kernel.signature)
shift(np.array([[1, 2], [3, 4]]), np.array([10, 20]), shifted)
assert shifted.tolist() == [[11, 22], [13, 24]], shifted
print("numba" in sys.modules)
"""


def _kernel() -> KnownKernel:
    return next(k for k in read_known_kernels() if k.to_line().startswith(SHIFT))


def own_levels() -> list[str]:
    assert TARGET is not None
    features = {**FEATURES, "neon": True, "fp-armv8": True}
    return [name for name in TARGETS[TARGET].levels if all(map(features.get, LEVELS[name]))]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runtime with one kernel, for all levels."""
    assert TARGET is not None
    folder = tmp_path_factory.mktemp("runtime")
    compile_kernels(folder, [TARGET], [_kernel()])
    assert build_runtime(folder / "built", TARGET, folder / TARGET)
    return folder / "built" / EXTENSION


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runtime without kernels."""
    assert TARGET is not None
    folder = tmp_path_factory.mktemp("bare")
    assert build_runtime(folder, TARGET)
    return folder / EXTENSION


def compiles(library: Path, cache: Path, **settings: str) -> bool:
    """Return True if a process that needs the kernel has to compile it."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(cache), **settings}
    command = [sys.executable, "-c", CHILD, str(library)]
    done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip() == "True"


def test_a_process_takes_what_the_runtime_brings(library: Path, bare: Path, tmp_path: Path) -> None:
    for level in own_levels():
        assert not compiles(library, tmp_path, SQLML_LEVEL=level), level
    assert not list(tmp_path.rglob("*.kernel")), "and writes nothing"
    assert compiles(bare, tmp_path)
    assert not compiles(bare, tmp_path), "it keeps its own"
    assert compiles(library, tmp_path / "2", NUMBA_OPT="1")


def test_keys_depend_on_the_sources_and_the_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {kernel_keys.make_key(k.function, k.signature) for k in read_known_kernels()}
    assert len(keys) == len(read_known_kernels())
    kernel = _kernel()
    monkeypatch.setattr(kernel_keys, "digest_sources", lambda function: "0" * 64)
    assert kernel_keys.make_key(kernel.function, kernel.signature) not in keys


def test_keys_depend_on_constants_but_not_on_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process finds the kernels that another one has compiled for its level."""
    keys = [kernel_keys.make_key(k.function, k.signature).hex() for k in read_known_kernels()]
    program = (
        "from sqlml.backends.native.jit.compile_ahead import read_known_kernels\n"
        "from sqlml.backends.native.jit.kernel_keys import make_key\n"
        "print(*(make_key(k.function, k.signature).hex() for k in read_known_kernels()))"
    )
    for level in own_levels():
        environment = {**os.environ, "SQLML_LEVEL": level}
        command = [sys.executable, "-c", program]
        printed = subprocess.run(command, env=environment, check=True, capture_output=True)
        assert printed.stdout.decode().split() == keys, level
    module, constant = "sqlml.backends.native.trees.lockstep", "TURNED_COLUMNS"
    lockstep_kernel = next(k for k in read_known_kernels() if k.module == module)
    monkeypatch.setattr(f"{module}.{constant}", 13)  # It is imported from another package.
    changed = kernel_keys.make_key(lockstep_kernel.function, lockstep_kernel.signature)
    assert changed.hex() not in keys


def test_levels_are_what_python_knows_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    assert processor_levels.find_level() == own_levels()[0]
    for level in LEVELS:
        for variable, value in get_level_settings(level).items():
            monkeypatch.setenv(variable, value)
        processor_levels.find_level.cache_clear()
        assert processor_levels.find_level() == level
        assert processor_levels.has_feature("avx512bw") == (level == "x86-64-v4")
    monkeypatch.delenv("SQLML_LEVEL")
    processor_levels.find_level.cache_clear()
    assert processor_levels.find_level() is None and not processor_levels.has_feature("avx2")
    monkeypatch.undo()
    processor_levels.find_level.cache_clear()


def test_what_was_compiled_ahead_is_not_compiled_again(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlml.backends.native.jit import compile_ahead as ahead

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(ahead, "read_known_kernels", lambda: (_kernel(),))
    monkeypatch.setattr(runtime_library, "find_kernel", lambda function, signature: None)
    told: list[int] = []
    assert compile_ahead(told.append) == 1
    assert compile_ahead(told.append) == 0
    assert told == [1, 0]
    assert not compiles(bare, tmp_path)


def test_without_a_folder_of_ones_own_nothing_is_compiled_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(shared))
    monkeypatch.setattr(runtime_library, "find_kernel", lambda function, signature: None)
    with pytest.raises(OSError, match="no private folder"):
        compile_ahead(lambda missing: pytest.fail("it began"))
