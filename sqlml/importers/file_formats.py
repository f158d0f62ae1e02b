"""The formats of model files, from bytes to an object that the registry imports.

Most formats are data and are always read. A pickle runs code when it is read, so the user must
trust it explicitly.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from sqlml.errors import (
    ArtifactError,
    ConfigError,
    MissingDependencyError,
    UnsupportedModelError,
    UntrustedArtifactError,
)
from sqlml.importers.catboost import document as catboost
from sqlml.importers.catboost.binary import MAGIC, convert_to_json
from sqlml.importers.lightgbm.document import read_text
from sqlml.importers.onnx.document import read_onnx
from sqlml.importers.skops import check_archive, read_skops
from sqlml.importers.spark_ml.folder import read_folder as read_spark
from sqlml.importers.spark_ml.pipeline_stages import SparkModel
from sqlml.importers.sqlml_file import read_stored
from sqlml.importers.untrusted_documents import Hook, read_json, read_ubjson
from sqlml.importers.xgboost import document as xgboost
from sqlml.importers.xgboost.forest import compact
from sqlml.ir import store
from sqlml.ir.torch_archive import read_exported
from sqlml.limits import MAX_ARTIFACT_BYTES

_COMPRESSED_MAGIC = (b"\x78", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x04\x22\x4d\x18", b"ZF")
"""The first bytes of joblib's compressed files: zlib, gzip, bz2, xz, lz4, and the old ZFile."""

_BLANKS = b" \t\r\n\xef\xbb\xbf"
_CATBOOST_START = re.compile(
    rb'\{\s*"(ctr_data|features_info|model_info|oblivious_trees|scale_and_bias|trees)"'
)
"""Matches the beginning of a CatBoost JSON document; the keys are sorted."""
_ONNX_START = re.compile(rb"\x08[\x01-\x1f][\x12\x1a\x22\x28\x32\x3a\x42]")
"""Matches the beginning of an ONNX file: ir_version in protobuf field 1, then a later field."""

_EXTRAS = frozenset(("catboost", "lightgbm", "sklearn", "torch", "xgboost"))
"""The libraries of pickled objects for which sqlml has an extra with the library's name."""

_FAILURES = (ArtifactError, MissingDependencyError, UnsupportedModelError, UntrustedArtifactError)
"""The errors of readers that are raised again with the file's path before the message."""


def read_artifact(content: bytes, *, format: str, path: str, allow_pickle: bool) -> Any:
    """Read a model file, and return an object that `import_model` accepts.

    `format` is AUTO or one of `READERS`, in any case. `path` is only used in messages. If
    `allow_pickle` is true, the file may be a pickle. A damaged, hostile or oversized file raises
    ArtifactError.
    """
    format_name = format.upper()
    if format_name == FOLDER_FORMAT:
        raise ArtifactError(
            f"{path} is a file; FORMAT SPARK needs the folder in which pyspark.ml saved a model"
        )
    if format_name != "AUTO" and format_name not in READERS:
        raise ConfigError(
            f"unknown model format {format!r}; formats: AUTO, "
            + ", ".join(sorted((*READERS, FOLDER_FORMAT)))
        )
    if len(content) > MAX_ARTIFACT_BYTES:
        raise ArtifactError(f"{path} has {len(content)} bytes; the limit is {MAX_ARTIFACT_BYTES}")
    if not content:
        raise ArtifactError(f"{path} is empty")
    if format_name == "AUTO":
        format_name = detect_format(content, path)
    elif format_name in ("CATBOOST", "LIGHTGBM", "XGBOOST"):
        _reject_unreadable(content, path)
    check_trusted(format_name, path, allow_pickle)
    read = READERS[format_name]
    if format_name == "SKOPS":
        read = partial(read_skops, is_trusted=allow_pickle)
    try:
        return read(content)
    except _FAILURES as error:
        raise type(error)(f"{path}: {error}") from error


def check_trusted(format: str, path: str, allow_pickle: bool) -> None:
    if format.upper() == "PICKLE" and not allow_pickle:
        raise UntrustedArtifactError(
            f"{path} is a pickle, and reading it would execute the code that it contains; save "
            "the model in its library's own format (XGBoost, CatBoost: model.json, LightGBM: "
            "model.txt, scikit-learn: model.skops), or, if you trust the file, connect with "
            "allow_pickle=True, or write OPTIONS (allow_pickle = true) in CREATE MODEL"
        )


def detect_format(content: bytes, path: str) -> str:
    if content.startswith(store.MAGIC):
        return "SQLML"
    first_bytes = content[:64].lstrip(_BLANKS)
    if first_bytes.startswith(b"{"):
        return "CATBOOST" if _CATBOOST_START.match(first_bytes) else "XGBOOST"
    if first_bytes.startswith((b"tree\n", b"tree\r\n")):
        return "LIGHTGBM"
    if content.startswith(b"PK"):
        try:
            return "SKOPS" if "schema.json" in check_archive(content).namelist() else "TORCH"
        except ArtifactError as error:
            raise ArtifactError(f"{path}: {error}") from None
    if _ONNX_START.match(content):
        return "ONNX"
    # A pickle of protocol 2 or later begins with 0x80 and the protocol; an older one ends with ".".
    if content[0] == 0x80 or content.startswith(_COMPRESSED_MAGIC):
        return "PICKLE"
    if content[:1] in b"(]}c" and content.rstrip().endswith(b"."):
        return "PICKLE"
    if content.startswith(MAGIC):
        return "CATBOOST"
    _reject_unreadable(content, path)
    raise ArtifactError(
        f"{path} is not a model file that sqlml knows (XGBoost JSON or UBJ, CatBoost JSON or cbm, "
        "LightGBM text, ONNX, skops, torch.export, a stored sqlml model, pickle or joblib); name "
        "its format with FORMAT"
    )


