"""`check_regular`: models are read from and written to regular files only.

A pipe keeps its reader waiting for a writer, and a device may have no end.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from types import MappingProxyType

from sqlml.errors import ArtifactError

_KINDS: Mapping[str, Callable[[int], bool]] = MappingProxyType(
    {
        "a directory": stat.S_ISDIR,
        "a pipe": stat.S_ISFIFO,
        "a socket": stat.S_ISSOCK,
        "a device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
    }
)


def local_path(path: str) -> str | None:
    """The local path that a path or URI means; None if it is elsewhere.

    >>> local_path("file:///models/m.json"), local_path("m.json"), local_path("s3://models/m")
    ('/models/m.json', 'm.json', None)
    """
    if path.startswith("file:/"):
        rest = path.removeprefix("file:")
        return "/" + rest.removeprefix("//localhost").lstrip("/")
    return None if "://" in path else os.path.expanduser(path)


def irregular(path: str) -> str | None:
    """What a local path leads to, in words, if that is not a regular file.

    None also if there is nothing, or the system does not say.

    >>> irregular("/")
    'a directory'
    """
    try:
        return irregular_mode(os.stat(path).st_mode)
    except (OSError, ValueError):  # ValueError: a zero character
        return None


def irregular_mode(mode: int) -> str | None:
    """What kind of file has this `st_mode`, if it is not a regular one."""
    if stat.S_ISREG(mode):
        return None
    return next((kind for kind, asked in _KINDS.items() if asked(mode)), "no regular file")


def check_regular(path: str) -> None:
    """Refuse a path of this machine that leads to something else than a regular file.

    What is not there, and what is elsewhere, passes.

    Raises:
        ArtifactError: it names what is there.
    """
    place = local_path(path)
    found = None if place is None else irregular(place)
    if found is not None:
        raise not_regular(path, found)


def files_below(folder: str, most: int) -> dict[str, int]:
    """The files in a folder of this machine and in those below it: path below it -> bytes.

    Raises:
        ArtifactError: one of them is a link or no regular file, or there are more than `most`.
    """
    found: dict[str, int] = {}
    for place, folders, names in os.walk(folder, onerror=_unreadable):
        for name in (*folders, *names):
            path = os.path.join(place, name)
            mode = os.lstat(path).st_mode
            what = "a link" if stat.S_ISLNK(mode) else irregular_mode(mode)
            if what == "a directory":
                continue
            if what is not None:
                raise ArtifactError(
                    f"{path!r} is {what}; a model folder may contain only regular files"
                )
            found[os.path.relpath(path, folder).replace(os.sep, "/")] = os.lstat(path).st_size
        if len(found) > most:
            raise ArtifactError(f"{folder!r} has more than {most} files")
    return found


def _unreadable(error: OSError) -> None:
    raise ArtifactError(f"{error.filename!r} cannot be read ({error.strerror})") from error


def not_regular(path: str, found: str) -> ArtifactError:
    """The error for a path that leads to `found`."""
    return ArtifactError(
        f"{path!r} is {found}; sqlml reads and writes models as regular files: name a file"
    )
