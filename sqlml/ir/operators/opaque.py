"""Whole models of other runtimes as one operator: kept as they are, run by their own library.

`onnx_graph` is an ONNX model whose operators the importer does not know. Its bytes stay as they
are; the onnxruntime backend runs them, and so does the reference where onnxruntime is installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import (
    BackendError,
    MissingDependencyError,
    MissingValueError,
    ScoringError,
)
from sqlml.ir.operators.op import Op, Types, array, need
from sqlml.ir.program import Attrs
from sqlml.ir.utf8_column import Texts
from sqlml.types import Array, TensorType, matrix

OWNERS: Mapping[str, str] = MappingProxyType({"onnx_graph": "onnxruntime", "torch_module": "torch"})
"""Operator -> the one backend that runs it."""

NATIVE_ALONE = frozenset({"tree_contributions", "sampled_contributions"})
"""Operators of our own that explain: native runs them whatever a model's options say."""

MAX_BYTES = 1 << 31
"""Largest ONNX model: protobuf's own limit."""


def _onnx_graph_type(types: Types, attrs: Attrs) -> TensorType:
    model, names = array(attrs, "model"), attrs["inputs"]
    need(model.ndim == 1 and model.dtype == np.uint8, "the ONNX model must be bytes")
    need(0 < model.size < MAX_BYTES, "the ONNX model is empty or too large")
    need(
        len(names) == len(types) and all(isinstance(n, str) and n for n in names),
        "onnx_graph names each of its inputs",
    )
    need(len(set(names)) == len(names), "onnx_graph reads an input twice")
    need(bool(attrs["output"]), "onnx_graph names its output")
    need(
        all(t.rowwise and (t.dtype != "string" or t.shape[1:] == (1,)) for t in types),
        "onnx_graph reads rows of numbers, and columns of strings",
    )
    need(attrs["dtype"] != "string", "onnx_graph makes numbers")
    need(attrs["width"] >= 0, "width must be an integer")
    return matrix(attrs["dtype"], attrs["width"])


def open_session(model: bytes, providers: Sequence[Any]) -> Any:
    """An InferenceSession of one thread: the callers bring threads of their own.

    Raises:
        BackendError: onnxruntime refuses the model.
        MissingDependencyError: it is not installed.
    """
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise MissingDependencyError(
            "an ONNX graph needs onnxruntime, which is not installed: pip install 'sqlml[onnx]'"
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised; it need not print them too
    # Its own format, which it would recognise by a mark in the bytes, is not what was checked.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    try:
        return onnxruntime.InferenceSession(model, options, providers=list(providers))
    except Exception as error:  # its exceptions have no common base but Exception
        raise BackendError(f"onnxruntime refuses the graph: {error}") from error


@lru_cache(maxsize=8)
def _session(model: bytes) -> Any:
    return open_session(model, ["CPUExecutionProvider"])


def graph_feed(args: Sequence[Any], attrs: Attrs) -> dict[str, Array]:
    """What a graph reads, by its own names: numbers as they are, columns of texts as str.

    Raises:
        MissingValueError: a text is missing, which ONNX cannot express.
    """
    return {name: _fed(name, x) for name, x in zip(attrs["inputs"], args, strict=True)}


def _fed(name: str, x: Any) -> Array:
    if not isinstance(x, Texts) and x.dtype != object:
        return np.require(x, requirements=("C", "A"))
    texts = Texts.of(x)
    if texts.missing.any():
        raise MissingValueError(
            f"column {name!r} has NULL, which the ONNX graph does not take; fill it in SQL "
            "(coalesce(.., '')), or filter such rows"
        )
    made = np.empty((len(texts), 1), object)
    made[:, 0] = [texts.text(i) for i in range(len(texts))]
    return made


def conform_rows(result: Any, rows: int, attrs: Attrs) -> Array:
    """What a graph gave, as (rows, width) of the promised dtype.

    Raises:
        ScoringError: it gave something else than it promised.
    """
    made = np.asarray(result)
    width: int = attrs["width"]
    if made.size != rows * width or made.shape[:1] != (rows,):
        raise ScoringError(
            f"the ONNX graph made {made.shape} for {rows} rows, not ({rows}, {width})"
        )
    return made.reshape(rows, width).astype(str(attrs["dtype"]), copy=False)


def _onnx_graph(args: Sequence[Array], attrs: Attrs) -> Array:
    if not args[0].shape[0]:  # kernels may divide by the number of rows
        return np.empty((0, attrs["width"]), str(attrs["dtype"]))
    session = _session(attrs["model"].tobytes())
    feed = graph_feed(args, attrs)
    try:
        made = session.run([attrs["output"]], feed)[0]
    except Exception as error:  # as above
        raise ScoringError(f"the ONNX graph cannot score these rows: {error}") from error
    return conform_rows(made, args[0].shape[0], attrs)


OPERATORS: tuple[Op, ...] = (
    Op(
        "onnx_graph",
        "both",
        "opaque",
        _onnx_graph_type,
        _onnx_graph,
        {"model": "array", "inputs": "tuple", "output": "str", "dtype": "str", "width": "int"},
        arity=(1, None),
    ),
)
