"""`export_onnx`: a Program as one ONNX file for any ONNX runtime.

Inputs are the model's columns by name, each (N, 1): float64, or strings. The graph rejects the rows
that the model rejects: ONNX has no operator that fails, so the graph looks the result of a check up
in a table of one entry. A rejected row is an index out of range, and the name of that node
describes the problem.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sqlml.backends.onnxruntime.functions import FUNCTIONS, Args, Emit, Types
from sqlml.backends.onnxruntime.graph import Graph
from sqlml.errors import BackendError
from sqlml.ir.ops import OPS
from sqlml.ir.program import Node, Program
from sqlml.types import FLOATS, NESTED, ROWS, DType, Labels, TensorType


def require_finite(g: Graph, node: Node, args: Args, types: Types) -> str:
    """Return the numbers; a row with NaN, infinity or a number out of bounds stops the runtime."""
    (x,), dtype = args, types[0].dtype
    bad = g.add("Equal", g.add("Abs", x), g.scalar(np.inf, dtype))
    problem = "infinity"
    if not node.attrs["allow_nan"]:
        bad = g.add("Or", bad, g.add("IsNaN", x))
        problem = "NULL, NaN or infinity"
    for bound, op in (("low", "Less"), ("high", "Greater")):
        if bound in node.attrs:
            bad = g.add("Or", bad, g.add(op, x, g.constant(node.attrs[bound])))
            problem = "such a value"
    name = f"{node.attrs['step']} does not take {problem} in {', '.join(node.attrs['features'])}"
    return g.add("Add", x, _stop_if(g, bad, name, dtype))


def require_known(g: Graph, node: Node, args: Args, types: Types) -> str:
    """Return the codes; an unknown category stops the runtime."""
    x, dtype = args[0], types[0].dtype
    bad = g.add("Less", x, g.scalar(0, dtype))
    name = f"{node.attrs['step']} has never seen a category of {node.attrs['feature']}"
    return g.add("Add", x, _stop_if(g, bad, name, dtype))


def _stop_if(g: Graph, bad: str, name: str, dtype: DType) -> str:
    """Return zeros (-0.0, which changes no sum); the runtime stops if an entry of `bad` is set."""
    zero = g.constant(np.array([-0.0 if dtype in FLOATS else 0]).astype(dtype))
    return g.add("Gather", zero, g.cast(bad, "int64"), name=name[:200])


NAMES = {"label": "label", "proba": "probabilities", "score": "scores", "samples": "samples"}
"""Names of outputs in the graph that differ from those of the Program."""

_RESERVED = re.compile(r"_[vc]\d+")
"""Names that `Graph` generates."""

_STRINGS = frozenset({"input", "select", "concat", "encode", "fill", "isnan", "constant"})
"""Operators that may touch strings."""


def export_onnx(program: Program, stored: bytes = b"") -> bytes:
    """Return a lowered Program as a ModelProto, with its original form `stored` inside."""
    g = Graph()
    values: dict[int, str] = {}
    inputs: dict[str, TensorType] = {}
    live = set(program.find_needed(program.outputs.values()))
    output_names = {NAMES.get(name, name) for name in program.outputs}
    for i, node in enumerate(program.nodes):
        types = [program.nodes[j].type for j in node.inputs]
        if node.op == "input":
            name = str(node.attrs["name"])
            if node.type.dtype in NESTED:
                raise BackendError(
                    f"this model cannot be written as ONNX: column {name!r} holds one "
                    f"{node.type.dtype} per row, which is not a tensor; export it with FORMAT "
                    "SQLML"
                )
            if name in output_names or _RESERVED.fullmatch(name):
                raise BackendError(f"a column called {name!r} cannot be exported; rename it")
            values[i], inputs[name] = name, node.type
            continue
        if i not in live:
            continue
        args = [values[j] for j in node.inputs]
        values[i] = _find_emitter(program, node)(g, node, args, types)
    outputs: dict[str, TensorType] = {}
    for name, i in program.outputs.items():
        public, value, kind = NAMES.get(name, name), values[i], program.nodes[i].type
        if name == "label":
            value, kind = _label(g, value, kind, program.labels)
        g.rename(value, public)
        outputs[public] = kind
    return g.model(inputs, outputs, "exported by sqlml", stored)


def _find_emitter(program: Program, node: Node) -> Emit:
    strings = "string" in (node.type.dtype, *(program.nodes[j].type.dtype for j in node.inputs))
    emit = _EXPORT_ONLY.get(node.op)
    if emit is not None:
        return emit
    sparse = any(t.sparse for t in (node.type, *(program.nodes[j].type for j in node.inputs)))
    if node.op not in FUNCTIONS or sparse or (strings and node.op not in _STRINGS):
        of = " of strings" if strings else ""
        name = "an unknown operator" if node.op not in OPS else f"operator {node.op}{of}"
        raise BackendError(
            f"this model cannot be written as ONNX: ONNX has no equivalent of {name}; export it "
            "with FORMAT SQLML"
        )
    if strings and node.op == "isnan":
        return _isnan_of_strings
    return FUNCTIONS[node.op]


def _isnan_of_strings(g: Graph, node: Node, args: Args, types: Types) -> str:
    """Return false for every string, because ONNX has no NULL."""
    return g.add("Not", g.add("Equal", args[0], args[0]))


def _fill(g: Graph, node: Node, args: Args, types: Types) -> str:
    if "missing" not in node.attrs:
        return args[0]  # No string is missing, because ONNX has no NULL.
    texts = [np.array([node.attrs[k]], object) for k in ("missing", "value")]
    missing, value = (g.constant(t) for t in texts)
    return g.add("Where", g.add("Equal", args[0], missing), value, args[0])


def _encode(g: Graph, node: Node, args: Args, types: Types) -> str:
    """Look codes up; the last of equal categories counts. Only long lists of numbers get here."""
    categories, dtype = node.attrs["categories"], types[0].dtype
    if dtype == "string":
        codes = {str(c): k for k, c in enumerate(categories)}
        codes = codes or {"": -1}
        return g.add(
            "LabelEncoder",
            args[0],
            domain="ai.onnx.ml",
            keys_strings=list(codes),
            values_int64s=list(codes.values()),
            default_int64=-1,
        )
    numbers = np.flatnonzero(categories == categories)[::-1]
    keys, first = np.unique(categories[numbers], return_index=True)
    minus = g.scalar(-1, "int64")
    if not keys.size:
        result = g.add("Mul", g.cast(g.add("Equal", args[0], args[0]), "int64"), g.ints(0))
        result = g.add("Add", result, minus)
    else:
        # At most one category is equal; ArgMax finds it.
        same = g.add("Equal", args[0], g.constant(keys))
        position = g.add("ArgMax", g.cast(same, "int32"), axis=1, keepdims=1)
        code = g.add("Gather", g.constant(numbers[first].astype(np.int64)), position)
        any_ = g.add("ReduceMax", g.cast(same, "int32"), g.ints(1), keepdims=1)
        result = g.add("Where", g.cast(any_, "bool"), code, minus)
    if dtype in FLOATS:
        missing = g.scalar(node.attrs["missing"], "int64")
        result = g.add("Where", g.add("IsNaN", args[0]), missing, result)
    return result


def _compute_in_float64(formula: Callable[[Graph, str], str]) -> Emit:
    """Return an operator that ONNX lacks, computed in float64 as the reference computes it."""

    def emit(g: Graph, node: Node, args: Args, types: Types) -> str:
        dtype = node.type.dtype
        if dtype == "float64":
            return formula(g, args[0])
        return g.cast(formula(g, g.cast(args[0], "float64")), dtype)

    return emit


def _log_to(base: int) -> Emit:
    return _compute_in_float64(
        lambda g, x: g.add("Div", g.add("Log", x), g.scalar(np.log(base), "float64"))
    )


def _cbrt(g: Graph, x: str) -> str:
    root = g.add("Pow", g.add("Abs", x), g.scalar(1 / 3, "float64"))
    return g.add("Where", g.add("Less", x, g.scalar(0, "float64")), g.add("Neg", root), root)


def _label(
    g: Graph, value: str, kind: TensorType, label_sets: Sequence[Labels]
) -> tuple[str, TensorType]:
    """Decode class indices (N, 1) to labels (N,); several columns stay columns."""
    if len(label_sets) > 1:
        raise BackendError(
            "this model cannot be written as ONNX: it has several targets; export it with "
            "FORMAT SQLML"
        )
    if kind.width == 1:
        value = g.add("Reshape", value, g.ints(-1))
        kind = TensorType(kind.dtype, (ROWS,))
    if not label_sets:
        return value, kind
    table = label_sets[0].array()
    dtype: DType = "string" if table.dtype == object else label_sets[0].kind
    return g.add("Gather", g.constant(table), value), TensorType(dtype, kind.shape)


_EXPORT_ONLY: Mapping[str, Emit] = {
    "fill": _fill,
    "encode": _encode,
    "require_finite": require_finite,
    "require_known": require_known,
    "exp2": _compute_in_float64(lambda g, x: g.add("Pow", g.scalar(2, "float64"), x)),
    "log2": _log_to(2),
    "log10": _log_to(10),
    "cbrt": _compute_in_float64(_cbrt),
    "tan": _compute_in_float64(lambda g, x: g.add("Div", g.add("Sin", x), g.add("Cos", x))),
}
