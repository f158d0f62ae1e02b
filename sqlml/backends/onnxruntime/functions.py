"""Emit the tensor operators as ONNX nodes, with the results of the reference interpreter.

If a kernel of onnxruntime disagrees with numpy, the operator is composed of other operators. The
same holds for missing kernels, such as most kernels for int16 and bool. TreeEnsemble would add leaf
values in another order and in the dtype of the thresholds. So TreeEnsemble only returns the number
of each tree's exit leaf, and CumSum adds the leaf values.

Exported files use `FUNCTIONS`, whose plain Gather needs fewer nodes. Sessions use `EMIT`, which
prefers GatherElements. That made TT and PTT with 100 trees 2.5 times as fast: Gather copies each
entry with a call, in 5 to 6 ns; GatherElements is one loop, which needs 0.6 ns per entry.
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
Emitter = Callable[[Graph, Node, Args, Types], str]
"""A function that appends nodes for an operator to a graph, given the graph names and the types of
its inputs, and returns the graph name of its result."""


def emit_accumulate(graph: Graph, node: Node, args: Args, types: Types) -> str:
    """Emit the base plus the values of all trees, in tree order; round after each addition."""
    num_trees, values_per_tree = types[0].shape[1:]
    width = num_trees * values_per_tree
    leaf_values = graph.add("Reshape", args[0], graph.ints(-1, width)) if width else None
    base, target = node.attrs["base"], node.attrs["target"]
    return emit_ordered_sum(graph, leaf_values, args[0], base, target, values_per_tree)


def emit_ordered_sum(
    graph: Graph, leaf_values: str | None, x: str, base: Array, target: Array, values_per_tree: int
) -> str:
    """Emit the outputs (n, K) of T trees: the base (K,) plus leaf values, added in tree order.

    Each tree has V = `values_per_tree` columns in `leaf_values`, (n, T * V). Tree t adds these
    columns to the outputs from target[t] to target[t] + V - 1. If T * V is 0, `leaf_values` is
    None. The graph reads the number of rows n from `x`.
    """
    if base.dtype == np.float16:
        raise BackendError("ONNX has no float16 sum that rounds after each term")
    num_outputs, width = base.size, target.size * values_per_tree
    row_count = graph.add("Shape", x, start=0, end=1)
    # An output with fewer terms is padded with -0.0, which does not change the sum.
    base_and_padding = graph.constant(np.append(base, -0.0).astype(base.dtype))
    shape = graph.add("Concat", row_count, graph.ints(num_outputs + 1), axis=0)
    all_columns = graph.add("Expand", base_and_padding, shape)
    if leaf_values is not None:
        all_columns = graph.add("Concat", leaf_values, all_columns, axis=1)
    output_of_column = (target[:, None] + np.arange(values_per_tree)).ravel()
    terms = [np.flatnonzero(output_of_column == k) for k in range(num_outputs)]
    max_terms = max((indices.size for indices in terms), default=0)
    # Each row lists the columns to add for one output: the base, the terms, and padding.
    column_order = np.full((num_outputs, 1 + max_terms), width + num_outputs, np.int64)
    column_order[:, 0] = width + np.arange(num_outputs)
    for row, columns in zip(column_order, terms, strict=True):
        row[1 : 1 + columns.size] = columns
    ordered_terms = graph.add("Gather", all_columns, graph.constant(column_order), axis=1)
    sums = graph.add("CumSum", ordered_terms, graph.constant(np.array(2, np.int64)))
    return graph.add("Gather", sums, graph.constant(np.array(max_terms, np.int64)), axis=2)


def emit_tree_ensemble(graph: Graph, node: Node, args: Args, types: Types) -> str:
    """Emit a tree_ensemble operator; raise BackendError if a tree tests a category set."""
    ensemble = Ensemble.of(node.attrs)
    if ensemble.has_categories:
        raise BackendError("ONNX has no category sets with the same meaning")
    num_leaves, values_per_leaf = ensemble.leaf_values.shape
    if not ensemble.nodes:
        return _emit_constant_sum(graph, node, args[0], types[0])
    inner_counts = np.bincount(ensemble.node_roots(), minlength=ensemble.trees)
    first_leaves = np.concatenate([[0], np.cumsum(inner_counts + 1)[:-1]]).astype(np.int64)
    tree_of_leaf = np.repeat(np.arange(ensemble.trees), np.diff(first_leaves, append=num_leaves))
    leaf_numbers = np.arange(tree_of_leaf.size) - first_leaves[tree_of_leaf]
    x, dtype = args[0], types[0].dtype
    if dtype == "float16":
        x, dtype = graph.cast(x, "float32"), "float32"
    elif dtype == "float32" and leaf_numbers.size and leaf_numbers.max() >= 1 << 24:
        x, dtype = graph.cast(x, "float64"), "float64"
    leaf_of_tree = _emit_exit_numbers(graph, ensemble, x, dtype, tree_of_leaf, leaf_numbers)
    positions = graph.add("Add", graph.cast(leaf_of_tree, "int64"), graph.constant(first_leaves))
    values = graph.add("Gather", graph.constant(ensemble.leaf_values), positions, axis=0)
    flat = graph.add("Reshape", values, graph.ints(-1, ensemble.trees * values_per_leaf))
    return emit_ordered_sum(graph, flat, args[0], ensemble.base, ensemble.target, values_per_leaf)


def _emit_constant_sum(graph: Graph, node: Node, x: str, x_type: TensorType) -> str:
    zeros = np.zeros((1, x_type.width), numpy_dtype(x_type.dtype))
    total: Array = reference.FUNCTIONS["tree_ensemble"]([zeros], node.attrs)[0]
    outputs = graph.constant(total)
    if not x_type.width:
        row_count = graph.add("Shape", x, start=0, end=1)
        shape = graph.add("Concat", row_count, graph.ints(total.size), axis=0)
        return graph.add("Expand", outputs, shape)
    # Both branches are the constant. Where makes sqlml's ONNX importer see one value per row.
    first_column = graph.add("Gather", x, graph.ints(0), axis=1)
    return graph.add("Where", graph.add("IsNaN", first_column), outputs, outputs)


def _emit_exit_numbers(
    graph: Graph, ensemble: Ensemble, x: str, dtype: DType, tree_of_leaf: Array, leaf_numbers: Array
) -> str:
    """Emit the number of each row's exit leaf in each tree, (n, T) of `dtype`, counted per tree."""
    # A tree that is a single leaf gets a node, and the leaf becomes both children of this node.
    single_leaf_trees = np.flatnonzero(ensemble.roots < 0)
    new_nodes = ensemble.nodes + np.arange(single_leaf_trees.size)
    roots = ensemble.roots.astype(np.int64)
    roots[single_leaf_trees] = new_nodes
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


