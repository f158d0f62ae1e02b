"""The tensor operators as ONNX nodes, with the results of the reference.

If a kernel of onnxruntime disagrees with numpy or is missing (most of int16 and bool), the operator
is composed of others. TreeEnsemble would add leaf values in another order and in the dtype of the
thresholds, so it only returns the *number* of each tree's exit leaf, and CumSum adds the values.

`FUNCTIONS` uses plain Gather, which exported files keep because it needs fewer nodes. `EMIT`, for
sessions, uses GatherElements where it can, which made TT and PTT with 100 trees 2.5 times as fast:
Gather copies each entry with a call, 5 to 6 ns, and GatherElements is one loop, 0.6 ns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from sqlml.backends.onnxruntime.graph import Graph
from sqlml.errors import BackendError
from sqlml.ir import reference
from sqlml.ir.operators.piecewise import split_points
from sqlml.ir.program import Node
from sqlml.ir.trees import Ensemble
from sqlml.types import FLOATS, Array, DType, TensorType, numpy_dtype

_BRANCH_LEQ, _BRANCH_LT = 0, 1


def accumulate(g: Graph, node: Node, args: Sequence[str], types: Sequence[TensorType]) -> str:
    """Add the values of the trees to the base one by one, with each sum rounded."""
    trees, values = types[0].shape[1:]
    flat = g.add("Reshape", args[0], g.ints(-1, trees * values)) if trees * values else None
    return ordered_sum(g, flat, args[0], node.attrs["base"], node.attrs["target"], values)


def ordered_sum(
    g: Graph, flat: str | None, rows_of: str, base: Array, target: Array, values: int
) -> str:
    """Return (n, K): for each output, the base plus its columns of `flat` (n, T * V), in order.

    Tree t has columns t*V to t*V + V - 1 and adds them to the outputs from target[t] on.
    """
    if base.dtype == np.float16:
        raise BackendError("ONNX has no float16 sum that rounds after each term")
    outputs, width = base.size, target.size * values
    rows = g.add("Shape", rows_of, start=0, end=1)
    # Outputs with fewer terms are padded with -0.0, which changes no sum.
    tail = g.constant(np.append(base, -0.0).astype(base.dtype))
    tail = g.add("Expand", tail, g.add("Concat", rows, g.ints(outputs + 1), axis=0))
    wide = tail if flat is None else g.add("Concat", flat, tail, axis=1)
    owner = (target[:, None] + np.arange(values)).ravel()
    terms = [np.flatnonzero(owner == k) for k in range(outputs)]
    longest = max((t.size for t in terms), default=0)
    order = np.full((outputs, 1 + longest), width + outputs, np.int64)
    order[:, 0] = width + np.arange(outputs)
    for row, chosen in zip(order, terms, strict=True):
        row[1 : 1 + chosen.size] = chosen
    lined = g.add("Gather", wide, g.constant(order), axis=1)
    sums = g.add("CumSum", lined, g.constant(np.array(2, np.int64)))
    return g.add("Gather", sums, g.constant(np.array(longest, np.int64)), axis=2)


def tree_ensemble(g: Graph, node: Node, args: Sequence[str], types: Sequence[TensorType]) -> str:
    """Emit a tree_ensemble operator; BackendError if it has categorical nodes."""
    e = Ensemble.of(node.attrs)
    if e.has_categories:
        raise BackendError("ONNX has no category sets with the same meaning")
    values = e.leaf_values.shape[1]
    if not e.nodes:
        return _emit_constant_sum(g, node, args[0], types[0])
    inner = np.bincount(e.node_roots(), minlength=e.trees)
    first = np.concatenate([[0], np.cumsum(inner + 1)[:-1]]).astype(np.int64)
    owner = np.repeat(np.arange(e.trees), np.diff(np.append(first, e.leaf_values.shape[0])))
    number = np.arange(owner.size) - first[owner]
    x, dtype = args[0], types[0].dtype
    if dtype == "float16":
        x, dtype = g.cast(x, "float32"), "float32"
    elif dtype == "float32" and number.size and number.max() >= 1 << 24:
        x, dtype = g.cast(x, "float64"), "float64"
    leaves = g.cast(_emit_exit_numbers(g, e, x, dtype, owner, number), "int64")
    positions = g.add("Add", leaves, g.constant(first))
    picked = g.add("Gather", g.constant(e.leaf_values), positions, axis=0)
    flat = g.add("Reshape", picked, g.ints(-1, e.trees * values))
    return ordered_sum(g, flat, args[0], e.base, e.target, values)


def _emit_constant_sum(g: Graph, node: Node, x: str, kind: TensorType) -> str:
    """Return the same value for every row if no tree has a test; there may be no column to read."""
    nothing = np.zeros((1, kind.width), numpy_dtype(kind.dtype))
    total: Array = reference.FUNCTIONS["tree_ensemble"]([nothing], node.attrs)[0]
    value = g.constant(total)
    if not kind.width:
        rows = g.add("Shape", x, start=0, end=1)
        return g.add("Expand", value, g.add("Concat", rows, g.ints(total.size), axis=0))
    # This shows the importer of ONNX that there is one value per row.
    first = g.add("Gather", x, g.ints(0), axis=1)
    return g.add("Where", g.add("IsNaN", first), value, value)


def _emit_exit_numbers(
    g: Graph, e: Ensemble, x: str, dtype: DType, owner: Array, number: Array
) -> str:
    # A tree that is a single leaf gets a node with that leaf on both sides.
    lone = np.flatnonzero(e.roots < 0)
    extra = e.nodes + np.arange(lone.size)
    roots = e.roots.astype(np.int64)
    roots[lone] = extra
    mode = _BRANCH_LT if e.compare == "lt" else _BRANCH_LEQ

    def extend(values: Array) -> Array:
        return np.concatenate([values, np.zeros(lone.size, values.dtype)])

    def numbers(values: Array) -> TensorProto:
        return numpy_helper.from_array(values.astype(dtype))

    children: dict[str, Any] = {}
    for side, child in (("true", e.left), ("false", e.right)):
        node = np.concatenate([child, e.roots[lone]])
        children[f"nodes_{side}nodeids"] = np.where(node < 0, ~node, node).tolist()
        children[f"nodes_{side}leafs"] = (node < 0).astype(int).tolist()

    return g.add(
        "TreeEnsemble",
        x,
        domain="ai.onnx.ml",
        n_targets=e.trees,
        aggregate_function=1,
        post_transform=0,
        tree_roots=roots.tolist(),
        nodes_featureids=extend(e.feature).tolist(),
        nodes_modes=numpy_helper.from_array(np.full(e.nodes + lone.size, mode, np.uint8)),
        nodes_splits=numbers(extend(e.threshold)),
        **children,
        nodes_missing_value_tracks_true=extend(e.default_left).astype(int).tolist(),
        leaf_targetids=owner.tolist(),
        leaf_weights=numbers(number),
    )


Args = Sequence[str]
Types = Sequence[TensorType]
Emit = Callable[[Graph, Node, Args, Types], str]
"""A function that appends a node to a graph, given its inputs as values with types; it returns the
node's value."""

