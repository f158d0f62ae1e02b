"""`whole_graph`: an ONNX model with operators that the IR lacks, kept as it is for onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, MissingDependencyError, UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, labels_of
from sqlml.importers.onnx.document import GraphNode, OnnxModel, Port, library
from sqlml.importers.onnx.labels import class_list, columns_of_labels, is_score, keys_of, strings
from sqlml.importers.onnx.probe import numbers, parts, probe, width
from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Program
from sqlml.types import DTYPES, FLOATS, INTEGERS, Array

_PASSES = frozenset({"Identity", "Cast", "Reshape", "Squeeze", "Flatten"})
"""Operators that pass labels through unchanged."""

LABEL = "sqlml_label"
"""Name of the output that we add: the labels (n,), numbered where they are strings."""
SCORES = "sqlml_scores"
"""Name of the output that we add where each class has an output of its own: (n, classes)."""


@dataclass(frozen=True, slots=True)
class _Ends:
    """The values that are read from the graph: the label's, if any, and those of the scores, which
    may be a column each; `probable` says that scores of one number a class are probabilities."""

    label: str | None
    classes: Array | None
    scores: tuple[str, ...]
    probable: bool

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs that the model gets."""
        scores = [*self.scores] if len(self.scores) < 2 else [SCORES]
        return [*([] if self.label is None else [LABEL]), *scores]


def whole_graph(model: OnnxModel, frame: Frame, reason: str) -> Outputs:
    """The outputs of a Program whose one operator is the model.

    Args:
        reason: why it is not imported operator by operator, for messages.

    Raises:
        UnsupportedModelError: it mixes rows, or onnxruntime refuses it.
        MissingDependencyError: onnxruntime is not installed.
    """
    ends = _ends(model)
    content = _with_ends(model, ends)
    wanted = ends.outputs
    ports = [part for port in model.inputs for part in _fed(port)]
    found = probe(content, {p.name: (str(p.dtype), p.inner) for p in ports}, wanted)
    if "missing" in found:
        raise MissingDependencyError(
            f"the ONNX model needs onnxruntime ({reason}), which is not installed: "
            "pip install 'sqlml[onnx]'"
        )
    if "error" in found:
        raise UnsupportedModelError(
            f"the ONNX model can only run as a whole ({reason}), and onnxruntime cannot run it: "
            f"{found['error']}"
        )
    kinds = {name: (str(d), int(w)) for name, (d, w) in found["outputs"].items()}
    if any(d not in DTYPES for d, _ in kinds.values()):
        raise UnsupportedModelError(f"the ONNX model makes {kinds}, which are not numbers")
    read = _reader(model, frame, content)
    return _outputs(frame.builder, ends, wanted, {n: read(n, *kinds[n]) for n in wanted})


def try_graphs(program: Program) -> None:
    """Try the ONNX graphs of a Program that came as a file, as those of an ONNX file are tried.

    Raises:
        UnsupportedModelError: one crashes onnxruntime, mixes rows, fills the memory, or makes
            something else than the Program says.
    """
    for node in program.nodes:
        if node.op != "onnx_graph":
            continue
        attrs = node.attrs
        types = [program.nodes[j].type for j in node.inputs]
        given = {
            name: (str(t.dtype), t.shape[1:])
            for name, t in zip(attrs["inputs"], types, strict=True)
        }
        found = probe(attrs["model"].tobytes(), given, [attrs["output"]])
        made = found.get("outputs", {}).get(attrs["output"])
        if "missing" not in found and made != [attrs["dtype"], attrs["width"]]:
            reason = found.get("error", f"it makes {made}, not what its record says")
            raise UnsupportedModelError(
                f"onnxruntime cannot run the ONNX graph of this stored model: {reason}; create it "
                "again from the ONNX file"
            )


def _fed(port: Port) -> list[Port]:
    """The inputs that we give instead of `port`: strings come column by column."""
    if port.dtype != "string" or port.inner == (1,):
        return [port]
    return [Port(f"sqlml_{port.name}_{i}", "string", (None, 1)) for i in range(width(port))]


