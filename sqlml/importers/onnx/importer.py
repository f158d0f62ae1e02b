"""Import ONNX models into operators of the IR, or as a whole graph for onnxruntime.

A graph input of shape (n, k) stands for k features; an input of shape (n, 1) or (n,) stands for one
feature, which has the name of the input.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sqlml.errors import ProgramError, UnsupportedModelError
from sqlml.importers.frame import ANY_COUNT, Frame, Leaf, Outputs, Schema
from sqlml.importers.model_checks import check_model
from sqlml.importers.onnx import (
    estimators,
    labels,
    neighbours,
    probe,
    standard,
    support_vectors,
    tensor_layout,
    tree_ensembles,
)
from sqlml.importers.onnx.document import OnnxModel, read_proto
from sqlml.importers.onnx.graph_items import Call, Choice, Const, Item, Texts
from sqlml.importers.onnx.tensor_layout import to_choice
from sqlml.importers.onnx.whole_graph import import_whole_graph
from sqlml.importers.row_tensors import RowTensor, Unsupported
from sqlml.ir.builder import Builder, Value
from sqlml.ir.damaged_file import READING_ERRORS
from sqlml.ir.program import Program
from sqlml.limits import MAX_ROW_VALUES
from sqlml.types import FLOATS, INTEGERS, Array

Function = Callable[[Call], Item | tuple[Item, ...]]

FUNCTIONS: Mapping[str, Function] = {
    **standard.FUNCTIONS,
    **tensor_layout.FUNCTIONS,
    "Split": tensor_layout.convert_split,
    "Binarizer": estimators.convert_binarizer,
    "CategoryMapper": labels.convert_category_mapper,
    "FeatureVectorizer": estimators.convert_feature_vectorizer,
    "Imputer": estimators.convert_imputer,
    "LabelEncoder": labels.convert_label_encoder,
    "LinearClassifier": estimators.convert_linear_classifier,
    "LinearRegressor": estimators.convert_linear_regressor,
    "Normalizer": estimators.convert_normalizer,
    "OneHotEncoder": labels.convert_one_hot_encoder,
    "SVMClassifier": support_vectors.convert_svm_classifier,
    "SVMRegressor": support_vectors.convert_svm_regressor,
    "Scaler": estimators.convert_scaler,
    "TreeEnsemble": tree_ensembles.convert_ensemble,
    "TreeEnsembleClassifier": tree_ensembles.convert_classifier,
    "TreeEnsembleRegressor": tree_ensembles.convert_regressor,
    "Scan": neighbours.convert_scan,
    "TopK": neighbours.convert_top_k,
    "ZipMap": lambda call: call.item(0),
}
"""Maps an operator's name to the converter. The domains ai.onnx and ai.onnx.ml share no names."""


def _fold_constants(call: Call) -> Item | None:
    """Compute an operator on numeric constants, or return None if an input is not constant."""
    compute = NUMPY_FUNCTIONS.get(call.node.op)
    if compute is None or not call.inputs:
        return None
    constants = [item.value for item in call.inputs if isinstance(item, Const)]
    if len(constants) < len(call.inputs) or any(x.dtype.kind not in "iufb" for x in constants):
        return None
    shape = np.broadcast_shapes(*[x.shape for x in constants])
    if math.prod(shape) > MAX_ROW_VALUES:
        raise call.error(f"its result is a constant of shape {shape}, which is too large")
    return Const(np.asarray(compute(*constants)))


NUMPY_FUNCTIONS: Mapping[str, Callable[..., np.ndarray[Any, Any]]] = {
    "Abs": np.abs,
    "Add": np.add,
    "Exp": np.exp,
    "Log": np.log,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Pow": lambda x, exponent: np.power(x, exponent.astype(x.dtype)),
    "Sqrt": np.sqrt,
    "Sub": np.subtract,
    "Sum": lambda *values: functools.reduce(np.add, values),
}


