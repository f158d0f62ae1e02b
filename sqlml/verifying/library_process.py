"""A model file that its own library loads and scores in a child process.

The parent sends frames as pickles; the child replies with plain arrays and JSON.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass
from tempfile import NamedTemporaryFile
from types import MappingProxyType
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
from sqlml.verifying.compare import tolerance_of_family

if TYPE_CHECKING:
    import pandas as pd


def load_original(kind: str, path: str, content: bytes, *, classes: bool) -> Any:
    """Return the object in a model file, as its own library loads it.

    Libraries trust the files that they load, so call this in a separate process only.

    Args:
        kind: the file format, a key of `LIBRARIES`.
        path: the origin of the file, for messages.
        classes: whether the model to compare with is a classifier.

    Raises:
        ArtifactError: the library cannot read the file.
        UntrustedArtifactError: reading the file may execute code.
        MissingDependencyError: the library is not installed.
    """
    try:
        return LIBRARIES[kind].load(content, classes)
    except ImportError as error:
        package = (error.name or "").split(".")[0]
        raise MissingDependencyError(
            f"verifying {path} needs {package}, which is not installed: "
            f"pip install 'sqlml[{package}]'"
        ) from error
    except SqlmlError as error:
        raise type(error)(f"{path}: {error.message}") from None
    except Exception as error:  # a library may raise any exception for a damaged file
        reason = next(iter(str(error).strip().splitlines()), "")  # without the C++ stack trace
        raise ArtifactError(
            f"{path}: its own library cannot read it ({type(error).__name__}: {reason})"
        ) from error


def _load_xgboost(content: bytes, classes: bool) -> Any:
    import xgboost

    return xgboost.Booster(model_file=bytearray(content))


def _load_lightgbm(content: bytes, classes: bool) -> Any:
    import lightgbm

    return lightgbm.Booster(model_str=content.decode("utf-8-sig"))


def _load_catboost(content: bytes, classes: bool) -> Any:
    import catboost

    model = catboost.CatBoostClassifier() if classes else catboost.CatBoost()
    kind = "cbm" if content.startswith(MAGIC) else "json"
    with NamedTemporaryFile(suffix=f".{kind}") as copy:  # CatBoost reads JSON from files only
        copy.write(content)
        copy.flush()
        return model.load_model(copy.name, format=kind)


def _load_onnx(content: bytes, classes: bool) -> Any:
    import onnx

    return onnx.load_from_string(content)


def _load_torch(content: bytes, classes: bool) -> Any:
    import torch

    return torch.export.load(io.BytesIO(content))


def _load_skops(content: bytes, classes: bool) -> Any:
    return pickle.loads(content)  # pickled by the parent from the checked object


@dataclass(frozen=True, slots=True)
class Library:
    """The `package` of a library and its loader, which takes the content and `classes`."""

    package: str
    load: Callable[[bytes, bool], Any]


LIBRARIES: Mapping[str, Library] = MappingProxyType(
    {
        "XGBOOST": Library("xgboost", _load_xgboost),
        "LIGHTGBM": Library("lightgbm", _load_lightgbm),
        "CATBOOST": Library("catboost", _load_catboost),
        "ONNX": Library("onnx", _load_onnx),
        "SKOPS": Library("sklearn", _load_skops),
        "TORCH": Library("torch", _load_torch),
    }
)
"""File format -> library. A skops archive arrives as the pickled object."""


ROWS_PER_SECOND = 1000
"""The slowest expected rate of scoring; larger frames get a longer timeout."""


class FileSource:
    """A model file that its own library scores, in a child process with limits.

    Leaving the context ends the child.
    """

    def __init__(self, kind: str, path: str, content: bytes, request: PredictionRequest) -> None:
        self._path = path
        self._library = LIBRARIES[kind].package
        about = json.dumps({"kind": kind, "path": path, "request": asdict(request)}).encode()
        self._child = Child(f"{__name__}:serve_file", about, content)
        self.tolerance = tolerance_of_family(self._library)
        self.knows_null_texts = self._library != "onnx"

    def __enter__(self) -> FileSource:
        """Start the child and load the file in it.

        Raises:
            ArtifactError, UntrustedArtifactError, MissingDependencyError: as for `load_original`,
                or the library crashes on the file.
        """
        try:
            self._child.__enter__()
        except (ChildEnded, ChildFailed) as error:
            raise self._describe_failure(error, "reads") from None
        return self

    def __exit__(self, *error: object) -> None:
        """End the child."""
        self._child.__exit__(*error)

    def predict(self, frame: pd.DataFrame) -> Predictions:
        """Score `frame` in the child, with a timeout that grows with the number of rows."""
        question = pickle.dumps(frame, pickle.HIGHEST_PROTOCOL)
        try:
            reply = self._child.ask(question, SECONDS + len(frame) / ROWS_PER_SECOND)
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


def serve_file(about: bytes, content: bytes) -> Generator[bytes, bytes, None]:
    """Run the child: load the file, report success, then score one frame after another."""
    settings = json.loads(about)
    request = PredictionRequest(**settings["request"])
    model = load_original(settings["kind"], settings["path"], content, classes=request.has_classes)
    question = yield b""
    while True:
        frame = pickle.loads(question)  # sent by the parent
        try:
            reply = _pack_predictions(predict_with_library(model, frame, request))
        except VerificationError as error:  # the library may still score other rows
            reply = json.dumps({"refused": error.message}).encode()
        question = yield reply


def _pack_predictions(predictions: Predictions) -> bytes:
    """Serialize predictions: a line of JSON with labels that are objects, then the numbers as
    bytes."""
    headers: dict[str, Any] = {}
    contents = []
    for name, array in predictions.items():
        header: dict[str, Any] = {"shape": array.shape}
        if array.dtype == object:
            header["values"] = [_to_json_value(v) for v in array.ravel().tolist()]
        else:
            header["dtype"] = array.dtype.str
            contents.append(array.tobytes())
        headers[name] = header
    return b"\n".join([json.dumps({"answers": headers}).encode(), b"".join(contents)])


def _to_json_value(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if value is not None and not isinstance(value, bool | int | float | str):
        raise VerificationError(f"the library returned a {type(value).__name__}")
    return value


def _unpack_predictions(content: bytes) -> Predictions:
    head, _, rest = content.partition(b"\n")
    message = json.loads(head)
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
            array = np.frombuffer(rest, dtype, int(np.prod(shape)), start).reshape(shape)
            start += array.nbytes
        predictions[name] = array
    return predictions
