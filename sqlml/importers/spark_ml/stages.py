"""`SparkModel`: the stages of a fitted pipeline, in the one form that both readers make of them.

`folder.py` reads what `model.write().save(path)` wrote, `live.py` the objects of a Python process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

SCALA = "org.apache.spark.ml."
PYTHON = "pyspark.ml."

PACKAGES: Mapping[str, str] = MappingProxyType(
    {
        "Binarizer": "feature",
        "Bucketizer": "feature",
        "DecisionTreeClassificationModel": "classification",
        "DecisionTreeRegressionModel": "regression",
        "GBTClassificationModel": "classification",
        "GBTRegressionModel": "regression",
        "ImputerModel": "feature",
        "IndexToString": "feature",
        "KMeansModel": "clustering",
        "LinearRegressionModel": "regression",
        "LogisticRegressionModel": "classification",
        "MaxAbsScalerModel": "feature",
        "MinMaxScalerModel": "feature",
        "Normalizer": "feature",
        "OneHotEncoderModel": "feature",
        "RandomForestClassificationModel": "classification",
        "RandomForestRegressionModel": "regression",
        "RobustScalerModel": "feature",
        "StandardScalerModel": "feature",
        "StringIndexerModel": "feature",
        "VectorAssembler": "feature",
    }
)
"""Class of a stage that is imported -> its package below `org.apache.spark.ml` and `pyspark.ml`."""

SINGLE_TREES = frozenset(("DecisionTreeClassificationModel", "DecisionTreeRegressionModel"))
FORESTS = frozenset(
    f"{family}{task}Model"
    for family in ("GBT", "RandomForest")
    for task in ("Classification", "Regression")
)

PIPELINES = frozenset((f"{SCALA}PipelineModel", f"{PYTHON}pipeline.PipelineModel"))

MAX_STAGES = 10_000
"""Most stages of a pipeline, those of pipelines in it included."""


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """One fitted stage.

    Attributes:
        kind: its class, one of `PACKAGES`.
        uid: Spark's name for it, for messages.
        params: the values of its parameters by name, defaults included.
        data: what it learned, as `contents.py` describes.
    """

    kind: str
    uid: str
    params: Mapping[str, Any]
    data: Mapping[str, Any]

    def damaged(self, what: str) -> ArtifactError:
        """The error for contents that Spark does not make."""
        return ArtifactError(f"the {self.kind} {self.uid} is damaged: {what}")

    def unsupported(self, what: str) -> UnsupportedModelError:
        """The error for a setting that is not covered; `what` names the fix."""
        return UnsupportedModelError(f"{self.kind} {self.uid}: {what}")

    def text(self, name: str, default: str | None = None) -> str:
        """A parameter that is a text."""
        value = self.params.get(name, default)
        if not isinstance(value, str):
            raise self.damaged(f"its {name} is {value!r}, not a string")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A parameter that is a list of texts."""
        value = self.params.get(name)
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise self.damaged(f"its {name} is not a list of strings")
        return tuple(value)

    def flag(self, name: str, default: bool) -> bool:
        """A parameter that is true or false."""
        value = self.params.get(name, default)
        if not isinstance(value, bool):
            raise self.damaged(f"its {name} is {value!r}, not true or false")
        return value

    def number(self, name: str, default: float) -> float:
        """A parameter that is a number other than NaN."""
        return self._number(name, self.params.get(name, default))

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """A parameter that is a list of numbers; None if it is not set."""
        value = self.params.get(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise self.damaged(f"its {name} is not a list of numbers")
        return tuple(self._number(name, v) for v in value)

    def _number(self, name: str, value: Any) -> float:
        value = _WORDS.get(value, value) if isinstance(value, str) else value
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise self.damaged(f"its {name} has {value!r}, which is not a number")
        return float(value)

    def count(self, name: str, most: int) -> int:
        """A size among the data, from 1 to `most`."""
        value = self.data.get(name)
        if type(value) is not int or not 0 < value <= most:
            raise self.damaged(f"its {name} is {value!r}, not from 1 to {most}")
        return value

    def vector(self, name: str) -> Array:
        """A vector among the data, (k,) float64, whose numbers are finite."""
        value: Array = self.data[name]
        if value.ndim != 1 or not np.isfinite(value).all():
            raise self.damaged(f"its {name} has a number that is not finite")
        return value

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """The columns that it reads and what it makes of each, of a stage that takes several."""
        if "inputCols" not in self.params:
            return ((self.text("inputCol"), self.text("outputCol")),)
        reads, makes = self.texts("inputCols"), self.texts("outputCols")
        if len(reads) != len(makes):
            raise self.damaged(f"it makes {len(makes)} columns from {len(reads)}")
        return tuple(zip(reads, makes, strict=True))

    def invalid(self, *allowed: str) -> str:
        """The parameter handleInvalid, one of `allowed`.

        Raises:
            UnsupportedModelError: it says that rows are left out.
        """
        value = self.text("handleInvalid", "error")
        if value == "skip":
            raise self.unsupported(
                "handleInvalid='skip' drops rows, and a function in SQL returns a value for "
                "each; call setHandleInvalid('error') on the fitted stage, or 'keep', and filter "
                "such rows in the query"
            )
        if value not in allowed:
            raise self.unsupported(
                f"handleInvalid={value!r} is not covered; call setHandleInvalid("
                f"{allowed[0]!r}) on the fitted stage"
            )
        return value


_WORDS: Mapping[str, float] = MappingProxyType(
    {
        "NaN": math.nan,
        "Infinity": math.inf,
        "-Infinity": -math.inf,
        "Inf": math.inf,
        "-Inf": -math.inf,
    }
)
"""How Spark writes infinities and NaN in JSON."""


@dataclass(frozen=True, slots=True, eq=False)
class SparkModel:
    """The stages of a fitted pipeline in order, pipelines in it unfolded; of one stage, that.

    `written_by` says what wrote or holds it, e.g. "pyspark 4.1.1".
    """

    stages: tuple[Stage, ...]
    written_by: str


def not_covered(name: str, uid: str) -> UnsupportedModelError:
    """The error for a stage of another class, which it names with a way on."""
    short = name.rsplit(".", 1)[-1]
    if short in ("CrossValidatorModel", "TrainValidationSplitModel"):
        return UnsupportedModelError(
            f"{short} holds the models that it tried; register its bestModel"
        )
    return UnsupportedModelError(
        f"sqlml does not import the stage {short} ({uid or name}) of pyspark.ml; it imports "
        f"{', '.join(PACKAGES)}: use one of these, or leave the stage out, do its work in the "
        "query, and fit the pipeline on the result"
    )


# `Columns`: what the columns of Spark's table hold, stage by stage.


@dataclass(frozen=True, slots=True)
class Column:
    """One column of Spark's: a scalar, whose frame has one column, or a vector.

    `raw` says that it may be NULL or infinite, as what comes from the table as it is. `codes`
    (n, 1) int64 are the same numbers where they are known to lie below `categories`.
    """

    frame: Frame
    vector: bool
    raw: bool = False
    codes: Value | None = None
    categories: int = 0


class Columns:
    """The columns by name; those that no stage makes are the model's inputs."""

    def __init__(self, frame: Frame, vector: str | None) -> None:
        """`vector` names the one input that is a vector, all of `frame`; None: they are scalars."""
        self.builder: Builder = frame.builder
        if vector is not None:
            self._held = {vector: Column(frame, True, True)}
        else:
            self._held = {
                name: Column(frame.take([i]), False, True) for i, name in enumerate(frame.names)
            }

    def put(
        self, name: str, value: Value, names: tuple[str, ...], *, vector: bool, raw: bool = False
    ) -> None:
        """What a stage has made: (n, k) numbers."""
        self._held[name] = Column(Frame.of(self.builder, value, names), vector, raw)

    def put_codes(self, name: str, codes: Value, categories: int, read: str) -> None:
        """The number of a category, below `categories`, of the column `read`."""
        value = self.builder.op("cast", codes, dtype="float64")
        frame = Frame.of(self.builder, value, (read,))
        self._held[name] = Column(frame, False, False, codes, categories)

    def any(self, name: str) -> Column:
        """A column of either kind."""
        return self._held[name]

    def scalar(self, name: str, stage: str) -> Column:
        """A column of single values."""
        found = self._held[name]
        if found.vector:
            raise UnsupportedModelError(f"{stage} reads the vector {name!r} as a single value")
        return found

    def vector(self, name: str, stage: str, width: int | None = None) -> Frame:
        """A vector of finite numbers and NaN, of `width` where the stage knows it.

        Raises:
            UnsupportedModelError: it has another width.
        """
        found = self._held[name]
        frame = found.frame
        if not found.vector:
            raise UnsupportedModelError(
                f"{stage} reads {name!r}, which is a single value here, as a vector; put the "
                "VectorAssembler into the pipeline"
            )
        if width is not None and frame.width != width:
            raise UnsupportedModelError(
                f"{stage} was fitted on vectors of {width} numbers, and {name!r} has {frame.width} "
                "here: a column that VectorAssembler reads may be a vector itself; put the stage "
                "that makes it into the pipeline"
            )
        if found.raw:
            checked = frame.builder.op(
                "require_finite", frame.matrix(), features=frame.names, allow_nan=True, step=stage
            )
            frame = Frame.of(frame.builder, checked, frame.names)
            self._held[name] = Column(frame, True)
        return frame