NARROW = frozenset({"bool", "int8", "int16"})
"""Dtypes that most kernels of onnxruntime lack; int32 represents all their values."""


def _single_node(op: str) -> Emit:
    return lambda g, node, args, types: g.add(op, *args)


def _widen_to_int32(op: str, is_comparison: bool = False) -> Emit:
    """Return an emitter that computes in int32 if the kernel is missing."""

    def emit(g: Graph, node: Node, args: Args, types: Types) -> str:
        if types[0].dtype not in NARROW:
            return g.add(op, *args)
        result = g.add(op, *[g.cast(a, "int32") for a in args])
        return result if is_comparison else g.cast(result, node.type.dtype)

    return emit


_comparison = partial(_widen_to_int32, is_comparison=True)


def _not_equal(g: Graph, node: Node, args: Args, types: Types) -> str:
    return g.add("Not", _comparison("Equal")(g, node, args, types))


def _exp(g: Graph, x: str, dtype: DType) -> str:
    if dtype != "float32":
        return g.add("Exp", x)
    return g.cast(g.add("Exp", g.cast(x, "float64")), dtype)


def _log1p(g: Graph, node: Node, args: Args, types: Types) -> str:
    """Emit log(u) * (x / (u - 1)) with u = 1 + x, the accurate formula of the HP-15C."""
    (x,), one = args, g.scalar(1, node.type.dtype)
    u = g.add("Add", x, one)
    exact = g.add("Mul", g.add("Log", u), g.add("Div", x, g.add("Sub", u, one)))
    small = g.add("Equal", u, one)
    infinite = g.add("Equal", x, g.scalar(np.inf, node.type.dtype))
    return g.add("Where", g.add("Or", small, infinite), x, exact)


