"""The runtimes of platforms: this one's, and those of others, which the user has added.

A wheel of sqlml brings the runtime of one platform. To export models for another platform, the user
adds the wheel of that platform.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from sqlml.backends import own_files
from sqlml.backends.native.jit.processor_levels import LIBRARY
from sqlml.backends.native.jit.runtime_library import list_kernel_keys
from sqlml.backends.native.runtime.build_runtime import TARGETS, detect_duckdb_platform
from sqlml.errors import ConfigError

FOOTER_BYTES, FIELD_BYTES, PLATFORM_FIELD = 512, 32, 6
"""The bytes of DuckDB's footer, the bytes of a field in it, and the index of the platform."""

_MEMBER = "sqlml/" + LIBRARY.relative_to(LIBRARY.parents[4]).as_posix()
"""The runtime's path in a wheel."""


VARIANTS = {
    "linux_amd64_gcc4": "linux_amd64",
    "linux_arm64_gcc4": "linux_arm64",
    "windows_amd64_mingw": "windows_amd64",
}
"""Maps further names of DuckDB for builds of a platform to the platform: Python's package of DuckDB
1.2 is called `linux_amd64_gcc4`, and R's package on Windows `windows_amd64_mingw`."""

PLATFORMS = (*TARGETS, *VARIANTS)
"""DuckDB's names of the platforms for which models can be exported."""


def find_runtime(platform: str) -> Path | None:
    """Return the runtime of a platform, by DuckDB's name of it, or None if it is missing."""
    platform = VARIANTS.get(platform, platform)
    if platform == detect_duckdb_platform():
        return LIBRARY if LIBRARY.is_file() else None
    folder = find_folder() / platform
    has_runtime = own_files.is_private(folder) and (folder / LIBRARY.name).is_file()
    return folder / LIBRARY.name if has_runtime else None


def find_folder() -> Path:
    """Return the user's folder of runtimes of other platforms."""
    data_home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data_home) / "sqlml" / "runtimes"


def add_runtime(path: Path) -> str:
    """Keep the runtime in a wheel of sqlml, or in a file of its own; return its platform.

    Raises ConfigError if the file has no runtime with kernels, and OSError if it cannot be read, or
    if others can write to the user's folder.
    """
    content = _read_runtime(path)
    start = len(content) - FOOTER_BYTES + PLATFORM_FIELD * FIELD_BYTES
    platform = content[start : start + FIELD_BYTES].rstrip(b"\0").decode("ascii", "replace")
    if platform not in TARGETS or not list_kernel_keys(content):
        raise ConfigError(f"{path} has no runtime: pass a wheel of sqlml that has machine code")
    folder = find_folder() / platform
    own_files.make_private(folder)
    own_files.replace(folder / LIBRARY.name, content)
    return platform


def _read_runtime(path: Path) -> bytes:
    if not zipfile.is_zipfile(path):
        return path.read_bytes()
    with zipfile.ZipFile(path) as wheel:
        if _MEMBER not in wheel.namelist():
            return b""
        return wheel.read(_MEMBER)
