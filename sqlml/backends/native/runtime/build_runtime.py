"""Build the runtime from `runtime.c` and compiled kernels, signed as an extension of DuckDB.

This runs while the package is built (`hatch_build.py`). The private key is generated for one file
and then discarded, so nobody can sign another file with it.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import platform
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent / "runtime.c"
TABLES, OBJECTS = "kernel_tables.h", "kernel_objects.txt"
"""The files of `compile_kernels.py` that `runtime.c` includes, and that list the object files.

The list is an argument file of the linker, because Windows limits the length of a command.
"""

EXTENSION, PUBLIC_KEY = "sqlml.duckdb_extension", "public_key.txt"

DIGEST_LENGTH = 32
"""The characters of the digest of `runtime.c` in a library."""

CONNECTION = "connection"
"""The folder with the library without kernels, which only opens a connection for Python.

DuckDB computes the signature of a library each time it loads one, so this one is small.
"""


@dataclass(frozen=True)
class Platform:
    """Zig's name for a platform, the platform's wheel tag, and the levels of its processors."""

    zig: str
    wheel: str
    levels: tuple[str, ...]


_X86, _ARM = ("x86-64-v4", "x86-64-v3", "x86-64"), ("armv8-a",)


# The keys are DuckDB's platform names.
TARGETS = {
    "linux_amd64": Platform("x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64", _X86),
    "linux_arm64": Platform("aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64", _ARM),
    "osx_arm64": Platform("aarch64-macos.11.0", "macosx_11_0_arm64", _ARM),
    "osx_amd64": Platform("x86_64-macos.11.0", "macosx_11_0_x86_64", _X86),
    "windows_amd64": Platform("x86_64-windows-gnu", "win_amd64", _X86),
    "windows_arm64": Platform("aarch64-windows-gnu", "win_arm64", _ARM),
}

_SYSTEMS = {"linux": "linux", "darwin": "osx", "win32": "windows"}
_PROCESSORS = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def detect_duckdb_platform() -> str | None:
    """Return DuckDB's name for this platform, or None if the platform is not supported."""
    processor = _PROCESSORS.get(platform.machine().lower())
    name = f"{_SYSTEMS.get(sys.platform)}_{processor}"
    has_musl = "musl" in (sysconfig.get_config_var("HOST_GNU_TYPE") or "")
    return name if name in TARGETS and not has_musl else None


def find_system_compiler(target: str) -> str | None:
    """Return the system's C compiler, or None if it cannot compile for `target`."""
    return shutil.which("cc") if target == detect_duckdb_platform() else None


def find_compiler_command(target: str, *, portable: bool = False) -> list[str] | None:
    """Return a command for the system's compiler or `ziglang`, or None if neither is installed.

    A `portable` library needs `ziglang`, which links with the oldest C library of a platform.
    """
    system_compiler = None if portable else find_system_compiler(target)
    if system_compiler is not None:
        return [system_compiler]
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", TARGETS[target].zig]
    return None if importlib.util.find_spec("ziglang") is None else zig


def build_runtime(
    folder: Path, target: str, kernels: Path | None = None, *, portable: bool = False
) -> bool:
    """Write the signed library and its key to `folder`; return False if no compiler is found.

    The same library without kernels is written to the folder CONNECTION in `folder`. `kernels` is
    the folder with the results of `compile_kernels.py`. Without it the library has no kernels, and
    each machine compiles those that it uses. A `portable` library is one for releases.
    """
    command = find_compiler_command(target, portable=portable)
    if command is None:
        return False
    _build_library(folder / CONNECTION, target, command, None, portable)
    _build_library(folder, target, command, kernels, portable)
    return True


def _build_library(
    folder: Path, target: str, command: list[str], kernels: Path | None, portable: bool
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "runtime.library"
    options = ["-O2", "-shared", "-o", str(library), str(SOURCE)]
    options.append(f'-DSOURCE_DIGEST="{digest_source()}"')
    options += [] if target.startswith("windows") else ["-fPIC", "-fvisibility=hidden"]
    if target.startswith("osx"):
        options.append(f"-Wl,-install_name,@rpath/{EXTENSION}")
    if portable:  # The names of hidden functions and the paths of this machine are of no use.
        options.append("-s")
    if kernels is not None:
        options += [f'-DKERNEL_TABLES="{(kernels / TABLES).as_posix()}"', f"@{kernels / OBJECTS}"]
    # Some linkers ignore a library that nothing before it on the command line needs.
    options += [] if target.startswith("windows") else ["-lm"]
    subprocess.run([*command, *options], check=True, capture_output=True)
    content = library.read_bytes() + make_metadata(target)
    signature, public_key = _sign(content)
    # A process that has loaded the previous library keeps it, since a new file takes its place.
    (folder / "runtime.signed").write_bytes(content + signature)
    (folder / "runtime.signed").replace(folder / EXTENSION)
    (folder / PUBLIC_KEY).write_text(public_key + "\n")
    for path in folder.glob("runtime.*"):
        path.unlink()


def is_current(folder: Path, target: str) -> bool:
    """Return True if `folder` has the library for `target`, built from the present `runtime.c`."""
    if not all((part / EXTENSION).is_file() for part in (folder, folder / CONNECTION)):
        return False
    content = (folder / EXTENSION).read_bytes()
    return digest_source().encode() in content and make_metadata(target) in content[-512:]


def digest_source() -> str:
    """Return the digest of `runtime.c` that a library is marked with."""
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:DIGEST_LENGTH]


def make_metadata(target: str) -> bytes:
    """Return an extension's metadata: eight fields of 32 bytes each, in reverse order."""
    fields = ("", "", "", "C_STRUCT", "1", "v1.2.0", target, "4")
    return b"".join(field.encode().ljust(32, b"\0") for field in fields)


def _sign(content: bytes) -> tuple[bytes, str]:
    """Sign the hash of all chunk hashes with a new RSA key; return the signature and public key."""
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import padding, rsa, utils

    chunks = (content[offset : offset + 2**20] for offset in range(0, len(content), 2**20))
    digest = hashlib.sha256(b"".join(hashlib.sha256(chunk).digest() for chunk in chunks)).digest()
    private_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    signature = private_key.sign(digest, padding.PKCS1v15(), utils.Prehashed(hashes.SHA256()))
    key_format = serialization.PublicFormat.SubjectPublicKeyInfo
    public_key = private_key.public_key().public_bytes(serialization.Encoding.DER, key_format)
    return signature, base64.b64encode(public_key).decode()