def _expm1(g: Graph, node: Node, args: Args, types: Types) -> str:
    """Emit u - 1 with u = exp(x) for |x| > 1, and (u - 1) * x / log(u) otherwise."""
    (x,), dtype = args, node.type.dtype
    one = g.scalar(1, dtype)
    u = _exp(g, x, dtype)
    difference = g.add("Sub", u, one)
    near = g.add("Div", g.add("Mul", difference, x), g.add("Log", u))
    small = g.add("Equal", u, one)
    far = g.add("Greater", g.add("Abs", x), one)
    return g.add("Where", small, x, g.add("Where", far, difference, near))


def _sigmoid(g: Graph, node: Node, args: Args, types: Types) -> str:
    (x,), dtype = args, node.type.dtype
    one = g.scalar(1, dtype)
    if dtype == "float32":  # This is XGBoost's formula.
        limited = g.add("Min", g.add("Neg", x), g.scalar(88.7, dtype))
        limited = g.add("Where", g.add("IsNaN", x), x, limited)
        total = g.add("Add", _exp(g, limited, dtype), one)
        return g.add("Div", one, g.add("Add", total, g.scalar(1e-16, dtype)))
    return g.add("Div", one, g.add("Add", one, _exp(g, g.add("Neg", x), dtype)))


def _mod(g: Graph, node: Node, args: Args, types: Types) -> str:
    """Emit C's remainder with the sign changed to that of the divisor, as in Python."""
    rest, zero = g.add("Mod", *args, fmod=1), g.scalar(0, node.type.dtype)
    signs = [g.add("Less", value, zero) for value in (rest, args[1])]
    moved = g.add("And", g.add("Xor", *signs), g.add("Not", g.add("Equal", rest, zero)))
    return g.add("Where", moved, g.add("Add", rest, args[1]), rest)


def _search_sorted(g: Graph, node: Node, args: Args, types: Types) -> str:
    """Compare each number with all edges of its column, and count those below; all for NaN."""
    (x,) = args
    columns = list(split_points(node.attrs["edges"], node.attrs["offsets"]))
    most = max((edges.size for edges in columns), default=0)
    edges = np.zeros((1, len(columns), max(most, 1)), numpy_dtype(types[0].dtype))
    is_edge = np.zeros(edges.shape, bool)
    for j, column_edges in enumerate(columns):
        edges[0, j, : column_edges.size], is_edge[0, j, : column_edges.size] = column_edges, True
    compare = "Less" if node.attrs["side"] == "left" else "LessOrEqual"
    below = g.add(compare, g.constant(edges), g.add("Unsqueeze", x, g.ints(2)))
    is_below = g.add("And", below, g.constant(is_edge))
    count = g.add("ReduceSum", g.cast(is_below, "int64"), g.ints(2), keepdims=0)
    edge_count = g.constant(is_edge.sum(axis=2).astype(np.int64))
    return g.add("Where", g.add("IsNaN", x), edge_count, count)


def _trunc(g: Graph, node: Node, args: Args, types: Types) -> str:
    (x,) = args
    negative = g.add("Less", x, g.scalar(0, node.type.dtype))
    return g.add("Where", negative, g.add("Ceil", x), g.add("Floor", x))


def _sign(g: Graph, node: Node, args: Args, types: Types) -> str:
    (x,) = args
    signs = g.add("Sign", x)
    return g.add("Where", g.add("IsNaN", x), x, signs) if node.type.dtype in FLOATS else signs


def _square(g: Graph, node: Node, args: Args, types: Types) -> str:
    return _widen_to_int32("Mul")(g, node, [args[0], args[0]], [types[0], types[0]])


def _shift_right(g: Graph, node: Node, args: Args, types: Types) -> str:
    """Emit an arithmetic shift; ONNX only shifts unsigned numbers, and its division truncates."""
    x, by = (g.cast(a, "int64") for a in args)
    minus_one, zero = g.scalar(-1, "int64"), g.scalar(0, "int64")
    powers = g.constant(np.int64(1) << np.arange(63, dtype=np.int64))
    power = g.add("Gather", powers, g.add("Min", by, g.scalar(62, "int64")))
    negative = g.add("Less", x, zero)
    inverted = g.add("Sub", minus_one, x)
    shifted = g.add("Div", g.add("Where", negative, inverted, x), power)
    shifted = g.add("Where", g.add("Equal", by, g.scalar(63, "int64")), zero, shifted)
    result = g.add("Where", negative, g.add("Sub", minus_one, shifted), shifted)
    return g.cast(result, node.type.dtype)


