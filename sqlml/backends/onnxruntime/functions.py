"""Emit the tensor operators as ONNX nodes, with the results of the reference interpreter.

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

Args = Sequence[str]
Types = Sequence[TensorType]
Emit = Callable[[Graph, Node, Args, Types], str]
"""A function that appends nodes for an operator to a graph, given the graph names and the types of
its inputs, and returns the graph name of its result."""


def accumulate(graph: Graph, node: Node, args: Args, types: Types) -> str:
    """Emit sums that add the trees' values to the base one by one, rounded after each addition."""
    trees, values_per_tree = types[0].shape[1:]
    width, base, target = trees * values_per_tree, node.attrs["base"], node.attrs["target"]
    leaf_values = graph.add("Reshape", args[0], graph.ints(-1, width)) if width else None
    return emit_ordered_sum(graph, leaf_values, args[0], base, target, values_per_tree)


def emit_ordered_sum(
    graph: Graph, leaf_values: str | None, x: str, base: Array, target: Array, values_per_tree: int
) -> str:
    """Emit the outputs (n, K) of T trees: the base (K,) plus leaf values, added in tree order.

    `leaf_values` (n, T * V) holds V = `values_per_tree` columns for each tree; it is None if T * V
    is 0. Tree t adds its columns to outputs target[t] to target[t] + V - 1. The number n of rows is
    read from `x`.
    """
    if base.dtype == np.float16:
        raise BackendError("ONNX has no float16 sum that rounds after each term")
    output_count, width = base.size, target.size * values_per_tree
    rows = graph.add("Shape", x, start=0, end=1)
    # Outputs with fewer terms are padded with -0.0, which changes no sum.
    base_and_padding = graph.constant(np.append(base, -0.0).astype(base.dtype))
    shape = graph.add("Concat", rows, graph.ints(output_count + 1), axis=0)
    all_columns = graph.add("Expand", base_and_padding, shape)
    if leaf_values is not None:
        all_columns = graph.add("Concat", leaf_values, all_columns, axis=1)
    output_of_column = (target[:, None] + np.arange(values_per_tree)).ravel()
    terms = [np.flatnonzero(output_of_column == k) for k in range(output_count)]
    max_terms = max((t.size for t in terms), default=0)
    # For each output, the columns to add: its base, its terms, and padding.
    order = np.full((output_count, 1 + max_terms), width + output_count, np.int64)
    order[:, 0] = width + np.arange(output_count)
    for row, columns in zip(order, terms, strict=True):
        row[1 : 1 + columns.size] = columns
    ordered_terms = graph.add("Gather", all_columns, graph.constant(order), axis=1)
    sums = graph.add("CumSum", ordered_terms, graph.constant(np.array(2, np.int64)))
    return graph.add("Gather", sums, graph.constant(np.array(max_terms, np.int64)), axis=2)


def tree_ensemble(graph: Graph, node: Node, args: Args, types: Types) -> str:
    """Emit a tree_ensemble operator; raise BackendError if it tests category sets."""
    ensemble = Ensemble.of(node.attrs)
    if ensemble.has_categories:
        raise BackendError("ONNX has no category sets with the same meaning")
    leaf_count, values_per_leaf = ensemble.leaf_values.shape
    if not ensemble.nodes:
        return _emit_constant_sum(graph, node, args[0], types[0])
    inner_counts = np.bincount(ensemble.node_roots(), minlength=ensemble.trees)
    first_leaves = np.concatenate([[0], np.cumsum(inner_counts + 1)[:-1]]).astype(np.int64)
    tree_of_leaf = np.repeat(np.arange(ensemble.trees), np.diff(first_leaves, append=leaf_count))
    leaf_numbers = np.arange(tree_of_leaf.size) - first_leaves[tree_of_leaf]
    x, dtype = args[0], types[0].dtype
    if dtype == "float16":
        x, dtype = graph.cast(x, "float32"), "float32"
    elif dtype == "float32" and leaf_numbers.size and leaf_numbers.max() >= 1 << 24:
        x, dtype = graph.cast(x, "float64"), "float64"
    exits = _emit_exit_numbers(graph, ensemble, x, dtype, tree_of_leaf, leaf_numbers)
    positions = graph.add("Add", graph.cast(exits, "int64"), graph.constant(first_leaves))
    values = graph.add("Gather", graph.constant(ensemble.leaf_values), positions, axis=0)
    flat = graph.add("Reshape", values, graph.ints(-1, ensemble.trees * values_per_leaf))
    return emit_ordered_sum(graph, flat, args[0], ensemble.base, ensemble.target, values_per_leaf)


