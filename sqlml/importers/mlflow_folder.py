"""Folders that MLflow saved: the path and format of the model, and the columns of the signature.

The file `MLmodel` lists the flavours of the model. sqlml reads the file of the model's library, and
never MLflow's Python function.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlml.errors import ArtifactError, MissingDependencyError, UnsupportedModelError

MLMODEL = "MLmodel"
MAX_BYTES = 1 << 20
MAX_DEPTH = 50

MLFLOW_URI = re.compile(r"(models|runs|mlflow-artifacts):/.+")
"""Matches a URI that MLflow resolves to a folder."""

PYFUNC = "mlflow.pyfunc.PyFuncModel"

PYFUNC_ADVICE = (
    "it is MLflow's function around a model; load the model itself, for example with "
    "mlflow.sklearn.load_model, or write CREATE MODEL m FROM 'models:/name/1' (or the saved folder)"
)

FLAVOURS: Mapping[str, tuple[str, str]] = {
    "xgboost": ("data", "XGBOOST"),
    "lightgbm": ("data", "LIGHTGBM"),
    "catboost": ("data", "CATBOOST"),
    "sklearn": ("pickled_model", "PICKLE"),
    "onnx": ("data", "ONNX"),
    "spark": ("model_data", "SPARK"),
}
"""Maps each flavour, in order of preference, to the key of the path and to the FORMAT."""


def _find_format(flavour: str, config: Mapping[str, Any]) -> str:
    """Return the FORMAT of a flavour; for some flavours, the suffix of the path decides."""
    _, format = FLAVOURS[flavour]
    path = config.get("data", config.get("pickled_model"))
    if flavour not in ("xgboost", "lightgbm", "sklearn") or not isinstance(path, str):
        return format
    if path.endswith(".skops"):
        return "SKOPS"
    return "PICKLE" if path.endswith((".pkl", ".pickle", ".joblib")) else format


SQL_TYPES: Mapping[str, str] = {
    "boolean": "BOOLEAN",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "datetime": "TIMESTAMP",
}
"""Maps the column types of MLflow's signatures to SQL types."""


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A model that MLflow saved; `columns` maps the columns to SQL types, or is None."""

    path: str
    format: str
    columns: Mapping[str, str] | None


def read_mlmodel(document: bytes, folder: str) -> SavedModel:
    """Parse the content of an MLmodel file in `folder`, which messages name."""
    content = _parse_yaml(document, folder)
    flavours = content.get("flavors")
    if not isinstance(flavours, Mapping):
        raise ArtifactError(f"{folder}/{MLMODEL} names no flavors; save the model again")
    for name, (key, _) in FLAVOURS.items():
        config = flavours.get(name)
        # YAML aliases can expand without limit, so only a plain string is used as a path.
        if isinstance(config, Mapping) and isinstance(config.get(key), str):
            path = config[key]
            segments = set(re.split(r"[/\\]", path))
            if {"", ".", ".."} & segments or any(c in path for c in ":*?["):
                raise ArtifactError(f"{folder}/{MLMODEL} names {path!r}, which is not below it")
            columns = _read_columns(content.get("signature"))
            return SavedModel(path, _find_format(name, config), columns)
    names = ", ".join(sorted(map(str, flavours)))
    raise UnsupportedModelError(
        f"{folder} has a model of the flavors {names}; sqlml reads {', '.join(FLAVOURS)}. Save a "
        "torch module with torch.export.save, and other models with their own library"
    )


def _parse_yaml(document: bytes, folder: str) -> Mapping[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise MissingDependencyError(
            "models that MLflow saved need PyYAML: pip install 'sqlml[mlflow]'"
        ) from error
    if len(document) > MAX_BYTES:
        raise ArtifactError(f"{folder}/{MLMODEL} has over {MAX_BYTES} bytes")
    # libyaml's loader is ten times faster, but may not be installed.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    try:
        # PyYAML's time grows with the square of the depth, so the depth is checked first.
        for event in yaml.parse(document, loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise ArtifactError(f"{folder}/{MLMODEL} is nested deeper than {MAX_DEPTH}")
        content = yaml.load(document, loader)
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise ArtifactError(f"{folder}/{MLMODEL} is damaged: {reason:.300}") from None
    if not isinstance(content, Mapping):
        raise ArtifactError(f"{folder}/{MLMODEL} is damaged: it is not a mapping")
    return content


def _read_columns(signature: Any) -> Mapping[str, str] | None:
    """Map the columns of a signature to SQL types, or return None if this is impossible."""
    try:
        inputs = json.loads(signature["inputs"])
        columns = {str(column["name"]): SQL_TYPES[column["type"]] for column in inputs}
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return columns or None
