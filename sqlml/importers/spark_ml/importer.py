"""Import fitted pipelines and stages of pyspark.ml, from objects or folders.

The Program computes the outputs of the last predictor, with the labels of an IndexToString that
reads the prediction. Without a predictor, the Program computes the last stage (`transform`). Stages
that do not affect these outputs are omitted, such as the StringIndexer of the label column.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Leaf, Outputs, Schema
from sqlml.importers.spark_ml import feature_stages, predictors
from sqlml.importers.spark_ml.live import read_object
from sqlml.importers.spark_ml.pipeline_stages import PACKAGES, PYTHON, Columns, SparkModel, Stage
from sqlml.importers.untrusted_documents import MAX_FEATURES
from sqlml.ir.builder import Value
from sqlml.types import Labels

Transform = Callable[[Stage, Columns, Collection[str]], None]
"""A function that computes the needed output columns of a stage, and stores them in `Columns`."""
Predict = Callable[[Stage, Columns], Outputs]

COLUMN_WISE: Mapping[str, Transform] = {
    "Binarizer": feature_stages.import_binarizer,
    "Bucketizer": feature_stages.import_bucketizer,
    "ImputerModel": feature_stages.import_imputer,
    "OneHotEncoderModel": feature_stages.import_one_hot_encoder,
    "StringIndexerModel": feature_stages.import_string_indexer,
}
"""Maps the class of a stage with an output column per input column to the importer."""

VECTOR_WISE: Mapping[str, Callable[[Stage, Frame], Value]] = {
    "MaxAbsScalerModel": feature_stages.import_max_abs_scaler,
    "MinMaxScalerModel": feature_stages.import_min_max_scaler,
    "Normalizer": feature_stages.import_normalizer,
    "RobustScalerModel": feature_stages.import_robust_scaler,
    "StandardScalerModel": feature_stages.import_standard_scaler,
}
"""Maps the class of a stage that computes a vector from a vector to the importer."""

PREDICTORS: Mapping[str, Predict] = {
    "DecisionTreeClassificationModel": predictors.import_tree_classifier,
    "DecisionTreeRegressionModel": predictors.import_forest_regressor,
    "GBTClassificationModel": predictors.import_boosted_classifier,
    "GBTRegressionModel": predictors.import_boosted_regressor,
    "KMeansModel": predictors.import_k_means,
    "LinearRegressionModel": predictors.import_linear_regression,
    "LogisticRegressionModel": predictors.import_logistic_regression,
    "RandomForestClassificationModel": predictors.import_forest_classifier,
    "RandomForestRegressionModel": predictors.import_forest_regressor,
}

_WIDTHS: Mapping[str, str] = {
    "KMeansModel": "centers",
    "LinearRegressionModel": "coefficients",
    "LogisticRegressionModel": "coefficients",
    "MaxAbsScalerModel": "maxAbs",
    "MinMaxScalerModel": "originalMin",
    "RobustScalerModel": "range",
    "StandardScalerModel": "std",
}
"""Maps the class of a stage to the name of a learned value with one number per feature."""


@dataclass(frozen=True, slots=True)
class StagePlan:
    """The stages on which the outputs of a model depend, and the columns that the stages read.

    `steps` are pairs of a stage and the needed output columns, in order. `inputs` are the columns
    that no stage computes, in order of first use. If the only input is a vector, `vector` is the
    name and `width` is the width. `label_stage` is the IndexToString that converts predictions to
    labels, or None.
    """

    steps: tuple[tuple[Stage, frozenset[str]], ...]
    inputs: tuple[str, ...]
    vector: str | None
    width: int
    predictor: Stage | None
    label_stage: Stage | None
    outputs: tuple[str, ...]


def make_plan(model: SparkModel) -> StagePlan:
    """Find the stages on which the outputs of a model depend, from the last stage backwards."""
    stages = model.stages
    if not stages:
        raise UnsupportedModelError("this PipelineModel has no stages")
    predictor_indices = [i for i, stage in enumerate(stages) if stage.kind in PREDICTORS]
    predictor = stages[predictor_indices[-1]] if predictor_indices else None
    last = predictor_indices[-1] if predictor_indices else len(stages) - 1
    outputs = _list_outputs(stages[last])
    needed = set(outputs)
    steps: list[tuple[Stage, frozenset[str]]] = []
    for stage in reversed(stages[: last + 1]):
        stage_outputs = frozenset(needed & set(_list_outputs(stage)))
        if stage_outputs:
            steps.append((stage, stage_outputs))
            needed = (needed - stage_outputs) | set(_list_inputs(stage, stage_outputs))
    steps.reverse()
    inputs, computed = dict[str, None](), set[str]()
    vector, width = None, 0
    for stage, stage_outputs in steps:
        read_columns = [name for name in _list_inputs(stage, stage_outputs) if name not in computed]
        inputs.update(dict.fromkeys(read_columns))
        if read_columns and (stage.kind in VECTOR_WISE or stage.kind in PREDICTORS):
            (vector,), width = read_columns, _find_width(stage)
        computed |= stage_outputs
    if vector is not None and len(inputs) > 1:
        raise UnsupportedModelError(
            f"the pipeline reads the vector {vector!r} alongside other columns of the table; put "
            "the VectorAssembler that makes it into the pipeline"
        )
    label_stage = None if predictor is None else _find_label_stage(predictor, stages[last + 1 :])
    return StagePlan(tuple(steps), tuple(inputs), vector, width, predictor, label_stage, outputs)


def _find_label_stage(predictor: Stage, later_stages: Sequence[Stage]) -> Stage | None:
    prediction = predictor.text("predictionCol", "prediction")
    candidates = (stage for stage in reversed(later_stages) if stage.kind == "IndexToString")
    return next((stage for stage in candidates if stage.text("inputCol") == prediction), None)


def _list_outputs(stage: Stage) -> tuple[str, ...]:
    if stage.kind in PREDICTORS:
        return tuple(filter(None, (stage.text(name, "") for name in _PREDICTION_PARAMS)))
    if stage.kind in COLUMN_WISE:
        return tuple(output for _, output in stage.columns)
    return (stage.text("outputCol"),)


_PREDICTION_PARAMS = ("predictionCol", "rawPredictionCol", "probabilityCol")


def _list_inputs(stage: Stage, needed: Collection[str]) -> tuple[str, ...]:
    if stage.kind in PREDICTORS:
        return (stage.text("featuresCol", "features"),)
    if stage.kind in COLUMN_WISE:
        return tuple(name for name, output in stage.columns if output in needed)
    if stage.kind == "VectorAssembler":
        return stage.texts("inputCols")
    return (stage.text("inputCol"),)


def _find_width(stage: Stage) -> int:
    if stage.kind in _WIDTHS:
        return int(stage.data[_WIDTHS[stage.kind]].shape[-1])
    if "numFeatures" in stage.data:
        return stage.count("numFeatures", MAX_FEATURES)
    raise stage.unsupported(
        "it does not state the length of its vectors; put the VectorAssembler that makes "
        "them into the pipeline"
    )


def build_schema(model: SparkModel) -> Schema:
    """Return the schema of a model, without column names if the model reads a vector."""
    plan = make_plan(model)
    if plan.vector is not None:
        return Schema(None, plan.width)
    return Schema(plan.inputs, len(plan.inputs))


def import_stages(model: SparkModel, frame: Frame) -> Frame | Outputs:
    """Import the stages of a model; return the predictions, or the columns of the last stage."""
    plan = make_plan(model)
    columns = Columns(frame, plan.vector)
    for stage, needed in plan.steps:
        if stage.kind == "IndexToString":
            raise stage.unsupported(
                f"it converts {stage.text('inputCol')!r} to labels, which is not the prediction "
                "of the pipeline's last model; leave it out, and convert it in the query"
            )
        if stage.kind in PREDICTORS:
            outputs = PREDICTORS[stage.kind](stage, columns)
            _check_columns(stage, outputs)
            if stage is plan.predictor:
                return _replace_labels(outputs, plan.label_stage)
            _put_outputs(stage, columns, outputs, needed)
        elif stage.kind == "VectorAssembler":
            feature_stages.import_vector_assembler(stage, columns)
        elif stage.kind in COLUMN_WISE:
            COLUMN_WISE[stage.kind](stage, columns, needed)
        else:
            width = _find_width(stage) if stage.kind in _WIDTHS else None
            vector = columns.vector(stage.text("inputCol"), stage.kind, width)
            value = VECTOR_WISE[stage.kind](stage, vector)
            columns.put(stage.text("outputCol"), value, vector.names, vector=True)
    return Frame.hstack(frame.builder, [columns.any(name).frame for name in plan.outputs])


def _put_outputs(stage: Stage, columns: Columns, outputs: Outputs, needed: Collection[str]) -> None:
    for param, output in zip(_PREDICTION_PARAMS, ("label", "score", "proba"), strict=True):
        name = stage.text(param, "")
        if name in needed and output in outputs.values:
            value = columns.builder.cast(outputs.values[output], "float64")
            value_names = tuple(f"{name}_{i}" for i in range(value.type.width))
            # Like a column of the table, a predicted number may be NaN.
            may_be_nan = output == "label" and not outputs.label_sets
            columns.put(name, value, value_names, vector=output != "label", raw=may_be_nan)


def _check_columns(stage: Stage, outputs: Outputs) -> None:
    """Check that no output column has an empty name, which changes how Spark predicts."""
    for param in _PREDICTION_PARAMS if "proba" in outputs.values else ("predictionCol",):
        if not stage.text(param, param.removesuffix("Col")):
            raise stage.unsupported(
                f"{param} is empty, which changes how it predicts; give the column a name"
            )


def _replace_labels(outputs: Outputs, label_stage: Stage | None) -> Outputs:
    if label_stage is None:
        return outputs
    labels = outputs.labels
    if labels is None:
        raise label_stage.unsupported("it names the predictions of a regression; leave it out")
    if not label_stage.params.get("labels"):
        raise label_stage.unsupported(
            "it reads its labels from the table; set them with IndexToString(labels=[...])"
        )
    names = label_stage.texts("labels")
    if len(names) < len(labels) or len(set(names[: len(labels)])) < len(labels):
        raise label_stage.unsupported(
            f"it has {len(set(names))} labels for {len(labels)} classes; give each a different one"
        )
    return Outputs(outputs.values, Labels("string", names[: len(labels)]))


def _import_object(model: Any, frame: Frame) -> Frame | Outputs:
    return import_stages(read_object(model), frame)


def _read_object_schema(model: Any) -> Schema:
    return build_schema(read_object(model, trees=False))


FOLDER = "pyspark.ml folder"

PIPELINE = f"{PYTHON}pipeline.PipelineModel"
CLASSES = (PIPELINE, *(f"{PYTHON}{package}.{kind}" for kind, package in PACKAGES.items()))

IMPORTERS: Mapping[str, Leaf] = {**dict.fromkeys(CLASSES, _import_object), FOLDER: import_stages}
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = {
    **dict.fromkeys(CLASSES, _read_object_schema),
    FOLDER: build_schema,
}
