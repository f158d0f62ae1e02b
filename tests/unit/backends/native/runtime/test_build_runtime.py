"""The extension of native functions: compiled for each platform, signed, described to DuckDB."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa, utils

from sqlml.backends.native.runtime.build_runtime import (
    CONNECTION,
    EXTENSION,
    PUBLIC_KEY,
    TARGETS,
    build_runtime,
    detect_duckdb_platform,
    find_compiler_command,
)

MACHINES = {
    "linux_amd64": (b"\x7fELF", 18, b"\x3e\x00"),
    "linux_arm64": (b"\x7fELF", 18, b"\xb7\x00"),
    "osx_amd64": (b"\xcf\xfa\xed\xfe", 4, b"\x07\x00\x00\x01"),
    "osx_arm64": (b"\xcf\xfa\xed\xfe", 4, b"\x0c\x00\x00\x01"),
    "windows_amd64": (b"MZ", None, b"PE\x00\x00\x64\x86"),
    "windows_arm64": (b"MZ", None, b"PE\x00\x00\x64\xaa"),
}
"""How a file of a platform begins, and where and how it names its processor."""


def check(folder: Path, target: str) -> None:
    content = (folder / EXTENSION).read_bytes()
    magic, place, processor = MACHINES[target]
    assert content.startswith(magic)
    assert processor in content if place is None else content[place:].startswith(processor)
    for name in (b"sqlml_init_c_api", b"sqlml_connect", b"sqlml_connection"):
        assert name in content, name
    fields = [content[-512:-256][k : k + 32].rstrip(b"\0").decode() for k in range(0, 256, 32)]
    assert fields == ["", "", "", "C_STRUCT", "1", "v1.2.0", target, "4"]
    body, signature = content[:-256], content[-256:]
    digest = hashlib.sha256(hashlib.sha256(body).digest()).digest()
    key = serialization.load_der_public_key(base64.b64decode((folder / PUBLIC_KEY).read_text()))
    assert isinstance(key, rsa.RSAPublicKey) and key.key_size == 2048
    key.verify(signature, digest, padding.PKCS1v15(), utils.Prehashed(hashes.SHA256()))
    with pytest.raises(InvalidSignature):
        other = hashlib.sha256(hashlib.sha256(body + b"\0").digest()).digest()
        key.verify(signature, other, padding.PKCS1v15(), utils.Prehashed(hashes.SHA256()))


def test_it_is_built_for_this_platform(tmp_path: Path) -> None:
    target = detect_duckdb_platform()
    if target is None or find_compiler_command(target) is None:
        pytest.skip("no C compiler for this platform")
    assert build_runtime(tmp_path, target)
    assert sorted(p.name for p in tmp_path.iterdir()) == [CONNECTION, PUBLIC_KEY, EXTENSION]
    check(tmp_path, target)
    check(tmp_path / CONNECTION, target)
    first = (tmp_path / PUBLIC_KEY).read_text()
    assert build_runtime(tmp_path, target)
    assert (tmp_path / PUBLIC_KEY).read_text() != first, "each build has a key of its own"


@pytest.mark.nightly
@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs ziglang")
@pytest.mark.parametrize("target", TARGETS)
def test_it_is_built_for_every_platform(tmp_path: Path, target: str) -> None:
    assert build_runtime(tmp_path, target)
    check(tmp_path, target)
