"""Build ONNX graphs (`Graph`), and divide a Program into graphs (`split_into_stages`).

Strings, checks that raise, and operators without an ONNX equivalent run in numpy; all operators
between become one graph. A node in stage s reads only nodes in stages up to s. Even stages are
graphs, and odd stages run on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from sqlml.errors import BackendError
from sqlml.ir.program import Program
from sqlml.ir.store import MAX_PROTO_BYTES, embed_program
from sqlml.types import FLOATS, INTEGERS, ROWS, Array, DType, TensorType

OPSET = 21
"""The newest operator set of onnxruntime 1.20, the oldest version in the extra `onnx`."""
ML_OPSET = 5
IR_VERSION = 10

ELEMENT: Mapping[str, int] = {
    name: helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in ("bool", *FLOATS, *INTEGERS)
} | {"string": TensorProto.STRING}
"""Map a dtype to the number of the dtype in ONNX."""


class Graph:
    """An ONNX graph under construction. Methods take and return values by name."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._name_of_constant: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._count = 0
        self._names: set[str] = set()

    def constant(self, value: Array) -> str:
        """Return the name of a constant; equal constants share a name."""
        value = np.ascontiguousarray(value) if value.ndim else value
        if value.dtype == object:
            return self._store(helper.make_tensor("", TensorProto.STRING, value.shape, list(value)))
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._name_of_constant:
            self._name_of_constant[key] = self._store(numpy_helper.from_array(value))
        return self._name_of_constant[key]

    def scalar(self, value: float, dtype: DType) -> str:
        return self.constant(np.array([value], dtype))

    def ints(self, *values: int) -> str:
        """Return the name of a constant int64 vector, such as a shape or axes."""
        return self.constant(np.array(values, np.int64))

    def add(self, op: str, *inputs: str, domain: str = "", name: str = "", **attrs: Any) -> str:
        """Append a node with one result; return the name of the result."""
        result = self._new_name("v")
        if name in self._names:  # onnxruntime rejects two nodes of the same name.
            name = f"{name} {result}"
        self._names.update([name] if name else [])
        node = helper.make_node(op, list(inputs), [result], name=name, domain=domain, **attrs)
        self._nodes.append(node)
        return result

    def cast(self, x: str, dtype: DType) -> str:
        return self.add("Cast", x, to=ELEMENT[dtype])

    def rename(self, x: str, name: str) -> None:
        """Make the value `x` also available as `name`."""
        self._nodes.append(helper.make_node("Identity", [x], [name]))

    def model(
        self,
        inputs: Mapping[str, TensorType],
        outputs: Mapping[str, TensorType],
        description: str = "",
        original_bytes: bytes = b"",
    ) -> bytes:
        """Return the serialized ModelProto; embed the Program `original_bytes` if given."""
        reads = [_describe_value(*item) for item in inputs.items()]
        writes = [_describe_value(*item) for item in outputs.items()]
        graph = helper.make_graph(self._nodes, "sqlml", reads, writes, self._constants, description)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        versions = {"opset_imports": opsets, "ir_version": IR_VERSION}
        model = helper.make_model(graph, producer_name="sqlml", **versions)
        if model.ByteSize() > MAX_PROTO_BYTES:
            raise BackendError("this model exceeds 2 GB as ONNX; use another backend or format")
        if original_bytes:
            embed_program(model, original_bytes)
        return bytes(model.SerializeToString(deterministic=True))

    def _store(self, tensor: onnx.TensorProto) -> str:
        tensor.name = self._new_name("c")
        self._constants.append(tensor)
        return str(tensor.name)

    def _new_name(self, prefix: str) -> str:
        self._count += 1
        return f"_{prefix}{self._count}"


def _describe_value(name: str, value_type: TensorType) -> onnx.ValueInfoProto:
    shape: Sequence[Any] = ["N" if size == ROWS else size for size in value_type.shape]
    return helper.make_tensor_value_info(name, ELEMENT[value_type.dtype], shape)


@dataclass(frozen=True, slots=True)
class Stage:
    """Nodes that run together in order, on the host or as one graph.

    The stage needs `reads`, which are inputs or nodes of earlier stages. The stage returns the
    values of `writes`, which later stages or outputs need.
    """

    host: bool
    nodes: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]


def split_into_stages(
    program: Program, outputs: Sequence[str], on_host: Callable[[int], bool]
) -> tuple[Stage, ...]:
    """Return the stages of `outputs` in order; inputs and constants belong to no stage."""
    output_nodes = {program.outputs[name] for name in outputs}
    stage_of_node: dict[int, int] = {}
    for i in program.find_needed_nodes(output_nodes):
        node = program.nodes[i]
        if node.op in ("input", "constant"):
            continue
        earliest = max((stage_of_node.get(j, 0) for j in node.inputs), default=0)
        stage_of_node[i] = earliest + ((earliest % 2 == 1) != on_host(i))
    stages: list[Stage] = []
    for stage in sorted(set(stage_of_node.values())):
        nodes = tuple(i for i in sorted(stage_of_node) if stage_of_node[i] == stage)
        stage_nodes = set(nodes)
        read_nodes = {j for i in nodes for j in program.nodes[i].inputs} - stage_nodes
        reads = {j for j in read_nodes if program.nodes[j].op != "constant"}
        later_nodes = [i for i in stage_of_node if stage_of_node[i] > stage]
        read_later = {j for i in later_nodes for j in program.nodes[i].inputs}
        writes = stage_nodes & (read_later | output_nodes)
        stages.append(Stage(stage % 2 == 1, nodes, tuple(sorted(reads)), tuple(sorted(writes))))
    return tuple(stages)
