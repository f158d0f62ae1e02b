"""Machine code on disk: files that are damaged, forged, outdated or another user's are not used."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from sqlml.backends.native.jit import code_store, object_code
from sqlml.backends.native.jit.call_wrapper import RESULT_KIND, WORDS_ENTRY
from sqlml.backends.native.jit.object_code import ObjectCode
from sqlml.backends.native.jit.specialise import (
    Signature,
    inlined_helper,
    reads,
    specialise,
    writes,
)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))


def kept(folder: Path) -> list[Path]:
    return sorted(folder.rglob(f"*{code_store.SUFFIX}"))


def anew(function: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """As a later process sees it."""
    from sqlml.backends.native.jit import specialise as jit

    jit._COMPILED.pop((function, signature), None)
    return specialise(function, signature)


def _halve(x: Any, out: Any) -> None:
    for i in range(x.size):
        out[i] = x[i] / 2


HALVE = (reads("f8", 1), writes("f8", 1))


def halved(kernel: Callable[..., Any]) -> list[float]:
    out = np.zeros(2)
    kernel(np.array([3.0, 5.0]), out)
    return [float(v) for v in out]


def damages(content: bytes) -> dict[str, bytes]:
    middle = len(content) // 2
    return {
        "empty": b"",
        "short": content[:20],
        "truncated": content[:-1],
        "half": content[:middle],
        "one bit": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "longer": content + b"\0",
        "another form": b"sqlml kernel 1\n" + content[15:],
        "foreign": b"\x7fELF" * 100,
    }


def test_a_damaged_file_is_as_good_as_none_and_replaced(tmp_path: Path) -> None:
    anew(_halve, HALVE)
    (path,) = kept(tmp_path)
    content = path.read_bytes()
    for name, damaged in damages(content).items():
        path.write_bytes(damaged)
        assert code_store.read(path.name) is None, name
    assert halved(anew(_halve, HALVE)) == [1.5, 2.5]
    assert code_store.read(path.name) is not None, "what was compiled again is kept"
    path.unlink()
    path.mkdir()  # nothing can be read from it, or put in its place
    assert halved(anew(_halve, HALVE)) == [1.5, 2.5]


def object_file(source: str) -> bytes:
    """What LLVM makes of a text in its language."""
    made: bytes = object_code._make_target_machine().emit_object(llvm.parse_assembly(source))
    return made


STRANGE = f"""
declare void @no_such_function()
@{RESULT_KIND} = global i64 0
define void @{WORDS_ENTRY}() {{ call void @no_such_function() ret void }}
"""


def strange_codes(code: ObjectCode) -> dict[str, ObjectCode]:
    """Machine code that a whole file may hold and that must never be run."""
    kernel, entry = code.kernel, code.entry
    damaged = {
        "nothing": ObjectCode(b"", b""),
        "no kernel": ObjectCode(b"", entry),
        "no entry": ObjectCode(kernel, b""),
        "garbage": ObjectCode(os.urandom(len(kernel)), entry),
        "a garbage entry": ObjectCode(kernel, os.urandom(len(entry))),
        "a beginning of garbage": ObjectCode(kernel[:64] + os.urandom(500), entry),
        "another kind of file": ObjectCode(b"#!/bin/sh\n", entry),
        "another machine": ObjectCode(kernel[:18] + b"\7\7" + kernel[20:], entry),
        "no entry in it": ObjectCode(kernel, kernel),
        "no kernel in it": ObjectCode(entry, entry),
        "calls what is not there": ObjectCode(kernel, object_file(STRANGE)),
    }
    for size in (1, 10, 63, 64, 100, len(kernel) // 2, len(kernel) - 1):
        damaged[f"{size} bytes"] = ObjectCode(kernel[:size], entry)
    return damaged


def test_a_file_with_a_right_digest_and_wrong_content_is_replaced(tmp_path: Path) -> None:
    anew(_halve, HALVE)
    (path,) = kept(tmp_path)
    code = code_store.read(path.name)
    assert code is not None
    for name, strange in strange_codes(code).items():
        with pytest.raises(object_code.NotLoadable):
            object_code.load_kernel(strange, name, HALVE)
    code_store.write(path.name, strange)
    assert halved(anew(_halve, HALVE)) == [1.5, 2.5]
    assert code_store.read(path.name) not in (None, strange)
    for body in (b"", b"\0" * 7, b"\xff" * 8, b"\xff" * 100):
        path.write_bytes(code_store._digest(path.name, body) + body)
        found = code_store.read(path.name)
        if found is not None:
            with pytest.raises(object_code.NotLoadable):
                object_code.load_kernel(found, "halve", HALVE)


def test_a_file_under_the_name_of_another_is_damaged(tmp_path: Path) -> None:
    anew(_halve, HALVE)
    (path,) = kept(tmp_path)
    other = path.with_name("x" + path.name)
    other.write_bytes(path.read_bytes())
    assert code_store.read(path.name) is not None and code_store.read(other.name) is None


def test_code_that_calls_what_is_not_there_is_not_loaded(tmp_path: Path) -> None:
    anew(_halve, HALVE)
    (path,) = kept(tmp_path)
    code = code_store.read(path.name)
    assert code is not None
    with pytest.raises(object_code.NotLoadable, match="halve calls no_such_function"):
        object_code.load_kernel(strange_codes(code)["calls what is not there"], "halve", HALVE)


def test_each_kind_of_argument_processor_and_setting_has_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anew(_halve, HALVE)
    anew(_halve, (reads("f8", 1, "C"), writes("f8", 1)))
    assert len(kept(tmp_path)) == 2
    anew(_halve, HALVE)
    assert len(kept(tmp_path)) == 2
    here = object_code.describe_processor()
    monkeypatch.setenv("NUMBA_OPT", "1")
    assert object_code.describe_processor() != here
    monkeypatch.setattr(object_code, "describe_processor", lambda: ("another", *here[1:]))
    assert halved(anew(_halve, HALVE)) == [1.5, 2.5]
    assert len(kept(tmp_path)) == 3


def test_where_the_first_folder_cannot_be_written_the_next_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("no folder can be made below a file")
    monkeypatch.setattr(
        code_store, "list_kernel_folders", lambda: iter((blocker / "a", tmp_path / "b"))
    )
    assert halved(anew(_halve, HALVE)) == [1.5, 2.5]
    assert [path.parent.name for path in kept(tmp_path)] == ["b"]
    assert halved(anew(_halve, HALVE)) == [1.5, 2.5]


def test_folders_are_the_named_one_or_beside_the_source_and_the_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [f.name for f in code_store.list_kernel_folders()] == ["sqlml"]
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert list(code_store.list_kernel_folders()) == [
        Path(code_store.__file__).parents[1] / "__pycache__",
        Path("/somewhere/sqlml"),
    ]


def test_a_folder_that_others_can_write_into_is_left_alone(tmp_path: Path) -> None:
    """Who can put a kernel there runs code as the user."""
    anew(_halve, HALVE)
    (path,) = kept(tmp_path)
    content = path.read_bytes()
    path.parent.chmod(0o777)
    assert code_store.read(path.name) is None
    assert halved(anew(_halve, HALVE)) == [1.5, 2.5]
    path.unlink()
    assert halved(anew(_halve, HALVE)) == [1.5, 2.5]
    assert not kept(tmp_path), "compiled in memory"
    path.parent.chmod(0o755)
    path.write_bytes(content)
    path.chmod(0o666)
    assert code_store.read(path.name) is None
    path.chmod(0o644)
    assert code_store.read(path.name) is not None


def test_files_of_older_versions_are_deleted_after_a_day(tmp_path: Path) -> None:
    code = ObjectCode(b"kernel", b"entry")
    old, new = (code_store.make_file_name("f", digit * 64, "") for digit in "01")
    other = code_store.make_file_name("f_g", "0" * 64, "")
    folder = tmp_path / "sqlml"
    for name in (old, other, new):
        code_store.write(name, code)
    assert len(kept(tmp_path)) == 3, "another process may still use it"
    for ending in (".kernel.x1y2", ".kernel.12.34"):
        (folder / old).with_suffix(ending).write_bytes(b"half")
    for path in folder.iterdir():
        os.utime(path, (0, 0))
    code_store.write(new, code)
    assert {p.name for p in kept(tmp_path)} == {new, other}
    assert code_store.read(new) == code and not list(folder.glob("*.kernel.*"))


RACE = """
import numpy as np
from sqlml.backends.native.jit import runtime_library
runtime_library.find_kernel = lambda function, signature: None
from sqlml.backends.native.rows.linear_kernels import make_linear_function
score = make_linear_function(np.ones((3, 1)), np.array([0.5]))
assert score(np.ones((20, 3))).tolist() == [[3.5]] * 20
"""


@pytest.mark.nightly
def test_processes_that_start_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[4])
    env = {**os.environ, "PYTHONPATH": root, "NUMBA_CACHE_DIR": str(tmp_path)}
    at_once = [subprocess.Popen([sys.executable, "-c", RACE], env=env) for _ in range(3)]
    assert [process.wait(120) for process in at_once] == [0, 0, 0]
    assert len(kept(tmp_path)) == 1
    after = RACE + "import sys\nassert 'numba' not in sys.modules\n"
    subprocess.run([sys.executable, "-c", after], env=env, check=True, timeout=120)


FACTOR = 2.0


@inlined_helper
def _scaled(x: Any) -> Any:
    return x * FACTOR


def _scale(x: Any, out: Any) -> None:
    for i in range(x.size):
        out[i] = _scaled(x[i])


def test_code_that_differs_from_its_files_has_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when they are edited while a process runs."""
    assert halved(anew(_scale, HALVE)) == [6.0, 10.0]
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    monkeypatch.setitem(globals(), "_scaled", inlined_helper(_scaled.function))
    assert halved(anew(_scale, HALVE)) == [9.0, 15.0]
    monkeypatch.setitem(globals(), "_scaled", inlined_helper(lambda x: x + FACTOR))
    assert halved(anew(_scale, HALVE)) == [6.0, 8.0]
    assert len(kept(tmp_path)) == 3
