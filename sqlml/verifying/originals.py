"""`original`: a model file as its own library loads it, to be asked beside the stored Program."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from tempfile import NamedTemporaryFile
from types import MappingProxyType
from typing import Any

from sqlml.errors import (
    ArtifactError,
    MissingDependencyError,
    SqlmlError,
    UntrustedArtifactError,
)
from sqlml.importers.artifact import kind_of
from sqlml.importers.stored import StoredModel
from sqlml.ir.program import Program
from sqlml.registration import Artifact


def original(file: Artifact, program: Program, *, allow_pickle: bool) -> Any:
    """The object that a file holds.

    Args:
        program: the model that it is to be compared with, which knows whether there are classes.
        allow_pickle: whether reading it may execute code.

    Raises:
        ArtifactError: the library cannot read it.
        UntrustedArtifactError: reading it may execute code.
        MissingDependencyError: the file's library is not installed.
    """
    path, content = file.path, file.content
    kind = kind_of(content, path) if file.format.upper() == "AUTO" else file.format.upper()
    if kind == "TORCH" and not allow_pickle:
        raise UntrustedArtifactError(
            f"{path}: torch itself may execute code that such a file brings along; connect with "
            "allow_pickle=True if you trust it"
        )
    if isinstance(file.model, StoredModel):
        return file.model.program
    if kind not in _LOADERS:
        return file.model
    try:
        return _LOADERS[kind](content, program)
    except ImportError as error:
        name = (error.name or "").split(".")[0]
        raise MissingDependencyError(
            f"{path} is compared with what {name} says of it, which is not installed: "
            f"pip install 'sqlml[{name}]'"
        ) from error
    except SqlmlError:
        raise
    except Exception as error:  # a library raises what it likes of a file that it does not read
        raise ArtifactError(
            f"{path}: its own library cannot read it ({type(error).__name__}: {error})"
        ) from error


def _xgboost(content: bytes, program: Program) -> Any:
    import xgboost

    return xgboost.Booster(model_file=bytearray(content))


def _lightgbm(content: bytes, program: Program) -> Any:
    import lightgbm

    return lightgbm.Booster(model_str=content.decode("utf-8-sig"))


def _catboost(content: bytes, program: Program) -> Any:
    import catboost

    made = catboost.CatBoostClassifier() if program.labels else catboost.CatBoost()
    with NamedTemporaryFile(suffix=".json") as copy:  # it reads JSON from files alone
        copy.write(content)
        copy.flush()
        return made.load_model(copy.name, format="json")


def _onnx(content: bytes, program: Program) -> Any:
    import onnx

    return onnx.load_from_string(content)


def _torch(content: bytes, program: Program) -> Any:
    import torch

    return torch.export.load(io.BytesIO(content))


_LOADERS: Mapping[str, Callable[[bytes, Program], Any]] = MappingProxyType(
    {
        "XGBOOST": _xgboost,
        "LIGHTGBM": _lightgbm,
        "CATBOOST": _catboost,
        "ONNX": _onnx,
        "TORCH": _torch,
    }
)
"""Formats that sqlml reads by itself, and how their libraries do."""
