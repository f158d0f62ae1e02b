"""`Graph`: an ONNX graph under construction, node by node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from sqlml.errors import BackendError
from sqlml.ir.program import Program
from sqlml.ir.store import MAX_PROTO_BYTES, add_program
from sqlml.types import ROWS, Array, DType, TensorType

OPSET = 21
"""The newest operators that every onnxruntime of the extra `onnx` (1.20 and later) runs."""
ML_OPSET = 5
IR_VERSION = 10

ELEMENT: Mapping[str, int] = MappingProxyType(
    {
        "bool": TensorProto.BOOL,
        "int8": TensorProto.INT8,
        "int16": TensorProto.INT16,
        "int32": TensorProto.INT32,
        "int64": TensorProto.INT64,
        "float16": TensorProto.FLOAT16,
        "float32": TensorProto.FLOAT,
        "float64": TensorProto.DOUBLE,
        "string": TensorProto.STRING,
    }
)
"""dtype -> ONNX's number for it."""


class Graph:
    """Collects nodes and constants; a value is the name that ONNX gives it."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._count = 0
        self._names: set[str] = set()

    def constant(self, value: Array) -> str:
        """A constant; equal ones are stored once."""
        value = np.ascontiguousarray(value) if value.ndim else value
        if value.dtype == object:
            return self._store(helper.make_tensor("", TensorProto.STRING, value.shape, list(value)))
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._known:
            self._known[key] = self._store(numpy_helper.from_array(value))
        return self._known[key]

    def scalar(self, value: float, dtype: DType) -> str:
        """A constant of one number, shape (1,)."""
        return self.constant(np.array([value], dtype))

    def ints(self, *values: int) -> str:
        """A constant int64 vector, as ONNX wants its shapes and axes."""
        return self.constant(np.array(values, np.int64))

    def add(self, op: str, *inputs: str, domain: str = "", name: str = "", **attrs: Any) -> str:
        """Append a node of one output; its value."""
        result = self._fresh("v")
        if name in self._names:  # onnxruntime refuses two nodes of one name
            name = f"{name} {result}"
        self._names.update([name] if name else [])
        node = helper.make_node(op, list(inputs), [result], name=name, domain=domain, **attrs)
        self._nodes.append(node)
        return result

    def cast(self, x: str, dtype: DType) -> str:
        """`x` as `dtype`."""
        return self.add("Cast", x, to=ELEMENT[dtype])

    def rename(self, x: str, name: str) -> None:
        """Call value `x` also `name`."""
        self._nodes.append(helper.make_node("Identity", [x], [name]))

    def model(
        self,
        inputs: Mapping[str, TensorType],
        outputs: Mapping[str, TensorType],
        text: str = "",
        stored: bytes = b"",
    ) -> bytes:
        """The graph as a serialised ModelProto.

        Args:
            inputs, outputs: name -> dtype and shape.
            text: the graph's doc_string.
            stored: the Program that it is made of, if the file is to carry it.

        Raises:
            BackendError: over 2 GB, which ONNX cannot hold in one file.
        """
        graph = helper.make_graph(
            self._nodes,
            "sqlml",
            [_info(n, t) for n, t in inputs.items()],
            [_info(n, t) for n, t in outputs.items()],
            initializer=self._constants,
            doc_string=text,
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="sqlml"
        )
        if model.ByteSize() > MAX_PROTO_BYTES:
            raise BackendError("this model exceeds 2 GB as ONNX; use another backend or format")
        if stored:
            add_program(model, stored)
        content: bytes = model.SerializeToString(deterministic=True)
        return content

    def _store(self, tensor: onnx.TensorProto) -> str:
        tensor.name = self._fresh("c")
        self._constants.append(tensor)
        return str(tensor.name)

    def _fresh(self, prefix: str) -> str:
        self._count += 1
        return f"_{prefix}{self._count}"


def _info(name: str, value: TensorType) -> onnx.ValueInfoProto:
    shape: Sequence[Any] = ["N" if d == ROWS else d for d in value.shape]
    return helper.make_tensor_value_info(name, ELEMENT[value.dtype], shape)


# `stages`: cut a Program into ONNX graphs and steps on the host, in turns.
#
# Strings, checks that raise, and operators without an ONNX equivalent run in numpy; everything
# between them is one graph. Node i stands in stage s when all that it reads stands in stages up
# to s; even stages are graphs, odd ones run on the host.


@dataclass(frozen=True, slots=True)
class Stage:
    """Nodes that run together, in order: on the host, or as one graph.

    `reads` are nodes of earlier stages (inputs too) that it reads, `gives` those of its own that
    later stages or outputs read.
    """

    host: bool
    nodes: tuple[int, ...]
    reads: tuple[int, ...]
    gives: tuple[int, ...]


def stages(
    program: Program, outputs: Sequence[str], on_host: Callable[[int], bool]
) -> tuple[Stage, ...]:
    """The stages that `outputs` need, in order. Inputs and constants stand in none of them."""
    wanted = {program.outputs[name] for name in outputs}
    number: dict[int, int] = {}
    for i in program.live(wanted):
        node = program.nodes[i]
        if node.op in ("input", "constant"):
            continue
        earliest = max((number.get(j, 0) for j in node.inputs), default=0)
        number[i] = earliest + ((earliest % 2 == 1) != on_host(i))
    made: list[Stage] = []
    for s in sorted(set(number.values())):
        nodes = tuple(i for i in sorted(number) if number[i] == s)
        own = set(nodes)
        read = {j for i in nodes for j in program.nodes[i].inputs} - own
        reads = {j for j in read if program.nodes[j].op != "constant"}
        later = {j for i in number if number[i] > s for j in program.nodes[i].inputs}
        gives = own & (later | wanted)
        made.append(Stage(s % 2 == 1, nodes, tuple(sorted(reads)), tuple(sorted(gives))))
    return tuple(made)
