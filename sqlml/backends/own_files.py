"""Read and write files that only the user can have written.

A folder is private if it belongs to the user and nobody else may write into it or replace it. So
all folders and links on the path must belong to the user or to root, and others may write only into
sticky folders, such as /tmp. The group bits of the mode reveal an access list.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_MAX_LINKS = 40


def is_private(folder: Path) -> bool:
    """Return True if `folder` exists and is private."""
    try:
        *ancestors, status = _iterate_path(folder)
    except OSError:
        return False
    return all(map(_is_safe, ancestors)) and stat.S_ISDIR(status.st_mode) and _is_own(status)


def try_make_private(folder: Path) -> bool:
    """Create missing parts of `folder` if that is safe; return True if `folder` is now private."""
    with suppress(OSError):
        make_private(folder)
    return is_private(folder)


class SharedFolderError(OSError):
    """Other users can change the content of the folder `filename`."""


def make_private(folder: Path) -> None:
    """Create missing parts of `folder`; raise SharedFolderError if others can change it."""
    missing = [p for p in (folder, *folder.parents) if not os.path.lexists(p)]
    for path in reversed(missing):
        if not all(map(_is_safe, _iterate_path(path.parent))):
            raise SharedFolderError(errno.EPERM, "others can write to it", str(path.parent))
        with suppress(FileExistsError):
            path.mkdir(0o700)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if not is_private(folder):
        raise SharedFolderError(errno.EPERM, "others can write to it", str(folder))


def read(path: Path) -> bytes:
    """Return the content of a file in a private folder; raise OSError if others can change it."""
    descriptor = os.open(path, os.O_RDONLY | _get_flag("O_NOFOLLOW") | _get_flag("O_NONBLOCK"))
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not (stat.S_ISREG(status.st_mode) and _is_own(status)):
            raise PermissionError(errno.EPERM, "not the user's own file", str(path))
        return file.read()


def replace(path: Path, content: bytes) -> None:
    """Write a file atomically: readers see the old or the new content, even if writing fails."""
    descriptor, temporary = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _get_flag(name: str) -> int:
    return getattr(os, name, 0)  # Windows has none of these flags.


def _iterate_path(path: Path) -> Iterator[os.stat_result]:
    """Yield the `lstat` result of each folder and link on `path`, following links."""
    path = path.absolute()
    current, remaining, links = Path(path.anchor), list(path.parts[:0:-1]), 0
    yield os.lstat(current)
    while remaining:
        name = remaining.pop()
        entry = current.parent if name == ".." else current / name
        status = os.lstat(entry)
        yield status
        if not stat.S_ISLNK(status.st_mode):
            current = entry
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, "too many links", str(path))
        target = Path(os.readlink(entry))
        if target.is_absolute():
            current = Path(target.anchor)
        remaining += reversed(target.relative_to(target.anchor).parts)


def _is_safe(status: os.stat_result) -> bool:
    """Return True if no other user can replace what a folder or link on a path leads to."""
    is_protected = stat.S_ISLNK(status.st_mode) or status.st_mode & stat.S_ISVTX
    return _is_trusted(status) and bool(is_protected or not status.st_mode & _WRITABLE_BY_OTHERS)


def _is_own(status: os.stat_result) -> bool:
    """Return True if no other user can change a file, or the content of a folder."""
    return _is_trusted(status) and not status.st_mode & _WRITABLE_BY_OTHERS


def _is_trusted(status: os.stat_result) -> bool:
    # On Windows, no file is trusted.
    return hasattr(os, "geteuid") and status.st_uid in (0, os.geteuid())
