"""`saved_model`: which file of a folder that MLflow saved has the model, and what its columns are.

The file `MLmodel` in it says so. Of each flavour the library's own file is read, and never the
Python function around it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlml.errors import ArtifactError, MissingDependencyError, UnsupportedModelError

DOCUMENT = "MLmodel"
"""The file that describes a saved model."""

LONGEST = 1 << 20
"""Bytes of such a file."""

DEEPEST = 50
"""Mappings and sequences within each other in such a file."""

URI = re.compile(r"(models|runs|mlflow-artifacts):/.+")
"""What MLflow resolves to a folder."""


PYFUNC = "mlflow.pyfunc.PyFuncModel"
"""MLflow's class of a model of any flavour."""

INSTEAD = (
    "it is MLflow's function around a model; CREATE MODEL m FROM 'models:/name/1' (or the saved "
    "folder) reads the model itself, as mlflow.sklearn.load_model and its like do"
)
"""What to do with an object of that class."""


@dataclass(frozen=True, slots=True)
class Flavour:
    """A library's part of a saved model: the key of its path, and FORMAT of what is there."""

    path: str
    format: Callable[[Mapping[str, Any]], str]


def _pickled(format: str) -> Callable[[Mapping[str, Any]], str]:
    """The format of a library whose scikit-learn estimators are saved as objects."""

    def found(flavour: Mapping[str, Any]) -> str:
        path = flavour.get("data", flavour.get("pickled_model"))
        if not isinstance(path, str):  # aliases make a text of any length of few bytes
            return format
        if path.endswith(".skops"):
            return "SKOPS"
        return "PICKLE" if path.endswith((".pkl", ".pickle", ".joblib")) else format

    return found


FLAVOURS: Mapping[str, Flavour] = MappingProxyType(
    {
        "xgboost": Flavour("data", _pickled("XGBOOST")),
        "lightgbm": Flavour("data", _pickled("LIGHTGBM")),
        "catboost": Flavour("data", lambda flavour: "CATBOOST"),
        "sklearn": Flavour("pickled_model", _pickled("PICKLE")),
        "onnx": Flavour("data", lambda flavour: "ONNX"),
        "spark": Flavour("model_data", lambda flavour: "SPARK"),
    }
)
"""The flavours that are read, the best first where a model has several."""

TYPES: Mapping[str, str] = MappingProxyType(
    {
        "boolean": "BOOLEAN",
        "integer": "INTEGER",
        "long": "BIGINT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "string": "VARCHAR",
        "datetime": "TIMESTAMP",
    }
)
"""Types of a signature's columns, in SQL."""


@dataclass(frozen=True, slots=True)
class SavedModel:
    """Where the model of a folder is: `path` within it, its FORMAT, and the signature's columns
    with their SQL types, if it names them."""

    path: str
    format: str
    columns: Mapping[str, str] | None


def saved_model(document: bytes, folder: str) -> SavedModel:
    """What the text of an `MLmodel` says.

    Args:
        folder: for messages.

    Raises:
        ArtifactError: damaged or hostile.
        UnsupportedModelError: none of its flavours is read.
        MissingDependencyError: PyYAML is not installed.
    """
    told = _read(document, folder)
    flavours = told.get("flavors")
    if not isinstance(flavours, Mapping):
        raise ArtifactError(f"{folder}/{DOCUMENT} names no flavors; save the model again")
    for name, flavour in FLAVOURS.items():
        found = flavours.get(name)
        if isinstance(found, Mapping) and isinstance(found.get(flavour.path), str):
            path = found[flavour.path]
            parts = re.split(r"[/\\]", path)
            if not parts or {"", ".", ".."} & set(parts) or any(c in path for c in ":*?["):
                raise ArtifactError(f"{folder}/{DOCUMENT} names {path!r}, which is not below it")
            return SavedModel(path, flavour.format(found), _columns(told.get("signature")))
    have = ", ".join(sorted(map(str, flavours)))
    raise UnsupportedModelError(
        f"{folder} has a model of the flavors {have}; sqlml reads {', '.join(FLAVOURS)}. Save a "
        "torch module by torch.export.save, and another one by its own library"
    )


def _read(document: bytes, folder: str) -> Mapping[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise MissingDependencyError(
            "models that MLflow saved need PyYAML: pip install 'sqlml[mlflow]'"
        ) from error
    if len(document) > LONGEST:
        raise ArtifactError(f"{folder}/{DOCUMENT} has over {LONGEST} bytes")
    # libyaml's loader takes a tenth of the time, and may not be installed.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    try:
        # PyYAML's time grows with the square of the depth, so that is bounded while it reads.
        for event in yaml.parse(document, loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise ArtifactError(f"{folder}/{DOCUMENT} is nested deeper than {DEEPEST}")
        content = yaml.load(document, loader)
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise ArtifactError(f"{folder}/{DOCUMENT} is damaged: {reason:.300}") from None
    if not isinstance(content, Mapping):
        raise ArtifactError(f"{folder}/{DOCUMENT} is damaged: it is not a mapping")
    return content


def _columns(signature: Any) -> Mapping[str, str] | None:
    """The columns of a signature; None where they have no names or other types."""
    try:
        columns = json.loads(signature["inputs"])
        found = {str(column["name"]): TYPES[column["type"]] for column in columns}
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return MappingProxyType(found) if found else None