def _reader(model: OnnxModel, frame: Frame, content: bytes) -> Any:
    b = frame.builder
    operands: list[Value] = []
    for port, part in parts(model.inputs, frame):
        if port.dtype == "string":
            operands += map(part.strings, range(part.width))
            continue
        value, inner = numbers(part, port), port.inner
        operands.append(value if inner == (part.width,) else b.op("reshape", value, shape=inner))
    names = tuple(fed.name for port in model.inputs for fed in _fed(port))
    attrs = {"model": np.frombuffer(content, np.uint8), "inputs": names}

    def read(output: str, dtype: str, columns: int) -> Value:
        return b.op("onnx_graph", *operands, **attrs, output=output, dtype=dtype, width=columns)

    return read


def _outputs(b: Builder, ends: _Ends, wanted: list[str], values: dict[str, Value]) -> Outputs:
    made: dict[str, Value] = {}
    scores = b.cast(values[wanted[-1]], "float64") if ends.scores else None
    if ends.label is None:
        assert scores is not None
        return Outputs({"label" if scores.type.width == 1 else "transform": scores})
    label = values[wanted[0]]
    if label.type.width != 1:
        raise UnsupportedModelError("the ONNX model makes several labels per row")
    if ends.classes is None:
        made["label"] = b.cast(label, "float64")
        if scores is not None:
            made["score"] = scores
        return Outputs(made)
    if ends.classes.dtype != object:
        known = ends.classes.astype(np.int64)
        label = b.op("encode", b.cast(label, "int64"), categories=known, missing=-1)
    made["label"] = b.cast(label, "int64")
    labels = labels_of(ends.classes.tolist())
    if scores is not None:
        proba = scores.type.width == len(labels.values) and ends.probable
        made["proba" if proba else "score"] = scores
    return Outputs(made, labels)


def _is_text(ends: _Ends) -> bool:
    return ends.classes is not None and ends.classes.dtype == object


def _ends(model: OnnxModel) -> _Ends:
    """Which outputs of the graph are labels, and which are scores."""
    makers = {name: node for node in model.nodes for name in node.outputs}
    keys = keys_of(model)
    label = next((p for p in model.outputs if p.dtype in _LABELS), None)
    scores = [p.name for p in model.outputs if p.name in keys or p.dtype in FLOATS]
    if label is None and not scores:
        raise UnsupportedModelError("the ONNX model has no output of numbers or labels")
    classes = next((keys[name] for name in scores if name in keys), None)
    if label is not None:
        listed = _classes(model, makers, label, classes)
        if classes is None:
            classes = listed
        else:
            _check_labels(listed, classes)
    is_text = label is not None and label.dtype == "string"
    if is_text and (classes is None or classes.dtype != object):
        raise UnsupportedModelError("the ONNX model makes strings, but does not list them")
    if classes is not None and classes.dtype == object and not is_text:
        classes = None
    columns = [] if classes is None else columns_of_labels(scores, classes.tolist())
    first = columns or scores[:1]
    return _Ends(
        None if label is None else label.name,
        classes,
        tuple(makers[name].inputs[0] if name in keys else name for name in first),
        bool(columns) or not (first and is_score(first[0])),
    )


_LABELS = frozenset({"int64", "int32", "string", "bool"})
"""Types that labels have."""


def _classes(
    model: OnnxModel, makers: dict[str, GraphNode], label: Port, keys: Array | None
) -> Array | None:
    """The list that labels are chosen from, each once, where the graph shows it.

    Args:
        keys: those of the probabilities, which tell of how many an ArgMax chooses.
    """
    if label.dtype == "bool":
        return np.array([False, True])
    node = makers.get(label.name)
    while node is not None and node.op in _PASSES and node.inputs:
        node = makers.get(node.inputs[0])
    if node is None:
        return None
    listed: Array | None
    if node.op in ("ArgMax", "ArgMin"):
        return None if keys is None else np.arange(keys.size)
    if node.op in ("ArrayFeatureExtractor", "Gather") and node.inputs[0] in model.constants:
        listed = model.constants[node.inputs[0]].ravel()
    else:
        listed = class_list(node)
    if listed is None:
        return None
    if listed.dtype != object and label.dtype in INTEGERS:
        listed = listed.astype(np.int64)  # a cast on the way made integers of them
    values = [*dict.fromkeys(listed.tolist())]
    return strings(values) if listed.dtype == object else np.array(values)


