"""`FileSource`: a model file that a process of its own loads and asks; `conversation` is the child.

Questions are frames, pickled by the parent; answers come as plain arrays and JSON.
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

from sqlml.child_process import SECONDS, Child, Ended, Failed
from sqlml.errors import ArtifactError, MissingDependencyError, SqlmlError, VerificationError, named
from sqlml.importers.catboost.binary import MAGIC
from sqlml.ir.damaged_file import reading
from sqlml.types import Array
from sqlml.verifying.ask_library import Answers, answers
from sqlml.verifying.compare import Asked, bound_of

if TYPE_CHECKING:
    import pandas as pd


# `original`: a model file as its own library loads it, to be compared with the stored Program.
#
# Libraries trust the files that they load: this is for a separate process, and must stay light.


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


ROWS_A_SECOND = 1000
"""What a library scores at least: so much more time has an answer about many rows."""


class FileSource:
    """A model file as its own library scores it, in a child process with limits.

    Leaving the context ends the child.
    """

    def __init__(self, kind: str, path: str, content: bytes, asked: Asked) -> None:
        self._path = path
        self._library = LIBRARIES[kind].package
        about = json.dumps({"kind": kind, "path": path, "asked": asdict(asked)}).encode()
        self._child = Child(f"{__name__}:conversation", about, content)
        self.bound = bound_of(self._library)
        self.knows_null_texts = self._library != "onnx"

    def __enter__(self) -> FileSource:
        """Start the child, which loads the file.

        Raises:
            ArtifactError, UntrustedArtifactError, MissingDependencyError: as `original` does, and
                where the library ends on it.
        """
        try:
            self._child.__enter__()
        except (Ended, Failed) as error:
            raise self._refused(error, "reads") from None
        return self

    def __exit__(self, *error: object) -> None:
        """End the child."""
        self._child.__exit__(*error)

    def answers(self, frame: pd.DataFrame) -> Answers:
        """Ask the child to score `frame`; it has longer for more rows."""
        question = pickle.dumps(frame, pickle.HIGHEST_PROTOCOL)
        try:
            told = self._child.ask(question, SECONDS + len(frame) / ROWS_A_SECOND)
        except (Ended, Failed) as error:
            raise self._refused(error, "predicts with") from None
        with reading(f"the answer about {self._path}", "try again"):
            return _unpacked(told)

    def _refused(self, error: Ended | Failed, does: str) -> SqlmlError:
        if isinstance(error, Failed):
            ours = named(error.name, error.message)
            if ours is not None:
                return ours
            error = Ended(f"fails ({error.name}: {error.message})")
        return ArtifactError(
            f"{self._path}: a process in which {self._library} {does} this file {error}; the file "
            "is damaged or hostile, or takes more than this machine has"
        )


def conversation(about: bytes, content: bytes) -> Generator[bytes, bytes, None]:
    """The child: says when it has loaded the file, then answers for one frame after the other."""
    told = json.loads(about)
    asked = Asked(**told["asked"])
    model = original(told["kind"], told["path"], content, classes=asked.classes)
    question = yield b""
    while True:
        frame = pickle.loads(question)  # it is the parent that asks
        try:
            answer = _packed(answers(model, frame, asked))
        except VerificationError as error:  # other rows may be scored
            answer = json.dumps({"refused": error.message}).encode()
        question = yield answer


def _packed(made: Answers) -> bytes:
    """Numbers as bytes after a line of JSON, which holds labels that are objects."""
    told: dict[str, Any] = {}
    parts = []
    for name, array in made.items():
        about: dict[str, Any] = {"shape": array.shape}
        if array.dtype == object:
            about["values"] = [_plain(v) for v in array.ravel().tolist()]
        else:
            about["dtype"] = array.dtype.str
            parts.append(array.tobytes())
        told[name] = about
    return b"\n".join([json.dumps({"answers": told}).encode(), b"".join(parts)])


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if value is not None and not isinstance(value, bool | int | float | str):
        raise VerificationError(f"the library returned a {type(value).__name__}")
    return value


def _unpacked(content: bytes) -> Answers:
    head, _, rest = content.partition(b"\n")
    told = json.loads(head)
    if "refused" in told:
        raise VerificationError(told["refused"])
    made: dict[str, Array] = {}
    start = 0
    for name, about in told["answers"].items():
        shape = tuple(about["shape"])
        if "values" in about:
            array = np.empty(shape, object)
            array.reshape(-1)[:] = about["values"]
        else:
            dtype = np.dtype(about["dtype"])
            array = np.frombuffer(rest, dtype, int(np.prod(shape)), start).reshape(shape)
            start += array.nbytes
        made[name] = array
    return made