def _emit_constant_sum(graph: Graph, node: Node, x: str, x_type: TensorType) -> str:
    """Emit the constant output of trees without tests once per row of `x` (n, F); F may be 0."""
    zeros = np.zeros((1, x_type.width), numpy_dtype(x_type.dtype))
    total: Array = reference.FUNCTIONS["tree_ensemble"]([zeros], node.attrs)[0]
    value = graph.constant(total)
    if not x_type.width:
        rows = graph.add("Shape", x, start=0, end=1)
        return graph.add("Expand", value, graph.add("Concat", rows, graph.ints(total.size), axis=0))
    # The constant depends on x, so that sqlml's ONNX importer sees one value per row.
    first_column = graph.add("Gather", x, graph.ints(0), axis=1)
    return graph.add("Where", graph.add("IsNaN", first_column), value, value)


def _emit_exit_numbers(
    graph: Graph, ensemble: Ensemble, x: str, dtype: DType, tree_of_leaf: Array, leaf_numbers: Array
) -> str:
    """Emit the number of each row's exit leaf within each tree, (n, T), as `dtype`."""
    # A tree that is a single leaf gets a node whose children are both that leaf.
    single_leaf_trees = np.flatnonzero(ensemble.roots < 0)
    added_nodes = ensemble.nodes + np.arange(single_leaf_trees.size)
    roots = ensemble.roots.astype(np.int64)
    roots[single_leaf_trees] = added_nodes
    mode = _BRANCH_LT if ensemble.compare == "lt" else _BRANCH_LEQ

    def append_zeros(values: Array) -> Array:
        return np.concatenate([values, np.zeros(single_leaf_trees.size, values.dtype)])

    def to_tensor(values: Array) -> TensorProto:
        return numpy_helper.from_array(values.astype(dtype))

    children: dict[str, Any] = {}
    for side, child in (("true", ensemble.left), ("false", ensemble.right)):
        nodes = np.concatenate([child, ensemble.roots[single_leaf_trees]])
        children[f"nodes_{side}nodeids"] = np.where(nodes < 0, ~nodes, nodes).tolist()
        children[f"nodes_{side}leafs"] = (nodes < 0).astype(int).tolist()

    return graph.add(
        "TreeEnsemble",
        x,
        domain="ai.onnx.ml",
        n_targets=ensemble.trees,
        aggregate_function=1,
        post_transform=0,
        tree_roots=roots.tolist(),
        nodes_featureids=append_zeros(ensemble.feature).tolist(),
        nodes_modes=numpy_helper.from_array(
            np.full(ensemble.nodes + single_leaf_trees.size, mode, np.uint8)
        ),
        nodes_splits=to_tensor(append_zeros(ensemble.threshold)),
        **children,
        nodes_missing_value_tracks_true=append_zeros(ensemble.default_left).astype(int).tolist(),
        leaf_targetids=tree_of_leaf.tolist(),
        leaf_weights=to_tensor(leaf_numbers),
    )


NARROW = frozenset({"bool", "int8", "int16"})
"""Dtypes that most kernels of onnxruntime lack; int32 represents all their values."""


def _emit_single_node(op: str) -> Emit:
    return lambda g, node, args, types: g.add(op, *args)


def _widen_to_int32(op: str, is_comparison: bool = False) -> Emit:
    """Return an emitter of `op` that computes in int32 if onnxruntime lacks the kernel."""

    def emit(graph: Graph, node: Node, args: Args, types: Types) -> str:
        if types[0].dtype not in NARROW:
            return graph.add(op, *args)
        result = graph.add(op, *[graph.cast(a, "int32") for a in args])
        return result if is_comparison else graph.cast(result, node.type.dtype)

    return emit


_emit_comparison = partial(_widen_to_int32, is_comparison=True)


def _emit_not_equal(graph: Graph, node: Node, args: Args, types: Types) -> str:
    return graph.add("Not", _emit_comparison("Equal")(graph, node, args, types))


def _exp(graph: Graph, x: str, dtype: DType) -> str:
    if dtype != "float32":
        return graph.add("Exp", x)
    return graph.cast(graph.add("Exp", graph.cast(x, "float64")), dtype)


def _log1p(graph: Graph, node: Node, args: Args, types: Types) -> str:
    """Emit log(u) * (x / (u - 1)) with u = 1 + x, the accurate formula of the HP-15C."""
    (x,), one = args, graph.scalar(1, node.type.dtype)
    u = graph.add("Add", x, one)
    exact = graph.add("Mul", graph.add("Log", u), graph.add("Div", x, graph.add("Sub", u, one)))
    is_small = graph.add("Equal", u, one)
    is_infinite = graph.add("Equal", x, graph.scalar(np.inf, node.type.dtype))
    return graph.add("Where", graph.add("Or", is_small, is_infinite), x, exact)