def _make_node_emitter(op: str) -> Emitter:
    return lambda g, node, args, types: g.add(op, *args)


def _make_widening_emitter(op: str, is_comparison: bool = False) -> Emitter:
    """Return an emitter of `op` that computes in int32 for dtypes without a kernel."""

    def emit(graph: Graph, node: Node, args: Args, types: Types) -> str:
        if types[0].dtype not in NARROW:
            return graph.add(op, *args)
        result = graph.add(op, *[graph.cast(a, "int32") for a in args])
        return result if is_comparison else graph.cast(result, node.type.dtype)

    return emit


_make_comparison_emitter = partial(_make_widening_emitter, is_comparison=True)


def _emit_not_equal(graph: Graph, node: Node, args: Args, types: Types) -> str:
    return graph.add("Not", _make_comparison_emitter("Equal")(graph, node, args, types))


def _emit_exp(graph: Graph, x: str, dtype: DType) -> str:
    if dtype != "float32":
        return graph.add("Exp", x)
    return graph.cast(graph.add("Exp", graph.cast(x, "float64")), dtype)


def _emit_log1p(graph: Graph, node: Node, args: Args, types: Types) -> str:
    """Emit log(u) * (x / (u - 1)), where u is 1 + x: the accurate formula of the HP-15C."""
    (x,), one = args, graph.scalar(1, node.type.dtype)
    u = graph.add("Add", x, one)
    exact = graph.add("Mul", graph.add("Log", u), graph.add("Div", x, graph.add("Sub", u, one)))
    is_small = graph.add("Equal", u, one)
    is_infinite = graph.add("Equal", x, graph.scalar(np.inf, node.type.dtype))
    return graph.add("Where", graph.add("Or", is_small, is_infinite), x, exact)


