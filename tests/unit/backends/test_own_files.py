"""What is read from the user's own files, nobody else can have written."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from sqlml.backends import own_files
from tests.e2e import child

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the system has no owners")

AS_ROOT = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away"
)
STRANGER = 54321


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "a" / "b"
    made.mkdir(parents=True)
    for path in (tmp_path, made.parent, made):
        path.chmod(0o755)
    return made


def test_the_users_own_folder_is_private(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_files.is_private(folder)
    assert own_files.is_private(folder / ".." / "b")
    monkeypatch.chdir(folder.parent)
    assert own_files.is_private(Path("b")) and own_files.is_private(Path("../a/b"))
    assert not own_files.is_private(folder / "none")


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777, 0o1777, 0o722])
def test_a_folder_that_others_can_write_into_is_not_private(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    assert not own_files.is_private(folder) and not own_files.try_make_private(folder)


@pytest.mark.parametrize("mode", [0o775, 0o777])
def test_a_folder_that_others_can_swap_is_not_private(folder: Path, mode: int) -> None:
    folder.parent.chmod(mode)
    assert not own_files.is_private(folder)
    assert not own_files.try_make_private(folder / "c"), "nor is one made there"
    assert not (folder / "c").exists()


def test_below_a_sticky_folder_a_folder_is_private(folder: Path) -> None:
    folder.parent.chmod(0o1777)
    assert own_files.is_private(folder)


def test_missing_folders_are_made_for_the_user_alone(folder: Path) -> None:
    before = os.umask(0)
    try:
        assert own_files.try_make_private(folder / "c" / "d")
    finally:
        os.umask(before)
    for made in (folder / "c", folder / "c" / "d"):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_of_a_link_both_ends_count(folder: Path, tmp_path: Path) -> None:
    link = folder / "link"
    target = tmp_path / "target"
    target.mkdir(mode=0o755)
    link.symlink_to(target)
    relative = folder / "relative"
    relative.symlink_to("../../target")
    assert own_files.is_private(link) and own_files.is_private(relative)
    target.chmod(0o777)
    assert not own_files.is_private(link) and not own_files.is_private(relative)
    target.chmod(0o755)
    folder.chmod(0o777)
    assert not own_files.is_private(link), "somebody may turn it elsewhere"
    folder.chmod(0o755)
    target.rmdir()
    assert not own_files.try_make_private(link), "a link to nowhere"
    target.symlink_to(link)
    assert not own_files.is_private(link), "links in a circle"


@AS_ROOT
@pytest.mark.parametrize("owned", ["the folder", "one above", "a link"])
def test_what_belongs_to_somebody_else_is_not_private(
    owned: str, folder: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    path = {"the folder": folder, "one above": folder.parent, "a link": link}[owned]
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    assert not own_files.is_private(link)
    assert own_files.is_private(folder) is (owned == "a link")


def group_writes(path: Path) -> None:
    path.chmod(0o664)


def all_write(path: Path) -> None:
    path.chmod(0o602)


def link(path: Path) -> None:
    path.rename(path.with_suffix(".other"))
    path.symlink_to(path.with_suffix(".other"))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def is_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def give_away(path: Path) -> None:
    os.chown(path, STRANGER, STRANGER)


CHANGES: list[Callable[[Path], None]] = [group_writes, all_write, link, pipe, is_folder]


@pytest.mark.parametrize("change", [*CHANGES, pytest.param(give_away, marks=AS_ROOT)])
def test_a_file_that_others_may_have_written_is_not_read(
    folder: Path, change: Callable[[Path], None]
) -> None:
    path = folder / "file"
    own_files.replace(path, b"content")
    assert own_files.read(path) == b"content"
    change(path)
    with pytest.raises(OSError):
        own_files.read(path)


def test_a_file_is_written_for_others_to_read_and_over_one_of_theirs(folder: Path) -> None:
    path = folder / "file"
    path.write_bytes(b"before")
    path.chmod(0o666)
    own_files.replace(path, b"after")
    assert own_files.read(path) == b"after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(folder.iterdir()) == [path]


FULL = """
import resource
from pathlib import Path
import numpy as np
from sqlml.backends import costs
from sqlml.backends.native.jit import runtime_library
runtime_library.find_kernel = lambda function, signature: None
from sqlml.backends.native.rows.linear_kernels import make_linear_function
resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))
try:
    costs.save_costs({name: 1.0 for name in costs.DEFAULT_COSTS})
except OSError as error:
    print(type(error).__name__)
print(make_linear_function(np.ones((3, 1)), np.array([0.5]))(np.ones((1, 3))).tolist())
"""


def test_on_a_full_disk_kernels_run_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setenv("SQLML_COSTS", str(tmp_path / "costs" / "costs.json"))
    done = child.run(FULL, tmp_path)
    assert done.stdout == "OSError\n[[3.5]]\n", done.stderr
    assert not list((tmp_path / "kernels" / "sqlml").iterdir())
    assert not list((tmp_path / "costs").iterdir())
