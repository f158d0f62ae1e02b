"""Programs of one foreign model each, for `operator_cases.CASES`."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np

from sqlml.ir.builder import Builder, Value

Make = Callable[[Builder], Value]


def onnx_graph(b: Builder) -> Value:
    """Erf, which the IR does not have."""
    from onnx import TensorProto, helper

    node = helper.make_node("Erf", ["x"], ["y"])
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 3]) for n in "xy"]
    graph = helper.make_graph([node], "erf", ends[:1], ends[1:])
    opset = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()
    attrs = {"model": np.frombuffer(model, np.uint8), "inputs": ("x",), "output": "y"}
    return b.op("onnx_graph", b.input("x", "float32", 3), **attrs, dtype="float32", width=3)


def torch_module(b: Builder) -> Value:
    """The largest two columns, which the IR's operators do not say."""
    import torch

    class Largest(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.topk(2, 1).values

    rows = ({0: torch.export.Dim("rows", min=1)},)
    program = torch.export.export(Largest(), (torch.zeros(3, 4),), dynamic_shapes=rows)
    archive = io.BytesIO()
    torch.export.save(program, archive)
    attrs = {"archive": np.frombuffer(archive.getvalue(), np.uint8), "dtype": "float32"}
    return b.op("torch_module", b.input("x", "float32", 4), **attrs, width=2)


CASES: dict[str, list[Make]] = {"onnx_graph": [onnx_graph], "torch_module": [torch_module]}