def convert_graph(
    model: OnnxModel, builder: Builder, inputs: Mapping[str, Item], column_names: Sequence[str]
) -> dict[str, Item]:
    """Convert the nodes of a graph in order; return the items of all values by name.

    `inputs` maps the names of the graph's inputs to items. Messages use `column_names`.
    Raises Unsupported if the IR cannot express an operator or an attribute.
    """
    constants = {name: Const(value) for name, value in model.constants.items()}
    items_by_name: dict[str, Item] = {**inputs, **constants}
    for node in model.nodes:
        convert = FUNCTIONS.get(node.op)
        if convert is None:
            raise Unsupported(f"sqlml does not import the operator {node.op}")
        arguments = tuple(items_by_name[name] if name else None for name in node.inputs)
        call = Call(builder, node, arguments, model.opset, column_names, model.fixed_rows)
        try:
            with np.errstate(all="ignore"):
                result = _fold_constants(call) or convert(call)
        except (ProgramError, Unsupported) as error:
            raise Unsupported(f"operator {node.op}: {error}") from None
        except READING_ERRORS as error:
            raise call.error(f"it is damaged ({error})") from None
        items = result if isinstance(result, tuple) else (result,)
        if len(node.outputs) > len(items):
            raise Unsupported(f"operator {node.op} has {len(node.outputs)} outputs")
        items_by_name.update((n, item) for n, item in zip(node.outputs, items, strict=False) if n)
    return items_by_name


MAX_FEATURES = 1 << 16


def read_file_schema(model: OnnxModel) -> Schema:
    """Return the schema of an ONNX file, with a column for each number that a row contains.

    If the width of an input is open, the user may name any number of columns. The default names
    are those of the columns that the operators are known to need.
    """
    widened = probe.widen_inputs(model)
    open_ports = [p for p in model.inputs if probe.has_open_width(p)]
    if any(probe.has_open_width(p) for p in widened.inputs):
        fixed_ports = [p for p in widened.inputs if not probe.has_open_width(p)]
        has_several = len(fixed_ports) + 1 < len(widened.inputs)
        if has_several or any(probe.count_features(p) < 1 for p in fixed_ports):
            raise UnsupportedModelError(
                "several inputs of the ONNX model have an open width; export it with fixed widths"
            )
        return Schema(None, ANY_COUNT, ())
    widths = [probe.count_features(port) for port in widened.inputs]
    count = sum(widths)
    if not widths or not 0 < count <= MAX_FEATURES:
        raise UnsupportedModelError(f"the ONNX model reads {count} columns")
    names = tuple(
        port.name if width == 1 else f"{port.name}_{i}"
        for port, width in zip(widened.inputs, widths, strict=True)
        for i in range(width)
    )
    if any(not probe.find_width_in_graph(model, p.name).is_exact for p in open_ports):
        return Schema(None, ANY_COUNT, names)
    return Schema(names if len(widths) > 1 or count == 1 else None, count, names)


def import_saved_model(model: OnnxModel, frame: Frame) -> Outputs:
    """Import an ONNX file, or copy the stored Program if sqlml exported the file."""
    if model.program is not None:
        return _copy_program(model.program, frame)
    model = probe.widen_inputs(model, frame.width)
    if model.fixed_rows is not None:
        warnings.warn(
            f"the ONNX model was exported for {model.fixed_rows} rows at a time; sqlml imports it "
            "for any number of rows",
            stacklevel=2,
        )
    try:
        inputs: dict[str, Item] = {
            port.name: Texts(tuple(map(columns.read_strings, range(columns.width))), port.inner)
            if port.dtype == "string"
            else RowTensor(probe.read_numbers(columns, port), port.inner)
            for port, columns in probe.split_frame(model.inputs, frame)
        }
        items = convert_graph(model, frame.builder, inputs, frame.names)
        return _build_outputs(model, items, frame.builder)
    except Unsupported as reason:
        return import_whole_graph(model, frame, str(reason))


def _copy_program(program: Program, frame: Frame) -> Outputs:
    check_model(program)
    column_names = dict(zip(program.inputs, frame.names, strict=True))
    values: list[Value] = []
    for node in program.nodes:
        if node.op == "input":
            value = frame.builder.input(column_names[node.attrs["name"]], node.type.dtype)
        else:
            value = frame.builder.copy_node(node, [values[i] for i in node.inputs])
        values.append(value)
    return Outputs({name: values[i] for name, i in program.outputs.items()}, program.labels)


