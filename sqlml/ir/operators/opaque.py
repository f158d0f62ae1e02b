"""`onnx_graph`: an ONNX model that the importer cannot translate, as one operator.

The bytes of the model are stored unchanged. The onnxruntime backend runs the model; if onnxruntime
is installed, the reference interpreter does, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from sqlml.errors import BackendError, MissingDependencyError, MissingValueError, ScoringError
from sqlml.ir.operators.op import Op, Types, array_attribute, require
from sqlml.ir.program import Attrs
from sqlml.ir.utf8_column import TextColumn
from sqlml.types import Array, TensorType, matrix

OWNING_BACKENDS: Mapping[str, str] = {"onnx_graph": "onnxruntime", "torch_module": "torch"}
"""Map an operator to the only backend that runs it."""

NATIVE_ONLY = frozenset({"tree_contributions", "sampled_contributions", "by_partition"})
"""Operators of explanations and of partitions, which the native backend runs even if another one is
requested."""


def _onnx_graph_type(types: Types, attrs: Attrs) -> TensorType:
    model, names = array_attribute(attrs, "model", "uint8", (None,)), attrs["inputs"]
    # Protocol Buffers limit a message to 2 GB.
    require(0 < model.size < 1 << 31, "the ONNX model is empty or too large")
    has_names = len(names) == len(types) and all(isinstance(n, str) and n for n in names)
    require(has_names, "onnx_graph must name each of its inputs")
    require(len(set(names)) == len(names), "onnx_graph reads an input twice")
    require(attrs["output"], "onnx_graph must name its output")
    can_read = all(t.rowwise and (t.dtype != "string" or t.shape[1:] == (1,)) for t in types)
    require(can_read, "onnx_graph reads rows of numbers, and columns of strings")
    require(attrs["dtype"] != "string", "onnx_graph makes numbers")
    require(attrs["width"] >= 0, "width must not be negative")
    return matrix(attrs["dtype"], attrs["width"])


def open_session(model: bytes, providers: Sequence[Any]) -> Any:
    """Return an onnxruntime.InferenceSession that computes in the caller's thread."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise MissingDependencyError(
            "an ONNX graph needs onnxruntime, which is not installed: pip install 'sqlml[onnx]'"
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # Do not print errors, because they are raised.
    # Reject onnxruntime's own format, which was not checked.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    try:
        return onnxruntime.InferenceSession(model, options, providers=list(providers))
    except Exception as error:  # onnxruntime's exceptions have no other common base.
        raise BackendError(f"onnxruntime rejects the graph: {error}") from error


@lru_cache(maxsize=8)
def _open_cached_session(model: bytes) -> Any:
    return open_session(model, ["CPUExecutionProvider"])


def make_graph_feed(args: Sequence[Any], attrs: Attrs) -> dict[str, Array]:
    """Return the inputs of a graph by name: numeric columns unchanged, string columns as str."""
    inputs = zip(attrs["inputs"], args, strict=True)
    return {name: _convert_for_graph(name, x) for name, x in inputs}


def _convert_for_graph(name: str, x: Any) -> Array:
    if not isinstance(x, TextColumn) and x.dtype != object:
        return np.require(x, requirements=("C", "A"))
    strings = TextColumn.from_values(x)
    if strings.missing.any():
        raise MissingValueError(
            f"column {name!r} has NULL, which the ONNX graph does not take; fill it in SQL "
            "(coalesce(..., '')), or filter such rows"
        )
    return strings.objects()


def check_graph_result(result: Any, rows: int, attrs: Attrs) -> Array:
    """Return a graph's result as (rows, width) of the dtype in `attrs`, or raise ScoringError."""
    array, width = np.asarray(result), int(attrs["width"])
    if array.size != rows * width or array.shape[:1] != (rows,):
        problem = f"returned {array.shape} for {rows} rows, not ({rows}, {width})"
        raise ScoringError(f"the ONNX graph {problem}")
    return array.reshape(rows, width).astype(str(attrs["dtype"]), copy=False)


def _run_onnx_graph(args: Sequence[Array], attrs: Attrs) -> Array:
    if not args[0].shape[0]:  # Kernels may divide by the number of rows.
        return np.empty((0, attrs["width"]), str(attrs["dtype"]))
    session = _open_cached_session(attrs["model"].tobytes())
    feed = make_graph_feed(args, attrs)
    try:
        result = session.run([attrs["output"]], feed)[0]
    except Exception as error:
        raise ScoringError(f"the ONNX graph cannot score these rows: {error}") from error
    return check_graph_result(result, args[0].shape[0], attrs)


_GRAPH = "model, inputs: tuple, output: str, dtype: str, width: int"
_OPERATOR = Op("onnx_graph", "opaque", _onnx_graph_type, _run_onnx_graph, _GRAPH, arity=(1, None))
OPERATORS: tuple[Op, ...] = (_OPERATOR,)
