"""`original`: a model file as its own library loads it, to be compared with the stored Program.

Libraries trust the files that they load: this is for a separate process, and must stay light.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from tempfile import NamedTemporaryFile
from types import MappingProxyType
from typing import Any

from sqlml.errors import ArtifactError, MissingDependencyError, SqlmlError
from sqlml.importers.catboost.binary import MAGIC


def original(kind: str, path: str, content: bytes, *, classes: bool) -> Any:
    """The object that a file holds.

    Args:
        kind: its format, one of `LIBRARIES`.
        path: where it came from, for messages.
        classes: whether the model that it is compared with is a classifier.

    Raises:
        ArtifactError: the library cannot read it.
        UntrustedArtifactError: reading it may execute code.
        MissingDependencyError: the file's library is not installed.
    """
    try:
        return LIBRARIES[kind].load(content, classes)
    except ImportError as error:
        name = (error.name or "").split(".")[0]
        raise MissingDependencyError(
            f"verifying {path} needs {name}, which is not installed: pip install 'sqlml[{name}]'"
        ) from error
    except SqlmlError as error:
        raise type(error)(f"{path}: {error.message}") from None
    except Exception as error:  # a library raises what it likes of a file that it does not read
        reason = next(iter(str(error).strip().splitlines()), "")  # pages of C++ may follow
        raise ArtifactError(
            f"{path}: its own library cannot read it ({type(error).__name__}: {reason})"
        ) from error


def _xgboost(content: bytes, classes: bool) -> Any:
    import xgboost

    return xgboost.Booster(model_file=bytearray(content))


def _lightgbm(content: bytes, classes: bool) -> Any:
    import lightgbm

    return lightgbm.Booster(model_str=content.decode("utf-8-sig"))


def _catboost(content: bytes, classes: bool) -> Any:
    import catboost

    made = catboost.CatBoostClassifier() if classes else catboost.CatBoost()
    kind = "cbm" if content.startswith(MAGIC) else "json"
    with NamedTemporaryFile(suffix=f".{kind}") as copy:  # it reads JSON only from files
        copy.write(content)
        copy.flush()
        return made.load_model(copy.name, format=kind)


def _onnx(content: bytes, classes: bool) -> Any:
    import onnx

    return onnx.load_from_string(content)


def _torch(content: bytes, classes: bool) -> Any:
    import torch

    return torch.export.load(io.BytesIO(content))


def _skops(content: bytes, classes: bool) -> Any:
    return pickle.loads(content)  # what the parent made of the file, and pickled itself


@dataclass(frozen=True, slots=True)
class Library:
    """The `package` of a library, and how it reads a file, `classes` of a classifier."""

    package: str
    load: Callable[[bytes, bool], Any]


LIBRARIES: Mapping[str, Library] = MappingProxyType(
    {
        "XGBOOST": Library("xgboost", _xgboost),
        "LIGHTGBM": Library("lightgbm", _lightgbm),
        "CATBOOST": Library("catboost", _catboost),
        "ONNX": Library("onnx", _onnx),
        "SKOPS": Library("sklearn", _skops),
        "TORCH": Library("torch", _torch),
    }
)
"""By format; of a skops archive it is the object, pickled."""