def _build_outputs(
    model: OnnxModel, items_by_name: Mapping[str, Item], builder: Builder
) -> Outputs:
    """Build the outputs of a classifier, a regressor or a transformer from the items of a graph.

    A graph output is a label if it is a Choice, or if it is an integer and there are scores.
    """
    items = {port.name: items_by_name[port.name] for port in model.outputs}
    numeric_items = {name: item for name, item in items.items() if isinstance(item, RowTensor)}
    scores = {name: x for name, x in numeric_items.items() if x.dtype in FLOATS}
    zipmap_keys = labels.find_probability_keys(model)
    choice = next((x for x in items.values() if isinstance(x, Choice)), None)
    columns = [x for x in numeric_items.values() if math.prod(x.inner) == 1]
    label = next((x for x in columns if x.dtype in _LABEL_DTYPES), None)
    if choice is None and scores and label is not None:
        class_keys = next((zipmap_keys[name] for name in scores if name in zipmap_keys), None)
        choice = _convert_to_choice(label, class_keys, builder)
        if choice is None:  # without a list of labels, integers are numbers
            numbers = {"label": label.value, "score": next(iter(scores.values())).value}
            return Outputs({name: builder.cast(x, "float64") for name, x in numbers.items()})
    if choice is not None:
        return _build_classifier_outputs(choice, scores, zipmap_keys, builder)
    if not numeric_items:
        raise Unsupported("the graph outputs no numbers")
    if len(items) == 1:
        value = builder.cast(next(iter(numeric_items.values())).value, "float64")
        return Outputs({"label" if value.type.width == 1 else "transform": value})
    raise Unsupported("the graph has several outputs, but no label")


_LABEL_DTYPES = frozenset((*INTEGERS, "bool"))


def _convert_to_choice(label: RowTensor, classes: Array | None, builder: Builder) -> Choice | None:
    """Convert integers or booleans (n, 1) to a Choice among `classes`.

    If `classes` is None or holds strings, choose among the possible results of the operator that
    computes `label`. Return None if the possible results are unknown.
    """
    if classes is None or classes.dtype == object:
        return to_choice(builder, label)
    value = builder.cast(label.value, "int64")
    return Choice(builder.op("encode", value, categories=classes, missing=-1), classes, label.inner)


def _build_classifier_outputs(
    choice: Choice,
    scores: Mapping[str, RowTensor],
    zipmap_keys: Mapping[str, Array],
    builder: Builder,
) -> Outputs:
    """Build the outputs of a classifier: "label", and "proba" or "score" if there are scores.

    `scores` maps graph outputs to numbers, and `zipmap_keys` maps graph outputs to class labels.
    Probabilities are outputs named after the classes, or one output with a number per class. If a
    graph returns probabilities alone, the numbers that they are computed from are the score.
    """
    keys = next((zipmap_keys[name].tolist() for name in scores if name in zipmap_keys), None)
    index, class_labels = labels.index_labels(choice.index, choice.values.tolist(), keys, builder)
    outputs = {"label": index}
    column_names = labels.find_label_columns(scores, class_labels.values)
    if column_names:
        columns = [builder.cast(scores[name].value, "float64") for name in column_names]
        return Outputs({**outputs, "proba": builder.op("concat", *columns)}, class_labels)
    for name, item in scores.items():
        value = builder.cast(item.value, "float64")
        is_proba = value.type.width == len(class_labels.values) and not labels.is_score_name(name)
        outputs.setdefault("proba" if is_proba else "score", value)
    is_in_order = len(class_labels.values) == choice.values.size
    is_in_order &= keys is None or keys == choice.values.tolist()
    if choice.margins is not None and is_in_order and "proba" in outputs:
        outputs.setdefault("score", builder.cast(choice.margins, "float64"))
    return Outputs(outputs, class_labels)


FILE = "onnx file"
PROTO = "onnx.onnx_ml_pb2.ModelProto"

IMPORTERS: Mapping[str, Leaf] = {
    FILE: import_saved_model,
    PROTO: lambda proto, frame: import_saved_model(read_proto(proto), frame),
}
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = {
    FILE: read_file_schema,
    PROTO: lambda proto: read_file_schema(read_proto(proto)),
}
