"""`FileSource`: a model file that a process of its own loads and asks; `conversation` is the child.

Questions are frames, pickled by the parent; answers come as plain arrays and JSON.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Generator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.child_process import SECONDS, Child, Ended, Failed
from sqlml.errors import ArtifactError, SqlmlError, VerificationError, named
from sqlml.ir.damaged_file import reading
from sqlml.types import Array
from sqlml.verifying.ask_library import Answers, answers
from sqlml.verifying.asked import Asked
from sqlml.verifying.compare import bound_of
from sqlml.verifying.load_original import LIBRARIES, original

if TYPE_CHECKING:
    import pandas as pd

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
