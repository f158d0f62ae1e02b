"""Build a checkout's runtime with machine code.

    python -m sqlml.backends.native.runtime [PLATFORM ...]

By default, the runtime is for this platform and this processor's level. Object files are kept in
`build/kernels`, so only kernels whose sources have changed are compiled again. The runtimes of
other platforms are for all levels, and are written to `build/runtimes`.
"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from pathlib import Path

from sqlml.backends.native.jit.kernel_keys import make_key
from sqlml.backends.native.jit.processor_levels import LEVELS, LIBRARY, find_level
from sqlml.backends.native.jit.runtime_library import list_kernel_keys
from sqlml.backends.native.runtime.build_runtime import (
    EXTENSION,
    build_runtime,
    detect_duckdb_platform,
    find_compiler_command,
    is_current,
)
from sqlml.backends.native.runtime.compile_kernels import TRIPLES, compile_kernels
from sqlml.backends.native.runtime.kernel_tables import list_kernels

_ROOT = LIBRARY.parents[5]
OBJECTS = _ROOT / "build" / f"kernels-{version('numba')}-{version('llvmlite')}"
"""The folder of object files, which has a folder for each platform."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sqlml.backends.native.runtime")
    parser.add_argument("platforms", nargs="*", metavar="PLATFORM", choices=[[], *TRIPLES])
    parser.add_argument("--all-levels", action="store_true", help="for all processors")
    options = parser.parse_args()
    own_platform = detect_duckdb_platform()
    platforms = options.platforms or [own_platform]
    if own_platform is None or (own_platform in platforms and find_level() is None):
        print("this platform has no runtime, or NUMBA_* asks for another processor")
        return 1
    # numba compiles a kernel once for the platforms that are compiled together.
    others = [platform for platform in platforms if platform != own_platform]
    compile_kernels(OBJECTS, others, list_kernels())
    for platform in platforms:
        is_own = platform == own_platform
        levels = [find_level()] if is_own and not options.all_levels else list(LEVELS)
        folder = LIBRARY.parent if is_own else _ROOT / "build" / "runtimes" / platform
        is_kept = is_own and not options.all_levels and is_current(folder, platform)
        if is_kept and _has_current_kernels(folder):
            continue
        if find_compiler_command(platform, portable=not is_own) is None:
            print("no C compiler: install gcc, or pip install ziglang")
            return 1
        print(f"compiling kernels for {platform}, which takes minutes the first time", flush=True)
        kernels = list_kernels()
        compile_kernels(OBJECTS, [platform], kernels, [level for level in levels if level])
        build_runtime(folder, platform, OBJECTS / platform, portable=not is_own)
        print(f"built {folder / EXTENSION}")
    return 0


def _has_current_kernels(folder: Path) -> bool:
    """Return True if the library in `folder` has the kernels of the present sources."""
    keys = tuple(make_key(k.function, k.signature) for k in list_kernels())
    return list_kernel_keys((folder / EXTENSION).read_bytes()) == keys


if __name__ == "__main__":
    sys.exit(main())
