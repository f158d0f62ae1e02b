"""A model file that its own library loads and scores in a child process.

The parent sends frames as pickles; the child replies with plain arrays and JSON.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Generator, Mapping
from dataclasses import asdict
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.child_process import SECONDS, Child, ChildEnded, ChildFailed
from sqlml.errors import (
    ArtifactError,
    MissingDependencyError,
    SqlmlError,
    VerificationError,
    make_error,
)
from sqlml.importers.catboost.binary import MAGIC
from sqlml.ir.damaged_file import report_damage
from sqlml.types import Array
from sqlml.verifying.ask_library import PredictionRequest, Predictions, predict_with_library
from sqlml.verifying.compare import get_tolerance

if TYPE_CHECKING:
    import pandas as pd


def load_original(file_format: str, path: str, content: bytes, *, is_classifier: bool) -> Any:
    """Load a model file with its source library; raise the library's errors as ArtifactError.

    Call this only in a separate process, because libraries trust the files that they load.
    """
    try:
        return _load_model(file_format, content, is_classifier)
    except ImportError as error:
        package = (error.name or "").split(".")[0]
        raise MissingDependencyError(
            f"verifying {path} needs {package}, which is not installed: "
            f"pip install 'sqlml[{package}]'"
        ) from error
    except SqlmlError as error:
        raise type(error)(f"{path}: {error.message}") from None
    except Exception as error:  # A library may raise any exception for a damaged file.
        first_line = next(iter(str(error).strip().splitlines()), "")  # C++ adds a stack trace.
        reason = f"{type(error).__name__}: {first_line}"
        raise ArtifactError(f"{path}: its own library cannot read it ({reason})") from error


LIBRARIES: Mapping[str, str] = {
    "XGBOOST": "xgboost",
    "LIGHTGBM": "lightgbm",
    "CATBOOST": "catboost",
    "ONNX": "onnx",
    "SKOPS": "sklearn",
    "TORCH": "torch",
}
"""Map file formats to the packages of their libraries."""


def _load_model(file_format: str, content: bytes, is_classifier: bool) -> Any:
    match file_format:
        case "XGBOOST":
            import xgboost

            return xgboost.Booster(model_file=bytearray(content))
        case "LIGHTGBM":
            import lightgbm

            return lightgbm.Booster(model_str=content.decode("utf-8-sig"))
        case "CATBOOST":
            import catboost

            model = catboost.CatBoostClassifier() if is_classifier else catboost.CatBoost()
            format_name = "cbm" if content.startswith(MAGIC) else "json"
            # CatBoost reads JSON only from files.
            with NamedTemporaryFile(suffix=f".{format_name}") as temp_file:
                temp_file.write(content)
                temp_file.flush()
                return model.load_model(temp_file.name, format=format_name)
        case "ONNX":
            import onnx

            return onnx.load_from_string(content)
        case "TORCH":
            import torch

            return torch.export.load(io.BytesIO(content))
        case "SKOPS":
            return pickle.loads(content)  # The parent pickled the checked object.
    raise KeyError(file_format)


ROWS_PER_SECOND = 1000
"""The slowest expected rate of scoring, from which the timeout is computed."""


class FileSource:
    """A model file that its source library scores in a child process; a context manager."""

    def __init__(
        self, file_format: str, path: str, content: bytes, request: PredictionRequest
    ) -> None:
        self._path = path
        self._library = LIBRARIES[file_format]
        config = {"kind": file_format, "path": path, "request": asdict(request)}
        self._child = Child(f"{__name__}:serve_file", json.dumps(config).encode(), content)
        self.tolerance: float = get_tolerance(self._library)
        self.knows_null_texts: bool = self._library != "onnx"

    def __enter__(self) -> FileSource:
        """Start the child process, which loads the file; raise the errors of `load_original`."""
        try:
            self._child.__enter__()
        except (ChildEnded, ChildFailed) as error:
            raise self._describe_failure(error, "reads") from None
        return self

    def __exit__(self, *error: object) -> None:
        self._child.__exit__(*error)

    def predict(self, frame: pd.DataFrame) -> Predictions:
        """Score `frame` in the child process, with a timeout that depends on the number of rows."""
        request = pickle.dumps(frame, pickle.HIGHEST_PROTOCOL)
        try:
            reply = self._child.ask(request, SECONDS + len(frame) / ROWS_PER_SECOND)
        except (ChildEnded, ChildFailed) as error:
            raise self._describe_failure(error, "predicts with") from None
        with report_damage(f"the answer about {self._path}", "try again"):
            return _unpack_predictions(reply)

    def _describe_failure(self, error: ChildEnded | ChildFailed, action: str) -> SqlmlError:
        if isinstance(error, ChildFailed):
            sqlml_error = make_error(error.name, error.message)
            if sqlml_error is not None:
                return sqlml_error
            error = ChildEnded(f"fails ({error.name}: {error.message})")
        return ArtifactError(
            f"{self._path}: a process in which {self._library} {action} this file {error}; the "
            "file is damaged or hostile, or needs more memory or time than is allowed"
        )


def serve_file(settings_json: bytes, content: bytes) -> Generator[bytes, bytes, None]:
    """Run in the child process: load the file, report success, then score one frame at a time."""
    settings = json.loads(settings_json)
    request = PredictionRequest(**settings["request"])
    file_format, path = settings["kind"], settings["path"]
    model = load_original(file_format, path, content, is_classifier=request.has_classes)
    frame_bytes = yield b""
    while True:
        frame = pickle.loads(frame_bytes)  # The parent sent it.
        try:
            reply = _pack_predictions(predict_with_library(model, frame, request))
        except VerificationError as error:  # The library may still score other rows.
            reply = json.dumps({"refused": error.message}).encode()
        frame_bytes = yield reply


def _pack_predictions(predictions: Predictions) -> bytes:
    """Return a JSON line with shapes and object labels, then the bytes of numeric arrays."""
    headers: dict[str, Any] = {}
    number_arrays = []
    for name, array in predictions.items():
        headers[name] = {"shape": array.shape}
        if array.dtype == object:
            headers[name]["values"] = [_to_json_value(value) for value in array.ravel().tolist()]
        else:
            headers[name]["dtype"] = array.dtype.str
            number_arrays.append(array.tobytes())
    return json.dumps({"answers": headers}).encode() + b"\n" + b"".join(number_arrays)


def _to_json_value(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if value is not None and not isinstance(value, bool | int | float | str):
        raise VerificationError(f"the library returned a {type(value).__name__}")
    return value


def _unpack_predictions(content: bytes) -> Predictions:
    header_line, _, numbers = content.partition(b"\n")
    message = json.loads(header_line)
    if "refused" in message:
        raise VerificationError(message["refused"])
    predictions: dict[str, Array] = {}
    start = 0
    for name, header in message["answers"].items():
        shape = tuple(header["shape"])
        if "values" in header:
            array = np.empty(shape, object)
            array.reshape(-1)[:] = header["values"]
        else:
            dtype = np.dtype(header["dtype"])
            array = np.frombuffer(numbers, dtype, int(np.prod(shape)), start).reshape(shape)
            start += array.nbytes
        predictions[name] = array
    return predictions
