"""Files that are the user's own: nobody else can have written what is read from them.

A folder is private when it belongs to the user and nobody else may write into it, and when nobody
else can put another in its place: all folders and links on the way to it belong to the user or to
root (who can change Python itself), and others may write only into those that are sticky, as /tmp
is. An access list that lets others write shows in the group's bits of the mode.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40


def is_private(folder: Path) -> bool:
    """Whether `folder` is there and private."""
    try:
        *way, last = _way(folder)
    except OSError:
        return False
    return all(map(_is_safe, way)) and stat.S_ISDIR(last.st_mode) and _is_own(last)


def made_private(folder: Path) -> bool:
    """Make missing parts of `folder` where that is safe; return whether it is private then."""
    with suppress(OSError):
        make_private(folder)
    return is_private(folder)


class SharedFolderError(OSError):
    """Others can change what is in a folder; `filename` is the folder."""


def make_private(folder: Path) -> None:
    """Make missing parts of `folder` where that is safe.

    Raises:
        SharedFolderError: others can write to it, or to a folder on the way.
        OSError: it cannot be made, or is no folder.
    """
    missing = [p for p in (folder, *folder.parents) if not os.path.lexists(p)]
    for path in reversed(missing):
        if not all(map(_is_safe, _way(path.parent))):
            raise SharedFolderError(errno.EPERM, "others can write to it", str(path.parent))
        with suppress(FileExistsError):
            path.mkdir(0o700)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if not is_private(folder):
        raise SharedFolderError(errno.EPERM, "others can write to it", str(folder))


def read(path: Path) -> bytes:
    """The content of a file in a private folder.

    Raises:
        OSError: it is missing, belongs to somebody else, or others may write to it.
    """
    descriptor = os.open(path, os.O_RDONLY | _flag("O_NOFOLLOW") | _flag("O_NONBLOCK"))
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not (stat.S_ISREG(status.st_mode) and _is_own(status)):
            raise PermissionError(errno.EPERM, "not the user's own file", str(path))
        return file.read()


def replace(path: Path, content: bytes) -> None:
    """Write a file atomically: nobody sees half of it, and a failure leaves nothing behind.

    Raises:
        OSError: it cannot be written.
    """
    descriptor, fresh = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.chmod(fresh, 0o644)
        os.replace(fresh, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(fresh)
        raise


def _flag(name: str) -> int:
    return getattr(os, name, 0)  # Windows has none of them


def _way(path: Path) -> Iterator[os.stat_result]:
    """What lies on the way to a path, links as such, from the root to the path itself.

    Raises:
        OSError: something of it is missing, or its links go in a circle.
    """
    path = path.absolute()
    at, ahead, links = Path(path.anchor), list(path.parts[:0:-1]), 0
    yield os.lstat(at)
    while ahead:
        name = ahead.pop()
        to = at.parent if name == ".." else at / name
        status = os.lstat(to)
        yield status
        if not stat.S_ISLNK(status.st_mode):
            at = to
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, "too many links", str(path))
        target = Path(os.readlink(to))
        if target.is_absolute():
            at = Path(target.anchor)
        ahead += reversed(target.relative_to(target.anchor).parts)


def _is_safe(status: os.stat_result) -> bool:
    """Whether others cannot change where a folder or a link on the way leads."""
    kept = stat.S_ISLNK(status.st_mode) or status.st_mode & stat.S_ISVTX
    return _is_trusted(status) and bool(kept or not status.st_mode & _OTHERS)


def _is_own(status: os.stat_result) -> bool:
    """Whether others cannot change a file, or what is in a folder."""
    return _is_trusted(status) and not status.st_mode & _OTHERS


def _is_trusted(status: os.stat_result) -> bool:
    """Whether it belongs to the user or to root; Windows does not say."""
    return hasattr(os, "geteuid") and status.st_uid in (0, os.geteuid())
