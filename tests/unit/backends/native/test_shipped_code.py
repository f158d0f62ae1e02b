"""Machine code that comes with the package: which process takes it, and which compiles."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from sqlml.backends.native.jit import code_store, object_code
from sqlml.backends.native.jit.compile_ahead import (
    KnownKernel,
    build_kernels,
    compile_ahead,
    read_known_kernels,
)

FEATURES = llvm.get_host_cpu_features()
HERE = [name for name, own in object_code.LEVELS.items() if all(map(FEATURES.get, own))]

pytestmark = pytest.mark.skipif(not HERE, reason="this kind of processor has no levels")

SHIFT = "sqlml.backends.native.rows.column_kernels _shift "

CHILD = f"""
import sys
import numpy as np
from pathlib import Path
from sqlml.backends.native.jit import code_store, compile_ahead, specialise
code_store.SHIPPED_FOLDER = Path(sys.argv[1])
(kernel,) = [k for k in compile_ahead.read_known_kernels() if k.to_line().startswith({SHIFT!r})]
made = np.zeros((2, 2), np.int32)
specialise.specialise(kernel.function, kernel.signature)(
    np.array([[1, 2], [3, 4]]), np.array([10, 20]), made
)
assert made.tolist() == [[11, 22], [13, 24]], made
print("numba" in sys.modules)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the machine code of one kernel, for all levels."""
    folder = tmp_path_factory.mktemp("package") / "built"
    build_kernels(folder, tuple(object_code.LEVELS), [_kernel()])
    return folder


def _kernel() -> KnownKernel:
    return next(k for k in read_known_kernels() if k.to_line().startswith(SHIFT))


def compiles(folder: Path, cache: Path, **settings: str) -> bool:
    """Whether a process that needs the kernel has to compile it."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(cache), **settings}
    command = [sys.executable, "-c", CHILD, str(folder)]
    done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip() == "True"


def test_a_process_takes_what_the_package_brings(built: Path, tmp_path: Path) -> None:
    assert len(list(built.iterdir())) == len(object_code.LEVELS)
    assert not compiles(built, tmp_path)
    assert not list(tmp_path.rglob("*.kernel")), "and writes nothing"
    for level in HERE:
        assert not compiles(built, tmp_path, **object_code.get_level_settings(level)), level


@pytest.mark.nightly
def test_a_process_compiles_where_it_is_damaged_missing_or_for_others(
    built: Path, tmp_path: Path
) -> None:
    assert compiles(tmp_path / "none", tmp_path / "1")
    assert not compiles(tmp_path / "none", tmp_path / "1"), "it keeps its own"
    assert compiles(built, tmp_path / "2", NUMBA_OPT="1")
    damaged = tmp_path / "built"
    damaged.mkdir()
    for path in built.iterdir():
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        (damaged / path.name).write_bytes(content)
    assert compiles(damaged, tmp_path / "3")


def test_names_say_the_level_the_sources_and_the_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    def name(kernel: KnownKernel) -> str:
        return code_store.make_shipped_name(kernel.function, kernel.signature)

    kernel = _kernel()
    before = name(kernel)
    assert len({name(k) for k in read_known_kernels()}) == len(read_known_kernels())
    monkeypatch.setattr(code_store, "find_level", lambda: "another")
    assert name(kernel) != before
    monkeypatch.undo()
    monkeypatch.setattr(code_store, "digest_sources", lambda folder: "0" * 64)
    assert name(kernel) != before


def test_levels_are_what_python_knows_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    assert object_code.find_level() == HERE[0]
    assert object_code.has_feature("avx2") and object_code.has_feature("fma")
    for level in object_code.LEVELS:
        for variable, value in object_code.get_level_settings(level).items():
            monkeypatch.setenv(variable, value)
        object_code.find_level.cache_clear()
        assert object_code.find_level() == level
        assert object_code.has_feature("avx512bw") == (level == "x86-64-v4")
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    object_code.find_level.cache_clear()
    assert object_code.find_level() is None and not object_code.has_feature("avx2")
    monkeypatch.undo()
    object_code.find_level.cache_clear()


def test_what_was_compiled_ahead_is_not_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlml.backends.native.jit import compile_ahead as ahead

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(ahead, "read_known_kernels", lambda: (_kernel(),))
    told: list[int] = []
    assert compile_ahead(told.append) == 1
    assert compile_ahead(told.append) == 0
    assert told == [1, 0]
    assert not compiles(tmp_path / "none", tmp_path)


def test_without_a_folder_of_ones_own_nothing_is_compiled_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(shared))
    with pytest.raises(OSError, match="no private folder"):
        compile_ahead(lambda missing: pytest.fail("it began"))