def _expm1(graph: Graph, node: Node, args: Args, types: Types) -> str:
    """Emit u - 1 with u = exp(x) for |x| > 1, and (u - 1) * x / log(u) otherwise."""
    (x,), dtype = args, node.type.dtype
    one = graph.scalar(1, dtype)
    u = _exp(graph, x, dtype)
    difference = graph.add("Sub", u, one)
    result_near_zero = graph.add("Div", graph.add("Mul", difference, x), graph.add("Log", u))
    is_small = graph.add("Equal", u, one)
    is_far = graph.add("Greater", graph.add("Abs", x), one)
    return graph.add("Where", is_small, x, graph.add("Where", is_far, difference, result_near_zero))


def _sigmoid(graph: Graph, node: Node, args: Args, types: Types) -> str:
    (x,), dtype = args, node.type.dtype
    one = graph.scalar(1, dtype)
    if dtype == "float32":  # This is XGBoost's formula.
        clipped = graph.add("Min", graph.add("Neg", x), graph.scalar(88.7, dtype))
        clipped = graph.add("Where", graph.add("IsNaN", x), x, clipped)
        total = graph.add("Add", _exp(graph, clipped, dtype), one)
        return graph.add("Div", one, graph.add("Add", total, graph.scalar(1e-16, dtype)))
    return graph.add("Div", one, graph.add("Add", one, _exp(graph, graph.add("Neg", x), dtype)))


def _mod(graph: Graph, node: Node, args: Args, types: Types) -> str:
    """Emit C's remainder, adjusted to have the sign of the divisor as in Python."""
    remainder, zero = graph.add("Mod", *args, fmod=1), graph.scalar(0, node.type.dtype)
    signs = [graph.add("Less", value, zero) for value in (remainder, args[1])]
    needs_adjustment = graph.add(
        "And", graph.add("Xor", *signs), graph.add("Not", graph.add("Equal", remainder, zero))
    )
    return graph.add("Where", needs_adjustment, graph.add("Add", remainder, args[1]), remainder)


def _search_sorted(graph: Graph, node: Node, args: Args, types: Types) -> str:
    """Emit, for each number of x, how many of its column's edges are below it; NaN is above all."""
    (x,) = args
    columns = list(split_points(node.attrs["edges"], node.attrs["offsets"]))
    max_edges = max((edges.size for edges in columns), default=0)
    edges = np.zeros((1, len(columns), max(max_edges, 1)), numpy_dtype(types[0].dtype))
    is_edge = np.zeros(edges.shape, bool)
    for j, column_edges in enumerate(columns):
        edges[0, j, : column_edges.size], is_edge[0, j, : column_edges.size] = column_edges, True
    op = "Less" if node.attrs["side"] == "left" else "LessOrEqual"
    all_edges, numbers = graph.constant(edges), graph.add("Unsqueeze", x, graph.ints(2))
    is_below_or_equal = graph.add(op, all_edges, numbers)
    is_below = graph.add("And", is_below_or_equal, graph.constant(is_edge))
    count = graph.add("ReduceSum", graph.cast(is_below, "int64"), graph.ints(2), keepdims=0)
    edge_count = graph.constant(is_edge.sum(axis=2).astype(np.int64))
    return graph.add("Where", graph.add("IsNaN", x), edge_count, count)


def _trunc(graph: Graph, node: Node, args: Args, types: Types) -> str:
    (x,) = args
    is_negative = graph.add("Less", x, graph.scalar(0, node.type.dtype))
    return graph.add("Where", is_negative, graph.add("Ceil", x), graph.add("Floor", x))


def _sign(graph: Graph, node: Node, args: Args, types: Types) -> str:
    (x,) = args
    signs = graph.add("Sign", x)
    return (
        graph.add("Where", graph.add("IsNaN", x), x, signs) if node.type.dtype in FLOATS else signs
    )


def _square(graph: Graph, node: Node, args: Args, types: Types) -> str:
    return _widen_to_int32("Mul")(graph, node, [args[0], args[0]], [types[0], types[0]])


