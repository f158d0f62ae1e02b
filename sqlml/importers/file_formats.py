"""`read_artifact`: the bytes of a model file -> an object that the registry imports.

Only formats that are data are read without being asked: XGBoost's JSON and UBJSON, CatBoost's JSON
and binary format, LightGBM's text, ONNX, skops, torch.export's archives, and sqlml's own. A pickle
runs code when it is read.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from sqlml.errors import (
    ArtifactError,
    ConfigError,
    MissingDependencyError,
    UnsupportedModelError,
    UntrustedArtifactError,
)
from sqlml.importers.catboost import document as catboost
from sqlml.importers.catboost.binary import MAGIC, as_json
from sqlml.importers.lightgbm.document import read_text
from sqlml.importers.onnx.document import read_onnx
from sqlml.importers.skops import check_archive, read_skops
from sqlml.importers.spark_ml.folder import read_folder as read_spark
from sqlml.importers.spark_ml.stages import SparkModel
from sqlml.importers.sqlml_file import read_stored
from sqlml.importers.untrusted_documents import Hook, read_json
from sqlml.importers.xgboost import document as ubjson
from sqlml.importers.xgboost import forest as xgboost_forest
from sqlml.importers.xgboost.document import read_document
from sqlml.ir import store
from sqlml.ir.torch_archive import read_exported
from sqlml.limits import MAX_ARTIFACT_BYTES

_COMPRESSED = (b"\x78", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x04\x22\x4d\x18", b"ZF")
"""First bytes of what joblib writes with compress=: zlib, gzip, bz2, xz, lz4, and its old form."""


_BLANK = b" \t\r\n\xef\xbb\xbf"
_CATBOOST = re.compile(
    rb'\{\s*"(ctr_data|features_info|model_info|oblivious_trees|scale_and_bias|trees)"'
)
"""How a JSON document of CatBoost begins; its keys are sorted."""
_ONNX = re.compile(rb"\x08[\x01-\x1f][\x12\x1a\x22\x28\x32\x3a\x42]")
"""How an ONNX file begins: field 1, the version of its format, and one of the next fields."""

_EXTRAS = frozenset(("catboost", "lightgbm", "sklearn", "torch", "xgboost"))
"""Libraries whose objects are pickled; each is installed by the extra of its name."""


def read_artifact(content: bytes, *, format: str, path: str, allow_pickle: bool) -> Any:
    """The model in a file.

    Args:
        content: the whole file.
        format: AUTO or one of `READERS`, in any case; AUTO looks at the content.
        path: where it came from, for messages.
        allow_pickle: whether the caller trusts the file to run code.

    Returns:
        XGBoostModel, CatBoostModel, LightGBMModel, OnnxModel, Exported, a Program, or the object
        that a skops file or a pickle holds.

    Raises:
        ArtifactError: damaged, hostile, too large, or of another format.
        UntrustedArtifactError: a pickle without `allow_pickle`.
        UnsupportedModelError: a model that is not covered.
        ConfigError: unknown format.
    """
    wanted = format.upper()
    if wanted == FOLDER_FORMAT:
        raise ArtifactError(
            f"{path} is a file; FORMAT SPARK takes the folder in which pyspark.ml saved a model"
        )
    if wanted != "AUTO" and wanted not in READERS:
        raise ConfigError(
            f"unknown model format {format!r}; formats: AUTO, "
            + ", ".join(sorted((*READERS, FOLDER_FORMAT)))
        )
    if len(content) > MAX_ARTIFACT_BYTES:
        raise ArtifactError(f"{path} has {len(content)} bytes; the limit is {MAX_ARTIFACT_BYTES}")
    if not content:
        raise ArtifactError(f"{path} is empty")
    if wanted == "AUTO":
        wanted = kind_of(content, path)
    elif wanted in ("CATBOOST", "LIGHTGBM", "XGBOOST"):
        _refuse_unread(content, path)
    check_trusted(wanted, path, allow_pickle)
    read = partial(read_skops, is_trusted=allow_pickle) if wanted == "SKOPS" else READERS[wanted]
    try:
        return read(content)
    except (
        ArtifactError,
        MissingDependencyError,
        UnsupportedModelError,
        UntrustedArtifactError,
    ) as error:
        raise type(error)(f"{path}: {error}") from error


def check_trusted(format: str, path: str, allow_pickle: bool) -> None:
    """Refuse a pickle that the user has not declared trusted.

    Raises:
        UntrustedArtifactError: it would execute code.
    """
    if format.upper() == "PICKLE" and not allow_pickle:
        raise UntrustedArtifactError(
            f"{path} is a pickle, and reading it would execute the code that it contains; save "
            "the model in its library's own format (XGBoost, CatBoost: model.json, LightGBM: "
            "model.txt, scikit-learn: model.skops), or, if you trust the file, connect with "
            "allow_pickle=True, or write OPTIONS (allow_pickle = true) in CREATE MODEL"
        )


def kind_of(content: bytes, path: str) -> str:
    """The format that the first bytes speak for, as FORMAT names it.

    Raises:
        ArtifactError: they speak for none.
    """
    if content.startswith(store.MAGIC):
        return "SQLML"
    head = content[:64].lstrip(_BLANK)
    if head.startswith(b"{"):
        return "CATBOOST" if _CATBOOST.match(head) else "XGBOOST"
    if head.startswith((b"tree\n", b"tree\r\n")):
        return "LIGHTGBM"
    if content.startswith(b"PK"):
        try:
            return "SKOPS" if "schema.json" in check_archive(content).namelist() else "TORCH"
        except ArtifactError as error:
            raise ArtifactError(f"{path}: {error}") from None
    if _ONNX.match(content):
        return "ONNX"
    # Protocol 2 and later begin with 0x80 and the protocol; earlier ones only end with ".".
    if content[0] == 0x80 or content.startswith(_COMPRESSED):
        return "PICKLE"
    if content[:1] in b"(]}c" and content.rstrip().endswith(b"."):
        return "PICKLE"
    if content.startswith(MAGIC):
        return "CATBOOST"
    _refuse_unread(content, path)
    raise ArtifactError(
        f"{path} is not a model file that sqlml knows (XGBoost JSON or UBJ, CatBoost JSON or cbm, "
        "LightGBM text, ONNX, skops, torch.export, a stored sqlml model, pickle or joblib); name "
        "its format with FORMAT"
    )


_OWN_FORMATS = (
    "save the model in its library's own format (XGBoost, CatBoost: model.json, LightGBM: "
    "model.txt, scikit-learn: model.skops), or as ONNX"
)
_UNREAD: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (
        # Without the word: a struct, the name of an objective, and that of a booster.
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
        f"PMML, which sqlml does not read; {_OWN_FORMATS}",
    ),
)
"""How files begin that look like a model, and what they are and what to do about it."""


def _refuse_unread(content: bytes, path: str) -> None:
    """Refuse a file in another format of a library whose models are read.

    Raises:
        ArtifactError: it names the format, and what to do.
    """
    for pattern, format_and_advice in _UNREAD:
        if pattern.match(content[:1024]):
            raise ArtifactError(f"{path} is {format_and_advice}")


def _xgboost(content: bytes) -> Any:
    text = content.lstrip(_BLANK)
    # After the brace, JSON has a quote or blank and UBJSON the marker of a length.
    if text[:1] == b"{" and text[1:2] not in b'" \t\r\n}':
        return read_document(ubjson.loads(content, xgboost_forest.compact))
    document = _json(text, xgboost_forest.compact)
    if isinstance(document, Mapping) and "tree_info" in document and "learner" not in document:
        raise ArtifactError(_LIGHTGBM_DUMP)
    return read_document(document)


_LIGHTGBM_DUMP = (
    "this is LightGBM's JSON dump (dump_model), which LightGBM cannot read again either; save the "
    "model as text: booster.save_model('model.txt')"
)


def _catboost(content: bytes) -> Any:
    binary = content.startswith(MAGIC)
    text = (as_json(content) if binary else content).lstrip(_BLANK)
    document = _json(text, catboost.compact, strict=True)
    return catboost.read_document(document, is_file=not binary)


def _json(text: bytes, hook: Hook, *, strict: bool = False) -> Any:
    """The document in `text`, of which each object goes through `hook`."""
    try:
        return read_json(text, hook, strict=strict)
    except RecursionError:
        raise ArtifactError("the JSON document is nested too deeply") from None
    except ValueError as error:
        raise ArtifactError(f"damaged or cut off: not JSON ({error})") from None


def _lightgbm(content: bytes) -> Any:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ArtifactError(f"the LightGBM model is not UTF-8 ({error})") from None
    if text.lstrip().startswith("{"):
        raise ArtifactError(_LIGHTGBM_DUMP)
    return read_text(text)


def _pickle(content: bytes) -> Any:
    """A pickle or joblib file; the caller has said that it may run code."""
    try:
        import joblib
    except ImportError:
        joblib = None
    if joblib is None and content.startswith(_COMPRESSED):
        raise MissingDependencyError(
            "a joblib file needs joblib, which is not installed: pip install 'sqlml[sklearn]'"
        )
    try:
        return pickle.loads(content) if joblib is None else joblib.load(io.BytesIO(content))
    except ImportError as error:
        missing = (error.name or "").split(".")[0]
        fix = f": pip install 'sqlml[{missing}]'" if missing in _EXTRAS else ""
        raise MissingDependencyError(
            f"the pickle needs {error.name or error}, which is not installed here{fix}"
        ) from error
    except Exception as error:
        # Unpickling runs the classes' own code, so anything at all may be raised.
        raise ArtifactError(
            f"the pickle cannot be read ({type(error).__name__}: {error}); it is damaged, or was "
            "written with other versions of its libraries"
        ) from error


FOLDER_FORMAT = "SPARK"
"""The one format of folders: what `model.write().save(path)` of pyspark.ml wrote."""


def read_folder(files: Mapping[str, bytes], path: str) -> SparkModel:
    """The model in a folder, whose files have paths below it.

    Raises:
        ArtifactError: damaged, hostile, or of another format.
        UnsupportedModelError: a model that is not covered.
    """
    try:
        return read_spark(files)
    except (ArtifactError, UnsupportedModelError) as error:
        raise type(error)(f"{path}: {error}") from error


READERS: Mapping[str, Callable[[bytes], Any]] = MappingProxyType(
    {
        "CATBOOST": _catboost,
        "LIGHTGBM": _lightgbm,
        "ONNX": read_onnx,
        "PICKLE": _pickle,
        "SKOPS": read_skops,
        "SQLML": read_stored,
        "TORCH": read_exported,
        "XGBOOST": _xgboost,
    }
)
