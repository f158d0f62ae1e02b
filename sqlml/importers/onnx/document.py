"""Read an ONNX file into plain, checked data. Nothing in the file is run or downloaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, MissingDependencyError
from sqlml.ir.damaged_file import READING_ERRORS
from sqlml.ir.onnx_content import DOMAINS, check_content
from sqlml.ir.program import Program
from sqlml.ir.store import read_embedded_program
from sqlml.limits import MAX_CONSTANT_VALUES, MAX_ROW_VALUES
from sqlml.types import Array, DType

DTYPES: Mapping[int, DType] = {
    1: "float32",
    3: "int8",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
}
"""Maps the number of a supported ONNX element type to a dtype."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of the graph.

    `dtype` is None for a sequence, or for a type that is not in `DTYPES`. `shape` is None if the
    file does not state a shape, and has None for each open axis.
    """

    name: str
    dtype: DType | None
    shape: tuple[int | None, ...] | None

    @property
    def inner(self) -> tuple[int, ...]:
        """The shape without the row axis, for a port that `count_features` accepts."""
        return tuple(length for length in (self.shape or ())[1:] if length is not None)


@dataclass(frozen=True, slots=True)
class GraphNode:
    """An operator of the graph. Attributes are numbers, strings, lists, arrays or graphs."""

    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]
    name: str = ""


@dataclass(frozen=True, slots=True)
class GraphBody:
    """A graph in an attribute: the names of its inputs and outputs, and its nodes in order."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[GraphNode, ...]


