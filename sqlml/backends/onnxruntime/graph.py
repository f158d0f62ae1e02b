"""`Graph`: an ONNX graph under construction, node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from sqlml.errors import BackendError
from sqlml.ir.onnx_metadata import MAX_PROTO_BYTES, add_program
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
