"""`import_stages`: the stages of a SparkModel as a Program, from the columns that they read.

What the Program computes is what its last predictor makes, with the labels of the IndexToString
that reads its prediction; without a predictor, what the last stage makes (`transform`). Stages
that nothing of this reads, as the StringIndexer of the label column, are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Schema
from sqlml.importers.spark_ml import feature_stages, predict
from sqlml.importers.spark_ml.live import read_object
from sqlml.importers.spark_ml.stages import PACKAGES, PYTHON, Columns, SparkModel, Stage
from sqlml.importers.untrusted_documents import MAX_FEATURES
from sqlml.types import Labels

Transform = Callable[[Stage, Columns, Collection[str]], None]
"""Adds what a stage makes to the columns, if it is needed."""
Predict = Callable[[Stage, Columns], Outputs]

COLUMN_WISE: Mapping[str, Transform] = MappingProxyType(
    {
        "Binarizer": feature_stages.binarizer,
        "Bucketizer": feature_stages.bucketizer,
        "ImputerModel": feature_stages.imputer,
        "OneHotEncoderModel": feature_stages.one_hot_encoder,
        "StringIndexerModel": feature_stages.string_indexer,
    }
)
"""Stages that make a column of each column that they read."""

VECTOR_WISE: Mapping[str, Transform] = MappingProxyType(
    {
        "MaxAbsScalerModel": feature_stages.max_abs_scaler,
        "MinMaxScalerModel": feature_stages.min_max_scaler,
        "Normalizer": feature_stages.normalizer,
        "RobustScalerModel": feature_stages.robust_scaler,
        "StandardScalerModel": feature_stages.standard_scaler,
    }
)
"""Stages that make a vector of a vector."""

PREDICTORS: Mapping[str, Predict] = MappingProxyType(
    {
        "DecisionTreeClassificationModel": predict.tree_classifier,
        "DecisionTreeRegressionModel": predict.forest_regressor,
        "GBTClassificationModel": predict.boosted_classifier,
        "GBTRegressionModel": predict.boosted_regressor,
        "KMeansModel": predict.k_means,
        "LinearRegressionModel": predict.linear_regression,
        "LogisticRegressionModel": predict.logistic_regression,
        "RandomForestClassificationModel": predict.forest_classifier,
        "RandomForestRegressionModel": predict.forest_regressor,
    }
)

_WIDTHS: Mapping[str, str] = MappingProxyType(
    {
        "KMeansModel": "centres",
        "LinearRegressionModel": "coefficients",
        "LogisticRegressionModel": "coefficients",
        "MaxAbsScalerModel": "maxAbs",
        "MinMaxScalerModel": "originalMin",
        "RobustScalerModel": "range",
        "StandardScalerModel": "std",
    }
)
"""What of a stage's data has a number for each of its features."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The stages that the outputs need, each with the columns needed of it.

    `inputs` are the columns that none of them makes, in the order of their use. `vector` names the
    only input, where that is a vector, and `width` says of how many numbers. `predictor` is the
    last predictor, and `naming` the IndexToString of its prediction. `made` are the columns that
    the last stage makes.
    """

    steps: tuple[tuple[Stage, frozenset[str]], ...]
    inputs: tuple[str, ...]
    vector: str | None
    width: int
    predictor: Stage | None
    naming: Stage | None
    made: tuple[str, ...]


def plan(model: SparkModel) -> Plan:
    """The parts of a model that its outputs need.

    Raises:
        UnsupportedModelError: it has no stages, or reads a vector of the table alongside other
            columns.
    """
    stages = model.stages
    if not stages:
        raise UnsupportedModelError("this PipelineModel has no stages, and predicts nothing")
    places = [i for i, stage in enumerate(stages) if stage.kind in PREDICTORS]
    predictor = stages[places[-1]] if places else None
    end = places[-1] if places else len(stages) - 1
    wanted = set(_made(stages[end]))
    steps: list[tuple[Stage, frozenset[str]]] = []
    for stage in reversed(stages[: end + 1]):
        here = frozenset(wanted & set(_made(stage)))
        if here:
            steps.append((stage, here))
            wanted = (wanted - here) | set(_read(stage, here))
    steps.reverse()
    inputs: dict[str, None] = {}
    vector, width = None, 0
    made: set[str] = set()
    for stage, here in steps:
        for name in _read(stage, here):
            if name not in made:
                inputs[name] = None
                if stage.kind in VECTOR_WISE or stage.kind in PREDICTORS:
                    vector, width = name, _width(stage)
        made |= here
    if vector is not None and len(inputs) > 1:
        raise UnsupportedModelError(
            f"the pipeline reads the vector {vector!r} alongside other columns of the table; put "
            "the VectorAssembler that makes it into the pipeline"
        )
    naming = None if predictor is None else _naming(predictor, stages[end + 1 :])
    last = _made(stages[end])
    return Plan(tuple(steps), tuple(inputs), vector, width, predictor, naming, last)


def _naming(predictor: Stage, later: Sequence[Stage]) -> Stage | None:
    prediction = predictor.text("predictionCol", "prediction")
    found = [
        stage
        for stage in later
        if stage.kind == "IndexToString" and stage.text("inputCol") == prediction
    ]
    return found[-1] if found else None


def _made(stage: Stage) -> tuple[str, ...]:
    """The columns that a stage makes."""
    if stage.kind in PREDICTORS:
        made = [stage.text(name, "") for name in _PREDICTED]
        return tuple(name for name in made if name)
    if stage.kind in COLUMN_WISE:
        return tuple(made for _, made in stage.columns)
    return (stage.text("outputCol"),)


_PREDICTED = ("predictionCol", "rawPredictionCol", "probabilityCol")


def _read(stage: Stage, wanted: Collection[str]) -> tuple[str, ...]:
    """The columns that it reads to make the needed ones."""
    if stage.kind in PREDICTORS:
        return (stage.text("featuresCol", "features"),)
    if stage.kind in COLUMN_WISE:
        return tuple(read for read, made in stage.columns if made in wanted)
    if stage.kind == "VectorAssembler":
        return stage.texts("inputCols")
    return (stage.text("inputCol"),)


def _width(stage: Stage) -> int:
    """How many features a stage was fitted on."""
    if stage.kind in _WIDTHS:
        return int(stage.data[_WIDTHS[stage.kind]].shape[-1])
    if "numFeatures" in stage.data:
        return stage.count("numFeatures", MAX_FEATURES)
    raise stage.unsupported(
        "it does not say how many numbers its vectors have; put the VectorAssembler that makes "
        "them into the pipeline"
    )


def schema_of(model: SparkModel) -> Schema:
    """The columns of the table that it reads; of a vector only their number is known."""
    made = plan(model)
    if made.vector is not None:
        return Schema(None, made.width)
    return Schema(made.inputs, len(made.inputs))


def import_stages(model: SparkModel, frame: Frame) -> Frame | Outputs:
    """All stages that the outputs need, one after the other."""
    made = plan(model)
    columns = Columns(frame, made.vector)
    for stage, wanted in made.steps:
        if stage.kind == "IndexToString":
            raise stage.unsupported(
                f"it names the values of {stage.text('inputCol')!r}, which is not the prediction "
                "of the pipeline's last model; leave it out and name them in the query"
            )
        if stage.kind in PREDICTORS:
            outputs = PREDICTORS[stage.kind](stage, columns)
            _check_columns(stage, outputs)
            if stage is made.predictor:
                return _named(outputs, made.naming)
            _put_outputs(stage, columns, outputs, wanted)
        elif stage.kind == "VectorAssembler":
            feature_stages.vector_assembler(stage, columns, wanted)
        else:
            transform = COLUMN_WISE.get(stage.kind) or VECTOR_WISE[stage.kind]
            transform(stage, columns, wanted)
    return Frame.hstack(frame.builder, [columns.any(name).frame for name in made.made])


def _put_outputs(stage: Stage, columns: Columns, outputs: Outputs, wanted: Collection[str]) -> None:
    """The columns of a predictor that later stages read."""
    for param, output in zip(_PREDICTED, ("label", "score", "proba"), strict=True):
        name = stage.text(param, "")
        if name in wanted and output in outputs.values:
            value = columns.builder.cast(outputs.values[output], "float64")
            names = tuple(f"{name}_{i}" for i in range(value.type.width))
            number = output == "label" and not outputs.label_sets  # NaN of NaN
            columns.put(name, value, names, vector=output != "label", raw=number)


def _check_columns(stage: Stage, outputs: Outputs) -> None:
    """Refuse a predictor that leaves out a column: it computes the others in another way then."""
    for param in _PREDICTED if "proba" in outputs.values else ("predictionCol",):
        if not stage.text(param, param.removesuffix("Col")):
            raise stage.unsupported(
                f"{param} is empty, which changes how it predicts; give the column a name"
            )


def _named(outputs: Outputs, naming: Stage | None) -> Outputs:
    """The outputs with the labels that the IndexToString gives to the predictions."""
    if naming is None:
        return outputs
    labels = outputs.labels
    if labels is None:
        raise naming.unsupported("it names the predictions of a regression; leave it out")
    if not naming.params.get("labels"):
        raise naming.unsupported(
            "it takes its labels from the table; give them: IndexToString(labels=..)"
        )
    names = naming.texts("labels")
    if len(names) < len(labels) or len(set(names[: len(labels)])) < len(labels):
        raise naming.unsupported(
            f"it has {len(set(names))} labels for {len(labels)} classes; give each class its own"
        )
    return Outputs(outputs.values, Labels("string", names[: len(labels)]))


def import_object(model: Any, frame: Frame) -> Frame | Outputs:
    """A fitted pipeline or stage of this process."""
    return import_stages(read_object(model), frame)


def object_schema(model: Any) -> Schema:
    """The columns that a fitted pyspark.ml object reads."""
    return schema_of(read_object(model, trees=False))


FOLDER = "pyspark.ml folder"
"""What `folder.read_folder` makes of a folder, as `registry.NAMES` calls it."""

PIPELINE = f"{PYTHON}pipeline.PipelineModel"
CLASSES = (PIPELINE, *(f"{PYTHON}{package}.{kind}" for kind, package in PACKAGES.items()))

IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame | Outputs]] = MappingProxyType(
    {**dict.fromkeys(CLASSES, import_object), FOLDER: import_stages}
)
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(
    {**dict.fromkeys(CLASSES, object_schema), FOLDER: schema_of}
)