@dataclass(frozen=True, slots=True, eq=False)
class OnnxModel:
    """An ONNX model: inputs, outputs, nodes in order, constants, and the bytes of the file."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    nodes: tuple[GraphNode, ...]
    constants: Mapping[str, Array]
    opset: int
    content: bytes
    written_by: str
    fixed_rows: int | None = None
    """The number of rows that the file fixes, or None. The ports always have an open row axis."""
    program: Program | None = None
    """The Program from which sqlml exported the graph, or None if the file has no Program."""


def import_onnx() -> Any:
    try:
        import onnx
    except ModuleNotFoundError:
        reason = "an ONNX model needs onnx, which is not installed: pip install 'sqlml[onnx]'"
        raise MissingDependencyError(reason) from None
    return onnx


def read_onnx(content: bytes) -> OnnxModel:
    """Parse and check an ONNX file that may be malicious."""
    onnx = import_onnx()
    check_content(content)
    try:
        proto = onnx.ModelProto.FromString(content)
    except Exception as error:  # onnx does not export protobuf's DecodeError
        raise ArtifactError(f"damaged or truncated: not an ONNX model ({error})") from error
    return read_proto(proto, content)


def read_proto(proto: Any, content: bytes | None = None) -> OnnxModel:
    """Check and convert an onnx.ModelProto; `content` is the serialized model if checked."""
    try:
        if content is None:
            content = proto.SerializeToString()
            check_content(content)
        return _convert_model(proto, content)
    except READING_ERRORS as error:
        raise ArtifactError(f"the ONNX model is damaged ({error})") from None


def _convert_model(proto: Any, content: bytes) -> OnnxModel:
    opset_versions = {opset.domain: int(opset.version) for opset in proto.opset_import}
    rows = _find_fixed_rows(proto.graph)
    if rows is not None:
        proto = _open_row_axis(proto, rows)
        content = proto.SerializeToString()
    has_foreign_domains = not opset_versions.keys() <= DOMAINS
    graph = proto.graph
    if not graph.node and not graph.output:
        raise ArtifactError("damaged or truncated: the ONNX model has no graph")
    constants = {t.name: read_tensor(t) for t in graph.initializer}
    inputs = tuple(_read_port(i) for i in graph.input if i.name not in constants)
    nodes = tuple(_read_node(n) for n in graph.node)
    outputs = tuple(_read_port(o) for o in graph.output)
    program = read_embedded_program(proto)
    if program is not None and [p.name for p in inputs] != list(program.inputs):
        program = None  # another tool has changed the columns of the graph
    producer = " ".join(word for word in (proto.producer_name, proto.producer_version) if word)
    written_by = f"onnx ({producer})" if producer and not has_foreign_domains else "onnx"
    if rows is not None:
        written_by += f", made for {rows} rows and read as open"
    opset = opset_versions.get("", opset_versions.get("ai.onnx", 1))
    model = OnnxModel(inputs, outputs, nodes, constants, opset, content, written_by, rows, program)
    _check_order(model)
    return model


def _find_fixed_rows(graph: Any) -> int | None:
    """Return the fixed number of rows of the inputs, or None if open or different between inputs.

    An input with a single axis may be one row, so an axis of another size than 1 does not count.
    """
    constants = {t.name for t in graph.initializer}
    shapes = [i.type.tensor_type.shape.dim for i in graph.input if i.name not in constants]
    fixed_shapes = [dims for dims in shapes if len(dims) and _read_length(dims[0]) is not None]
    counts = {int(dims[0].dim_value) for dims in fixed_shapes}
    if len(counts) != 1 or min(counts) < 1:
        return None
    (rows,) = counts
    return rows if rows == 1 or all(len(dims) > 1 for dims in fixed_shapes) else None


def _open_row_axis(proto: Any, fixed_rows: int) -> Any:
    """Copy `proto`, a model for `fixed_rows` rows, to a model for any number of rows."""
    copy = type(proto)()
    copy.CopyFrom(proto)
    del copy.graph.value_info[:]  # onnxruntime infers the shapes again
    for port in (*copy.graph.input, *copy.graph.output):
        dims = port.type.tensor_type.shape.dim
        if len(dims) and dims[0].dim_value == fixed_rows:
            dims[0].dim_param = "rows"
    return copy


def read_tensor(proto: Any) -> Array:
    """Convert a TensorProto to an array; strings become an object array."""
    num_values = 1
    for dim in proto.dims:
        num_values *= int(dim)
        if dim < 0 or num_values > MAX_CONSTANT_VALUES:
            raise ArtifactError(
                f"tensor {proto.name!r} states an invalid or too large shape, {list(proto.dims)}"
            )
    try:
        array = import_onnx().numpy_helper.to_array(proto)
    except Exception as error:  # onnx passes on the exceptions of numpy and protobuf
        raise ArtifactError(f"tensor {proto.name!r} is damaged ({error})") from error
    if array.size != num_values:
        raise ArtifactError(f"tensor {proto.name!r} has {array.size} numbers, not {num_values}")
    if proto.data_type == 8:
        strings = np.empty(array.shape, object)
        strings.ravel()[:] = [s.decode() if isinstance(s, bytes) else str(s) for s in array.ravel()]
        return strings
    return np.asarray(array)


def _check_order(model: OnnxModel) -> None:
    available_names = {p.name for p in model.inputs} | set(model.constants)
    for node in model.nodes:
        for name in node.inputs:
            if name and name not in available_names:
                raise ArtifactError(
                    f"node {node.op} reads {name!r}, which no earlier node computes "
                    "(a cycle, or nodes out of order)"
                )
        for name in node.outputs:
            if name in available_names:
                raise ArtifactError(f"the ONNX graph computes {name!r} twice")
            if name:
                available_names.add(name)
    missing = [port.name for port in model.outputs if port.name not in available_names]
    if missing:
        raise ArtifactError(f"no node of the ONNX graph computes its output {missing[0]!r}")


def _read_length(dim: Any) -> int | None:
    """Return the length of an axis, or None if open; some converters write open axes as -1."""
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value != -1 else None


def _read_port(value_info: Any) -> Port:
    if not value_info.type.HasField("tensor_type"):
        return Port(value_info.name, None, None)
    tensor_type = value_info.type.tensor_type
    shape: tuple[int | None, ...] | None = None
    if tensor_type.HasField("shape"):
        shape = tuple(map(_read_length, tensor_type.shape.dim))
        if any(d is not None and not 0 <= d <= MAX_ROW_VALUES for d in shape):
            raise ArtifactError(f"{value_info.name!r} claims a shape of {shape}")
    return Port(value_info.name, DTYPES.get(tensor_type.elem_type), shape)


def _read_node(node: Any) -> GraphNode:
    attrs = {}
    for attribute in node.attribute:
        read_value = _ATTRIBUTE_READERS.get(attribute.type)
        attrs[attribute.name] = None if read_value is None else read_value(attribute)
    domain = "" if node.domain == "ai.onnx" else node.domain
    inputs, outputs = tuple(node.input), tuple(node.output)
    return GraphNode(node.op_type, domain, inputs, outputs, attrs, node.name)


def _read_body(graph: Any) -> GraphBody:
    inputs, outputs = (tuple(v.name for v in values) for values in (graph.input, graph.output))
    return GraphBody(inputs, outputs, tuple(map(_read_node, graph.node)))


_ATTRIBUTE_READERS: Mapping[int, Callable[[Any], Any]] = {
    1: lambda proto: float(proto.f),
    2: lambda proto: int(proto.i),
    3: lambda proto: proto.s.decode("utf-8"),
    4: lambda proto: read_tensor(proto.t),
    5: lambda proto: _read_body(proto.g),
    6: lambda proto: np.array(proto.floats, np.float32),
    7: lambda proto: np.array(proto.ints, np.int64),
    8: lambda proto: [content.decode("utf-8") for content in proto.strings],
}
"""Maps the type of an AttributeProto to a function that reads the value.

Lists of tensors or graphs, and types, are missing: only unsupported operators have them."""
