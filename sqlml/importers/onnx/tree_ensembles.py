"""TreeEnsembleClassifier, TreeEnsembleRegressor and TreeEnsemble of ai.onnx.ml.

They have onnxruntime's semantics (core/providers/cpu/ml/tree_ensemble_aggregator.h): leaves are
added tree by tree from 0, and base_values last. NaN fails every test except `!=`, unless
missing_value_tracks_true sends it to the true branch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sqlml.errors import ArtifactError, ProgramError
from sqlml.importers.onnx.estimators import apply_transform, argmax, expand_score, post_transform
from sqlml.importers.onnx.graph_items import Call, Choice, Item
from sqlml.importers.onnx.labels import read_class_values
from sqlml.importers.row_tensors import Rows, Uncovered
from sqlml.ir.builder import Value
from sqlml.ir.trees import RawTrees, build_ensemble
from sqlml.types import Array, DType

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, LEAF = range(8)
"""The modes of a node, as a TreeEnsemble numbers all but the last."""
_MODES = {
    "BRANCH_LEQ": LEQ,
    "BRANCH_LT": LT,
    "BRANCH_GTE": GTE,
    "BRANCH_GT": GT,
    "BRANCH_EQ": EQ,
    "BRANCH_NEQ": NEQ,
    "BRANCH_MEMBER": MEMBER,
    "LEAF": LEAF,
}


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """The N nodes of all trees, concatenated, arrays (N,).

    `true` and `false` are the absolute numbers of a node's children, -1 at leaves.
    """

    tree: Array
    roots: Array
    feature: Array
    mode: Array
    split: Array
    true: Array
    false: Array
    tracks_true: Array
    sets: dict[int, Array]


def read_classic_nodes(call: Call, dtype: DType) -> tuple[Nodes, dict[tuple[int, int], int]]:
    """Read the nodes of a TreeEnsembleClassifier or Regressor, and index (tree, node id).

    dtype is that of the thresholds.
    """
    tree = call.vector("nodes_treeids", "int64")
    number = call.vector("nodes_nodeids", "int64")
    n = tree.size
    modes = call.texts("nodes_modes")
    index_of = [_MODES.get(m, -1) for m in modes]
    if -1 in index_of or MEMBER in index_of:
        raise ArtifactError(f"operator {call.node.op}: a node has an unknown mode")
    wide = call.attr("nodes_values_as_tensor")
    split = call.vector("nodes_values") if wide is None else np.asarray(wide).ravel()
    tracks = call.vector("nodes_missing_value_tracks_true", "int64")
    columns = {
        "nodeids": number,
        "modes": np.array(index_of, np.int64),
        "values": split,
        "featureids": call.vector("nodes_featureids", "int64"),
        "truenodeids": call.vector("nodes_truenodeids", "int64"),
        "falsenodeids": call.vector("nodes_falsenodeids", "int64"),
        "missing_value_tracks_true": tracks if tracks.size else np.zeros(n, np.int64),
    }
    for name, values in columns.items():
        if values.size != n:
            raise ArtifactError(f"operator {call.node.op}: nodes_{name} has {values.size} of {n}")
    if not n:
        raise ArtifactError(f"operator {call.node.op} has no trees")
    node_index = {key: i for i, key in enumerate(zip(tree.tolist(), number.tolist(), strict=True))}
    starts = np.concatenate([[0], np.flatnonzero(np.diff(tree)) + 1])
    if len(node_index) != n or np.unique(tree[starts]).size != starts.size:
        raise ArtifactError(f"operator {call.node.op} has a node twice")
    leaf = columns["modes"] == LEAF

    def absolute(name: str) -> Array:
        keys = zip(tree.tolist(), columns[name].tolist(), strict=True)
        numbers = [
            -1 if end else node_index.get(key, -2) for end, key in zip(leaf, keys, strict=True)
        ]
        if -2 in numbers:
            raise ArtifactError(f"operator {call.node.op}: a branch leads nowhere")
        return np.array(numbers, np.int64)

    true, false = absolute("truenodeids"), absolute("falsenodeids")
    feature, mode = columns["featureids"], columns["modes"]
    sets = _merge_chains(mode, feature, split, true, false)
    nodes = Nodes(
        tree=np.repeat(np.arange(starts.size), np.diff(np.append(starts, n))),
        roots=starts,
        feature=feature,
        mode=mode,
        split=split.astype(dtype),
        true=true,
        false=false,
        tracks_true=columns["missing_value_tracks_true"] == 1,
        sets=sets,
    )
    return nodes, node_index


def _merge_chains(
    mode: Array, feature: Array, split: Array, true: Array, false: Array
) -> dict[int, Array]:
    """Merge chains of `x == a, else x == b ...` with one true branch into sets.

    onnxmltools writes LightGBM's categorical splits as such chains. `mode` and `false` change in
    place; the other nodes of a chain no longer have a parent.
    """
    equal = mode == EQ
    after = np.where(equal, false, 0)
    joins = equal & equal[after] & (feature == feature[after]) & (true == true[after])
    joins &= after != np.arange(mode.size)
    inside = np.zeros(mode.size, bool)
    inside[after[joins]] = True
    sets: dict[int, Array] = {}
    for head in np.flatnonzero(joins & ~inside):
        members, node = [split[head]], head
        while joins[node]:
            node = after[node]
            members.append(split[node])
        sets[int(head)] = np.array(members)
        mode[head], false[head] = MEMBER, false[node]
    return sets


@dataclass(frozen=True, slots=True, eq=False)
class Leaves:
    """The weights of E leaves: arrays (E,) of node, output column and weight."""

    node: Array
    column: Array
    weight: Array


def read_classic_leaves(
    call: Call, index_of: dict[tuple[int, int], int], prefix: str, dtype: DType
) -> Leaves:
    """Read the leaves of a TreeEnsembleClassifier ("class") or Regressor ("target").

    Args:
        call: the node of the graph.
        prefix: of the attributes.
        index_of: the index of (tree, node id) from `read_classic_nodes`.
        dtype: of the weights.
    """
    trees = call.vector(f"{prefix}_treeids", "int64")
    numbers = call.vector(f"{prefix}_nodeids", "int64")
    column = call.vector(f"{prefix}_ids", "int64")
    wide = call.attr(f"{prefix}_weights_as_tensor")
    weight = call.vector(f"{prefix}_weights") if wide is None else np.asarray(wide).ravel()
    if not trees.size == numbers.size == column.size == weight.size:
        raise ArtifactError(f"operator {call.node.op}: its leaves' weights do not fit")
    nodes = [index_of.get(k, -1) for k in zip(trees.tolist(), numbers.tolist(), strict=True)]
    if -1 in nodes:
        raise ArtifactError(f"operator {call.node.op}: a weight belongs to no node")
    return Leaves(np.array(nodes, np.int64), column, weight.astype(dtype))


def read_modern_nodes(call: Call, dtype: DType) -> tuple[Nodes, Leaves]:
    """Read the trees of a TreeEnsemble, which numbers leaves separately; here they follow."""
    roots = call.vector("tree_roots", "int64")
    feature = call.vector("nodes_featureids", "int64")
    n = feature.size
    arrays = {k: call.attr(k) for k in ("nodes_modes", "nodes_splits", "leaf_weights")}
    if not all(isinstance(a, np.ndarray) and a.ndim == 1 for a in arrays.values()):
        raise ArtifactError("TreeEnsemble: modes, splits or weights are not tensors")
    weight = arrays["leaf_weights"].astype(dtype)
    column = call.vector("leaf_targetids", "int64")
    count = weight.size
    codes = arrays["nodes_modes"].astype(np.int64)
    tracks = call.vector("nodes_missing_value_tracks_true", "int64")
    tracks = tracks if tracks.size else np.zeros(n, np.int64)
    children = {}
    for side in ("true", "false"):
        position = call.vector(f"nodes_{side}nodeids", "int64")
        is_leaf = call.vector(f"nodes_{side}leafs", "int64")
        if position.size != n or is_leaf.size != n:
            raise ArtifactError("TreeEnsemble: its branches do not fit")
        if n and (position.min() < 0 or (position >= np.where(is_leaf == 1, count, n)).any()):
            raise ArtifactError("TreeEnsemble: a branch leads nowhere")
        children[side] = np.where(is_leaf == 1, n + position, position)
    sizes = (codes.size, arrays["nodes_splits"].size, tracks.size)
    if set(sizes) != {n} or column.size != count or not roots.size:
        raise ArtifactError("TreeEnsemble: its arrays do not fit")
    if n == 0 or codes.min() < 0 or codes.max() > 6 or roots.min() < 0 or roots.max() >= n:
        raise ArtifactError("TreeEnsemble: an unknown mode or root")
    same = children["true"] == children["false"]
    if same.any():  # a single leaf is written as a node with one child
        doubled = children["false"][same]
        if (doubled < n).any():
            raise ArtifactError("TreeEnsemble: a node has one child twice")
        children["false"][same] = n + count + np.arange(doubled.size)
        weight = np.concatenate([weight, weight[doubled - n]])
        column = np.concatenate([column, column[doubled - n]])
    total = weight.size
    ends = np.zeros(total, np.int64)
    nodes = Nodes(
        tree=_find_owners(roots, children, n, total),
        roots=roots,
        feature=np.concatenate([feature, ends]),
        mode=np.concatenate([codes, np.full(total, LEAF)]),
        split=np.concatenate([arrays["nodes_splits"].astype(dtype), ends.astype(dtype)]),
        true=np.concatenate([children["true"], ends - 1]),
        false=np.concatenate([children["false"], ends - 1]),
        tracks_true=np.concatenate([tracks == 1, ends == 1]),
        sets=_read_member_sets(call, codes),
    )
    return nodes, Leaves(n + np.arange(total), column, weight)


def _find_owners(roots: Array, children: dict[str, Array], n: int, leaves: int) -> Array:
    """Return the tree of each node, level by level; bounded, because there may be cycles."""
    owner = np.zeros(n + leaves, np.int64)
    owner[roots] = np.arange(roots.size)
    level = roots
    visited = np.zeros(n + leaves, bool)
    while level.size:
        if visited[level].any():
            raise ArtifactError("TreeEnsemble: a node has two parents, or there is a cycle")
        visited[level] = True
        inner = level[level < n]
        below = np.concatenate([children["true"][inner], children["false"][inner]])
        owner[below] = np.tile(owner[inner], 2)
        level = below
    return owner


def _read_member_sets(call: Call, codes: Array) -> dict[int, Array]:
    """Return the sets of membership_values, one per BRANCH_MEMBER node, which NaN separates."""
    members = np.flatnonzero(codes == MEMBER)
    if not members.size:
        return {}
    values = call.attr("membership_values")
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f":
        raise ArtifactError("TreeEnsemble: its sets are not a tensor of numbers")
    ends = np.flatnonzero(np.isnan(values.ravel()))
    if ends.size != members.size:
        raise ArtifactError("TreeEnsemble: a set is missing")
    starts = np.concatenate([[0], ends[:-1] + 1])
    flat = values.ravel()
    return {int(m): flat[s:e] for m, s, e in zip(members, starts, ends, strict=True)}


MAX_CATEGORY = 1 << 16
"""The largest category that a BRANCH_EQ node may test for."""


def _sum_leaves(call: Call, x: Value, nodes: Nodes, leaves: Leaves, outputs: int) -> Value:
    """Return the sum of the leaves' weights, (n, outputs), or each tree's own output."""
    x, raw, compare = _build_tests(call, x, nodes)
    if leaves.column.size and (leaves.column.min() < 0 or leaves.column.max() >= outputs):
        raise ArtifactError(
            f"operator {call.node.op}: a leaf adds to an output that does not exist"
        )
    if not raw.leaf[leaves.node].all():
        raise Uncovered("an inner node has a weight")
    trees = nodes.roots.size
    lowest = np.full(trees, outputs, np.int64)
    highest = np.full(trees, -1, np.int64)
    owner = nodes.tree[leaves.node]
    np.minimum.at(lowest, owner, leaves.column)
    np.maximum.at(highest, owner, leaves.column)
    lowest = np.where(highest < 0, 0, lowest)
    single = bool((highest <= lowest).all())
    width = 1 if single else outputs
    target = lowest if single else np.zeros(trees, np.int64)
    if nodes.mode.size * width > 1 << 28:
        raise ArtifactError(f"operator {call.node.op}: its leaves are too large")
    value = np.zeros((nodes.mode.size, width), leaves.weight.dtype)
    np.add.at(value, (leaves.node, leaves.column - target[owner]), leaves.weight)
    base = np.zeros(outputs, leaves.weight.dtype)
    try:
        trees_of = build_ensemble(
            replace(raw, value=value), target=target, base=base, compare=compare
        )
        return call.op("tree_ensemble", x, **trees_of.attrs())
    except ProgramError as error:
        raise ArtifactError(f"operator {call.node.op}: {error}") from None


def _build_tests(call: Call, x: Value, nodes: Nodes) -> tuple[Value, RawTrees, str]:
    """Return the input, the nodes as tests of an Ensemble without values, and its comparison."""
    mode, split = nodes.mode, nodes.split
    inner = mode != LEAF
    if inner.any() and (
        nodes.feature[inner].min() < 0 or nodes.feature[inner].max() >= x.type.width
    ):
        raise ArtifactError(f"operator {call.node.op} tests a feature that does not exist")
    if np.isnan(split[inner]).any():
        raise Uncovered("a threshold is NaN")
    # x >= t is the opposite of x < t, so the branches are swapped.
    turned = np.isin(mode, (GTE, GT, NEQ))
    below = np.isin(mode, (LT, GTE))
    reached = _find_reached(nodes)
    exact = np.isin(mode, (EQ, NEQ, MEMBER)) & reached
    ordered = inner & ~exact & reached
    compare = "lt" if bool(below[ordered].all()) and ordered.any() else "le"
    if compare == "le" and below.any():
        if np.isneginf(split[below & inner]).any():
            raise Uncovered("a threshold is minus infinity")
        split = np.where(below, np.nextafter(split, split.dtype.type(-np.inf)), split)
    default_left = np.where(turned, ~nodes.tracks_true, nodes.tracks_true)
    # `!=` holds for NaN regardless of missing_value_tracks_true.
    default_left = np.where(mode == NEQ, False, default_left)
    sets: dict[int, Array] = {}
    if exact.any():
        x, sets = _build_exact_columns(call, x, nodes, exact)
        split = np.where(exact, 0, split).astype(split.dtype)
    raw = RawTrees(
        roots=nodes.roots,
        feature=nodes.feature,
        threshold=split,
        left=np.where(turned, nodes.false, nodes.true),
        right=np.where(turned, nodes.true, nodes.false),
        leaf=~inner,
        default_left=default_left & inner,
        value=np.zeros((mode.size, 0)),
        sets=sets or None,
    )
    return x, raw, compare


def _find_reached(nodes: Nodes) -> Array:
    """Return which nodes have a parent or are roots."""
    reached = np.zeros(nodes.mode.size, bool)
    reached[nodes.roots] = True
    for children in (nodes.true, nodes.false):
        reached[children[children >= 0]] = True
    return reached


def _build_exact_columns(
    call: Call, x: Value, nodes: Nodes, exact: Array
) -> tuple[Value, dict[int, Array]]:
    """Return the input and sets for tests of equality with integers; others become -1."""
    used = np.unique(nodes.feature[exact])
    ordered = (nodes.mode != LEAF) & ~exact & _find_reached(nodes)
    if np.isin(used, nodes.feature[ordered]).any():
        raise Uncovered("a feature is tested both for order and for equality")
    sets: dict[int, Array] = {}
    for i in np.flatnonzero(exact):
        members = nodes.sets.get(int(i), nodes.split[i : i + 1])
        is_integer = members[members == np.trunc(members)]
        if is_integer.size != members.size or (members < 0).any() or (members > MAX_CATEGORY).any():
            raise Uncovered("a node tests for equality with something other than a small integer")
        sets[int(i)] = is_integer.astype(np.int64)
    dtype = x.type.dtype
    whole_x = call.op("or", call.op("eq", x, call.op("trunc", x)), call.op("isnan", x))
    columns = call.op("where", whole_x, x, call.scalar(-1, dtype))
    mask = np.isin(np.arange(x.type.width), used)
    return call.op("where", call.builder.constant(mask), columns, x), sets


def _input(call: Call) -> Value:
    x = call.rows(0)
    if len(x.inner) != 1:
        raise Uncovered("its input is not a table")
    return x.value if x.dtype == "float64" else call.cast(x.value, "float32")


def _aggregate(call: Call, x: Value, how: str, outputs: int, nodes: Nodes, leaves: Leaves) -> Value:
    """Aggregate the trees by sum, average, minimum or maximum, before base_values."""
    if how in ("SUM", "AVERAGE"):
        total = _sum_leaves(call, x, nodes, leaves, outputs)
        if how == "SUM":
            return total
        return call.op("div", total, call.scalar(nodes.roots.size, total.type.dtype))
    if how not in ("MIN", "MAX"):
        raise ArtifactError(f"operator {call.node.op}: unknown aggregate_function {how!r}")
    if outputs != 1:
        raise Uncovered(f"{how} over trees with several outputs")
    covered = np.zeros(nodes.mode.size, bool)
    covered[leaves.node] = True
    if not covered[nodes.mode == LEAF].all():
        raise Uncovered(f"{how} over trees with leaves without a weight")
    leaves_by_tree = Leaves(leaves.node, nodes.tree[leaves.node], leaves.weight)
    return call.op(
        how.lower(), _sum_leaves(call, x, nodes, leaves_by_tree, nodes.roots.size), axis=1
    )


def _based(call: Call, total: Value, base: Array) -> Value:
    if not base.size:
        return total
    if base.size != total.type.width:
        raise Uncovered(f"{base.size} base_values for {total.type.width} outputs")
    return call.op("add", total, call.builder.constant(base.astype(total.type.dtype)))


def _base(call: Call) -> Array:
    wide = call.attr("base_values_as_tensor")
    return call.vector("base_values") if wide is None else np.asarray(wide).ravel()


def convert_regressor(call: Call) -> Item:
    """Convert TreeEnsembleRegressor: float32 (n, n_targets)."""
    x = _input(call)
    outputs = call.integer("n_targets", 1)
    if not 0 < outputs <= 1 << 16:
        raise ArtifactError(f"operator {call.node.op} has {outputs} targets")
    nodes, index_of = read_classic_nodes(call, x.type.dtype)
    leaves = read_classic_leaves(call, index_of, "target", x.type.dtype)
    how = call.text("aggregate_function", "SUM")
    total = _aggregate(call, x, how, outputs, nodes, leaves)
    total = _based(call, total, _base(call))
    name = post_transform(call)
    if outputs == 1:  # onnxruntime has no other transform for one target
        result = apply_transform(call, total, name) if name == "PROBIT" else total
    else:
        result = apply_transform(call, total, name)
    return Rows(call.cast(result, "float32"), (outputs,))


def convert_classifier(call: Call) -> tuple[Item, ...]:
    """Convert TreeEnsembleClassifier to labels (n,) and scores (n, classes)."""
    x = _input(call)
    values = read_class_values(call, "classlabels_int64s", "classlabels_strings")
    nodes, index_of = read_classic_nodes(call, x.type.dtype)
    leaves = read_classic_leaves(call, index_of, "class", x.type.dtype)
    base, name = _base(call), post_transform(call)
    used = np.unique(leaves.column)
    if len(values) < 2 or not used.size:
        raise Uncovered("it has fewer than two classes")
    if len(values) == 2:
        if used.size == 1 and used[0] in (0, 1):
            return _binary(call, x, nodes, leaves, base, name, values)
        raise Uncovered("two classes with weights of their own")
    if base.size not in (0, len(values)):
        raise Uncovered(f"{base.size} base_values for {len(values)} classes")
    if not base.size and not _are_all_classes_weighted(nodes, leaves, len(values)):
        raise Uncovered("some leaves have no weight for a class")
    scores = _based(call, _sum_leaves(call, x, nodes, leaves, len(values)), base)
    label = Choice(argmax(call, scores), values, ())
    return label, Rows(call.cast(apply_transform(call, scores, name), "float32"), (len(values),))


def _are_all_classes_weighted(nodes: Nodes, leaves: Leaves, classes: int) -> bool:
    """Return whether every row gets a weight for every class; onnxruntime differs otherwise."""
    weighted = np.zeros((nodes.mode.size, classes), bool)
    weighted[leaves.node, leaves.column] = True
    of_leaves = np.flatnonzero(nodes.mode == LEAF)
    always = np.ones((nodes.roots.size, classes), bool)
    np.logical_and.at(always, nodes.tree[of_leaves], weighted[of_leaves])
    return bool(always.any(axis=0).all())


def _binary(
    call: Call, x: Value, nodes: Nodes, leaves: Leaves, base: Array, name: str, values: Array
) -> tuple[Item, ...]:
    """Convert two classes with one score, which belongs to the second class."""
    if base.size > 1 or (base.size and leaves.column[0] == 1):
        raise Uncovered("two classes with base_values of their own")
    if not _are_all_classes_weighted(
        nodes, Leaves(leaves.node, leaves.column * 0, leaves.weight), 1
    ):
        raise Uncovered("some leaves have no weight")
    positive = bool((leaves.weight >= 0).all())
    single = Leaves(leaves.node, leaves.column * 0, leaves.weight)
    score = _based(call, _sum_leaves(call, x, nodes, single, 1), base)
    if leaves.column[0] == 1:
        raise Uncovered("two classes, of which only the second has weights")
    limit = call.scalar(0.5 if positive else 0, score.type.dtype)
    label = Choice(call.cast(call.op("gt", score, limit), "int64"), values, ())
    both = expand_score(call, score, name, mixed=not positive)
    return label, Rows(call.cast(both, "float32"), (2,))


def convert_ensemble(call: Call) -> Item:
    """Convert TreeEnsemble of opset 5: (n, n_targets) in the dtype of the input."""
    x = call.rows(0)
    if len(x.inner) != 1 or x.dtype not in ("float32", "float64"):
        raise Uncovered("its input is not a table of float32 or float64")
    dtype = x.dtype
    outputs = call.integer("n_targets", 1)
    how = ("AVERAGE", "SUM", "MIN", "MAX")
    number = call.integer("aggregate_function", 1)
    name = call.integer("post_transform", 0)
    names = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
    if not (0 <= number < 4 and 0 <= name < 5 and 0 < outputs <= 1 << 16):
        raise ArtifactError("TreeEnsemble: an attribute has an unknown value")
    nodes, leaves = read_modern_nodes(call, dtype)
    total = _aggregate(call, x.value, how[number], outputs, nodes, leaves)
    chosen = names[name]
    if outputs > 1 or chosen == "PROBIT":
        total = apply_transform(call, total, chosen)
    return Rows(total, (outputs,))
