"""Importer of ONNX models: into the IR where its operators allow, else whole, for onnxruntime.

A graph input of shape (n, k) stands for k features, one of shape (n, 1) or (n,) for one feature
of its own name.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Schema, labels_of
from sqlml.importers.onnx.items import Choice, Item, Rows, Texts, UnknownOperator
from sqlml.importers.onnx.model import OnnxModel, read_proto
from sqlml.importers.onnx.ports import numbers, width
from sqlml.importers.onnx.walk import walk
from sqlml.importers.onnx.whole import whole_graph
from sqlml.ir.builder import Builder, Value
from sqlml.types import INTEGERS, Labels

MAX_FEATURES = 1 << 16

OWN_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "label": "label",
        "probabilities": "proba",
        "scores": "score",
        "samples": "samples",
        "transform": "transform",
    }
)
"""Outputs of files that sqlml writes: name in the graph -> output of the Program."""


def file_schema(model: OnnxModel) -> Schema:
    """Columns of a model file."""
    widths = [width(port) for port in model.inputs]
    count = sum(widths)
    if not widths or not 0 < count <= MAX_FEATURES:
        raise UnsupportedModelError(f"the ONNX model reads {count} columns")
    if len(widths) == 1 and widths[0] > 1:
        return Schema(None, count)
    names = [
        port.name if w == 1 else f"{port.name}_{i}"
        for port, w in zip(model.inputs, widths, strict=True)
        for i in range(w)
    ]
    return Schema(tuple(names), count)


def proto_schema(proto: Any) -> Schema:
    """The same for an onnx.ModelProto."""
    return file_schema(read_proto(proto))


def import_proto(proto: Any, frame: Frame) -> Outputs:
    """An onnx.ModelProto."""
    return import_file(read_proto(proto), frame)


def import_file(model: OnnxModel, frame: Frame) -> Outputs:
    """An ONNX file: its outputs by what they are (see `_outputs`)."""
    if model.rows is not None:
        warnings.warn(
            f"the ONNX model is made for {model.rows} rows at a time; sqlml reads it as one for "
            "any number of rows",
            stacklevel=2,
        )
    try:
        known = walk(model, frame.builder, _inputs(model, frame), frame.names)
        return _outputs(model, known, frame.builder)
    except UnknownOperator as reason:
        return whole_graph(model, frame, str(reason))


def _inputs(model: OnnxModel, frame: Frame) -> dict[str, Item]:
    items: dict[str, Item] = {}
    start = 0
    for port in model.inputs:
        count = width(port)
        part = frame.take(range(start, start + count))
        start += count
        assert port.shape is not None
        inner = tuple(d for d in port.shape[1:] if d is not None)
        if port.dtype == "string":
            columns = tuple(part.strings(i) for i in range(count))
            items[port.name] = Texts(columns, inner)
            continue
        items[port.name] = Rows(numbers(part, port), inner)
    return items


def _outputs(model: OnnxModel, known: Mapping[str, Item], b: Builder) -> Outputs:
    """Labels and probabilities of a classifier, the value of a regressor, or a transform.

    A file that sqlml wrote says by the names of its outputs what they are. Of other files,
    labels are whatever was chosen among constants; whole numbers beside probabilities are class
    numbers. One number a row is a regression value, several are a transform.
    """
    items = {port.name: known[port.name] for port in model.outputs}
    if model.written_by == "onnx (sqlml)" and OWN_NAMES.keys() >= items.keys():
        return _own_outputs(items, b)
    scores = {
        n: x for n, x in items.items() if isinstance(x, Rows) and x.dtype in ("float32", "float64")
    }
    choice = next((x for x in items.values() if isinstance(x, Choice)), None)
    if choice is None and scores:
        choice = _class_numbers(list(items.values()), list(scores.values()))
    if choice is not None:
        return _classifier(choice, scores, b)
    rows = {n: x for n, x in items.items() if isinstance(x, Rows)}
    if not rows:
        raise UnknownOperator("the graph gives no numbers")
    if len(items) == 1:
        value = _float64(b, next(iter(rows.values())).value)
        return Outputs({"label" if value.type.width == 1 else "transform": value})
    raise UnknownOperator("the graph has several outputs, and none is a label")


def _own_outputs(items: Mapping[str, Item], b: Builder) -> Outputs:
    """The outputs of a file that sqlml wrote."""
    values: dict[str, Value] = {}
    labels: Labels | None = None
    for name, item in items.items():
        if isinstance(item, Choice) and name == "label":
            values["label"], labels = _chosen(item, b)
        elif isinstance(item, Rows):
            values[OWN_NAMES[name]] = _float64(b, item.value)
        else:
            raise UnknownOperator(f"output {name!r} is no number a row")
    return Outputs(values, labels)


def _float64(b: Builder, value: Value) -> Value:
    return value if value.type.dtype == "float64" else b.op("cast", value, dtype="float64")


def _class_numbers(items: list[Item], scores: list[Rows]) -> Choice | None:
    """Whole numbers (n,) beside scores (n, K): the classes 0 .. K-1."""
    found = [x for x in items if isinstance(x, Rows) and x.dtype in INTEGERS]
    if not found or math.prod(found[0].inner) != 1 or scores[0].value.type.width < 2:
        return None
    return Choice(found[0].value, np.arange(scores[0].value.type.width), found[0].inner)


def _classifier(choice: Choice, scores: Mapping[str, Rows], b: Builder) -> Outputs:
    """An output with one number a class is the probabilities, unless it is called scores."""
    index, labels = _chosen(choice, b)
    values = {"label": index}
    for name, item in scores.items():
        value = _float64(b, item.value)
        one_each = value.type.width == len(labels.values)
        values.setdefault(
            "proba" if one_each and not name.lower().startswith("score") else "score", value
        )
    return Outputs(values, labels)


def _chosen(choice: Choice, b: Builder) -> tuple[Value, Labels]:
    """Class numbers int64 (n, 1), and the labels that they stand for."""
    labels = labels_of(choice.values.tolist())
    index = choice.index
    if len(set(labels.values)) != len(labels.values):
        index, labels = _merged(choice, b)
    return index if index.type.dtype == "int64" else b.op("cast", index, dtype="int64"), labels


def _merged(choice: Choice, b: Builder) -> tuple[Value, Labels]:
    """Several entries of the table are the same label."""
    order = list(dict.fromkeys(choice.values.tolist()))
    place = np.array([order.index(v) for v in choice.values.tolist()], np.int64)
    return b.op("take", b.constant(place), choice.index), labels_of(order)
