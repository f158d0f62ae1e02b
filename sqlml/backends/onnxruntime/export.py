"""`export_onnx`: write a Program as one ONNX file for any ONNX runtime.

The graph has one input (N, 1) of float64 or strings for each column of the model. The graph rejects
the rows that the model rejects. ONNX has no operator that fails, so the result of a check is looked
up in a table with one entry. A rejected row causes an index out of range, and the name of the
failing node describes the problem.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sqlml.backends.onnxruntime.functions import FUNCTIONS, Args, Emitter, Types
from sqlml.backends.onnxruntime.graph import Graph
from sqlml.errors import BackendError
from sqlml.ir.ops import OPS
from sqlml.ir.program import Node, Program
from sqlml.types import FLOATS, NESTED, ROWS, DType, Labels, TensorType


def _emit_finite_check(graph: Graph, node: Node, args: Args, types: Types) -> str:
    """Emit x unchanged, and stop the runtime at NaN, infinity or a number out of bounds."""
    (x,), dtype = args, types[0].dtype
    fails = graph.add("Equal", graph.add("Abs", x), graph.scalar(np.inf, dtype))
    problem = "infinity"
    if not node.attrs["allow_nan"]:
        fails = graph.add("Or", fails, graph.add("IsNaN", x))
        problem = "NULL, NaN or infinity"
    for bound, op in (("low", "Less"), ("high", "Greater")):
        if bound in node.attrs:
            fails = graph.add("Or", fails, graph.add(op, x, graph.constant(node.attrs[bound])))
            problem = "a number out of range"
    name = f"{node.attrs['step']} does not take {problem} in {', '.join(node.attrs['features'])}"
    return graph.add("Add", x, _emit_failing_zeros(graph, fails, name, dtype))


def _emit_known_check(graph: Graph, node: Node, args: Args, types: Types) -> str:
    x, dtype = args[0], types[0].dtype
    fails = graph.add("Less", x, graph.scalar(0, dtype))
    node_name = f"{node.attrs['step']} has never seen a category of {node.attrs['feature']}"
    return graph.add("Add", x, _emit_failing_zeros(graph, fails, node_name, dtype))


def _emit_failing_zeros(graph: Graph, is_rejected: str, node_name: str, dtype: DType) -> str:
    """Emit zeros to add to a value, and stop the runtime if `is_rejected` holds anywhere."""
    zero = graph.constant(np.array([-0.0 if dtype in FLOATS else 0]).astype(dtype))
    return graph.add("Gather", zero, graph.cast(is_rejected, "int64"), name=node_name[:200])


NAMES = {"label": "label", "proba": "probabilities", "score": "scores", "samples": "samples"}
"""Map an output of a Program to the name of the output in the graph."""

_RESERVED = re.compile(r"_[vc]\d+")
"""Names that `Graph` generates."""

_STRINGS = frozenset({"input", "select", "concat", "encode", "fill", "isnan", "constant"})
"""Operators that may read or return strings."""


def export_onnx(program: Program, original_bytes: bytes = b"") -> bytes:
    """Return a lowered Program as a serialized ModelProto.

    `original_bytes` is the Program before lowering. If given, it is embedded for sqlml to read.
    """
    graph = Graph()
    values: dict[int, str] = {}
    inputs: dict[str, TensorType] = {}
    needed = set(program.find_needed_nodes(program.outputs.values()))
    output_names = {NAMES.get(name, name) for name in program.outputs}
    for i, node in enumerate(program.nodes):
        types = [program.nodes[j].type for j in node.inputs]
        if node.op == "input":
            name = str(node.attrs["name"])
            if node.type.dtype in NESTED:
                problem = f"holds one {node.type.dtype} per row, which is not a tensor"
                raise _make_unsupported_error(f"column {name!r} {problem}")
            if name in output_names or _RESERVED.fullmatch(name):
                raise BackendError(f"a column called {name!r} cannot be exported; rename it")
            values[i], inputs[name] = name, node.type
            continue
        if i not in needed:
            continue
        values[i] = _find_emitter(node, types)(graph, node, [values[j] for j in node.inputs], types)
    outputs: dict[str, TensorType] = {}
    for name, i in program.outputs.items():
        graph_name, tensor, output_type = NAMES.get(name, name), values[i], program.nodes[i].type
        if name == "label":
            tensor, output_type = _emit_labels(graph, tensor, output_type, program.labels)
        graph.rename(tensor, graph_name)
        outputs[graph_name] = output_type
    return graph.model(inputs, outputs, "exported by sqlml", original_bytes)


def _make_unsupported_error(reason: str) -> BackendError:
    hint = "export it with FORMAT SQLML"
    return BackendError(f"this model cannot be written as ONNX: {reason}; {hint}")


def _find_emitter(node: Node, input_types: Types) -> Emitter:
    if node.op in _EXPORT_ONLY:
        return _EXPORT_ONLY[node.op]
    types = (node.type, *input_types)
    has_strings = any(t.dtype == "string" for t in types)
    has_sparse_rows = any(t.sparse for t in types)
    if node.op not in FUNCTIONS or has_sparse_rows or (has_strings and node.op not in _STRINGS):
        suffix = " of strings" if has_strings else ""
        name = "an unknown operator" if node.op not in OPS else f"operator {node.op}{suffix}"
        raise _make_unsupported_error(f"ONNX has no equivalent of {name}")
    if has_strings and node.op == "isnan":
        return _emit_isnan_of_strings
    return FUNCTIONS[node.op]


def _emit_isnan_of_strings(graph: Graph, node: Node, args: Args, types: Types) -> str:
    # The result is false for every string, because ONNX has no NULL.
    return graph.add("Not", graph.add("Equal", args[0], args[0]))


def _emit_fill(graph: Graph, node: Node, args: Args, types: Types) -> str:
    if "missing" not in node.attrs:
        return args[0]  # No string is missing, because ONNX has no NULL.
    constants = [np.array([node.attrs[k]], object) for k in ("missing", "value")]
    missing, value = (graph.constant(value_array) for value_array in constants)
    return graph.add("Where", graph.add("Equal", args[0], missing), value, args[0])


def _emit_encode(graph: Graph, node: Node, args: Args, types: Types) -> str:
    """Emit the index of the last category that equals each value, or -1 for an unknown value."""
    categories, dtype = node.attrs["categories"], types[0].dtype
    if dtype == "string":
        codes = {str(c): k for k, c in enumerate(categories)} or {"": -1}
        table: dict[str, Any] = {"keys_strings": [*codes], "values_int64s": [*codes.values()]}
        return graph.add("LabelEncoder", args[0], domain="ai.onnx.ml", default_int64=-1, **table)
    # Short lists of numeric categories have been lowered, so this list is long.
    indices = np.flatnonzero(categories == categories)[::-1]
    keys, first_indices = np.unique(categories[indices], return_index=True)
    minus_one = graph.scalar(-1, "int64")
    if not keys.size:
        is_number = graph.cast(graph.add("Equal", args[0], args[0]), "int64")
        result = graph.add("Mul", is_number, graph.ints(0))
        result = graph.add("Add", result, minus_one)
    else:
        # At most one category equals a value, and ArgMax finds this category.
        is_equal = graph.add("Equal", args[0], graph.constant(keys))
        position = graph.add("ArgMax", graph.cast(is_equal, "int32"), axis=1, keepdims=1)
        codes_of_keys = graph.constant(indices[first_indices].astype(np.int64))
        code = graph.add("Gather", codes_of_keys, position)
        is_known = graph.add("ReduceMax", graph.cast(is_equal, "int32"), graph.ints(1), keepdims=1)
        result = graph.add("Where", graph.cast(is_known, "bool"), code, minus_one)
    if dtype in FLOATS:
        missing = graph.scalar(node.attrs["missing"], "int64")
        result = graph.add("Where", graph.add("IsNaN", args[0]), missing, result)
    return result


def _make_float64_emitter(formula: Callable[[Graph, str], str]) -> Emitter:
    """Return an emitter of `formula`, computed in float64 and rounded to the node's dtype."""

    def emit(graph: Graph, node: Node, args: Args, types: Types) -> str:
        dtype = node.type.dtype
        if dtype == "float64":
            return formula(graph, args[0])
        return graph.cast(formula(graph, graph.cast(args[0], "float64")), dtype)

    return emit


