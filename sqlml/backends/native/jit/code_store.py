"""Machine code on disk: a file for each kernel, whose name says all that it depends on.

Files lie in NUMBA_CACHE_DIR if that is set; else next to the source, or in the user's own cache
folder. Whoever writes them runs code as the user, so a folder or a file that somebody else can
write is passed over (`own_files.py`); if none is left, each process compiles for itself. A
file holds a digest of its name and content; a damaged one counts as missing.
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sqlml.backends import own_files
from sqlml.backends.native.jit.object_code import ObjectCode

SUFFIX = ".kernel"

KEPT = 86_400.0
"""Seconds that files of another version of sqlml, or half written ones, stay at least."""

_MAGIC = b"sqlml kernel 2\n"
_SIZE = struct.Struct("<Q")


def folders() -> Iterator[Path]:
    """Where files may be, the best place first."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    if named:
        yield Path(named) / "sqlml"
        return
    yield Path(__file__).parent.parent / "__pycache__"
    with suppress(RuntimeError):  # nobody's home is known
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sqlml"


def read(name: str) -> ObjectCode | None:
    """The code in a file; None if it is missing, damaged or not the user's own."""
    for folder in folders():
        if own_files.is_private(folder):
            with suppress(OSError):
                code = unpacked(name, own_files.read(folder / name))
                if code is not None:
                    return code
    return None


def writable() -> bool:
    """Whether there is a folder of the user's own to keep code in."""
    return any(own_files.try_make_private(f) and os.access(f, os.W_OK) for f in folders())


def write(name: str, code: ObjectCode) -> None:
    """Keep the code where that is possible."""
    content = packed(name, code)
    for folder in folders():
        if own_files.try_make_private(folder):
            _forget(folder, name)
            with suppress(OSError):
                own_files.replace(folder / name, content)
                return


def file_name(kernel: str, source: str, rest: str) -> str:
    """The name of a file: of the kernel, its source's digest, and all else that is in its key."""
    key = hashlib.sha256(f"{source}\n{rest}".encode()).hexdigest()
    return f"{kernel}-{source[:12]}-{key[:40]}{SUFFIX}"


def _forget(folder: Path, name: str) -> None:
    """Delete the kernel's files that older versions of sqlml, or ended processes, have left."""
    kernel, source, _ = name.rsplit("-", 2)
    for path in folder.glob(f"{kernel}-*{SUFFIX}*"):
        with suppress(OSError):
            old = path.stat().st_mtime < time.time() - KEPT
            current = path.suffix == SUFFIX and path.name.startswith(f"{kernel}-{source}-")
            if old and not current:
                path.unlink()


def packed(name: str, code: ObjectCode) -> bytes:
    """What a file of a name holds."""
    body = _SIZE.pack(len(code.kernel)) + code.kernel + code.entry
    return _digest(name, body) + body


def unpacked(name: str, content: bytes) -> ObjectCode | None:
    """The code in a file of a name; None if it is damaged."""
    begin = len(_MAGIC) + hashlib.sha256().digest_size
    body = content[begin:]
    if content[:begin] != _digest(name, body) or len(body) < _SIZE.size:
        return None
    (size,) = _SIZE.unpack_from(body)
    rest = body[_SIZE.size :]
    return ObjectCode(rest[:size], rest[size:])


def _digest(name: str, body: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(name.encode() + b"\n" + body).digest()