def _emit_expm1(graph: Graph, node: Node, args: Args, types: Types) -> str:
    """Emit u - 1 if |x| > 1, otherwise (u - 1) * x / log(u), where u is exp(x)."""
    (x,), dtype = args, node.type.dtype
    one = graph.scalar(1, dtype)
    u = _emit_exp(graph, x, dtype)
    difference = graph.add("Sub", u, one)
    result_near_zero = graph.add("Div", graph.add("Mul", difference, x), graph.add("Log", u))
    is_small = graph.add("Equal", u, one)
    is_far = graph.add("Greater", graph.add("Abs", x), one)
    return graph.add("Where", is_small, x, graph.add("Where", is_far, difference, result_near_zero))


def _emit_sigmoid(graph: Graph, node: Node, args: Args, types: Types) -> str:
    (x,), dtype = args, node.type.dtype
    one = graph.scalar(1, dtype)
    if dtype == "float32":  # This is XGBoost's formula.
        clipped = graph.add("Min", graph.add("Neg", x), graph.scalar(88.7, dtype))
        clipped = graph.add("Where", graph.add("IsNaN", x), x, clipped)
        total = graph.add("Add", _emit_exp(graph, clipped, dtype), one)
        return graph.add("Div", one, graph.add("Add", total, graph.scalar(1e-16, dtype)))
    exponential = _emit_exp(graph, graph.add("Neg", x), dtype)
    return graph.add("Div", one, graph.add("Add", one, exponential))


def _emit_mod(graph: Graph, node: Node, args: Args, types: Types) -> str:
    """Emit C's remainder, adjusted to have the sign of the divisor, as Python's remainder has."""
    remainder, zero = graph.add("Mod", *args, fmod=1), graph.scalar(0, node.type.dtype)
    signs = [graph.add("Less", value, zero) for value in (remainder, args[1])]
    needs_adjustment = graph.add(
        "And", graph.add("Xor", *signs), graph.add("Not", graph.add("Equal", remainder, zero))
    )
    return graph.add("Where", needs_adjustment, graph.add("Add", remainder, args[1]), remainder)


def _emit_search_sorted(graph: Graph, node: Node, args: Args, types: Types) -> str:
    """Count, for each number, the edges below it in the same column; NaN is above all edges."""
    (x,) = args
    columns = list(split_points(node.attrs["edges"], node.attrs["offsets"]))
    max_edges = max((edges.size for edges in columns), default=0)
    edges = np.zeros((1, len(columns), max(max_edges, 1)), numpy_dtype(types[0].dtype))
    is_edge = np.zeros(edges.shape, bool)
    for j, column_edges in enumerate(columns):
        edges[0, j, : column_edges.size], is_edge[0, j, : column_edges.size] = column_edges, True
    op = "Less" if node.attrs["side"] == "left" else "LessOrEqual"
    all_edges, x_by_column = graph.constant(edges), graph.add("Unsqueeze", x, graph.ints(2))
    is_below = graph.add("And", graph.add(op, all_edges, x_by_column), graph.constant(is_edge))
    num_below = graph.add("ReduceSum", graph.cast(is_below, "int64"), graph.ints(2), keepdims=0)
    num_edges = graph.constant(is_edge.sum(axis=2).astype(np.int64))
    return graph.add("Where", graph.add("IsNaN", x), num_edges, num_below)


