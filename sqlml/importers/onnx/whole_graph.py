"""Import an ONNX model that the IR cannot express, as one operator that onnxruntime runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, MissingDependencyError, UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, build_labels
from sqlml.importers.onnx.document import GraphNode, OnnxModel, Port, import_onnx
from sqlml.importers.onnx.graph_items import to_strings
from sqlml.importers.onnx.labels import (
    find_class_list,
    find_label_columns,
    find_probability_keys,
    is_score_name,
)
from sqlml.importers.onnx.probe import count_features, probe, read_numbers, split_frame
from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Program
from sqlml.types import DTYPES, FLOATS, INTEGERS, Array

_PASS_THROUGH = frozenset({"Identity", "Cast", "Reshape", "Squeeze", "Flatten"})
"""Operators between the node that chooses a label and the output of the label."""

LABEL = "sqlml_label"
"""The name of an added graph output: the labels (n,), or class indices if labels are strings."""
SCORES = "sqlml_scores"
"""The name of an added graph output (n, classes), used if the graph has one output per class."""


@dataclass(frozen=True, slots=True)
class _Endpoints:
    """The graph outputs to read: the label, and either one output of scores or one per class.

    `classes` are the possible labels, or None if unknown.
    """

    label: str | None
    classes: Array | None
    scores: tuple[str, ...]
    are_probabilities: bool

    @property
    def has_string_labels(self) -> bool:
        return self.classes is not None and self.classes.dtype == object

    @property
    def outputs(self) -> list[str]:
        scores = [*self.scores] if len(self.scores) < 2 else [SCORES]
        return [*([] if self.label is None else [LABEL]), *scores]


def import_whole_graph(model: OnnxModel, frame: Frame, reason: str) -> Outputs:
    """Import the model as one operator; `reason` explains in errors why the IR does not suffice."""
    endpoints = _find_endpoints(model)
    content, output_names = _rewrite_endpoints(model, endpoints), endpoints.outputs
    ports = [column for port in model.inputs for column in _split_port(port)]
    trial = probe(content, {p.name: (str(p.dtype), p.inner) for p in ports}, output_names)
    if "missing" in trial:
        raise MissingDependencyError(
            f"the ONNX model needs onnxruntime ({reason}), which is not installed: "
            "pip install 'sqlml[onnx]'"
        )
    if "error" in trial:
        raise UnsupportedModelError(
            f"the ONNX model can only run as a whole ({reason}), and onnxruntime cannot run it: "
            f"{trial['error']}"
        )
    types = {name: (str(dtype), int(width)) for name, (dtype, width) in trial["outputs"].items()}
    if any(dtype not in DTYPES for dtype, _ in types.values()):
        raise UnsupportedModelError(f"the ONNX model outputs {types}, which are not numbers")
    builder = frame.builder
    operands = _read_operands(model, frame)
    attrs: dict[str, Any] = {"model": np.frombuffer(content, np.uint8)}
    attrs["inputs"] = tuple(port.name for port in ports)
    values: list[Value] = []
    for name in output_names:
        dtype, width = types[name]
        value = builder.op("onnx_graph", *operands, **attrs, output=name, dtype=dtype, width=width)
        values.append(value)
    return _build_outputs(builder, endpoints, values)


def try_graphs(program: Program) -> None:
    """Try each ONNX graph of a stored Program in a child process.

    Raises UnsupportedModelError if a graph crashes, if the result for a row depends on other rows,
    or if an output does not have the dtype and width that the Program states.
    """
    for node in program.nodes:
        if node.op != "onnx_graph":
            continue
        attrs = node.attrs
        input_types = [program.nodes[j].type for j in node.inputs]
        dtypes_and_shapes = [(str(t.dtype), t.shape[1:]) for t in input_types]
        inputs = dict(zip(attrs["inputs"], dtypes_and_shapes, strict=True))
        trial = probe(attrs["model"].tobytes(), inputs, [attrs["output"]])
        actual = trial.get("outputs", {}).get(attrs["output"])
        stated = [attrs["dtype"], attrs["width"]]
        if "missing" not in trial and actual != stated:
            reason = trial.get("error", f"it returns {actual}, but the model states {stated}")
            raise UnsupportedModelError(
                f"onnxruntime cannot run the ONNX graph of this stored model: {reason}; create it "
                "again from the ONNX file"
            )


def _split_port(port: Port) -> list[Port]:
    """Return one graph input per column if `port` holds strings, otherwise only `port`."""
    if port.dtype != "string" or port.inner == (1,):
        return [port]
    names = [f"sqlml_{port.name}_{i}" for i in range(count_features(port))]
    return [Port(name, "string", (None, 1)) for name in names]


def _read_operands(model: OnnxModel, frame: Frame) -> list[Value]:
    operands: list[Value] = []
    for port, columns in split_frame(model.inputs, frame):
        if port.dtype == "string":
            operands += map(columns.read_strings, range(columns.width))
            continue
        value = read_numbers(columns, port)
        if port.inner != (columns.width,):
            value = frame.builder.op("reshape", value, shape=port.inner)
        operands.append(value)
    return operands


def _build_outputs(builder: Builder, endpoints: _Endpoints, values: list[Value]) -> Outputs:
    """Build the outputs of the model; `values` are the values of `endpoints.outputs`, in order."""
    scores = builder.cast(values[-1], "float64") if endpoints.scores else None
    if endpoints.label is None:
        assert scores is not None
        return Outputs({"label" if scores.type.width == 1 else "transform": scores})
    label = values[0]
    if label.type.width != 1:
        raise UnsupportedModelError("the ONNX model predicts several labels per row")
    if endpoints.classes is None:
        label_output = {"label": builder.cast(label, "float64")}
        return Outputs(label_output if scores is None else {**label_output, "score": scores})
    if endpoints.classes.dtype != object:
        classes = endpoints.classes.astype(np.int64)
        label = builder.op("encode", builder.cast(label, "int64"), categories=classes, missing=-1)
    outputs = {"label": builder.cast(label, "int64")}
    labels = build_labels(endpoints.classes.tolist())
    if scores is not None:
        is_proba = endpoints.are_probabilities and scores.type.width == len(labels.values)
        outputs["proba" if is_proba else "score"] = scores
    return Outputs(outputs, labels)


def _find_endpoints(model: OnnxModel) -> _Endpoints:
    producers = {name: node for node in model.nodes for name in node.outputs}
    zipmap_keys = find_probability_keys(model)
    label = next((port for port in model.outputs if port.dtype in _LABEL_DTYPES), None)
    score_names = [p.name for p in model.outputs if p.name in zipmap_keys or p.dtype in FLOATS]
    if label is None and not score_names:
        raise UnsupportedModelError("the ONNX model has no output of numbers or labels")
    classes = next((zipmap_keys[name] for name in score_names if name in zipmap_keys), None)
    if label is not None:
        classes_in_graph = _find_classes(model, producers, label, classes)
        if classes is None:
            classes = classes_in_graph
        else:
            _check_labels(classes_in_graph, classes)
    has_string_labels = label is not None and label.dtype == "string"
    if has_string_labels and (classes is None or classes.dtype != object):
        raise UnsupportedModelError("the ONNX model predicts strings, but does not list them")
    if classes is not None and classes.dtype == object and not has_string_labels:
        classes = None
    class_outputs = [] if classes is None else find_label_columns(score_names, classes.tolist())
    score_outputs = class_outputs or score_names[:1]
    return _Endpoints(
        None if label is None else label.name,
        classes,
        tuple(producers[name].inputs[0] if name in zipmap_keys else name for name in score_outputs),
        bool(class_outputs) or not (score_outputs and is_score_name(score_outputs[0])),
    )


_LABEL_DTYPES = frozenset({"int64", "int32", "string", "bool"})


def _find_classes(
    model: OnnxModel, producers: dict[str, GraphNode], label: Port, keys: Array | None
) -> Array | None:
    """Return the distinct values of the output `label`, or None if the graph has no list of values.

    `producers` maps a value's name to the node that computes the value. `keys` are the classes of
    the probabilities, or None if unknown; an ArgMax returns an index into `keys`.
    """
    if label.dtype == "bool":
        return np.array([False, True])
    node = producers.get(label.name)
    while node is not None and node.op in _PASS_THROUGH and node.inputs:
        node = producers.get(node.inputs[0])
    if node is None:
        return None
    if node.op in ("ArgMax", "ArgMin"):
        return None if keys is None else np.arange(keys.size)
    class_values = find_class_list(node)
    if node.op in ("ArrayFeatureExtractor", "Gather") and node.inputs[0] in model.constants:
        class_values = model.constants[node.inputs[0]].ravel()
    if class_values is None:
        return None
    if class_values.dtype != object and label.dtype in INTEGERS:
        class_values = class_values.astype(np.int64)  # as the graph does
    distinct_values = [*dict.fromkeys(class_values.tolist())]
    is_string = class_values.dtype == object
    return to_strings(distinct_values) if is_string else np.array(distinct_values)


def _check_labels(labels: Array | None, keys: Array) -> None:
    known_keys = set(keys.tolist())
    unlisted = [] if labels is None else [v for v in labels.tolist() if v not in known_keys]
    if unlisted:
        raise UnsupportedModelError(
            f"the ONNX model predicts the label {unlisted[0]!r}, which is not among the keys of "
            f"its probabilities, {', '.join(map(repr, keys.tolist()[:6]))}; convert the model "
            "again without ZipMap (options={'zipmap': False})"
        )


def _rewrite_endpoints(model: OnnxModel, endpoints: _Endpoints) -> bytes:
    """Return the serialized model with the inputs of `_split_port` and with `endpoints.outputs`.

    Every output is a tensor of numbers, and every input is a tensor of numbers or a string column.
    """
    onnx = import_onnx()
    proto = onnx.ModelProto.FromString(model.content)
    graph = proto.graph
    _split_string_inputs(onnx, graph, model)
    old_outputs = {output.name: output for output in graph.output}
    for node in [node for node in graph.node if node.op_type == "ZipMap"]:
        graph.node.remove(node)
    del graph.output[:]
    if endpoints.label is not None:
        flat_name = f"{LABEL}_text" if endpoints.has_string_labels else LABEL
        # Some graphs return the labels as a single row, (1, n).
        _append_reshape(onnx, graph, endpoints.label, (-1,), flat_name)
        if endpoints.has_string_labels:
            assert endpoints.classes is not None
            attrs: dict[str, Any] = {"domain": "ai.onnx.ml", "default_int64": -1}
            attrs["keys_strings"] = list(endpoints.classes)
            attrs["values_int64s"] = list(range(endpoints.classes.size))
            graph.node.append(onnx.helper.make_node("LabelEncoder", [flat_name], [LABEL], **attrs))
            _require_ml_version_2(onnx, proto)
        graph.output.append(onnx.helper.make_empty_tensor_value_info(LABEL))
    if len(endpoints.scores) > 1:
        columns = [f"{SCORES}_{i}" for i in range(len(endpoints.scores))]
        for name, column in zip(endpoints.scores, columns, strict=True):
            _append_reshape(onnx, graph, name, (-1, 1), column)
        graph.node.append(onnx.helper.make_node("Concat", columns, [SCORES], axis=1))
    for name in endpoints.outputs[-1:] if endpoints.scores else []:
        graph.output.append(old_outputs.get(name) or onnx.helper.make_empty_tensor_value_info(name))
    del proto.metadata_props[:]
    try:
        return bytes(proto.SerializeToString(deterministic=True))
    except ValueError as error:
        raise ArtifactError(f"the ONNX model is too large ({error})") from None


def _split_string_inputs(onnx: Any, graph: Any, model: OnnxModel) -> None:
    """Replace each input of several string columns with one input per column.

    New nodes at the start of the graph concatenate the columns to the former input.
    """
    new_nodes, helper = list[Any](), onnx.helper
    for port in model.inputs:
        columns = _split_port(port)
        if columns == [port]:
            continue
        input_index = next(i for i, info in enumerate(graph.input) if info.name == port.name)
        del graph.input[input_index]
        names = [column.name for column in columns]
        string_type = onnx.TensorProto.STRING
        graph.input.extend(helper.make_tensor_value_info(n, string_type, [None, 1]) for n in names)
        joined_name, shape_name = f"sqlml_{port.name}", f"sqlml_{port.name}_shape"
        new_nodes.append(helper.make_node("Concat", names, [joined_name], axis=1))
        dims = np.array([-1, *port.inner], np.int64)
        graph.initializer.append(onnx.numpy_helper.from_array(dims, shape_name))
        new_nodes.append(helper.make_node("Reshape", [joined_name, shape_name], [port.name]))
    old_nodes = list(graph.node)
    del graph.node[:]
    graph.node.extend([*new_nodes, *old_nodes])


def _append_reshape(onnx: Any, graph: Any, name: str, shape: tuple[int, ...], result: str) -> None:
    shape_name = f"{result}_shape"
    graph.initializer.append(onnx.numpy_helper.from_array(np.array(shape, np.int64), shape_name))
    graph.node.append(onnx.helper.make_node("Reshape", [name, shape_name], [result]))


def _require_ml_version_2(onnx: Any, proto: Any) -> None:
    """Set the version of ai.onnx.ml to at least 2, because LabelEncoder needs version 2."""
    for opset in proto.opset_import:
        if opset.domain == "ai.onnx.ml":
            opset.version = max(int(opset.version), 2)
            return
    proto.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 2))
