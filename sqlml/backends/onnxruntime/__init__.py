"""The onnxruntime backend: Programs of tensor operators as ONNX graphs, on the CPU or a GPU.

It takes a Program that `passes.lower` has lowered. `backend.py` divides it into stages, which run
as ONNX graphs or as numpy steps. `export_onnx` writes a whole Program as one ONNX file.

Read first:

* `graph.py`: `Graph`, an ONNX graph under construction, and `stages`.
* `functions.py`: the ONNX form of each operator.

To add an operator, add a function to `functions.FUNCTIONS`; the contract tests compare it with the
reference.
"""

from sqlml.backends.onnxruntime.backend import OnnxRuntimeBackend, OnnxRuntimeCompiled
from sqlml.backends.onnxruntime.export import export_onnx

__all__ = ["OnnxRuntimeBackend", "OnnxRuntimeCompiled", "export_onnx"]