def _where(g: Graph, node: Node, args: Args, types: Types) -> str:
    condition, *sides = args
    if node.type.dtype not in NARROW:
        return g.add("Where", condition, *sides)
    chosen = g.add("Where", condition, *[g.cast(s, "int32") for s in sides])
    return g.cast(chosen, node.type.dtype)


def _concat(g: Graph, node: Node, args: Args, types: Types) -> str:
    dtype = node.type.dtype
    parts = [a if t.dtype == dtype else g.cast(a, dtype) for a, t in zip(args, types, strict=True)]
    return parts[0] if len(parts) == 1 else g.add("Concat", *parts, axis=1)


def _select(g: Graph, node: Node, args: Args, types: Types) -> str:
    indices: Array = node.attrs["indices"]
    if indices.size == types[0].width and np.array_equal(indices, np.arange(indices.size)):
        return args[0]
    return g.add("Gather", args[0], g.constant(indices), axis=1)


def _reshape(g: Graph, node: Node, args: Args, types: Types) -> str:
    shape: tuple[int, ...] = node.attrs["shape"]
    if 0 in shape:  # With an empty axis, -1 would be ambiguous.
        rows = g.add("Shape", args[0], start=0, end=1)
        return g.add("Reshape", args[0], g.add("Concat", rows, g.ints(*shape), axis=0), allowzero=1)
    return g.add("Reshape", args[0], g.ints(-1, *shape))


def _index(g: Graph, x: str, dtype: DType) -> str:
    return x if dtype in ("int32", "int64") else g.cast(x, "int64")


def _take(g: Graph, node: Node, args: Args, types: Types) -> str:
    return g.add("Gather", args[0], _index(g, args[1], types[1].dtype), axis=0)


def _gather(g: Graph, node: Node, args: Args, types: Types) -> str:
    return g.add("GatherElements", args[0], _index(g, args[1], types[1].dtype), axis=1)


def _mark_nan(g: Graph, x: str, axis: int) -> tuple[str, str]:
    """Return marks of NaN in x, as float32 0 or 1, and whether there is any along the axis."""
    marks = g.cast(g.add("IsNaN", x), "float32")
    most = g.add("ReduceMax", marks, g.ints(axis), keepdims=1)
    return marks, g.add("Greater", most, g.scalar(0, "float32"))


def _extreme(op: str) -> Emit:
    def emit(g: Graph, node: Node, args: Args, types: Types) -> str:
        axis: int = node.attrs["axis"]
        (x,), dtype = args, node.type.dtype
        if dtype == "int16":
            x = g.cast(x, "int32")
        result = g.add(op, x, g.ints(axis), keepdims=1)
        if dtype in FLOATS:  # The kernel ignores NaN.
            result = g.add("Where", _mark_nan(g, x, axis)[1], g.scalar(np.nan, dtype), result)
        return g.cast(result, dtype) if dtype == "int16" else result

    return emit


def _sum(g: Graph, node: Node, args: Args, types: Types) -> str:
    axes, dtype = g.ints(node.attrs["axis"]), node.type.dtype
    if dtype not in NARROW:
        return g.add("ReduceSum", args[0], axes, keepdims=1)
    return g.cast(g.add("ReduceSum", g.cast(args[0], "int32"), axes, keepdims=1), dtype)


def _argmax(g: Graph, node: Node, args: Args, types: Types) -> str:
    axis: int = node.attrs["axis"]
    (x,), dtype = args, types[0].dtype
    if dtype in FLOATS:  # NaN is the largest, and the first one is selected.
        marks, some = _mark_nan(g, x, axis)
        x = g.add("Where", some, marks if dtype == "float32" else g.cast(marks, dtype), x)
    elif dtype == "int16":
        x = g.cast(x, "int32")
    return g.add("ArgMax", x, axis=axis, keepdims=1)


