"""The onnxruntime backend: Programs of tensor operators as ONNX graphs, on the CPU or a GPU."""

from sqlml.backends.onnxruntime.backend import OnnxRuntimeBackend, OnnxRuntimeCompiled
from sqlml.backends.onnxruntime.export import export_onnx

__all__ = ["OnnxRuntimeBackend", "OnnxRuntimeCompiled", "export_onnx"]