def _make_logarithm_emitter(base: int) -> Emitter:
    return _make_float64_emitter(
        lambda g, x: g.add("Div", g.add("Log", x), g.scalar(np.log(base), "float64"))
    )


def _emit_cbrt(graph: Graph, x: str) -> str:
    root = graph.add("Pow", graph.add("Abs", x), graph.scalar(1 / 3, "float64"))
    is_negative = graph.add("Less", x, graph.scalar(0, "float64"))
    return graph.add("Where", is_negative, graph.add("Neg", root), root)


def _emit_labels(
    graph: Graph, value: str, label_type: TensorType, label_sets: Sequence[Labels]
) -> tuple[str, TensorType]:
    """Emit the labels of class indices, or the class indices if `label_sets` is empty.

    Return the name and the type of the result. The shape (N, 1) becomes (N,); a wider shape stays.
    """
    if len(label_sets) > 1:
        raise _make_unsupported_error("it has several targets")
    if label_type.width == 1:
        value = graph.add("Reshape", value, graph.ints(-1))
        label_type = TensorType(label_type.dtype, (ROWS,))
    if not label_sets:
        return value, label_type
    table = label_sets[0].array()
    dtype: DType = "string" if table.dtype == object else label_sets[0].kind
    return graph.add("Gather", graph.constant(table), value), TensorType(dtype, label_type.shape)


_EXPORT_ONLY: Mapping[str, Emitter] = {
    "fill": _emit_fill,
    "encode": _emit_encode,
    "require_finite": _emit_finite_check,
    "require_known": _emit_known_check,
    "exp2": _make_float64_emitter(lambda g, x: g.add("Pow", g.scalar(2, "float64"), x)),
    "log2": _make_logarithm_emitter(2),
    "log10": _make_logarithm_emitter(10),
    "cbrt": _make_float64_emitter(_emit_cbrt),
    "tan": _make_float64_emitter(lambda g, x: g.add("Div", g.add("Sin", x), g.add("Cos", x))),
}