def _emit_trunc(graph: Graph, node: Node, args: Args, types: Types) -> str:
    (x,) = args
    is_negative = graph.add("Less", x, graph.scalar(0, node.type.dtype))
    return graph.add("Where", is_negative, graph.add("Ceil", x), graph.add("Floor", x))


def _emit_sign(graph: Graph, node: Node, args: Args, types: Types) -> str:
    (x,) = args
    signs = graph.add("Sign", x)
    has_nan = node.type.dtype in FLOATS
    return graph.add("Where", graph.add("IsNaN", x), x, signs) if has_nan else signs


def _emit_square(graph: Graph, node: Node, args: Args, types: Types) -> str:
    return _make_widening_emitter("Mul")(graph, node, [args[0], args[0]], [types[0], types[0]])


def _emit_shift_right(graph: Graph, node: Node, args: Args, types: Types) -> str:
    """Emit an arithmetic shift as a division, because ONNX only shifts unsigned numbers."""
    x, bits = (graph.cast(a, "int64") for a in args)
    minus_one, zero = graph.scalar(-1, "int64"), graph.scalar(0, "int64")
    powers = graph.constant(np.int64(1) << np.arange(63, dtype=np.int64))
    divisor = graph.add("Gather", powers, graph.add("Min", bits, graph.scalar(62, "int64")))
    is_negative = graph.add("Less", x, zero)
    inverted = graph.add("Sub", minus_one, x)
    shifted = graph.add("Div", graph.add("Where", is_negative, inverted, x), divisor)
    shifted = graph.add("Where", graph.add("Equal", bits, graph.scalar(63, "int64")), zero, shifted)
    result = graph.add("Where", is_negative, graph.add("Sub", minus_one, shifted), shifted)
    return graph.cast(result, node.type.dtype)


def _emit_where(graph: Graph, node: Node, args: Args, types: Types) -> str:
    condition, *operands = args
    if node.type.dtype not in NARROW:
        return graph.add("Where", condition, *operands)
    selected = graph.add("Where", condition, *[graph.cast(a, "int32") for a in operands])
    return graph.cast(selected, node.type.dtype)


def _emit_concat(graph: Graph, node: Node, args: Args, types: Types) -> str:
    dtype = node.type.dtype
    typed_args = zip(args, types, strict=True)
    inputs = [a if t.dtype == dtype else graph.cast(a, dtype) for a, t in typed_args]
    return inputs[0] if len(inputs) == 1 else graph.add("Concat", *inputs, axis=1)


def _emit_select(graph: Graph, node: Node, args: Args, types: Types) -> str:
    indices: Array = node.attrs["indices"]
    if indices.size == types[0].width and np.array_equal(indices, np.arange(indices.size)):
        return args[0]
    return graph.add("Gather", args[0], graph.constant(indices), axis=1)


def _emit_reshape(graph: Graph, node: Node, args: Args, types: Types) -> str:
    shape: tuple[int, ...] = node.attrs["shape"]
    if 0 in shape:  # With an empty axis, -1 would be ambiguous.
        row_count = graph.add("Shape", args[0], start=0, end=1)
        lengths = graph.add("Concat", row_count, graph.ints(*shape), axis=0)
        return graph.add("Reshape", args[0], lengths, allowzero=1)
    return graph.add("Reshape", args[0], graph.ints(-1, *shape))


def _emit_index_cast(graph: Graph, x: str, dtype: DType) -> str:
    return x if dtype in ("int32", "int64") else graph.cast(x, "int64")


