"""The tensor operators as ONNX nodes: operator -> small function, with the reference's results.

Where onnxruntime's kernels disagree with numpy (NaN in maxima over columns and in argmax, the
accuracy of log1p, arithmetic shifts) or are missing (most of int16 and bool), the function spells
the operator with others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from onnx import TensorProto, numpy_helper

from sqlml.backends.onnxruntime.graph import Graph
from sqlml.errors import BackendError
from sqlml.ir import reference
from sqlml.ir.operators.piecewise import pieces
from sqlml.ir.program import Node
from sqlml.ir.trees import Ensemble
from sqlml.types import FLOATS, Array, DType, TensorType, numpy_dtype

# Trees in ONNX: ai.onnx.ml's TreeEnsemble finds the exit leaves, and a running sum adds them.
#
# TreeEnsemble itself would add the leaves in its own order and in the dtype of the thresholds, so
# it is asked for the *number* of each tree's exit leaf instead: one target per tree, and a leaf's
# weight is its number among the tree's own. CumSum adds from left to right, in the source's
# order.


_BRANCH_LEQ, _BRANCH_LT = 0, 1


def accumulate(g: Graph, node: Node, args: Sequence[str], types: Sequence[TensorType]) -> str:
    """base + the values of tree 0, + those of tree 1 .., each sum rounded before the next."""
    base: Array = node.attrs["base"]
    target: Array = node.attrs["target"]
    trees, values = types[0].shape[1:]
    flat = g.add("Reshape", args[0], g.ints(-1, trees * values)) if trees * values else None
    return ordered_sum(g, flat, args[0], base, target, values)


def ordered_sum(
    g: Graph, flat: str | None, rows_of: str, base: Array, target: Array, values: int
) -> str:
    """(n, K): for each output the base, then its terms among the columns of `flat` in order.

    `flat` is (n, T * V), None when there are no trees; tree t has columns t*V .. and adds them to
    outputs target[t] ..

    Raises:
        BackendError: the sums are of float16.
    """
    if base.dtype == np.float16:
        raise BackendError("ONNX has no float16 sum that rounds after each term")
    outputs, width = base.size, target.size * values
    rows = g.add("Shape", rows_of, start=0, end=1)
    # Outputs with fewer terms are filled up with -0.0, which changes no sum.
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
    """A tree_ensemble operator without categorical nodes.

    Raises:
        BackendError: it has categorical nodes.
    """
    e = Ensemble.of(node.attrs)
    if e.has_categories:
        raise BackendError("ONNX has no category sets with the same meaning")
    values = e.leaf_values.shape[1]
    if not e.nodes:
        return _same_for_all(g, node, args[0], types[0])
    first = _first_leaves(e)
    owner = np.repeat(np.arange(e.trees), np.diff(np.append(first, e.leaf_values.shape[0])))
    number = np.arange(owner.size) - first[owner]
    x, dtype = args[0], types[0].dtype
    if dtype == "float16":
        x, dtype = g.cast(x, "float32"), "float32"
    elif dtype == "float32" and number.size and number.max() >= 1 << 24:
        x, dtype = g.cast(x, "float64"), "float64"
    leaves = g.cast(_exit_numbers(g, e, x, dtype, owner, number), "int64")
    places = g.add("Add", leaves, g.constant(first))
    picked = g.add("Gather", g.constant(e.leaf_values), places, axis=0)
    flat = g.add("Reshape", picked, g.ints(-1, e.trees * values))
    return ordered_sum(g, flat, args[0], e.base, e.target, values)


def _same_for_all(g: Graph, node: Node, x: str, kind: TensorType) -> str:
    """The value of every row where no tree tests anything: TreeEnsemble would still read a column,
    and there may be none."""
    nothing = np.zeros((1, kind.width), numpy_dtype(kind.dtype))
    total: Array = reference.FUNCTIONS["tree_ensemble"]([nothing], node.attrs)[0]
    made = g.constant(total)
    if not kind.width:
        rows = g.add("Shape", x, start=0, end=1)
        return g.add("Expand", made, g.add("Concat", rows, g.ints(total.size), axis=0))
    # The importer of ONNX sees at this that there is one for each row.
    first = g.add("Gather", x, g.ints(0), axis=1)
    return g.add("Where", g.add("IsNaN", first), made, made)


def _exit_numbers(g: Graph, e: Ensemble, x: str, dtype: DType, owner: Array, number: Array) -> str:
    """(n, T): the number of each tree's exit leaf among its own."""
    # A tree that is a single leaf gets a node of its own that goes to that leaf either way.
    lone = np.flatnonzero(e.roots < 0)
    extra = e.nodes + np.arange(lone.size)
    roots = e.roots.astype(np.int64).copy()
    roots[lone] = extra
    own_leaf = e.roots[lone]
    left = np.concatenate([e.left, own_leaf])
    right = np.concatenate([e.right, own_leaf])
    threshold = np.concatenate([e.threshold, np.zeros(lone.size, e.threshold.dtype)])
    count = left.size
    mode = _BRANCH_LT if e.compare == "lt" else _BRANCH_LEQ

    def numbers(values: Array) -> TensorProto:
        return numpy_helper.from_array(values.astype(dtype))

    return g.add(
        "TreeEnsemble",
        x,
        domain="ai.onnx.ml",
        n_targets=e.trees,
        aggregate_function=1,
        post_transform=0,
        tree_roots=roots.tolist(),
        nodes_featureids=np.concatenate([e.feature, np.zeros(lone.size, np.int32)]).tolist(),
        nodes_modes=numpy_helper.from_array(np.full(count, mode, np.uint8)),
        nodes_splits=numbers(threshold),
        nodes_truenodeids=np.where(left < 0, ~left, left).tolist(),
        nodes_trueleafs=(left < 0).astype(int).tolist(),
        nodes_falsenodeids=np.where(right < 0, ~right, right).tolist(),
        nodes_falseleafs=(right < 0).astype(int).tolist(),
        nodes_missing_value_tracks_true=np.concatenate([e.default_left, np.zeros(lone.size, bool)])
        .astype(int)
        .tolist(),
        leaf_targetids=owner.tolist(),
        leaf_weights=numbers(number),
    )


