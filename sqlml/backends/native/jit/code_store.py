"""Store machine code on disk, and find kernels that this machine compiled or the package ships.

A file name encodes everything that the kernel's code depends on. If NUMBA_CACHE_DIR is set, files
are in that folder, otherwise next to the source or in the user's cache folder. Whoever writes these
files runs code as the user, so folders and files that somebody else can write are skipped
(`own_files.py`). If no folder is left, each process compiles every kernel. A file contains a digest
of the file name and the content. A damaged file counts as missing.

Shipped code lies beside the sources. It was compiled for the processor levels in
`object_code.LEVELS` when the package was built (`compile_ahead.py`). It works with every version of
Python, numpy and numba for which `argument_kinds.is_array_layout_known` returns True.
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from sqlml.backends import own_files
from sqlml.backends.native.jit.argument_kinds import Signature, format_kind
from sqlml.backends.native.jit.helpers import describe_constants
from sqlml.backends.native.jit.object_code import ObjectCode, find_level

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


@cache
def digest_sources(folder: Path | None = None) -> str:
    """Return a digest of the source files of the backend and of `folder`."""
    source_folders = [_BACKEND] if folder is None else [_BACKEND, folder]
    digest = hashlib.sha256()
    for path in sorted(path for source in source_folders for path in source.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


SHIPPED_FOLDER = Path(__file__).parent / "built"
"""The folder in the wheel of a release. It is missing in an installation from source."""


def read_shipped_code(function: Callable[..., Any], signature: Signature) -> ObjectCode | None:
    """Return the shipped code of a kernel for this processor, or None if missing or damaged."""
    if find_level() is None or not SHIPPED_FOLDER.is_dir():
        return None
    name = make_shipped_name(function, signature)
    with suppress(OSError):
        return unpack(name, (SHIPPED_FOLDER / name).read_bytes())
    return None


def make_shipped_name(function: Callable[..., Any], signature: Signature) -> str:
    """Return the file name of a shipped kernel for the processor level of this process."""
    path, name = Path(function.__code__.co_filename), function.__name__
    source = digest_sources(None if path.is_relative_to(_BACKEND) else path.parent)
    key = (function.__module__, name, describe_constants(function), format_kind(signature))
    target = (llvm.get_process_triple(), str(find_level()))
    return make_file_name(name, source, "\n".join((*key, *target)))
