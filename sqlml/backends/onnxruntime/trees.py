"""Trees in ONNX: ai.onnx.ml's TreeEnsemble finds the exit leaves, and a running sum adds them.

TreeEnsemble itself would add the leaves in its own order and in the dtype of the thresholds, so it
is asked for the *number* of each tree's exit leaf instead: one target per tree, and a leaf's weight
is its number among the tree's own. CumSum adds from left to right, in the source's order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto, numpy_helper

from sqlml.backends.onnxruntime.graph import Graph
from sqlml.errors import BackendError
from sqlml.ir import reference
from sqlml.ir.program import Node
from sqlml.ir.trees import Ensemble
from sqlml.types import Array, DType, TensorType, numpy_dtype

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