def _emit_take(graph: Graph, node: Node, args: Args, types: Types) -> str:
    return graph.add("Gather", args[0], _emit_index_cast(graph, args[1], types[1].dtype), axis=0)


def _emit_gather(graph: Graph, node: Node, args: Args, types: Types) -> str:
    index = _emit_index_cast(graph, args[1], types[1].dtype)
    return graph.add("GatherElements", args[0], index, axis=1)


def _emit_nan_masks(graph: Graph, x: str, axis: int) -> tuple[str, str]:
    """Emit two masks of the NaNs in `x`: float32 per number, and bool per line along `axis`."""
    nan_mask = graph.cast(graph.add("IsNaN", x), "float32")
    line_max = graph.add("ReduceMax", nan_mask, graph.ints(axis), keepdims=1)
    return nan_mask, graph.add("Greater", line_max, graph.scalar(0, "float32"))


def _make_extreme_emitter(op: str) -> Emitter:
    def emit(graph: Graph, node: Node, args: Args, types: Types) -> str:
        axis, dtype = node.attrs["axis"], node.type.dtype
        x = graph.cast(args[0], "int32") if dtype == "int16" else args[0]
        result = graph.add(op, x, graph.ints(axis), keepdims=1)
        if dtype in FLOATS:  # The kernel ignores NaN.
            has_nan = _emit_nan_masks(graph, x, axis)[1]
            result = graph.add("Where", has_nan, graph.scalar(np.nan, dtype), result)
        return graph.cast(result, dtype) if dtype == "int16" else result

    return emit


def _emit_sum(graph: Graph, node: Node, args: Args, types: Types) -> str:
    axes, dtype = graph.ints(node.attrs["axis"]), node.type.dtype
    if dtype not in NARROW:
        return graph.add("ReduceSum", args[0], axes, keepdims=1)
    return graph.cast(graph.add("ReduceSum", graph.cast(args[0], "int32"), axes, keepdims=1), dtype)


def _emit_argmax(graph: Graph, node: Node, args: Args, types: Types) -> str:
    axis: int = node.attrs["axis"]
    (x,), dtype = args, types[0].dtype
    if dtype in FLOATS:  # NaN is the largest value, and the first NaN is selected.
        nan_mask, has_nan = _emit_nan_masks(graph, x, axis)
        nan_mask = nan_mask if dtype == "float32" else graph.cast(nan_mask, dtype)
        x = graph.add("Where", has_nan, nan_mask, x)
    elif dtype == "int16":
        x = graph.cast(x, "int32")
    return graph.add("ArgMax", x, axis=axis, keepdims=1)


def _emit_softmax(graph: Graph, node: Node, args: Args, types: Types) -> str:
    (x,), dtype = args, node.type.dtype
    wide_dtype: DType = node.attrs["sum_dtype"]
    if not node.type.width:
        return x
    maximum = graph.add("ReduceMax", x, graph.ints(1), keepdims=1)
    has_nan = _emit_nan_masks(graph, x, 1)[1]
    maximum_or_nan = graph.add("Where", has_nan, graph.scalar(np.nan, dtype), maximum)
    exponentials = _emit_exp(graph, graph.add("Sub", x, maximum_or_nan), dtype)
    total = graph.add("ReduceSum", graph.cast(exponentials, wide_dtype), graph.ints(1), keepdims=1)
    return graph.add("Div", exponentials, graph.cast(total, dtype))


def _emit_batch_matmul(graph: Graph, node: Node, args: Args, types: Types) -> str:
    trees_first = graph.add("Transpose", args[0], perm=[1, 0, 2])
    product = _make_widening_emitter("MatMul")(graph, node, [trees_first, args[1]], types)
    return graph.add("Transpose", product, perm=[1, 0, 2])


