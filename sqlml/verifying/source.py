"""Sources: the models that a stored Program is compared with, and where they are scored.

A model from an untrusted file is scored in a separate process, because a forged file may crash or
hang the native code of a library, or exhaust memory. Three kinds of files are scored in this
process. The code in a pickle already ran when the user allowed reading it. The foreign graphs of an
sqlml model are first tried in a separate process. This process's SparkSession scores Spark folders.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
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
    find_family,
    predict_with_library,
)
from sqlml.verifying.compare import get_tolerance
from sqlml.verifying.library_process import FileSource
from sqlml.verifying.spark_session import load_spark_model

if TYPE_CHECKING:
    import pandas as pd


class SourceModel(Protocol):
    """A model to compare with its stored form."""

    @property
    def tolerance(self) -> float: ...  # The largest relative difference that is allowed.

    @property
    def knows_null_texts(self) -> bool: ...  # Whether text columns may have missing values.

    def predict(self, frame: pd.DataFrame, /) -> Predictions: ...


@dataclass(frozen=True, slots=True)
class LocalSource:
    """A model that is scored in this process."""

    predict: Callable[[pd.DataFrame], Predictions]
    tolerance: float
    knows_null_texts: bool = True


def _make_object_source(model: Any, program: Program) -> LocalSource:
    predict = partial(predict_with_library, model, request=PredictionRequest.for_program(program))
    return LocalSource(predict, get_tolerance(find_family(model)))


def _make_program_source(program: Program) -> LocalSource:
    scorer = Scorer(program, program.features, {"backend": "reference"})
    predict = partial(score_frame, scorer, outputs=program.outputs)
    return LocalSource(predict, get_tolerance("sqlml"))


def open_object_source(model: Any, program: Program) -> AbstractContextManager[SourceModel]:
    """Return a source that scores `model`; ONNX runs in another process, because it may crash."""
    if find_family(model) == "onnx":
        request = PredictionRequest.for_program(program)
        return FileSource("ONNX", "the model", model.SerializeToString(), request)
    return nullcontext(_make_object_source(model, program))


def score_frame(scorer: Scorer, frame: pd.DataFrame, outputs: Iterable[str]) -> Predictions:
    predictions: Predictions = {}
    for name in outputs:
        output = getattr(scorer, METHODS[name])(frame)
        output = np.concatenate(output, axis=1) if isinstance(output, list) else output
        predictions[name] = output.reshape(len(output), -1)
    return predictions


@contextmanager
def open_source(file: ModelFile, program: Program, *, allow_pickle: bool) -> Iterator[SourceModel]:
    """Open the model in a file; raise UntrustedArtifactError if that needs `allow_pickle`."""
    is_automatic = file.format.upper() == "AUTO"
    file_format = detect_format(file.content, file.path) if is_automatic else file.format
    file_format = file_format.upper()
    if file_format == "TORCH" and not allow_pickle:
        raise UntrustedArtifactError(
            f"{file.path}: torch itself may execute code that such a file contains; connect with "
            "allow_pickle=True if you trust it"
        )
    if isinstance(file.model, SparkModel):
        yield _make_object_source(load_spark_model(file.path), program)
    elif isinstance(file.model, StoredModel | Program):
        stored_program = file.model if isinstance(file.model, Program) else file.model.program
        try_foreign(stored_program)
        yield _make_program_source(stored_program)
    elif file_format == "PICKLE":
        yield _make_object_source(file.model, program)
    else:
        content = _pickle_model(file) if file_format == "SKOPS" else file.content
        request = PredictionRequest.for_program(program)
        with FileSource(file_format, file.path, content, request) as source:
            yield source


def _pickle_model(file: ModelFile) -> bytes:
    """Pickle the checked object of a skops archive, because importing skops is slow."""
    try:
        return pickle.dumps(file.model, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # Classes define their own pickling and may raise any exception.
        raise ArtifactError(
            f"{file.path}: the object in it cannot be passed to a separate process "
            f"({type(error).__name__}: {error}); it is damaged"
        ) from error
