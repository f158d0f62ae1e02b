"""The data structures for a fitted pipeline and for the columns that the stages compute.

`folder.py` reads the files of `model.write().save(path)`, and `live.py` reads live objects.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

SCALA = "org.apache.spark.ml."
PYTHON = "pyspark.ml."

_STAGES = {
    "classification": "DecisionTreeClassificationModel GBTClassificationModel "
    "LogisticRegressionModel RandomForestClassificationModel",
    "clustering": "KMeansModel",
    "feature": "Binarizer Bucketizer ImputerModel IndexToString MaxAbsScalerModel "
    "MinMaxScalerModel Normalizer OneHotEncoderModel RobustScalerModel StandardScalerModel "
    "StringIndexerModel VectorAssembler",
    "regression": "DecisionTreeRegressionModel GBTRegressionModel LinearRegressionModel "
    "RandomForestRegressionModel",
}

PACKAGES: Mapping[str, str] = dict(
    sorted((kind, package) for package, kinds in _STAGES.items() for kind in kinds.split())
)
"""Maps a supported class of a stage to the package in `org.apache.spark.ml` and `pyspark.ml`."""

SINGLE_TREES = frozenset(("DecisionTreeClassificationModel", "DecisionTreeRegressionModel"))
FORESTS = frozenset(
    "GBTClassificationModel GBTRegressionModel RandomForestClassificationModel "
    "RandomForestRegressionModel".split()
)

PIPELINES = frozenset((f"{SCALA}PipelineModel", f"{PYTHON}pipeline.PipelineModel"))

MAX_STAGES = 10_000
"""The maximum number of stages of a pipeline, including those of nested pipelines."""


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A fitted stage of the class `kind` in `PACKAGES`; `contents.py` describes `data`."""

    kind: str
    uid: str
    params: Mapping[str, Any]
    data: Mapping[str, Any]

    def damaged(self, reason: str) -> ArtifactError:
        return ArtifactError(f"the {self.kind} {self.uid} is damaged: {reason}")

    def unsupported(self, reason: str) -> UnsupportedModelError:
        """Build the error for an unsupported setting; `reason` includes advice for the user."""
        return UnsupportedModelError(f"{self.kind} {self.uid}: {reason}")

    def text(self, name: str, default: str | None = None) -> str:
        value = self.params.get(name, default)
        if not isinstance(value, str):
            raise self.damaged(f"its {name} is {value!r}, not a string")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.params.get(name)
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise self.damaged(f"its {name} is not a list of strings")
        return tuple(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.params.get(name, default)
        if not isinstance(value, bool):
            raise self.damaged(f"its {name} is {value!r}, not true or false")
        return value

    def number(self, name: str, default: float) -> float:
        return self._number(name, self.params.get(name, default))

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """Return the numbers in the parameter `name`, or None if not set."""
        value = self.params.get(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise self.damaged(f"its {name} is not a list of numbers")
        return tuple(self._number(name, v) for v in value)

    def _number(self, name: str, value: Any) -> float:
        if isinstance(value, str) and value in _NOT_FINITE:
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise self.damaged(f"its {name} has {value!r}, which is not a number")
        return float(value)

    def count(self, name: str, limit: int) -> int:
        """Return the size `name` in `data`; reject sizes outside 1 to `limit`."""
        value = self.data.get(name)
        if type(value) is not int or not 0 < value <= limit:
            raise self.damaged(f"its {name} is {value!r}, not from 1 to {limit}")
        return value

    def vector(self, name: str) -> Array:
        """Return the vector `name` in `data`; reject infinities and NaN."""
        value: Array = self.data[name]
        if value.ndim != 1 or not np.isfinite(value).all():
            raise self.damaged(f"its {name} contains a number that is not finite")
        return value

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """The pairs (input column, output column) of the stage."""
        if "inputCols" not in self.params:
            return ((self.text("inputCol"), self.text("outputCol")),)
        inputs, outputs = self.texts("inputCols"), self.texts("outputCols")
        if len(inputs) != len(outputs):
            raise self.damaged(f"it has {len(outputs)} output columns for {len(inputs)} inputs")
        return tuple(zip(inputs, outputs, strict=True))

    def get_handle_invalid(self, *allowed: str) -> str:
        """Return parameter handleInvalid; raise UnsupportedModelError for unsupported values."""
        value = self.text("handleInvalid", "error")
        if value == "skip":
            raise self.unsupported(
                "handleInvalid='skip' drops rows, but a SQL function returns a value for "
                "each; call setHandleInvalid('error') on the fitted stage, or 'keep', and filter "
                "such rows in the query"
            )
        if value not in allowed:
            raise self.unsupported(
                f"handleInvalid={value!r} is not supported; call setHandleInvalid("
                f"{allowed[0]!r}) on the fitted stage"
            )
        return value


_NOT_FINITE = frozenset(("NaN", "Infinity", "-Infinity", "Inf", "-Inf"))
"""Spark's names of infinities and NaN in JSON."""


@dataclass(frozen=True, slots=True, eq=False)
class SparkModel:
    """The stages of a fitted pipeline and of nested pipelines, or a single fitted stage."""

    stages: tuple[Stage, ...]
    written_by: str


def make_unsupported_error(class_path: str, uid: str) -> UnsupportedModelError:
    """Build the error for a stage of an unsupported class, with advice for the user."""
    class_name = class_path.rsplit(".", 1)[-1]
    if class_name in ("CrossValidatorModel", "TrainValidationSplitModel"):
        advice = f"{class_name} contains the models that it tried; register its bestModel"
        return UnsupportedModelError(advice)
    return UnsupportedModelError(
        f"sqlml does not import the stage {class_name} ({uid or class_path}) of pyspark.ml; it "
        f"imports {', '.join(PACKAGES)}: use one of these, or leave the stage out, do its work in "
        "the query, and fit the pipeline on the result"
    )


@dataclass(frozen=True, slots=True)
class Column:
    """A column of Spark: a scalar, for which `frame` has one column, or a vector.

    A `raw` column comes directly from the table, and may contain NULL or infinities. If the column
    is known to hold category codes from 0 to `categories` - 1, `codes` are the codes, int64 (n, 1).
    """

    frame: Frame
    vector: bool
    raw: bool = False
    codes: Value | None = None
    categories: int = 0


class Columns:
    """The columns of Spark's table by name: inputs of the model and results of stages."""

    def __init__(self, frame: Frame, vector: str | None) -> None:
        """Store `frame` as the vector named `vector`, or if `vector` is None, as scalars."""
        self.builder: Builder = frame.builder
        self._by_name = {} if vector is None else {vector: Column(frame, True, True)}
        for i, name in enumerate(frame.names if vector is None else ()):
            self._by_name[name] = Column(frame.select([i]), False, True)

    def put(
        self, name: str, value: Value, names: tuple[str, ...], *, vector: bool, raw: bool = False
    ) -> None:
        self._by_name[name] = Column(Frame.from_value(self.builder, value, names), vector, raw)

    def put_codes(self, name: str, codes: Value, categories: int, source: str) -> None:
        """Add the column `name` with codes below `categories`; messages use the name `source`."""
        value = self.builder.op("cast", codes, dtype="float64")
        frame = Frame.from_value(self.builder, value, (source,))
        self._by_name[name] = Column(frame, False, False, codes, categories)

    def any(self, name: str) -> Column:
        return self._by_name[name]

    def scalar(self, name: str, stage: str) -> Column:
        column = self._by_name[name]
        if column.vector:
            raise UnsupportedModelError(f"{stage} reads the vector {name!r} as a single value")
        return column

    def vector(self, name: str, stage: str, width: int | None = None) -> Frame:
        """Return the vector `name`; check the width, and let scoring reject infinities."""
        column = self._by_name[name]
        frame = column.frame
        if not column.vector:
            raise UnsupportedModelError(
                f"{stage} reads {name!r}, which is a single value here, as a vector; put the "
                "VectorAssembler into the pipeline"
            )
        if width is not None and frame.width != width:
            raise UnsupportedModelError(
                f"{stage} was fitted on vectors of {width} numbers, and {name!r} has {frame.width} "
                "here: a column that VectorAssembler reads may be a vector itself; put the stage "
                "that computes it into the pipeline"
            )
        if column.raw:
            attrs = {"features": frame.names, "allow_nan": True, "step": stage}
            value = self.builder.op("require_finite", frame.matrix(), **attrs)
            frame = Frame.from_value(self.builder, value, frame.names)
            self._by_name[name] = Column(frame, True)
        return frame