FUNCTIONS: Mapping[str, Emitter] = {
    **{
        op.lower(): _make_node_emitter(op)
        for op in (
            *("Log", "Sqrt", "Tanh", "Floor", "Ceil", "Sin", "Cos", "Pow", "Neg", "Abs", "Div"),
            *("And", "Or", "Not", "IsNaN"),
        )
    },
    "rint": _make_node_emitter("Round"),
    "bit_and": _make_node_emitter("BitwiseAnd"),
    **{op.lower(): _make_widening_emitter(op) for op in ("Add", "Sub", "Mul", "MatMul")},
    "maximum": _make_widening_emitter("Max"),
    "minimum": _make_widening_emitter("Min"),
    "lt": _make_comparison_emitter("Less"),
    "le": _make_comparison_emitter("LessOrEqual"),
    "gt": _make_comparison_emitter("Greater"),
    "ge": _make_comparison_emitter("GreaterOrEqual"),
    "eq": _make_comparison_emitter("Equal"),
    "ne": _emit_not_equal,
    "constant": lambda g, node, args, types: g.constant(node.attrs["value"]),
    "exp": lambda g, node, args, types: _emit_exp(g, args[0], node.type.dtype),
    "cast": lambda g, node, args, types: g.cast(args[0], node.type.dtype),
    "log1p": _emit_log1p,
    "expm1": _emit_expm1,
    "sigmoid": _emit_sigmoid,
    "trunc": _emit_trunc,
    "sign": _emit_sign,
    "square": _emit_square,
    "mod": _emit_mod,
    "search_sorted": _emit_search_sorted,
    "shift_right": _emit_shift_right,
    "where": _emit_where,
    "concat": _emit_concat,
    "select": _emit_select,
    "reshape": _emit_reshape,
    "take": _emit_take,
    "gather": _emit_gather,
    "sum": _emit_sum,
    "max": _make_extreme_emitter("ReduceMax"),
    "min": _make_extreme_emitter("ReduceMin"),
    "argmax": _emit_argmax,
    "softmax": _emit_softmax,
    "accumulate": emit_accumulate,
    "batch_matmul": _emit_batch_matmul,
    "tree_ensemble": emit_tree_ensemble,
}
"""Map an operator to the emitter for values that are not strings."""


def _emit_fast_take(graph: Graph, node: Node, args: Args, types: Types) -> str:
    table, index = types
    is_unsupported = table.dtype == "string" or int(np.prod(table.shape[1:], dtype=np.int64)) != 1
    if is_unsupported or 0 in (*table.shape, *index.shape[1:]):
        return FUNCTIONS["take"](graph, node, args, types)
    flat = graph.add("Reshape", _emit_index_cast(graph, args[1], index.dtype), graph.ints(-1))
    table_values = graph.add("Reshape", args[0], graph.ints(-1))
    taken_values = graph.add("GatherElements", table_values, flat, axis=0)
    return graph.add("Reshape", taken_values, graph.ints(-1, *node.type.shape[1:]))


def _emit_fast_select(graph: Graph, node: Node, args: Args, types: Types) -> str:
    indices: Array = node.attrs["indices"]
    size = indices.size
    start = int(indices[0]) if size else 0
    is_consecutive = np.array_equal(indices, np.arange(start, start + size))
    # Gather selects up to 4 columns as fast as GatherElements.
    if is_consecutive or size <= 4 or len(types[0].shape) != 2 or types[0].dtype == "string":
        return FUNCTIONS["select"](graph, node, args, types)
    row_count = graph.add("Shape", args[0], start=0, end=1)
    shape = graph.add("Concat", row_count, graph.ints(size), axis=0)
    index_row = graph.constant(indices.reshape(1, -1).astype(np.int32))
    expanded_indices = graph.add("Expand", index_row, shape)
    return graph.add("GatherElements", args[0], expanded_indices, axis=1)


EMIT: Mapping[str, Emitter] = {**FUNCTIONS, "take": _emit_fast_take, "select": _emit_fast_select}
"""Emitters for sessions: those of `FUNCTIONS`, except for faster look-ups."""