def _first_leaves(e: Ensemble) -> Array:
    """The first leaf of each tree, int64 (T,): leaves of one tree follow each other."""
    inner = np.bincount(e.node_roots(), minlength=e.trees) if e.nodes else np.zeros(e.trees, int)
    return np.concatenate([[0], np.cumsum(inner + 1)[:-1]]).astype(np.int64)


Args = Sequence[str]
Types = Sequence[TensorType]
Emit = Callable[[Graph, Node, Args, Types], str]
"""Append a node's ONNX form to the graph: its inputs as values, and their types -> its value."""

NARROW = frozenset({"bool", "int8", "int16"})
"""Types that onnxruntime's kernels mostly lack; int32 holds them all."""


def _plain(op: str) -> Emit:
    return lambda g, node, args, types: g.add(op, *args)


def _widened(op: str) -> Emit:
    """An operator of numbers that is computed in int32 where the kernel is missing."""

    def emit(g: Graph, node: Node, args: Args, types: Types) -> str:
        if types[0].dtype not in NARROW:
            return g.add(op, *args)
        result = g.add(op, *[g.cast(a, "int32") for a in args])
        return g.cast(result, node.type.dtype)

    return emit


def _comparison(op: str) -> Emit:
    """The result is bool whatever the operands are."""

    def emit(g: Graph, node: Node, args: Args, types: Types) -> str:
        if types[0].dtype in NARROW:
            args = [g.cast(a, "int32") for a in args]
        return g.add(op, *args)

    return emit


def _not_equal(g: Graph, node: Node, args: Args, types: Types) -> str:
    return g.add("Not", _comparison("Equal")(g, node, args, types))


def _exp(g: Graph, x: str, dtype: DType) -> str:
    """float32 by way of float64, as the reference."""
    if dtype != "float32":
        return g.add("Exp", x)
    return g.cast(g.add("Exp", g.cast(x, "float64")), dtype)


def _log1p(g: Graph, node: Node, args: Args, types: Types) -> str:
    """log(u) * (x / (u - 1)) with u = 1 + x: HP-15C's formula, good to the last digits."""
    (x,), one = args, g.scalar(1, node.type.dtype)
    u = g.add("Add", x, one)
    exact = g.add("Mul", g.add("Log", u), g.add("Div", x, g.add("Sub", u, one)))
    small = g.add("Equal", u, one)
    infinite = g.add("Equal", x, g.scalar(np.inf, node.type.dtype))
    return g.add("Where", g.add("Or", small, infinite), x, exact)


def _expm1(g: Graph, node: Node, args: Args, types: Types) -> str:
    """u - 1 with u = exp(x) far from 0; near it, (u - 1) * x / log(u)."""
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
    if dtype == "float32":  # XGBoost's own formula
        limited = g.add("Min", g.add("Neg", x), g.scalar(88.7, dtype))
        limited = g.add("Where", g.add("IsNaN", x), x, limited)
        total = g.add("Add", _exp(g, limited, dtype), one)
        return g.add("Div", one, g.add("Add", total, g.scalar(1e-16, dtype)))
    return g.add("Div", one, g.add("Add", one, _exp(g, g.add("Neg", x), dtype)))