def _shift_right(graph: Graph, node: Node, args: Args, types: Types) -> str:
    """Emit an arithmetic shift; ONNX shifts only unsigned numbers, and its division truncates."""
    x, bits = (graph.cast(a, "int64") for a in args)
    minus_one, zero = graph.scalar(-1, "int64"), graph.scalar(0, "int64")
    powers = graph.constant(np.int64(1) << np.arange(63, dtype=np.int64))
    power = graph.add("Gather", powers, graph.add("Min", bits, graph.scalar(62, "int64")))
    is_negative = graph.add("Less", x, zero)
    inverted = graph.add("Sub", minus_one, x)
    shifted = graph.add("Div", graph.add("Where", is_negative, inverted, x), power)
    shifted = graph.add("Where", graph.add("Equal", bits, graph.scalar(63, "int64")), zero, shifted)
    result = graph.add("Where", is_negative, graph.add("Sub", minus_one, shifted), shifted)
    return graph.cast(result, node.type.dtype)


def _where(graph: Graph, node: Node, args: Args, types: Types) -> str:
    condition, *operands = args
    if node.type.dtype not in NARROW:
        return graph.add("Where", condition, *operands)
    selected = graph.add("Where", condition, *[graph.cast(s, "int32") for s in operands])
    return graph.cast(selected, node.type.dtype)


def _concat(graph: Graph, node: Node, args: Args, types: Types) -> str:
    dtype = node.type.dtype
    pairs = zip(args, types, strict=True)
    inputs = [a if t.dtype == dtype else graph.cast(a, dtype) for a, t in pairs]
    return inputs[0] if len(inputs) == 1 else graph.add("Concat", *inputs, axis=1)


def _select(graph: Graph, node: Node, args: Args, types: Types) -> str:
    indices: Array = node.attrs["indices"]
    if indices.size == types[0].width and np.array_equal(indices, np.arange(indices.size)):
        return args[0]
    return graph.add("Gather", args[0], graph.constant(indices), axis=1)


def _reshape(graph: Graph, node: Node, args: Args, types: Types) -> str:
    shape: tuple[int, ...] = node.attrs["shape"]
    if 0 in shape:  # With an empty axis, -1 would be ambiguous.
        rows = graph.add("Shape", args[0], start=0, end=1)
        lengths = graph.add("Concat", rows, graph.ints(*shape), axis=0)
        return graph.add("Reshape", args[0], lengths, allowzero=1)
    return graph.add("Reshape", args[0], graph.ints(-1, *shape))


def _cast_index(graph: Graph, x: str, dtype: DType) -> str:
    return x if dtype in ("int32", "int64") else graph.cast(x, "int64")


def _take(graph: Graph, node: Node, args: Args, types: Types) -> str:
    return graph.add("Gather", args[0], _cast_index(graph, args[1], types[1].dtype), axis=0)


def _gather(graph: Graph, node: Node, args: Args, types: Types) -> str:
    return graph.add("GatherElements", args[0], _cast_index(graph, args[1], types[1].dtype), axis=1)


def _mark_nan(graph: Graph, x: str, axis: int) -> tuple[str, str]:
    """Emit a float32 mask of the NaNs in `x`, and bools: whether a line on `axis` has a NaN."""
    nan_mask = graph.cast(graph.add("IsNaN", x), "float32")
    max_of_mask = graph.add("ReduceMax", nan_mask, graph.ints(axis), keepdims=1)
    return nan_mask, graph.add("Greater", max_of_mask, graph.scalar(0, "float32"))


def _make_extreme(op: str) -> Emit:
    def emit(graph: Graph, node: Node, args: Args, types: Types) -> str:
        axis: int = node.attrs["axis"]
        (x,), dtype = args, node.type.dtype
        if dtype == "int16":
            x = graph.cast(x, "int32")
        result = graph.add(op, x, graph.ints(axis), keepdims=1)
        if dtype in FLOATS:  # The kernel ignores NaN.
            has_nan = _mark_nan(graph, x, axis)[1]
            result = graph.add("Where", has_nan, graph.scalar(np.nan, dtype), result)
        return graph.cast(result, dtype) if dtype == "int16" else result

    return emit


def _sum(graph: Graph, node: Node, args: Args, types: Types) -> str:
    axes, dtype = graph.ints(node.attrs["axis"]), node.type.dtype
    if dtype not in NARROW:
        return graph.add("ReduceSum", args[0], axes, keepdims=1)
    return graph.cast(graph.add("ReduceSum", graph.cast(args[0], "int32"), axes, keepdims=1), dtype)


def _argmax(graph: Graph, node: Node, args: Args, types: Types) -> str:
    axis: int = node.attrs["axis"]
    (x,), dtype = args, types[0].dtype
    if dtype in FLOATS:  # NaN is the largest, and the first one is selected.
        nan_mask, has_nan = _mark_nan(graph, x, axis)
        nan_mask = nan_mask if dtype == "float32" else graph.cast(nan_mask, dtype)
        x = graph.add("Where", has_nan, nan_mask, x)
    elif dtype == "int16":
        x = graph.cast(x, "int32")
    return graph.add("ArgMax", x, axis=axis, keepdims=1)