def _softmax(g: Graph, node: Node, args: Args, types: Types) -> str:
    (x,), dtype = args, node.type.dtype
    wide: DType = node.attrs["sum_dtype"]
    if not node.type.width:
        return x
    most = g.add("ReduceMax", x, g.ints(1), keepdims=1)
    nan = g.add("Where", _mark_nan(g, x, 1)[1], g.scalar(np.nan, dtype), most)
    e = _exp(g, g.add("Sub", x, nan), dtype)
    total = g.add("ReduceSum", g.cast(e, wide), g.ints(1), keepdims=1)
    return g.add("Div", e, g.cast(total, dtype))


def _batch_matmul(g: Graph, node: Node, args: Args, types: Types) -> str:
    trees_first = g.add("Transpose", args[0], perm=[1, 0, 2])
    product = _widen_to_int32("MatMul")(g, node, [trees_first, args[1]], types)
    return g.add("Transpose", product, perm=[1, 0, 2])


FUNCTIONS: Mapping[str, Emit] = {
    **{
        op.lower(): _single_node(op)
        for op in (
            *("Log", "Sqrt", "Tanh", "Floor", "Ceil", "Sin", "Cos", "Pow", "Neg", "Abs", "Div"),
            *("And", "Or", "Not", "IsNaN"),
        )
    },
    "rint": _single_node("Round"),
    "bit_and": _single_node("BitwiseAnd"),
    **{op.lower(): _widen_to_int32(op) for op in ("Add", "Sub", "Mul", "MatMul")},
    "maximum": _widen_to_int32("Max"),
    "minimum": _widen_to_int32("Min"),
    "lt": _comparison("Less"),
    "le": _comparison("LessOrEqual"),
    "gt": _comparison("Greater"),
    "ge": _comparison("GreaterOrEqual"),
    "eq": _comparison("Equal"),
    "ne": _not_equal,
    "constant": lambda g, node, args, types: g.constant(node.attrs["value"]),
    "exp": lambda g, node, args, types: _exp(g, args[0], node.type.dtype),
    "cast": lambda g, node, args, types: g.cast(args[0], node.type.dtype),
    "log1p": _log1p,
    "expm1": _expm1,
    "sigmoid": _sigmoid,
    "trunc": _trunc,
    "sign": _sign,
    "square": _square,
    "mod": _mod,
    "search_sorted": _search_sorted,
    "shift_right": _shift_right,
    "where": _where,
    "concat": _concat,
    "select": _select,
    "reshape": _reshape,
    "take": _take,
    "gather": _gather,
    "sum": _sum,
    "max": _extreme("ReduceMax"),
    "min": _extreme("ReduceMin"),
    "argmax": _argmax,
    "softmax": _softmax,
    "accumulate": accumulate,
    "batch_matmul": _batch_matmul,
    "tree_ensemble": tree_ensemble,
}
"""Operator -> the emitter of its ONNX form, for values that are not strings."""


def _fast_take(g: Graph, node: Node, args: Args, types: Types) -> str:
    table, index = types
    plain = table.dtype == "string" or int(np.prod(table.shape[1:], dtype=np.int64)) != 1
    if plain or 0 in (*table.shape, *index.shape[1:]):
        return FUNCTIONS["take"](g, node, args, types)
    flat = g.add("Reshape", _index(g, args[1], index.dtype), g.ints(-1))
    taken = g.add("GatherElements", g.add("Reshape", args[0], g.ints(-1)), flat, axis=0)
    return g.add("Reshape", taken, g.ints(-1, *node.type.shape[1:]))


def _fast_select(g: Graph, node: Node, args: Args, types: Types) -> str:
    indices: Array = node.attrs["indices"]
    start, size = int(indices[0]) if indices.size else 0, indices.size
    following = np.array_equal(indices, np.arange(start, start + size))
    # Gather selects up to 4 columns as fast as GatherElements.
    if following or size <= 4 or len(types[0].shape) != 2 or types[0].dtype == "string":
        return FUNCTIONS["select"](g, node, args, types)
    rows = g.add("Shape", args[0], start=0, end=1)
    shape = g.add("Concat", rows, g.ints(size), axis=0)
    chosen = g.add("Expand", g.constant(indices.reshape(1, -1).astype(np.int32)), shape)
    return g.add("GatherElements", args[0], chosen, axis=1)


EMIT: Mapping[str, Emit] = {**FUNCTIONS, "take": _fast_take, "select": _fast_select}
"""`FUNCTIONS` with fast lookups, for sessions."""