_UNREADABLE_FORMATS: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (
        # The file begins with "binf", or with a struct before the names of objective and booster.
        re.compile(
            rb"binf|.{0,512}(binary|count|multi|rank|reg|survival):[a-z]+.{8}(gbtree|gblinear|dart)",
            re.DOTALL,
        ),
        "in XGBoost's old binary format; load it with XGBoost before 3.1 (pip install "
        "'xgboost<3.1') and save it with save_model('model.json')",
    ),
    (
        re.compile(rb"\s*(booster\[\d+\]|\[\s*\{\s*\"nodeid\")"),
        "a dump of XGBoost's trees (dump_model), which lacks parts of the model; save it with "
        "save_model('model.json')",
    ),
    (
        re.compile(rb"(\xef\xbb\xbf)?\s*<.*<(\w+:)?PMML\b|\s*<(\w+:)?PMML\b", re.DOTALL),
        "PMML, which sqlml does not read; save the model in its library's own format (XGBoost, "
        "CatBoost: model.json, LightGBM: model.txt, scikit-learn: model.skops), or as ONNX",
    ),
)
"""Pairs of a pattern for the first bytes, and the name of an unsupported format with advice."""


def _reject_unreadable(content: bytes, path: str) -> None:
    for pattern, format_and_advice in _UNREADABLE_FORMATS:
        if pattern.match(content[:1024]):
            raise ArtifactError(f"{path} is {format_and_advice}")


def _read_xgboost(content: bytes) -> Any:
    text = content.lstrip(_BLANKS)
    # In JSON, a quote or blank follows the brace; in UBJSON, a length marker does.
    if text[:1] == b"{" and text[1:2] not in b'" \t\r\n}':
        return xgboost.read_document(read_ubjson(content, compact))
    document = _parse_json(text, compact)
    if isinstance(document, Mapping) and "tree_info" in document and "learner" not in document:
        raise ArtifactError(_LIGHTGBM_DUMP)
    return xgboost.read_document(document)


_LIGHTGBM_DUMP = (
    "this is LightGBM's JSON dump (dump_model), which LightGBM cannot read again either; save the "
    "model as text: booster.save_model('model.txt')"
)


def _read_catboost(content: bytes) -> Any:
    is_binary = content.startswith(MAGIC)
    text = (convert_to_json(content) if is_binary else content).lstrip(_BLANKS)
    document = _parse_json(text, catboost.compact, strict=True)
    return catboost.read_document(document, is_file=not is_binary)


def _parse_json(text: bytes, hook: Hook, *, strict: bool = False) -> Any:
    try:
        return read_json(text, hook, strict=strict)
    except RecursionError:
        raise ArtifactError("the JSON document is nested too deeply") from None
    except ValueError as error:
        raise ArtifactError(f"damaged or truncated: not JSON ({error})") from None


def _read_lightgbm(content: bytes) -> Any:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ArtifactError(f"the LightGBM model is not UTF-8 ({error})") from None
    if text.lstrip().startswith("{"):
        raise ArtifactError(_LIGHTGBM_DUMP)
    return read_text(text)


def _read_pickle(content: bytes) -> Any:
    try:
        import joblib
    except ImportError:
        joblib = None
    if joblib is None and content.startswith(_COMPRESSED_MAGIC):
        raise MissingDependencyError(
            "a joblib file needs joblib, which is not installed: pip install 'sqlml[sklearn]'"
        )
    try:
        return pickle.loads(content) if joblib is None else joblib.load(io.BytesIO(content))
    except ImportError as error:
        package = (error.name or "").split(".")[0]
        install_hint = f": pip install 'sqlml[{package}]'" if package in _EXTRAS else ""
        raise MissingDependencyError(
            f"the pickle needs {error.name or error}, which is not installed here{install_hint}"
        ) from error
    except Exception as error:
        # Unpickling runs the code of the classes, which may raise any exception.
        raise ArtifactError(
            f"the pickle cannot be read ({type(error).__name__}: {error}); it is damaged, or was "
            "written with other versions of its libraries"
        ) from error


FOLDER_FORMAT = "SPARK"


def read_folder(files: Mapping[str, bytes], path: str) -> SparkModel:
    try:
        return read_spark(files)
    except (ArtifactError, UnsupportedModelError) as error:
        raise type(error)(f"{path}: {error}") from error


READERS: Mapping[str, Callable[[bytes], Any]] = {
    "CATBOOST": _read_catboost,
    "LIGHTGBM": _read_lightgbm,
    "ONNX": read_onnx,
    "PICKLE": _read_pickle,
    "SKOPS": read_skops,
    "SQLML": read_stored,
    "TORCH": read_exported,
    "XGBOOST": _read_xgboost,
}