def _softmax(graph: Graph, node: Node, args: Args, types: Types) -> str:
    (x,), dtype = args, node.type.dtype
    wide_dtype: DType = node.attrs["sum_dtype"]
    if not node.type.width:
        return x
    maximum = graph.add("ReduceMax", x, graph.ints(1), keepdims=1)
    has_nan = _mark_nan(graph, x, 1)[1]
    maximum_or_nan = graph.add("Where", has_nan, graph.scalar(np.nan, dtype), maximum)
    exponentials = _exp(graph, graph.add("Sub", x, maximum_or_nan), dtype)
    total = graph.add("ReduceSum", graph.cast(exponentials, wide_dtype), graph.ints(1), keepdims=1)
    return graph.add("Div", exponentials, graph.cast(total, dtype))


def _batch_matmul(graph: Graph, node: Node, args: Args, types: Types) -> str:
    trees_first = graph.add("Transpose", args[0], perm=[1, 0, 2])
    product = _widen_to_int32("MatMul")(graph, node, [trees_first, args[1]], types)
    return graph.add("Transpose", product, perm=[1, 0, 2])


FUNCTIONS: Mapping[str, Emit] = {
    **{
        op.lower(): _emit_single_node(op)
        for op in (
            *("Log", "Sqrt", "Tanh", "Floor", "Ceil", "Sin", "Cos", "Pow", "Neg", "Abs", "Div"),
            *("And", "Or", "Not", "IsNaN"),
        )
    },
    "rint": _emit_single_node("Round"),
    "bit_and": _emit_single_node("BitwiseAnd"),
    **{op.lower(): _widen_to_int32(op) for op in ("Add", "Sub", "Mul", "MatMul")},
    "maximum": _widen_to_int32("Max"),
    "minimum": _widen_to_int32("Min"),
    "lt": _emit_comparison("Less"),
    "le": _emit_comparison("LessOrEqual"),
    "gt": _emit_comparison("Greater"),
    "ge": _emit_comparison("GreaterOrEqual"),
    "eq": _emit_comparison("Equal"),
    "ne": _emit_not_equal,
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
    "max": _make_extreme("ReduceMax"),
    "min": _make_extreme("ReduceMin"),
    "argmax": _argmax,
    "softmax": _softmax,
    "accumulate": accumulate,
    "batch_matmul": _batch_matmul,
    "tree_ensemble": tree_ensemble,
}
"""Operator -> its emitter, for values that are not strings."""


def _emit_fast_take(graph: Graph, node: Node, args: Args, types: Types) -> str:
    table, index = types
    is_unsupported = table.dtype == "string" or int(np.prod(table.shape[1:], dtype=np.int64)) != 1
    if is_unsupported or 0 in (*table.shape, *index.shape[1:]):
        return FUNCTIONS["take"](graph, node, args, types)
    flat = graph.add("Reshape", _cast_index(graph, args[1], index.dtype), graph.ints(-1))
    table_values = graph.add("Reshape", args[0], graph.ints(-1))
    taken_values = graph.add("GatherElements", table_values, flat, axis=0)
    return graph.add("Reshape", taken_values, graph.ints(-1, *node.type.shape[1:]))


def _emit_fast_select(graph: Graph, node: Node, args: Args, types: Types) -> str:
    indices: Array = node.attrs["indices"]
    start, size = int(indices[0]) if indices.size else 0, indices.size
    is_consecutive = np.array_equal(indices, np.arange(start, start + size))
    # Gather selects up to 4 columns as fast as GatherElements.
    if is_consecutive or size <= 4 or len(types[0].shape) != 2 or types[0].dtype == "string":
        return FUNCTIONS["select"](graph, node, args, types)
    rows = graph.add("Shape", args[0], start=0, end=1)
    shape = graph.add("Concat", rows, graph.ints(size), axis=0)
    row_of_indices = graph.constant(indices.reshape(1, -1).astype(np.int32))
    expanded_indices = graph.add("Expand", row_of_indices, shape)
    return graph.add("GatherElements", args[0], expanded_indices, axis=1)


EMIT: Mapping[str, Emit] = {**FUNCTIONS, "take": _emit_fast_take, "select": _emit_fast_select}
"""Operator -> its emitter, as in `FUNCTIONS`, but with faster look-ups; used for sessions."""
