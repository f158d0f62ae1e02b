"""Sources: the models that a stored Program is compared with, and where they are scored.

A model from an untrusted file is scored in a separate process: XGBoost, LightGBM, CatBoost,
onnxruntime, torch and scikit-learn (through skops) are native code, which a forged file may crash,
hang or let exhaust memory. Three kinds of files are scored in this process: a pickle, which already
ran its code when it was read with the user's permission; an sqlml model, which the reference
interpreter scores after its foreign graphs were tried in a separate process; and a Spark folder,
which this process's SparkSession scores.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sqlml.errors import ArtifactError, UntrustedArtifactError
from sqlml.importers.file_formats import detect_format
from sqlml.importers.model_checks import try_foreign
from sqlml.importers.model_file import ModelFile
from sqlml.importers.spark_ml.pipeline_stages import SparkModel
from sqlml.importers.sqlml_file import StoredModel
from sqlml.ir.program import Program
from sqlml.scorer.scorer import Scorer
from sqlml.verifying.ask_library import (
    METHODS,
    PredictionRequest,
    Predictions,
    family_of,
    predict_with_library,
)
from sqlml.verifying.compare import tolerance_of_family
from sqlml.verifying.library_process import FileSource
from sqlml.verifying.spark_session import load_spark_model

if TYPE_CHECKING:
    import pandas as pd


class Source(Protocol):
    """A model to compare with its stored form."""

    @property
    def tolerance(self) -> float:
        """Return the largest allowed relative difference of its numbers."""

    @property
    def knows_null_texts(self) -> bool:
        """Return whether text columns may have missing values."""

    def predict(self, frame: pd.DataFrame) -> Predictions: ...


class ObjectSource:
    """A fitted object, scored in this process."""

    knows_null_texts = True

    def __init__(self, model: Any, program: Program) -> None:
        self._model = model
        self._request = PredictionRequest.for_program(program)
        self.tolerance = tolerance_of_family(family_of(model))

    def predict(self, frame: pd.DataFrame) -> Predictions:
        return predict_with_library(self._model, frame, self._request)


def source_of_object(model: Any, program: Program) -> AbstractContextManager[Source]:
    """Return the source for a fitted object.

    It is scored in this process, except for ONNX graphs: onnxruntime aborts on some.
    """
    if family_of(model) == "onnx":
        request = PredictionRequest.for_program(program)
        return FileSource("ONNX", "the model", model.SerializeToString(), request)
    return nullcontext(ObjectSource(model, program))


class ProgramSource:
    """A Program, scored by the reference interpreter."""

    knows_null_texts = True

    def __init__(self, program: Program) -> None:
        self._scorer = Scorer(program, program.features, {"backend": "reference"})
        self.tolerance: float = tolerance_of_family("sqlml")

    def predict(self, frame: pd.DataFrame) -> Predictions:
        return score_frame(self._scorer, frame, self._scorer.program.outputs)


def score_frame(scorer: Scorer, frame: pd.DataFrame, outputs: Iterable[str]) -> Predictions:
    predictions: Predictions = {}
    for name in outputs:
        value = getattr(scorer, METHODS[name])(frame)
        value = np.concatenate(value, axis=1) if isinstance(value, list) else value
        predictions[name] = value.reshape(len(value), -1)
    return predictions


@contextmanager
def open_source(file: ModelFile, program: Program, *, allow_pickle: bool) -> Iterator[Source]:
    """Open the model of a file as a source to compare the stored Program with.
    Raises:
        ArtifactError: the library cannot read the file, or crashes on it.
        UntrustedArtifactError: reading the file may execute code.
        MissingDependencyError: the file's library is not installed.
    """
    is_automatic = file.format.upper() == "AUTO"
    kind = detect_format(file.content, file.path) if is_automatic else file.format
    if kind.upper() == "TORCH" and not allow_pickle:
        raise UntrustedArtifactError(
            f"{file.path}: torch itself may execute code that such a file contains; connect with "
            "allow_pickle=True if you trust it"
        )
    if isinstance(file.model, SparkModel):
        yield ObjectSource(load_spark_model(file.path), program)
    elif isinstance(file.model, StoredModel | Program):
        stored_program = file.model if isinstance(file.model, Program) else file.model.program
        try_foreign(stored_program)
        yield ProgramSource(stored_program)
    elif kind.upper() == "PICKLE":
        yield ObjectSource(file.model, program)
    else:
        content = _pickle_model(file) if kind.upper() == "SKOPS" else file.content
        request = PredictionRequest.for_program(program)
        with FileSource(kind.upper(), file.path, content, request) as source:
            yield source


def _pickle_model(file: ModelFile) -> bytes:
    """Pickle the checked object of a skops archive, because importing skops takes seconds."""
    try:
        return pickle.dumps(file.model, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # classes define their own pickling and may raise any exception
        raise ArtifactError(
            f"{file.path}: the object in it cannot be passed to a separate process "
            f"({type(error).__name__}: {error}); it is damaged"
        ) from error
