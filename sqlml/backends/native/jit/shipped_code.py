"""Machine code that the package brings, for the levels of processors in `processor.LEVELS`.

It was compiled when the package was built (`compile_ahead.py`), and lies beside the sources, whose
content is part of its name; as far as they are trusted, so is it. It depends on no version of
Python, numpy or numba: it reads arrays where `array_fields.known` has found them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from sqlml.backends.native.jit.argument_kinds import Signature, spelled
from sqlml.backends.native.jit.code_store import file_name, packed, unpacked
from sqlml.backends.native.jit.helpers import numbers_of
from sqlml.backends.native.jit.object_code import ObjectCode, level

# `sources`: what the files of kernels say, as a digest.


@cache
def sources(folder: Path | None = None) -> str:
    """A digest of the files of all kernels of the backend, and of those in another folder."""
    folders = (Path(__file__).parent.parent, *(() if folder is None else (folder,)))
    digest = hashlib.sha256()
    for path in sorted(path for place in folders for path in place.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


FOLDER = Path(__file__).parent / "built"
"""The folder in the wheel of a release. An installation from source lacks it."""

_HERE = Path(__file__).parent.parent


def read(function: Callable[..., Any], signature: Signature) -> ObjectCode | None:
    """The code of a kernel for this processor; None if the package brings none, or is damaged."""
    if level() is None or not FOLDER.is_dir():
        return None
    name = name_of(function, signature)
    with suppress(OSError):
        return unpacked(name, (FOLDER / name).read_bytes())
    return None


def write(
    folder: Path, function: Callable[..., Any], signature: Signature, made: ObjectCode
) -> None:
    """Write the code of a kernel, which was compiled for the level of this process."""
    name = name_of(function, signature)
    (folder / name).write_bytes(packed(name, made))


def name_of(function: Callable[..., Any], signature: Signature) -> str:
    """The name of a kernel's file for the level of this process."""
    own = Path(function.__code__.co_filename).parent
    said = sources(None if _HERE in (own, *own.parents) else own)
    key = (function.__module__, function.__name__, numbers_of(function), spelled(signature))
    return file_name(
        function.__name__, said, "\n".join((*key, llvm.get_process_triple(), str(level())))
    )
