"""Assertions that an imported ONNX model computes what onnxruntime computes on the same file."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from sqlml.importers.file_formats import read_artifact
from sqlml.importers.registry import Imported, import_model
from sqlml.ir import reference, store
from sqlml.types import Array

KINDS = {"float32": 1, "int32": 6, "int64": 7, "string": 8, "bool": 9, "float64": 11}


def graph(
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[str, tuple[Any, ...]]],
    outputs: Mapping[str, str | None],
    constants: Mapping[str, Array] | None = None,
    *,
    opset: int = 21,
    ml: int = 3,
    extra: Sequence[Any] = (),
) -> bytes:
    """An ONNX file: inputs name -> (dtype, shape), outputs name -> dtype (None: not said)."""
    ends = [
        helper.make_empty_tensor_value_info(n)
        if d is None
        else helper.make_tensor_value_info(n, KINDS[d], None)
        for n, d in outputs.items()
    ]
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, KINDS[d], s) for n, (d, s) in inputs.items()],
        ends,
        [numpy_helper.from_array(v, n) for n, v in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", ml), *extra]
    content: bytes = helper.make_model(made, opset_imports=opsets, ir_version=9).SerializeToString()
    return content


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> Any:
    """A node; operators of ai.onnx.ml are told by their attributes' owner, `ml=True`."""
    domain = attrs.pop("domain", "ai.onnx.ml" if attrs.pop("ml", False) else "")
    return helper.make_node(op, inputs.split(), outputs.split(), domain=domain, **attrs)


def load(content: bytes, **options: Any) -> Imported:
    """The file as CREATE MODEL reads it."""
    return import_model(
        read_artifact(content, format="auto", path="m.onnx", allow_pickle=False), **options
    )


def theirs(content: bytes, feed: Mapping[str, Array]) -> list[Array]:
    """What onnxruntime makes of it; maps of ZipMap as matrices."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = session.run(None, dict(feed))
    return [
        np.array([list(row.values()) for row in m]) if isinstance(m, list) else np.asarray(m)
        for m in made
    ]


def agree(content: bytes, feed: Mapping[str, Array], *, rtol: float = 1e-6) -> Imported:
    """Assert equal labels, and equal numbers within `rtol` (and 1e-6), for whole batch and row."""
    imported = load(content)
    program = imported.program
    assert store.loads(store.dumps(program)).hash == program.hash
    names = iter(f.name for f in imported.features)
    columns = {next(names): x[:, i] for x in _tables(feed) for i in range(x.shape[1])}
    columns = {n: columns[n] for n in program.inputs}
    want = theirs(content, feed)
    for part in (slice(None), slice(0, 1)):
        ours = reference.run(program, {n: c[part] for n, c in columns.items()})
        if "label" in ours and program.labels:
            label = program.labels[0].array()[ours.pop("label")[:, 0]]
            expected = next(w for w in want if w.dtype.kind in "iOUb").ravel()[part]
            np.testing.assert_array_equal(label, expected)
        floats = [w for w in want if w.dtype.kind == "f"] or want
        for values, expected in zip(ours.values(), floats, strict=False):
            np.testing.assert_allclose(
                values, expected.reshape(len(expected), -1)[part], rtol=rtol, atol=1e-6
            )
    return imported


def _tables(feed: Mapping[str, Array]) -> list[Array]:
    return [x.reshape(len(x), -1) for x in feed.values()]


__all__ = ["TensorProto", "agree", "graph", "load", "node", "theirs"]
