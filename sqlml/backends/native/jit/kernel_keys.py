"""Identify a kernel by everything that its machine code depends on: sources, constants, kinds.

The key does not depend on the processor's level, so that a process finds the kernels that another
one has compiled for its level. The constants of kernels' own files may depend on the level, and
belong to the sources.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from sqlml.backends.native.jit.argument_kinds import Signature, format_kind
from sqlml.backends.native.jit.helpers import describe_constants

_JIT = Path(__file__).parent
_SQLML = _JIT.parents[2]

_COMPILER = (
    "argument_kinds",
    "call_wrapper",
    "helpers",
    "object_code",
    "process_memory",
    "processor_levels",
)
"""The modules of this package that decide what machine code a kernel becomes."""

_IMPORT = re.compile(
    r"^from sqlml\.((?:backends|udfs\.duckdb)\.native[.\w]*) import (\([^)]*\)|[^(\n]+)", re.M
)
"""An import of kernels, or of what they call."""

_OTHER_IMPORT = re.compile(
    r"^from sqlml\.(?!(?:backends|udfs\.duckdb)\.native)[.\w]+ import (\([^)]*\)|[^(\n]+)", re.M
)
"""An import of what is in no digested file."""


def make_key(function: Callable[..., Any], signature: Signature) -> bytes:
    """Return 16 bytes that identify a kernel's sources, constants and signature."""
    constants = describe_constants(function, _list_other_names)
    kinds = format_kind(signature)
    key = (digest_sources(function), function.__module__, function.__name__, constants, kinds)
    return hashlib.sha256("\n".join(key).encode()).digest()[:16]


def digest_sources(function: Callable[..., Any]) -> str:
    """Return a digest of the source files on which the kernel `function` depends."""
    return _digest_files(function.__code__.co_filename)


@cache
def _digest_files(path: str) -> str:
    """Return a digest of a source file, the files that it imports, and those of the compiler."""
    digests = {_read(str(_JIT / f"{name}.py"))[0] for name in _COMPILER}
    waiting, visited = [path], {path}
    while waiting:
        digest, imported = _read(waiting.pop())
        digests.add(digest)
        waiting += [other for other in imported if other not in visited]
        visited.update(imported)
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()


@cache
def _read(path: str) -> tuple[str, tuple[str, ...]]:
    """Return the digest of a source file, and the files of kernels that the file imports."""
    content = Path(path).read_bytes()
    imports = _IMPORT.findall(content.decode("utf-8"))
    files = (file for package, names in imports for file in _find(package, names))
    return hashlib.sha256(content).hexdigest(), tuple(dict.fromkeys(files))


@cache
def _list_other_names(path: str) -> frozenset[str]:
    """Return the names that a source file imports from files without kernels."""
    imported = " ".join(_OTHER_IMPORT.findall(Path(path).read_text("utf-8")))
    return frozenset(re.findall(r"\w+", imported))


def _find(package: str, names: str) -> Iterator[str]:
    """Yield the files of an import, except those of the package `jit`."""
    folder = _SQLML.joinpath(*package.split("."))
    if folder == _JIT or _JIT in folder.parents:
        return
    if not folder.is_dir():
        yield f"{folder}.py"
        return
    for name in re.findall(r"\w+", names):
        if (folder / f"{name}.py").is_file():
            yield str(folder / f"{name}.py")
