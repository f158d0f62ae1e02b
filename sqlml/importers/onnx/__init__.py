"""Importer of ONNX models: files and `onnx.ModelProto` objects."""
