"""The onnxruntime backend: Programs of tensor operators as ONNX graphs, on the CPU or a GPU.

`backend.py` divides a Program that `passes.lower` has lowered into stages, which run as ONNX graphs
or as numpy steps. `export.py` writes a whole Program as one ONNX file. To add an operator, add a
function to `functions.FUNCTIONS`; the contract tests compare it with the reference interpreter.
"""
