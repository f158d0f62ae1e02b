"""`read_artifact`: the bytes of a model file -> an object that the registry imports.

Only formats that are data are read without being asked: XGBoost's JSON and UBJSON, LightGBM's
text, and sqlml's own. A pickle runs code when it is read.
"""

from __future__ import annotations

import io
import json
import pickle
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlml.config import MAX_ARTIFACT_BYTES
from sqlml.errors import (
    ArtifactError,
    ConfigError,
    MissingDependencyError,
    UnsupportedModelError,
    UntrustedArtifactError,
)
from sqlml.importers.lightgbm.text import read_text
from sqlml.importers.xgboost import ubjson
from sqlml.importers.xgboost.document import read_document
from sqlml.ir import store

NOT_YET = frozenset(("CATBOOST", "ONNX", "SKOPS", "TORCH"))
"""Formats that the grammar knows and that no importer reads yet."""

_COMPRESSED = (b"\x78", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x04\x22\x4d\x18", b"ZF")
"""First bytes of what joblib writes with compress=: zlib, gzip, bz2, xz, lz4, and its old form."""


def read_artifact(content: bytes, *, format: str, path: str, allow_pickle: bool) -> Any:
    """The model in a file.

    Args:
        content: the whole file.
        format: AUTO, XGBOOST, LIGHTGBM, PICKLE or SQLML, in any case; AUTO looks at the content.
        path: where it came from, for messages.
        allow_pickle: whether the caller trusts the file to run code.

    Returns:
        XGBoostModel, LightGBMModel, a Program, or whatever a pickle holds.

    Raises:
        ArtifactError: damaged, hostile, too large, or of another format.
        UntrustedArtifactError: a pickle without `allow_pickle`.
        UnsupportedModelError: a format that is not read yet, or a model that is not covered.
        ConfigError: no such format.
    """
    wanted = format.upper()
    if wanted in NOT_YET:
        raise UnsupportedModelError(f"{path}: format {wanted} is not read yet")
    if wanted != "AUTO" and wanted not in READERS:
        raise ConfigError(
            f"no model format {format!r}; there are AUTO, {', '.join(sorted({*READERS, *NOT_YET}))}"
        )
    if len(content) > MAX_ARTIFACT_BYTES:
        raise ArtifactError(f"{path} has {len(content)} bytes; the limit is {MAX_ARTIFACT_BYTES}")
    if not content:
        raise ArtifactError(f"{path} is empty")
    if wanted == "AUTO":
        wanted = _detect(content, path)
    if wanted == "PICKLE" and not allow_pickle:
        raise UntrustedArtifactError(
            f"{path} is a pickle, and reading it would execute code that it brings along; save "
            "the model in its library's own format (XGBoost: model.json, LightGBM: model.txt), or, "
            "if you trust the file, write OPTIONS (allow_pickle = true)"
        )
    try:
        return READERS[wanted](content)
    except (ArtifactError, UnsupportedModelError, MissingDependencyError) as error:
        raise type(error)(f"{path}: {error}") from None


def _detect(content: bytes, path: str) -> str:
    """The format that the first bytes speak for."""
    if content.startswith(store.MAGIC):
        return "SQLML"
    head = content[:64].lstrip(b" \t\r\n\xef\xbb\xbf")
    if head.startswith(b"{"):
        return "XGBOOST"
    if head.startswith((b"tree\n", b"tree\r\n")):
        return "LIGHTGBM"
    # Protocol 2 and later begin with 0x80 and the protocol; earlier ones end with "." alone.
    if content[0] == 0x80 or content.startswith(_COMPRESSED):
        return "PICKLE"
    if content[:1] in b"(]}c" and content.rstrip().endswith(b"."):
        return "PICKLE"
    if content.startswith(b"binf"):
        raise ArtifactError(
            f"{path} is in XGBoost's old binary format; load it with the XGBoost that wrote it and "
            "save it as model.json"
        )
    raise ArtifactError(
        f"{path} is none of the model files that sqlml knows (XGBoost JSON or UBJ, LightGBM text, "
        "a stored sqlml model, pickle or joblib); name its kind with FORMAT"
    )


def _xgboost(content: bytes) -> Any:
    text = content.lstrip(b" \t\r\n\xef\xbb\xbf")
    # After the brace, JSON has a quote or blank and UBJSON the marker of a length.
    if text[:1] == b"{" and text[1:2] not in b'" \t\r\n}':
        return read_document(ubjson.loads(content))
    try:
        document = json.loads(text)
    except RecursionError:
        raise ArtifactError("the JSON document is nested too deeply") from None
    except ValueError as error:
        raise ArtifactError(f"damaged or cut off: not JSON ({error})") from None
    return read_document(document)


def _lightgbm(content: bytes) -> Any:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ArtifactError(f"the LightGBM model is not UTF-8 ({error})") from None
    return read_text(text)


def _pickle(content: bytes) -> Any:
    """A pickle or joblib file; the caller has said that it may run code."""
    try:
        import joblib
    except ImportError:
        joblib = None
    if joblib is None and content.startswith(_COMPRESSED):
        raise MissingDependencyError("a joblib file needs joblib: pip install joblib")
    try:
        return pickle.loads(content) if joblib is None else joblib.load(io.BytesIO(content))
    except ImportError as error:
        raise MissingDependencyError(
            f"the pickle needs {error.name or error}, which is not installed here"
        ) from error
    except (MemoryError, zlib.error, Exception) as error:
        # Unpickling runs the classes' own code, so anything at all may be raised.
        raise ArtifactError(
            f"the pickle cannot be read ({type(error).__name__}: {error}); it is damaged, or was "
            "written with other versions of its libraries"
        ) from error


READERS: Mapping[str, Callable[[bytes], Any]] = MappingProxyType(
    {"XGBOOST": _xgboost, "LIGHTGBM": _lightgbm, "PICKLE": _pickle, "SQLML": store.loads}
)
