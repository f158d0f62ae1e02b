"""Compile `shim.c`, and sign it as an extension that DuckDB trusts.

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

SOURCE = Path(__file__).parent / "shim.c"
EXTENSION, PUBLIC_KEY = "sqlml.duckdb_extension", "public_key.txt"


@dataclass(frozen=True)
class Platform:
    """Zig's name for a platform, and the platform's wheel tag."""

    zig: str
    wheel: str


# The keys are DuckDB's platform names.
TARGETS = {
    "linux_amd64": Platform("x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64"),
    "linux_arm64": Platform("aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64"),
    "osx_arm64": Platform("aarch64-macos.11.0", "macosx_11_0_arm64"),
    "osx_amd64": Platform("x86_64-macos.11.0", "macosx_11_0_x86_64"),
    "windows_amd64": Platform("x86_64-windows-gnu", "win_amd64"),
    "windows_arm64": Platform("aarch64-windows-gnu", "win_arm64"),
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


def find_compiler_command(target: str) -> list[str] | None:
    """Return a command for the system's compiler or `ziglang`, or None if neither is installed."""
    system_compiler = find_system_compiler(target)
    if system_compiler is not None:
        return [system_compiler]
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", TARGETS[target].zig]
    return None if importlib.util.find_spec("ziglang") is None else zig


def build_shim(folder: Path, target: str) -> bool:
    """Write the signed extension and its key to `folder`; return False if no compiler is found."""
    command = find_compiler_command(target)
    if command is None:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "shim.library"
    options = ["-O2", "-shared", "-o", str(library), str(SOURCE)]
    options += [] if target.startswith("windows") else ["-fPIC", "-fvisibility=hidden"]
    subprocess.run([*command, *options], check=True, capture_output=True)
    content = library.read_bytes() + _make_metadata(target)
    signature, public_key = _sign(content)
    (folder / EXTENSION).write_bytes(content + signature)
    (folder / PUBLIC_KEY).write_text(public_key + "\n")
    for path in folder.glob("shim.*"):
        path.unlink()
    return True


def _make_metadata(target: str) -> bytes:
    """Return the extension's metadata: eight fields of 32 bytes each, in reverse order."""
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
