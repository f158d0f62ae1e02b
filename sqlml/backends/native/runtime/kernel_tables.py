"""Write the C tables of a library's kernels: keys, addresses, signatures and argument checks."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path

from sqlml.backends.native.argument_checks.registry import find_argument_check
from sqlml.backends.native.jit.argument_kinds import ArrayKind, Kind
from sqlml.backends.native.jit.call_wrapper import NUMBERS_ENTRY, WORDS_ENTRY
from sqlml.backends.native.jit.compile_ahead import KnownKernel, read_known_kernels
from sqlml.backends.native.jit.kernel_keys import make_key
from sqlml.backends.native.runtime.build_runtime import OBJECTS, TABLES

END, NUMBER, ARRAY = range(3)
"""Kinds of words in a signature. An array is followed by five numbers: the axes, the bytes of an
item, whether the array is contiguous, whether the kernel writes to it, and its role."""

ROLES = {"memory": 1, "strings": 2, "start": 3, "stop": 4}
"""Maps the names of parameters with addresses to numbers of roles; other arrays have the role 0.

`runtime.c` passes the whole memory only as `memory`, the strings of an argument only as `strings`,
and addresses only as `start` and `stop`.
"""


SCORE_KERNEL = "score_columns"
"""The name of the kernel with which `runtime.c` scores rows."""


def list_kernels() -> tuple[KnownKernel, ...]:
    """Return the kernels of the runtime: the known kernels, and the checks of their arguments."""
    known = read_known_kernels()
    checks = (check for kernel in known if (check := _find_check(kernel)) is not None)
    return *known, *dict.fromkeys(checks)


def _find_check(kernel: KnownKernel) -> KnownKernel | None:
    check = find_argument_check(kernel.module, kernel.name)
    return check and KnownKernel(check.__module__, check.__name__, kernel.signature)


def find_object(folder: Path, key: str, level: str) -> Path | None:
    """Return the object file of the kernel `key` for a level, if it has been compiled."""
    return next(folder.glob(f"{key}_{level}_*.o"), None)


def takes_numbers(kernel: KnownKernel) -> bool:
    """Return True if all arguments of the kernel are integers."""
    return all(kind == "count" for kind in kernel.signature)


def make_suffix(key: str, level: str) -> str:
    """Return what distinguishes the symbols of a kernel and a level from those of all others."""
    return f"_{key}_{level.replace('-', '_')}"


def write_tables(folder: Path, kernels: Sequence[KnownKernel], levels: Sequence[str]) -> None:
    """Write the C tables that `runtime.c` includes, and the list of the object files in them.

    Files of other kernels are deleted. Files of other levels are kept for later libraries.
    """
    keys = [make_key(kernel.function, kernel.signature).hex() for kernel in kernels]
    objects = {(key, level): _get_object(folder, key, level) for level in levels for key in keys}
    result_kinds = [_read_result_kind(objects[key, levels[0]]) for key in keys]
    lines = [f"#define KERNELS {len(keys)}", f"#define LEVELS {len(levels)}"]
    names = ", ".join(f'"{level}"' for level in levels)
    lines.append(f"static const char *const level_names[] = {{{names}}};")
    key_rows = ("{" + ", ".join(map(str, bytes.fromhex(key))) + "}" for key in keys)
    lines.append(f"#define KERNEL_KEYS {{{', '.join(key_rows)}}}")
    lines.append(_define_array("unsigned char", "kernel_results", result_kinds))
    for table, entry in (("kernel_entries", WORDS_ENTRY), ("number_entries", NUMBERS_ENTRY)):
        rows = []
        for level in levels:
            symbols = [
                entry + make_suffix(key, level)
                if entry == WORDS_ENTRY or takes_numbers(kernel)
                else "0"
                for key, kernel in zip(keys, kernels, strict=True)
            ]
            lines += [f"extern char {symbol}[];" for symbol in symbols if symbol != "0"]
            rows.append("{" + ", ".join(symbols) + "}")
        lines.append(f"static char *const {table}[][KERNELS] = {{{', '.join(rows)}}};")
    positions = {kernel: k for k, kernel in enumerate(kernels)}
    score = next((k for kernel, k in positions.items() if kernel.name == SCORE_KERNEL), -1)
    lines.append(f"#define SCORE_COLUMNS {score}")
    checks = [positions.get(check, -1) if (check := _find_check(k)) else -1 for k in kernels]
    lines.append(_define_array("short", "kernel_checks", checks))
    starts: list[int] = []
    words: list[int] = []
    for kernel in kernels:
        starts.append(len(words))
        words += _encode_signature(kernel)
    lines.append(_define_array("int", "signature_starts", starts))
    lines.append(_define_array("short", "signatures", words))
    (folder / TABLES).write_text("\n".join(lines) + "\n")
    paths = "".join(f'"{path.as_posix()}"\n' for path in objects.values())
    (folder / OBJECTS).write_text(paths)
    for path in (*folder.glob("*.o"), *folder.glob("*.part")):
        if path.suffix == ".part" or path.name.partition("_")[0] not in keys:
            path.unlink()


def _define_array(c_type: str, name: str, numbers: Sequence[int]) -> str:
    return f"static const {c_type} {name}[] = {{{', '.join(map(str, numbers))}}};"


def _get_object(folder: Path, key: str, level: str) -> Path:
    path = find_object(folder, key, level)
    assert path is not None
    return path.absolute()


def _read_result_kind(path: Path) -> int:
    return int(path.stem.rpartition("_")[2])


def _encode_signature(kernel: KnownKernel) -> Iterator[int]:
    """Yield the kinds of the words that a kernel is called with, and END."""
    names = inspect.signature(kernel.function).parameters
    for name, kind in zip(names, kernel.signature, strict=True):
        yield from _encode_kind(kind, ROLES.get(name, 0))
    yield END


def _encode_kind(kind: Kind, role: int) -> Iterator[int]:
    if isinstance(kind, ArrayKind):
        is_contiguous, is_written = int(kind.layout == "C"), int(not kind.readonly)
        yield from (ARRAY, kind.ndim, kind.dtype.itemsize, is_contiguous, is_written, role)
    elif isinstance(kind, tuple):
        for item in kind:
            yield from _encode_kind(item, 0)
    elif kind != "nothing":
        yield NUMBER
