"""Machine code on disk: a file for each kernel, whose name says all that it depends on.

Files lie in NUMBA_CACHE_DIR if that is set; else beside the source, or where that is read-only in
the user's own cache folder. A file is written beside its place and renamed, so that no process
sees half of it, and holds a digest of its content; one that is damaged is as good as none.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sqlml.backends.native.object_code import ObjectCode

SUFFIX = ".kernel"

KEPT = 86_400.0
"""Seconds that files of another version of sqlml stay at least."""

_MAGIC = b"sqlml kernel 1\n"
_SIZES = struct.Struct("<QQ")


def folders() -> Iterator[Path]:
    """Where files may be, the best place first."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    if named:
        yield Path(named) / "sqlml"
        return
    yield Path(__file__).parent / "__pycache__"
    with suppress(RuntimeError):  # nobody's home is known
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sqlml"


def read(name: str) -> ObjectCode | None:
    """The code of a file, or None where there is none or it is damaged."""
    for folder in folders():
        with suppress(OSError):
            code = _parsed((folder / name).read_bytes())
            if code is not None:
                return code
    return None


def write(name: str, code: ObjectCode) -> None:
    """Keep the code where that is possible."""
    content = _content(code)
    for folder in folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            fresh = folder / f"{name}.{os.getpid()}.{threading.get_ident()}"
            fresh.write_bytes(content)
            fresh.replace(folder / name)
        except OSError:
            continue
        _forget(folder, name)
        return


def file_name(kernel: str, source: str, rest: str) -> str:
    """The name of a file: of the kernel, its source's digest, and all else that is in its key."""
    key = hashlib.sha256(f"{source}\n{rest}".encode()).hexdigest()
    return f"{kernel}-{source[:12]}-{key[:40]}{SUFFIX}"


def _forget(folder: Path, name: str) -> None:
    """Delete the kernel's files that older versions of sqlml have left."""
    kernel, source, _ = name.rsplit("-", 2)
    for path in folder.glob(f"{kernel}-*{SUFFIX}"):
        with suppress(OSError):
            old = path.stat().st_mtime < time.time() - KEPT
            if old and not path.name.startswith(f"{kernel}-{source}-"):
                path.unlink()


def _content(code: ObjectCode) -> bytes:
    calls = json.dumps(code.calls).encode()
    sizes = _SIZES.pack(len(code.kernel), len(code.entry))
    body = sizes + code.kernel + code.entry + calls
    return _MAGIC + hashlib.sha256(body).digest() + body


def _parsed(content: bytes) -> ObjectCode | None:
    begin = len(_MAGIC) + hashlib.sha256().digest_size
    body = content[begin:]
    if content[:begin] != _MAGIC + hashlib.sha256(body).digest():
        return None
    kernel, entry = _SIZES.unpack_from(body)
    rest = body[_SIZES.size :]
    calls = json.loads(rest[kernel + entry :])
    return ObjectCode(rest[:kernel], rest[kernel : kernel + entry], tuple(calls))