def _check_labels(labels: Array | None, keys: Array) -> None:
    """Refuse labels that are not keys of the probabilities: two lists of classes are in the file.

    Raises:
        UnsupportedModelError: there is one.
    """
    known = set(keys.tolist())
    other = [] if labels is None else [v for v in labels.tolist() if v not in known]
    if other:
        raise UnsupportedModelError(
            f"the ONNX model predicts the label {other[0]!r}, which is not among the keys of its "
            f"probabilities, {', '.join(map(repr, keys.tolist()[:6]))}; convert the model again "
            "without ZipMap (options={'zipmap': False})"
        )


def _with_ends(model: OnnxModel, ends: _Ends) -> bytes:
    """The model with plain tensors as ends: ZipMap left out, strings numbered at its outputs and
    a column each at its inputs."""
    onnx = library()
    proto = onnx.ModelProto.FromString(model.content)
    graph = proto.graph
    _split_texts(onnx, graph, model)
    known = {o.name: o for o in graph.output}
    zipped = [n for n in graph.node if n.op_type == "ZipMap"]
    for node in zipped:
        graph.node.remove(node)
    del graph.output[:]
    if ends.label is not None:
        flat = LABEL if not _is_text(ends) else f"{LABEL}_text"
        # some graphs make labels as one row (1, n)
        graph.initializer.append(
            onnx.numpy_helper.from_array(np.array([-1], np.int64), f"{LABEL}_shape")
        )
        _append(onnx, graph, "Reshape", [ends.label, f"{LABEL}_shape"], flat)
        if _is_text(ends):
            assert ends.classes is not None
            _append(
                onnx,
                graph,
                "LabelEncoder",
                [flat],
                LABEL,
                domain="ai.onnx.ml",
                keys_strings=list(ends.classes),
                values_int64s=list(range(ends.classes.size)),
                default_int64=-1,
            )
            _need_ml(onnx, proto)
        graph.output.append(onnx.helper.make_empty_tensor_value_info(LABEL))
    if len(ends.scores) > 1:
        _join_columns(onnx, graph, ends.scores)
    for name in ends.outputs[-1:] if ends.scores else []:
        graph.output.append(known.get(name) or onnx.helper.make_empty_tensor_value_info(name))
    del proto.metadata_props[:]
    try:
        content: bytes = proto.SerializeToString(deterministic=True)
    except ValueError as error:
        raise ArtifactError(f"the ONNX model is too large ({error})") from None
    return content


def _split_texts(onnx: Any, graph: Any, model: OnnxModel) -> None:
    """Put the columns of inputs of strings together again, as nodes before all others."""
    made: list[Any] = []
    helper = onnx.helper
    for port in model.inputs:
        columns = _fed(port)
        if columns == [port]:
            continue
        place = next(i for i, info in enumerate(graph.input) if info.name == port.name)
        del graph.input[place]
        for part in columns:
            graph.input.append(
                helper.make_tensor_value_info(part.name, onnx.TensorProto.STRING, [None, 1])
            )
        joined, shape = f"sqlml_{port.name}", f"sqlml_{port.name}_shape"
        made.append(helper.make_node("Concat", [p.name for p in columns], [joined], axis=1))
        dims = np.array([-1, *port.inner], np.int64)
        graph.initializer.append(onnx.numpy_helper.from_array(dims, shape))
        made.append(helper.make_node("Reshape", [joined, shape], [port.name]))
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*made, *rest])


def _join_columns(onnx: Any, graph: Any, names: Sequence[str]) -> None:
    """Put outputs of one number a row side by side, as (n, k)."""
    shape, columns = f"{SCORES}_shape", [f"{SCORES}_{i}" for i in range(len(names))]
    dims = np.array([-1, 1], np.int64)
    graph.initializer.append(onnx.numpy_helper.from_array(dims, shape))
    for name, column in zip(names, columns, strict=True):
        _append(onnx, graph, "Reshape", [name, shape], column)
    _append(onnx, graph, "Concat", columns, SCORES, axis=1)


def _append(onnx: Any, graph: Any, op: str, inputs: list[str], output: str, **attrs: Any) -> None:
    graph.node.append(onnx.helper.make_node(op, inputs, [output], **attrs))


def _need_ml(onnx: Any, proto: Any) -> None:
    """Ask for version 2 of ai.onnx.ml, in which LabelEncoder got keys and values."""
    for opset in proto.opset_import:
        if opset.domain == "ai.onnx.ml":
            opset.version = max(int(opset.version), 2)
            return
    proto.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 2))