def _mod(g: Graph, node: Node, args: Args, types: Types) -> str:
    """C's remainder, moved to the sign of the divisor as in Python."""
    rest, zero = g.add("Mod", *args, fmod=1), g.scalar(0, node.type.dtype)
    signs = [g.add("Less", value, zero) for value in (rest, args[1])]
    moved = g.add("And", g.add("Xor", *signs), g.add("Not", g.add("Equal", rest, zero)))
    return g.add("Where", moved, g.add("Add", rest, args[1]), rest)


def _search_sorted(g: Graph, node: Node, args: Args, types: Types) -> str:
    """Each number beside all edges of its column: how many are below it; of NaN all."""
    (x,) = args
    columns = list(pieces(_array(node, "edges"), _array(node, "offsets")))
    most = max((edges.size for edges in columns), default=0)
    edges = np.zeros((1, len(columns), max(most, 1)), numpy_dtype(types[0].dtype))
    is_edge = np.zeros(edges.shape, bool)
    for j, own in enumerate(columns):
        edges[0, j, : own.size], is_edge[0, j, : own.size] = own, True
    compare = "Less" if node.attrs["side"] == "left" else "LessOrEqual"
    below = g.add(compare, g.constant(edges), g.add("Unsqueeze", x, g.ints(2)))
    found = g.add("And", below, g.constant(is_edge))
    count = g.add("ReduceSum", g.cast(found, "int64"), g.ints(2), keepdims=0)
    whole = g.constant(is_edge.sum(axis=2).astype(np.int64))
    return g.add("Where", g.add("IsNaN", x), whole, count)


def _trunc(g: Graph, node: Node, args: Args, types: Types) -> str:
    (x,) = args
    negative = g.add("Less", x, g.scalar(0, node.type.dtype))
    return g.add("Where", negative, g.add("Ceil", x), g.add("Floor", x))


def _sign(g: Graph, node: Node, args: Args, types: Types) -> str:
    (x,) = args
    signs = g.add("Sign", x)
    return g.add("Where", g.add("IsNaN", x), x, signs) if node.type.dtype in FLOATS else signs


def _square(g: Graph, node: Node, args: Args, types: Types) -> str:
    return _widened("Mul")(g, node, [args[0], args[0]], [types[0], types[0]])


def _shift_right(g: Graph, node: Node, args: Args, types: Types) -> str:
    """Arithmetic: ONNX shifts only unsigned numbers, and divides towards 0."""
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
    indices = _array(node, "indices")
    if indices.size == types[0].width and np.array_equal(indices, np.arange(indices.size)):
        return args[0]
    return g.add("Gather", args[0], g.constant(indices), axis=1)


def _reshape(g: Graph, node: Node, args: Args, types: Types) -> str:
    shape: tuple[int, ...] = node.attrs["shape"]
    if 0 in shape:  # -1 would be ambiguous
        rows = g.add("Shape", args[0], start=0, end=1)
        return g.add("Reshape", args[0], g.add("Concat", rows, g.ints(*shape), axis=0), allowzero=1)
    return g.add("Reshape", args[0], g.ints(-1, *shape))


def _index(g: Graph, x: str, dtype: DType) -> str:
    return x if dtype in ("int32", "int64") else g.cast(x, "int64")


def _take(g: Graph, node: Node, args: Args, types: Types) -> str:
    return g.add("Gather", args[0], _index(g, args[1], types[1].dtype), axis=0)


def _gather(g: Graph, node: Node, args: Args, types: Types) -> str:
    return g.add("GatherElements", args[0], _index(g, args[1], types[1].dtype), axis=1)


def _any_nan(g: Graph, x: str, axis: int) -> tuple[str, str]:
    """Where x is NaN, as float32 0 or 1; and whether it is anywhere along the axis."""
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
        if dtype in FLOATS:  # the kernel passes over NaN
            result = g.add("Where", _any_nan(g, x, axis)[1], g.scalar(np.nan, dtype), result)
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
    if dtype in FLOATS:  # NaN counts as the largest, and the first one wins
        marks, some = _any_nan(g, x, axis)
        x = g.add("Where", some, marks if dtype == "float32" else g.cast(marks, dtype), x)
    elif dtype == "int16":
        x = g.cast(x, "int32")
    return g.add("ArgMax", x, axis=axis, keepdims=1)


def _softmax(g: Graph, node: Node, args: Args, types: Types) -> str:
    (x,), dtype = args, node.type.dtype
    wide: DType = node.attrs["sum_dtype"]
    if not node.type.width:
        return x
    most = g.add("ReduceMax", x, g.ints(1), keepdims=1)  # a NaN in x stays one in x - most
    nan = g.add("Where", _any_nan(g, x, 1)[1], g.scalar(np.nan, dtype), most)
    e = _exp(g, g.add("Sub", x, nan), dtype)
    total = g.add("ReduceSum", g.cast(e, wide), g.ints(1), keepdims=1)
    return g.add("Div", e, g.cast(total, dtype))


