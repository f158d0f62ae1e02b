"""Store machine code that this machine compiled on disk.

A file name encodes everything that the kernel's code depends on. If NUMBA_CACHE_DIR is set, files
are in that folder, otherwise next to the source or in the user's cache folder. Whoever writes these
files runs code as the user, so folders and files that somebody else can write are skipped
(`own_files.py`). If no folder is left, each process compiles every kernel. A file contains a digest
of the file name and the content. A damaged file counts as missing.
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sqlml.backends import own_files


@dataclass(frozen=True, slots=True)
class ObjectCode:
    """Two object files: a kernel, and the entries of the kernel (`call_wrapper.py`)."""

    kernel: bytes
    entry: bytes


class NotLoadable(Exception):
    """The machine code is damaged, or it calls a function that this process lacks."""


SUFFIX = ".kernel"

MIN_AGE_SECONDS = 86_400.0
"""Age from which files of other sqlml versions, and partly written files, are deleted."""

_BACKEND = Path(__file__).parent.parent
_MAGIC = b"sqlml kernel 2\n"
_SIZE = struct.Struct("<Q")


def list_kernel_folders() -> Iterator[Path]:
    """Yield the folders that may hold kernels, with the best folder first."""
    configured = os.environ.get("NUMBA_CACHE_DIR")
    if configured:
        yield Path(configured) / "sqlml"
        return
    yield _BACKEND / "__pycache__"
    with suppress(RuntimeError):  # The home folder may be unknown.
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sqlml"


def read(name: str) -> ObjectCode | None:
    """Return the code in a file, or None if it is missing, damaged or writable by others."""
    for folder in filter(own_files.is_private, list_kernel_folders()):
        with suppress(OSError):
            code = unpack(name, own_files.read(folder / name))
            if code is not None:
                return code
    return None


def has_writable_folder() -> bool:
    private_folders = filter(own_files.try_make_private, list_kernel_folders())
    return any(os.access(folder, os.W_OK) for folder in private_folders)


def write(name: str, code: ObjectCode) -> None:
    content = pack(name, code)
    for folder in filter(own_files.try_make_private, list_kernel_folders()):
        _delete_outdated(folder, name)
        with suppress(OSError):
            own_files.replace(folder / name, content)
            return


def make_file_name(kernel: str, source: str, key_text: str) -> str:
    """Return a file name with the kernel's name, the start of the digest `source`, and a key."""
    key = hashlib.sha256(f"{source}\n{key_text}".encode()).hexdigest()
    return f"{kernel}-{source[:12]}-{key[:40]}{SUFFIX}"


def _delete_outdated(folder: Path, name: str) -> None:
    """Delete old files of the kernel from other sqlml versions or from ended processes."""
    kernel, source, _ = name.rsplit("-", 2)
    for path in folder.glob(f"{kernel}-*{SUFFIX}*"):
        with suppress(OSError):
            is_old = path.stat().st_mtime < time.time() - MIN_AGE_SECONDS
            is_current = path.suffix == SUFFIX and path.name.startswith(f"{kernel}-{source}-")
            if is_old and not is_current:
                path.unlink()


def pack(name: str, code: ObjectCode) -> bytes:
    body = _SIZE.pack(len(code.kernel)) + code.kernel + code.entry
    return _digest(name, body) + body


def unpack(name: str, content: bytes) -> ObjectCode | None:
    """Return the code in the content of the file `name`, or None if the content is damaged."""
    begin = len(_MAGIC) + hashlib.sha256().digest_size
    body = content[begin:]
    if content[:begin] != _digest(name, body) or len(body) < _SIZE.size:
        return None
    (size,) = _SIZE.unpack_from(body)
    code = body[_SIZE.size :]
    return ObjectCode(code[:size], code[size:])


def _digest(name: str, body: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(name.encode() + b"\n" + body).digest()
