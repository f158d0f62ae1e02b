"""`Source`: what a stored model is compared with, and `source_of`, which decides where it is asked.

What came from an untrusted file is asked in a separate process: XGBoost, LightGBM,
CatBoost, onnxruntime, torch, and scikit-learn over skops are native code, which a forged file may
crash, hang or let take all memory. Three kinds of file are asked here: a pickle, which ran its own
code when it was read, with the user's permission; a model of sqlml, which the reference interpreter
answers for (its foreign graphs have been tried in a separate process); and a Spark folder, by
the SparkSession of this process.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sqlml.errors import ArtifactError, UntrustedArtifactError
from sqlml.importers.file_formats import kind_of
from sqlml.importers.model_checks import try_foreign
from sqlml.importers.model_file import ModelFile
from sqlml.importers.spark_ml.stages import SparkModel
from sqlml.importers.sqlml_file import StoredModel
from sqlml.ir.program import Program
from sqlml.scorer.scorer import Scorer
from sqlml.verifying.ask_library import METHODS, Answers, answers, family_of
from sqlml.verifying.compare import Asked, bound_of
from sqlml.verifying.library_process import FileSource
from sqlml.verifying.spark_session import loaded

if TYPE_CHECKING:
    import pandas as pd


class Source(Protocol):
    """A model to compare with its stored form."""

    @property
    def bound(self) -> float:
        """What its numbers may differ by."""
        ...

    @property
    def knows_null_texts(self) -> bool:
        """Whether a text may be missing in the rows that it is asked about."""
        ...

    def answers(self, frame: pd.DataFrame) -> Answers:
        """All its outputs for the rows of a frame, which has the model's own columns.

        Raises:
            VerificationError: its library refuses such rows, or there is no way to ask it.
            ArtifactError: its library crashes on it.
        """
        ...


class ObjectSource:
    """An object of this process."""

    knows_null_texts = True

    def __init__(self, model: Any, program: Program) -> None:
        self._model = model
        self._asked = Asked.of(program)
        self.bound = bound_of(family_of(model))

    def answers(self, frame: pd.DataFrame) -> Answers:
        """What the library's own methods answer, called in this process."""
        return answers(self._model, frame, self._asked)


def source_of_object(model: Any, program: Program) -> AbstractContextManager[Source]:
    """An object of this process, which is asked here; an ONNX graph is asked in a separate process,
    since onnxruntime aborts on some."""
    if family_of(model) == "onnx":
        return FileSource("ONNX", "the model", model.SerializeToString(), Asked.of(program))
    return nullcontext(ObjectSource(model, program))


class ProgramSource:
    """A Program, as the reference interpreter reads it."""

    knows_null_texts = True

    def __init__(self, program: Program) -> None:
        self._scorer = Scorer(program, program.features, {"backend": "reference"})
        self.bound = bound_of("sqlml")

    def answers(self, frame: pd.DataFrame) -> Answers:
        """What the reference backend answers."""
        return scored(self._scorer, frame, self._scorer.program.outputs)


def scored(scorer: Scorer, frame: pd.DataFrame, outputs: Iterable[str]) -> Answers:
    """A Scorer's values of these outputs, in the form of `answers`."""
    made: Answers = {}
    for name in outputs:
        value = getattr(scorer, METHODS[name])(frame)
        value = np.concatenate(value, axis=1) if isinstance(value, list) else value
        made[name] = value.reshape(len(value), -1)
    return made


@contextmanager
def source_of(file: ModelFile, program: Program, *, allow_pickle: bool) -> Iterator[Source]:
    """The model of a file, as its own library reads it.

    Args:
        program: the model that it is to be compared with.
        allow_pickle: whether reading it may execute code.

    Raises:
        ArtifactError: the library cannot read it, or ends on it.
        UntrustedArtifactError: reading it may execute code.
        MissingDependencyError: the file's library is not installed.
    """
    automatic = file.format.upper() == "AUTO"
    kind = kind_of(file.content, file.path) if automatic else file.format
    if kind.upper() == "TORCH" and not allow_pickle:
        raise UntrustedArtifactError(
            f"{file.path}: torch itself may execute code that such a file contains; connect with "
            "allow_pickle=True if you trust it"
        )
    if isinstance(file.model, SparkModel):
        yield ObjectSource(loaded(file.path), program)
    elif isinstance(file.model, StoredModel | Program):
        held = file.model if isinstance(file.model, Program) else file.model.program
        try_foreign(held)
        yield ProgramSource(held)
    elif kind.upper() == "PICKLE":
        yield ObjectSource(file.model, program)
    else:
        content = _pickled(file) if kind.upper() == "SKOPS" else file.content
        with FileSource(kind.upper(), file.path, content, Asked.of(program)) as source:
            yield source


def _pickled(file: ModelFile) -> bytes:
    """The object of a skops archive, whose types have been looked at, for the child: the package
    skops takes several seconds to import."""
    try:
        return pickle.dumps(file.model, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # classes pickle themselves: they may raise anything
        raise ArtifactError(
            f"{file.path}: the object in it cannot be passed to a separate process "
            f"({type(error).__name__}: {error}); it is damaged"
        ) from error