def _batch_matmul(g: Graph, node: Node, args: Args, types: Types) -> str:
    trees_first = g.add("Transpose", args[0], perm=[1, 0, 2])
    product = _widened("MatMul")(g, node, [trees_first, args[1]], types)
    return g.add("Transpose", product, perm=[1, 0, 2])


def _array(node: Node, name: str) -> Array:
    value: Array = node.attrs[name]
    return value


FUNCTIONS: Mapping[str, Emit] = MappingProxyType(
    {
        "constant": lambda g, node, args, types: g.constant(_array(node, "value")),
        "exp": lambda g, node, args, types: _exp(g, args[0], node.type.dtype),
        "log": _plain("Log"),
        "log1p": _log1p,
        "expm1": _expm1,
        "sqrt": _plain("Sqrt"),
        "sigmoid": _sigmoid,
        "tanh": _plain("Tanh"),
        "trunc": _trunc,
        "floor": _plain("Floor"),
        "ceil": _plain("Ceil"),
        "rint": _plain("Round"),
        "sin": _plain("Sin"),
        "cos": _plain("Cos"),
        "pow": _plain("Pow"),
        "neg": _plain("Neg"),
        "abs": _plain("Abs"),
        "sign": _sign,
        "square": _square,
        "add": _widened("Add"),
        "sub": _widened("Sub"),
        "mul": _widened("Mul"),
        "div": _plain("Div"),
        "mod": _mod,
        "search_sorted": _search_sorted,
        "maximum": _widened("Max"),
        "minimum": _widened("Min"),
        "lt": _comparison("Less"),
        "le": _comparison("LessOrEqual"),
        "gt": _comparison("Greater"),
        "ge": _comparison("GreaterOrEqual"),
        "eq": _comparison("Equal"),
        "ne": _not_equal,
        "and": _plain("And"),
        "or": _plain("Or"),
        "not": _plain("Not"),
        "shift_right": _shift_right,
        "bit_and": _plain("BitwiseAnd"),
        "isnan": _plain("IsNaN"),
        "where": _where,
        "cast": lambda g, node, args, types: g.cast(args[0], node.type.dtype),
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
        "matmul": _widened("MatMul"),
        "batch_matmul": _batch_matmul,
        "tree_ensemble": tree_ensemble,
    }
)
"""Operators that an ONNX graph can hold, when no strings are about."""


# Lookups in the form that onnxruntime runs fastest, in place of the plain Gather of `functions`.
#
# onnxruntime's Gather copies entry by entry with a call each, 5 to 6 ns; GatherElements is one
# loop, 0.6 ns. With 100 trees TT (8 levels) became 2.5 times as fast, PTT 2.7, GEMM (3 levels)
# 1.6. Files that are exported keep the plain form, which says the same in fewer nodes.


FEW = 4
"""Columns that Gather picks as fast."""


def _fast_take(g: Graph, node: Node, args: Args, types: Types) -> str:
    table, index = types
    plain = table.dtype == "string" or int(np.prod(table.shape[1:], dtype=np.int64)) != 1
    if plain or 0 in (*table.shape, *index.shape[1:]):
        return FUNCTIONS["take"](g, node, args, types)
    at = args[1] if index.dtype in ("int32", "int64") else g.cast(args[1], "int64")
    flat = g.add("Reshape", at, g.ints(-1))
    taken = g.add("GatherElements", g.add("Reshape", args[0], g.ints(-1)), flat, axis=0)
    return g.add("Reshape", taken, g.ints(-1, *node.type.shape[1:]))


def _fast_select(g: Graph, node: Node, args: Args, types: Types) -> str:
    indices: Array = node.attrs["indices"]
    start, size = int(indices[0]) if indices.size else 0, indices.size
    following = np.array_equal(indices, np.arange(start, start + size))
    if following or size <= FEW or len(types[0].shape) != 2 or types[0].dtype == "string":
        return FUNCTIONS["select"](g, node, args, types)
    rows = g.add("Shape", args[0], start=0, end=1)
    shape = g.add("Concat", rows, g.ints(size), axis=0)
    chosen = g.add("Expand", g.constant(indices.reshape(1, -1).astype(np.int32)), shape)
    return g.add("GatherElements", args[0], chosen, axis=1)


EMIT: Mapping[str, Emit] = MappingProxyType(
    {**FUNCTIONS, "take": _fast_take, "select": _fast_select}
)
"""`functions.FUNCTIONS` with these lookups: what a session is made of."""
