"""Importer of ONNX models: into the IR where its operators allow, else whole, for onnxruntime.

A graph input of shape (n, k) stands for k features, one of shape (n, 1) or (n,) for one feature
of its own name.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, ProgramError, UnsupportedModelError
from sqlml.importers.frame import ANY_COUNT, Frame, Outputs, Schema
from sqlml.importers.model_checks import check_model
from sqlml.importers.onnx import estimators, labels, layout, standard, trees
from sqlml.importers.onnx.document import OnnxModel, read_proto
from sqlml.importers.onnx.items import Call, Choice, Const, Item, Texts
from sqlml.importers.onnx.labels import columns_of_labels, is_score, keys_of, numbered
from sqlml.importers.onnx.layout import as_choice
from sqlml.importers.onnx.probe import (
    has_open_width,
    numbers,
    parts,
    widened,
    width,
    width_in_graph,
)
from sqlml.importers.onnx.whole_graph import whole_graph
from sqlml.importers.row_tensors import Rows, Uncovered
from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Program
from sqlml.limits import MAX_ROW_VALUES
from sqlml.types import INTEGERS, Array

# `walk`: the nodes of an ONNX graph, one by one, into the IR.


Function = Callable[[Call], Item | tuple[Item, ...]]

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        **standard.FUNCTIONS,
        **layout.FUNCTIONS,
        "Split": layout.split,
        "Binarizer": estimators.binarizer,
        "CategoryMapper": labels.category_mapper,
        "FeatureVectorizer": estimators.feature_vectorizer,
        "Imputer": estimators.imputer,
        "LabelEncoder": labels.label_encoder,
        "LinearClassifier": estimators.linear_classifier,
        "LinearRegressor": estimators.linear_regressor,
        "Normalizer": estimators.normalizer,
        "OneHotEncoder": labels.one_hot_encoder,
        "Scaler": estimators.scaler,
        "TreeEnsemble": trees.ensemble_v5,
        "TreeEnsembleClassifier": trees.classifier,
        "TreeEnsembleRegressor": trees.regressor,
        "ZipMap": lambda call: call.item(0),
    }
)
"""Operators that become operators of the IR, by name: the two domains share none."""


def _folded(call: Call) -> Item | None:
    """The result of an operator on constants only; None if numpy cannot fold it."""
    fold = FOLDS.get(call.node.op)
    if fold is None or not call.inputs:
        return None
    values = [item.value for item in call.inputs if isinstance(item, Const)]
    if len(values) < len(call.inputs) or any(v.dtype.kind not in "iufb" for v in values):
        return None
    shape = np.broadcast_shapes(*[v.shape for v in values])
    if math.prod(shape) > MAX_ROW_VALUES:
        raise ArtifactError(f"operator {call.node.op} makes a constant of {shape}")
    return Const(np.asarray(fold(*values)))


FOLDS: Mapping[str, Callable[..., np.ndarray[Any, Any]]] = MappingProxyType(
    {
        "Abs": np.abs,
        "Add": np.add,
        "Exp": np.exp,
        "Log": np.log,
        "Mul": np.multiply,
        "Neg": np.negative,
        "Pow": lambda a, b: np.power(a, b.astype(a.dtype)),
        "Sqrt": np.sqrt,
        "Sub": np.subtract,
        "Sum": lambda *values: functools.reduce(np.add, values),
    }
)
"""Operators whose constants numpy folds; results keep the dtype of the operands."""


def walk(
    model: OnnxModel, builder: Builder, inputs: Mapping[str, Item], names: Sequence[str]
) -> dict[str, Item]:
    """What each name of the graph stands for, with `inputs` for the graph's inputs.

    Raises:
        Uncovered: the graph has an operator, or a use of one, that the IR does not cover.
        ArtifactError: it breaks ONNX's rules.
    """
    known: dict[str, Item] = dict(inputs)
    known.update((name, Const(value)) for name, value in model.constants.items())
    for node in model.nodes:
        convert = FUNCTIONS.get(node.op)
        if convert is None:
            raise Uncovered(f"operator {node.op} is not one that sqlml imports")
        call = Call(
            builder,
            node,
            tuple(known[n] if n else None for n in node.inputs),
            model.opset,
            names,
            model.rows,
        )
        try:
            with np.errstate(all="ignore"):
                made = _folded(call) or convert(call)
        except (ProgramError, Uncovered) as error:
            raise Uncovered(f"operator {node.op}: {error}") from None
        except (ValueError, TypeError, IndexError, KeyError, OverflowError) as error:
            raise ArtifactError(f"operator {node.op} is damaged ({error})") from None
        items = made if isinstance(made, tuple) else (made,)
        if len(node.outputs) > len(items):
            raise Uncovered(f"operator {node.op} has {len(node.outputs)} outputs")
        known.update((n, item) for n, item in zip(node.outputs, items, strict=False) if n)
    return known


MAX_FEATURES = 1 << 16


def file_schema(model: OnnxModel) -> Schema:
    """The columns that an ONNX file reads: one for each number of its inputs.

    One table may have an open width. Its columns are those that the user names, and by default as
    many as the operators are known to read.
    """
    wide = widened(model)
    open_ports = [p for p in model.inputs if has_open_width(p)]
    if any(has_open_width(p) for p in wide.inputs):
        others = [p for p in wide.inputs if not has_open_width(p)]
        if len(others) + 1 < len(wide.inputs) or any(width(p) < 1 for p in others):
            raise UnsupportedModelError(
                "several inputs of the ONNX model have an open width; export it with a fixed one"
            )
        return Schema(None, ANY_COUNT, ())
    widths = [width(port) for port in wide.inputs]
    count = sum(widths)
    if not widths or not 0 < count <= MAX_FEATURES:
        raise UnsupportedModelError(f"the ONNX model reads {count} columns")
    names = tuple(
        port.name if w == 1 else f"{port.name}_{i}"
        for port, w in zip(wide.inputs, widths, strict=True)
        for i in range(w)
    )
    if any(not width_in_graph(model, p.name).is_exact for p in open_ports):
        return Schema(None, ANY_COUNT, names)
    return Schema(names if len(widths) > 1 or count == 1 else None, count, names)


def proto_schema(proto: Any) -> Schema:
    """The columns that an onnx.ModelProto reads."""
    return file_schema(read_proto(proto))


def import_proto(proto: Any, frame: Frame) -> Outputs:
    """An onnx.ModelProto, imported as `import_file` imports a file."""
    return import_file(read_proto(proto), frame)


def import_file(model: OnnxModel, frame: Frame) -> Outputs:
    """An ONNX file: the model that its graph describes, or the Program that sqlml wrote it of.

    Raises:
        UnsupportedModelError: the graph mixes rows, or neither the IR nor onnxruntime can run it.
        ArtifactError: the graph breaks ONNX's rules.
        MissingDependencyError: only onnxruntime can run it, which is not installed.
    """
    if model.program is not None:
        return _replayed(model.program, frame)
    model = widened(model, frame.width)
    if model.rows is not None:
        warnings.warn(
            f"the ONNX model was exported for {model.rows} rows at a time; sqlml imports it for "
            "any number of rows",
            stacklevel=2,
        )
    try:
        known = walk(model, frame.builder, _inputs(model, frame), frame.names)
        return _outputs(model, known, frame.builder)
    except Uncovered as reason:
        return whole_graph(model, frame, str(reason))


def _replayed(program: Program, frame: Frame) -> Outputs:
    """The nodes of a stored Program, over the columns of `frame` in place of its inputs.

    Raises:
        UnsupportedModelError: it is not a whole model, or holds a foreign one that cannot run.
    """
    check_model(program)
    names = dict(zip(program.inputs, frame.names, strict=True))
    b, values = frame.builder, list[Value]()
    for node in program.nodes:
        if node.op == "input":
            values.append(b.input(names[node.attrs["name"]], node.type.dtype))
        else:
            values.append(b.again(node, [values[i] for i in node.inputs]))
    return Outputs({name: values[i] for name, i in program.outputs.items()}, program.labels)


def _inputs(model: OnnxModel, frame: Frame) -> dict[str, Item]:
    return {
        port.name: Texts(tuple(map(part.strings, range(part.width))), port.inner)
        if port.dtype == "string"
        else Rows(numbers(part, port), port.inner)
        for port, part in parts(model.inputs, frame)
    }


def _outputs(model: OnnxModel, known: Mapping[str, Item], b: Builder) -> Outputs:
    """Labels and probabilities of a classifier, the value of a regressor, or a transform.

    Labels are values chosen among constants, or integers next to scores. One number per row is a
    regression value, several are a transform.
    """
    items = {port.name: known[port.name] for port in model.outputs}
    scores = {
        n: x for n, x in items.items() if isinstance(x, Rows) and x.dtype in ("float32", "float64")
    }
    keys = keys_of(model)
    choice = next((x for x in items.values() if isinstance(x, Choice)), None)
    if choice is None and scores:
        label = next((x for x in items.values() if isinstance(x, Rows) and _is_label(x)), None)
        if label is not None:
            listed = next((keys[name] for name in scores if name in keys), None)
            choice = _choice_of(label, listed, b)
            if choice is None:
                return _numbers(label, next(iter(scores.values())), b)
    if choice is not None:
        return _classifier(choice, scores, keys, b)
    rows = {n: x for n, x in items.items() if isinstance(x, Rows)}
    if not rows:
        raise Uncovered("the graph gives no numbers")
    if len(items) == 1:
        value = b.cast(next(iter(rows.values())).value, "float64")
        return Outputs({"label" if value.type.width == 1 else "transform": value})
    raise Uncovered("the graph has several outputs, and none is a label")


def _is_label(item: Rows) -> bool:
    return math.prod(item.inner) == 1 and (item.dtype in INTEGERS or item.dtype == "bool")


def _choice_of(label: Rows, listed: Array | None, b: Builder) -> Choice | None:
    """Integers or booleans (n, 1) as one of the labels that are `listed`, or that an argmax or a
    comparison can give; None if nothing lists them."""
    if listed is None or listed.dtype == object:
        return as_choice(b, label)
    value = b.cast(label.value, "int64")
    return Choice(b.op("encode", value, categories=listed, missing=-1), listed, label.inner)


def _numbers(label: Rows, scores: Rows, b: Builder) -> Outputs:
    """Integers of which no list is known, as numbers."""
    return Outputs(
        {"label": b.cast(label.value, "float64"), "score": b.cast(scores.value, "float64")}
    )


def _classifier(
    choice: Choice, scores: Mapping[str, Rows], keys: Mapping[str, Array], b: Builder
) -> Outputs:
    """The label, and the probabilities: the numbers under its labels as keys, or else an output
    with one number a class, unless it is called scores."""
    listed = next((keys[name].tolist() for name in scores if name in keys), None)
    index, labels = numbered(choice.index, choice.values.tolist(), listed, b)
    values = {"label": index}
    columns = columns_of_labels(scores, labels.values)
    if columns:
        value = b.op("concat", *[b.cast(scores[name].value, "float64") for name in columns])
        return Outputs({**values, "proba": value}, labels)
    for name, item in scores.items():
        value = b.cast(item.value, "float64")
        one_each = value.type.width == len(labels.values)
        values.setdefault("proba" if one_each and not is_score(name) else "score", value)
    return Outputs(values, labels)


FILE = "onnx file"
"""What `file_formats.read_artifact` makes of a file, as `registry.NAMES` calls it."""
PROTO = "onnx.onnx_ml_pb2.ModelProto"

IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame | Outputs]] = MappingProxyType(
    {FILE: import_file, PROTO: import_proto}
)
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(
    {FILE: file_schema, PROTO: proto_schema}
)
