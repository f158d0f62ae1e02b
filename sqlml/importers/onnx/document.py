"""An ONNX file as plain data, checked; nothing in it is run or downloaded."""

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
"""The dtypes of ONNX's element types by number; the others are not computed with."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of the graph.

    Attributes:
        dtype: None for a sequence, or for a type that `DTYPES` lacks.
        shape: None for a dimension that is not fixed; None if the file does not state a shape.
    """

    name: str
    dtype: DType | None
    shape: tuple[int | None, ...] | None

    @property
    def inner(self) -> tuple[int, ...]:
        """The shape after the rows, for an input that `count_features` accepts."""
        return tuple(d for d in (self.shape or ())[1:] if d is not None)


@dataclass(frozen=True, slots=True)
class GraphNode:
    """An operator of the graph. `attrs` are numbers, strings, lists of them, or arrays."""

    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]
    name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class OnnxModel:
    """An ONNX model: its ports, nodes in order and constants; `content` is the file itself."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    nodes: tuple[GraphNode, ...]
    constants: Mapping[str, Array]
    opset: int
    content: bytes
    written_by: str
    rows: int | None = None
    """The number of rows that the file fixes; None if it is open. Ports always have it open."""
    program: Program | None = None
    """The Program that sqlml exported the graph from, if the file has it; it is used instead."""


def import_onnx() -> Any:
    """Return the package onnx, or raise MissingDependencyError."""
    try:
        import onnx
    except ModuleNotFoundError:
        raise MissingDependencyError(
            "an ONNX model needs onnx, which is not installed: pip install 'sqlml[onnx]'"
        ) from None
    return onnx


def read_onnx(content: bytes) -> OnnxModel:
    """Parse and check an ONNX file, which may be hostile."""
    onnx = import_onnx()
    check_content(content)
    try:
        proto = onnx.ModelProto.FromString(content)
    except Exception as error:  # onnx does not export protobuf's DecodeError
        raise ArtifactError(f"damaged or cut off: not an ONNX model ({error})") from error
    return read_proto(proto, content)


def read_proto(proto: Any, content: bytes | None = None) -> OnnxModel:
    """Check an onnx.ModelProto; `content` is its serialised form if that is already checked."""
    try:
        if content is None:
            content = proto.SerializeToString()
            check_content(content)
        return _check_model(proto, content)
    except READING_ERRORS as error:
        raise ArtifactError(f"the ONNX model is damaged ({error})") from None


def _check_model(proto: Any, content: bytes) -> OnnxModel:
    opsets = {o.domain: int(o.version) for o in proto.opset_import}
    rows = _find_fixed_rows(proto.graph)
    if rows is not None:
        proto = _open_rows(proto, rows)
        content = proto.SerializeToString()
    foreign = sorted(set(opsets) - DOMAINS)
    graph = proto.graph
    if not graph.node and not graph.output:
        raise ArtifactError("damaged or cut off: the ONNX model has no graph")
    constants = {t.name: read_tensor(t) for t in graph.initializer}
    inputs = tuple(_read_port(i) for i in graph.input if i.name not in constants)
    nodes = tuple(_read_node(n) for n in graph.node)
    outputs = tuple(_read_port(o) for o in graph.output)
    program = read_embedded_program(proto)
    if program is not None and [p.name for p in inputs] != list(program.inputs):
        program = None  # another tool has changed the columns of the graph
    producer = " ".join(w for w in (proto.producer_name, proto.producer_version) if w)
    writer = f"onnx ({producer})" if producer and not foreign else "onnx"
    if rows is not None:
        writer += f", made for {rows} rows and read as open"
    opset = opsets.get("", opsets.get("ai.onnx", 1))
    model = OnnxModel(inputs, outputs, nodes, constants, opset, content, writer, rows, program)
    _check_order(model)
    return model


def _find_fixed_rows(graph: Any) -> int | None:
    """Return the number of rows that all inputs fix; a single axis may be the columns of a row."""
    constants = {t.name for t in graph.initializer}
    shapes = [i.type.tensor_type.shape.dim for i in graph.input if i.name not in constants]
    fixed = [dims for dims in shapes if len(dims) and _read_length(dims[0]) is not None]
    counts = {int(dims[0].dim_value) for dims in fixed}
    if len(counts) != 1 or min(counts) < 1:
        return None
    (rows,) = counts
    return rows if rows == 1 or all(len(dims) > 1 for dims in fixed) else None


def _open_rows(proto: Any, rows: int) -> Any:
    """Return a copy whose inputs and outputs have any number of rows."""
    copy = type(proto)()
    copy.CopyFrom(proto)
    del copy.graph.value_info[:]  # they follow from the other shapes
    for port in (*copy.graph.input, *copy.graph.output):
        dims = port.type.tensor_type.shape.dim
        if len(dims) and dims[0].dim_value == rows:
            dims[0].dim_param = "rows"
    return copy


def read_tensor(proto: Any) -> Array:
    """Convert a TensorProto to an array; strings become objects."""
    count = 1
    for dim in proto.dims:
        count *= int(dim)
        if dim < 0 or count > MAX_CONSTANT_VALUES:
            raise ArtifactError(f"tensor {proto.name!r} claims a shape of {list(proto.dims)}")
    try:
        array = import_onnx().numpy_helper.to_array(proto)
    except Exception as error:  # onnx passes on the exceptions of numpy and protobuf
        raise ArtifactError(f"tensor {proto.name!r} is damaged ({error})") from error
    if array.size != count:
        raise ArtifactError(f"tensor {proto.name!r} has {array.size} numbers for {count}")
    if proto.data_type == 8:
        texts = np.empty(array.shape, object)
        texts.ravel()[:] = [t.decode() if isinstance(t, bytes) else str(t) for t in array.ravel()]
        return texts
    return np.asarray(array)


def _check_order(model: OnnxModel) -> None:
    names = {p.name for p in model.inputs} | set(model.constants)
    for node in model.nodes:
        for name in node.inputs:
            if name and name not in names:
                raise ArtifactError(
                    f"node {node.op} reads {name!r}, which nothing before it makes "
                    "(a cycle, or nodes out of order)"
                )
        for name in node.outputs:
            if name in names:
                raise ArtifactError(f"the ONNX graph makes {name!r} twice")
            if name:
                names.add(name)
    lost = [p.name for p in model.outputs if p.name not in names]
    if lost:
        raise ArtifactError(f"nothing in the ONNX graph makes its output {lost[0]!r}")


def _read_length(dim: Any) -> int | None:
    """Return the length of an axis; None if it is open, for which some converters write -1."""
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value != -1 else None


def _read_port(info: Any) -> Port:
    if not info.type.HasField("tensor_type"):
        return Port(info.name, None, None)
    tensor_type = info.type.tensor_type
    shape: tuple[int | None, ...] | None = None
    if tensor_type.HasField("shape"):
        shape = tuple(map(_read_length, tensor_type.shape.dim))
        if any(d is not None and not 0 <= d <= MAX_ROW_VALUES for d in shape):
            raise ArtifactError(f"{info.name!r} claims a shape of {shape}")
    return Port(info.name, DTYPES.get(tensor_type.elem_type), shape)


def _read_node(node: Any) -> GraphNode:
    readers = {a.name: (_ATTRIBUTES.get(a.type), a) for a in node.attribute}
    attrs = {name: None if read is None else read(a) for name, (read, a) in readers.items()}
    domain = "" if node.domain == "ai.onnx" else node.domain
    inputs, outputs = tuple(node.input), tuple(node.output)
    return GraphNode(node.op_type, domain, inputs, outputs, attrs, node.name)


_ATTRIBUTES: Mapping[int, Callable[[Any], Any]] = {
    1: lambda a: float(a.f),
    2: lambda a: int(a.i),
    3: lambda a: a.s.decode("utf-8"),
    4: lambda a: read_tensor(a.t),
    6: lambda a: np.array(a.floats, np.float32),
    7: lambda a: np.array(a.ints, np.int64),
    8: lambda a: [s.decode("utf-8") for s in a.strings],
}
"""Readers by AttributeProto's type. Only unknown operators have the others: graphs and types."""
