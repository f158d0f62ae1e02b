"""Checks that models are read from and written to regular files only.

Reading a pipe may block, and a device may have no end.
"""

from __future__ import annotations

import os
import stat

from sqlml.errors import ArtifactError

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def find_local_path(path: str) -> str | None:
    """Return the local path for a path or URI, or None if the file is on another machine.

    >>> find_local_path("file:///models/m.json"), find_local_path("s3://models/m")
    ('/models/m.json', None)
    """
    if path.startswith("file:/"):
        return "/" + path.removeprefix("file:").removeprefix("//localhost").lstrip("/")
    return None if "://" in path else os.path.expanduser(path)


def find_irregular_kind(path: str) -> str | None:
    """Return the kind of irregular file at a local path, such as "a pipe", or None.

    None is returned if the file is regular or missing, or if the system denies access.

    >>> find_irregular_kind("/")
    'a directory'
    """
    try:
        return irregular_mode(os.stat(path).st_mode)
    except (OSError, ValueError):  # A NUL character raises ValueError.
        return None


def irregular_mode(mode: int) -> str | None:
    """Return the kind of irregular file with this `st_mode`, or None for a regular file."""
    return None if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "not a regular file")


def check_regular(path: str) -> None:
    """Raise ArtifactError if a local path is neither a regular file nor missing."""
    local = find_local_path(path)
    file_kind = None if local is None else find_irregular_kind(local)
    if file_kind is not None:
        raise make_irregular_file_error(path, file_kind)


def list_files_below(folder: str, max_files: int) -> dict[str, int]:
    """Map the paths of regular files below a local folder, at most `max_files`, to sizes."""
    sizes: dict[str, int] = {}
    for parent, folders, names in os.walk(folder, onerror=_raise_unreadable):
        for name in (*folders, *names):
            path = os.path.join(parent, name)
            mode = os.lstat(path).st_mode
            file_kind = "a link" if stat.S_ISLNK(mode) else irregular_mode(mode)
            if file_kind == "a directory":
                continue
            if file_kind is not None:
                message = f"{path!r} is {file_kind}; a model folder may contain only regular files"
                raise ArtifactError(message)
            sizes[os.path.relpath(path, folder).replace(os.sep, "/")] = os.lstat(path).st_size
        if len(sizes) > max_files:
            raise ArtifactError(f"{folder!r} has more than {max_files} files")
    return sizes


def _raise_unreadable(error: OSError) -> None:
    raise ArtifactError(f"{error.filename!r} cannot be read ({error.strerror})") from error


def make_irregular_file_error(path: str, kind: str) -> ArtifactError:
    message = f"{path!r} is {kind}; sqlml reads and writes models as regular files: name a file"
    return ArtifactError(message)
