"""ONNX: model files and `onnx.ModelProto` objects -> outputs of a Program.

`importer.py` is the entry point. It reads the file (`document.py`), then converts the nodes one by
one with the functions of `standard.py` (arithmetic), `tensor_layout.py` (moving numbers),
`labels.py`, `estimators.py` and `tree_ensembles.py` (ai.onnx.ml). The values between nodes are in
`graph_items.py`. A graph with an operator that the IR lacks is kept whole (`whole_graph.py`), after
a trial run in a child process (`probe.py`).

To cover another operator, add a function from a `Call` to an item to the FUNCTIONS of one of these
files, and a test against onnxruntime.
"""
